"""What the words of the page mean, for a reader who has not read the paper."""

TERMS = (
    ("Cell", "One method on one split of one data set: a fit, a prediction, its scores."),
    (
        "Split",
        "80 % of the rows to learn from and 20 % to be tested on, drawn by a seed; split 3 of a "
        "data set has the same rows for every method.",
    ),
    (
        "Pair",
        "One data set with one split: what methods are compared on. Pairs that have not been run "
        "for all of them yet do not count.",
    ),
    (
        "R², accuracy, AUC",
        "R²: 1 less the squared error over that of the mean. Accuracy: share of rows with the "
        "right class. AUC: of two rows, how often the one of the class gets the higher score. "
        "1 is perfect.",
    ),
    (
        "Log-loss, Brier score",
        "How far predicted probabilities are from what happened; smaller is better, and only "
        "methods that give probabilities have them.",
    ),
    (
        "Calibration error",
        "Whether of the rows given 70 %, 70 % come true: rows in ten bins of equal count by the "
        "probability of the second class (of more classes, of the most probable one), mean "
        "distance between probability and share that came true. Smaller is better; but frequencies "
        "of the classes, the same for every row, are well calibrated and of no use: read it beside "
        "the log-loss.",
    ),
    (
        "Mean rank",
        "On each pair the methods are put in order, 1 the best, ties sharing their mean rank; the "
        "mean over pairs (Friedman rank). A method's rank depends on who else takes part.",
    ),
    (
        "95 % interval",
        "Bootstrap: data sets are drawn with replacement, then splits within each, 2000 times.",
    ),
    (
        "PMA",
        "Share of the best score on the pair (percentage of the maximum achieved), averaged. Left "
        "out where the best score is not above 0, and for scores of which less is better.",
    ),
    ("P90, P95, P98", "Share of the pairs on which PMA is above 90, 95 or 98 %."),
    (
        "Win rate",
        "Of all duels with another method on a pair, the share that is won; a tie is half a win.",
    ),
    (
        "Fit, s",
        "Median wall time of a fit in seconds, with the threads of the machine table. †: several "
        "methods are answered by one fit, and each is given the whole fit's time.",
    ),
    (
        "Imputed",
        "Cells that failed or timed out count with the score of the baseline (mean or class "
        "frequencies) on that pair; by calibration error, of which the baseline has little, they "
        "count as missing. Methods that lack more than a tenth of the pairs for other reasons are "
        "not ranked.",
    ),
    (
        "Class",
        "A family of methods, represented on each data set by one member. Chosen on the test "
        "score, as in the paper, a class of many members looks better than any method one could "
        "use.",
    ),
    (
        "Critical difference",
        "How far two mean ranks must lie apart for Nemenyi's test to call them different at the "
        "5 % level, given so many methods and data sets.",
    ),
    (
        "z",
        "Difference between our mean and the published one over its standard error, from the "
        "scatter over splits on both sides.",
    ),
)
