"""The parts of the page, in the order a reader asks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from muddle.page import figures
from muddle.page.facts import Classes, Facts, Numbers
from muddle.page.finding import Finding, format_share
from muddle.page.formats import (
    MISSING,
    count,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    is_missing,
)
from muddle.page.model import Figure, Table, number_column, text_column
from muddle.page.tables import (
    describe_values,
    format_figure,
    name_column,
    tabulate_confusion,
    tabulate_pairs,
    tabulate_targets,
)

MOST_ROWS = 100  # of a table
MOST_OUTPUTS = 6  # of several targets that are drawn
MOST_CONFUSED = 20  # classes of a square table; of more, the pairs that are mixed up most
MOST_KINDS = 6
COVERAGES = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Part:
    """One section of the page."""

    id: str
    title: str
    paragraphs: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def build_parts(facts: Facts) -> list[Part]:
    """All sections between the summary and how to use the model."""
    return [
        build_warnings(facts),
        build_data(facts),
        build_preprocessing(facts),
        build_leaderboard(facts),
        build_learning(facts),
        *build_outcome(facts),
        build_importances(facts),
    ]


def build_warnings(facts: Facts) -> Part:
    paragraphs = []
    if not facts.findings:
        paragraphs.append("Nothing odd was found.")
    if facts.table is None or facts.target is None:
        paragraphs.append(
            "Leaks, repeated rows and extreme targets were not looked for: that needs the table, "
            "model.report(path, X, y)."
        )
    return Part("warnings", "Warnings", tuple(paragraphs), facts.findings)


def build_data(facts: Facts) -> Part:
    paragraphs = []
    described = facts.model.preprocessor_.describe()
    if facts.n_rows is not None:
        rows = count(facts.n_rows, "row")
        columns = count(len(described), "column")
        paragraphs.append(f"{rows} and {columns}, which hold: {_list_kinds(described)}.")
        n_gaps = int(described["missing"].sum())
        n_with = int((described["missing"] > 0).sum())
        if n_gaps:
            share = format_share(n_gaps / (facts.n_rows * len(described)))
            paragraphs.append(f"{share} of all values are missing, in {count(n_with, 'column')}.")
        else:
            paragraphs.append("No value is missing.")
        if facts.table is not None and facts.table.n_rows != facts.n_rows:
            paragraphs.append(
                f"The table given to this report has {count(facts.table.n_rows, 'row')}. Rows of "
                "weight 0 are left out of a fit."
            )
    if facts.task == "regression" and len(facts.target_names) > MOST_OUTPUTS:
        paragraphs.append(
            f"The first {MOST_OUTPUTS} of {len(facts.target_names)} targets are drawn."
        )
    drawn = [figures.draw_target(facts, i) for i in range(_count_outputs(facts))]
    shown = tuple(figure for figure in drawn if figure is not None)
    tables = () if shown or facts.task == "classification" else tabulate_targets(facts)
    return Part("data", "Data", tuple(paragraphs), (), shown, tables)


def build_preprocessing(facts: Facts) -> Part:
    described = facts.model.preprocessor_.describe()
    n_features = int(described["features"].sum())
    n_ignored = int((described["features"] == 0).sum())
    text = f"{count(len(described), 'column')} became {count(n_features, 'feature')} of the nets."
    if n_ignored:
        text += f" {count(n_ignored, 'column')} {'is' if n_ignored == 1 else 'are'} not used."
    frame = described.reset_index()
    frame["values"] = describe_values(facts, frame["column"].tolist())
    importances = facts.importances
    frame["importance"] = np.nan if importances is None else importances
    title = "What became of each column"
    if len(frame) > MOST_ROWS:
        by = "the first" if importances is None else "the most important"
        text += f" {MOST_ROWS} columns are listed, {by}."
        if importances is not None:
            frame = frame.sort_values("importance", ascending=False, kind="stable")
        frame = frame.head(MOST_ROWS).reset_index(drop=True)
    columns = [
        name_column("column", "Column"),
        text_column("holds", "Holds"),
        number_column("missing", "Missing", "Rows without a value.", format_count),
        name_column("values", "Values", wide=True),
        text_column("treatment", "Became", wide=True),
        number_column("features", "Features", "Inputs of the nets.", format_count),
    ]
    if importances is not None:
        columns.append(
            number_column("importance", "Importance", "As in the section on importances.")
        )
    table = Table("columns", title, frame, tuple(columns))
    return Part("preprocessing", "Preprocessing", (text,), tables=(table,))


def build_leaderboard(facts: Facts) -> Part:
    board = facts.leaderboard
    if board is None:
        score = format_number(facts.model.validation_score_)
        text = (
            f"There is one net, of depth {facts.model.depth}: {facts.score_name} of its "
            f"validation rows {score}, at iteration {facts.model.best_iteration_} of "
            f"{facts.model.n_iter_}."
        )
        return Part("leaderboard", "Leader board", (text,))
    if facts.flagship:
        text = (
            "Every configuration is trained fold by fold and judged at the end of each "
            f"learning-rate cycle, by {facts.score_name} on rows that its nets had not seen. The "
            "weights make the answer."
        )
        columns = [
            text_column("configuration", "Configuration"),
            number_column("iteration", "Iteration", "End of the cycle.", format_count),
            number_column(
                "score", f"Out-of-fold {facts.score_name}", write=lambda v: format_number(v, 4)
            ),
            number_column("weight", "Weight", "Share in the answer."),
            number_column("n_nets", "Nets", "Nets that were trained.", format_count),
            number_column("n_rounds", "Rounds", "Of cross-fitting.", format_count),
            number_column("seconds", "Seconds", "Of the configuration.", format_seconds),
            text_column("outcome", "Outcome"),
        ]
        key = "score"
    else:
        text = f"Every net is judged by {facts.score_name} on validation rows of its own."
        columns = [
            number_column("net", "Net", "", format_count),
            number_column("depth", "Depth", "Hidden layers.", format_count),
            number_column("validation_score", f"Validation {facts.score_name}"),
            number_column("weight", "Weight", "Share in the answer."),
            number_column("best_iteration", "Best iteration", "", format_count),
            number_column("n_iterations", "Iterations", "", format_count),
            number_column("penalty", "Penalty", "Of the ridge, at the best iteration."),
        ]
        key = "validation_score"
    frame = board.sort_values(key, ascending=False, kind="stable")
    frame = frame.head(MOST_ROWS).reset_index(drop=True)
    if len(board) > len(frame):
        text += f" {len(frame)} of {len(board)} rows are shown."
    table = Table("board", "Members", frame, tuple(columns), sorted={key: "descending"})
    return Part("leaderboard", "Leader board", (text,), tables=(table,))


def build_learning(facts: Facts) -> Part:
    figure = figures.draw_learning(facts)
    if figure is None:
        return Part("learning", "Learning", ("No iteration has a score to draw.",))
    return Part("learning", "Learning", figures=(figure,))


def build_outcome(facts: Facts) -> list[Part]:
    """How good it is out of fold: probabilities of classes, or predictions and their intervals."""
    if facts.task == "classification":
        if facts.classes is None:
            return [Part("classes", "Classes", (facts.why_not,))]
        return [build_classes(facts.classes)]
    if not facts.numbers:
        intervals = facts.why_not if facts.flagship else f"{facts.kind} has no intervals."
        return [
            Part("predictions", "Predictions", (facts.why_not,)),
            Part("intervals", "Intervals", (intervals,)),
        ]
    return [build_predictions(facts.numbers), build_intervals(facts.numbers)]


def build_predictions(numbers: tuple[Numbers, ...]) -> Part:
    drawn = numbers[:MOST_OUTPUTS]
    text = "Every training row, predicted by nets that had not seen it."
    if len(drawn) < len(numbers):
        text += f" The first {len(drawn)} of {len(numbers)} targets are drawn."
    shown = [
        figure
        for place, one in enumerate(drawn)
        for figure in (figures.draw_predictions(one, place), figures.draw_residuals(one, place))
    ]
    tables: tuple[Table, ...] = ()
    if len(numbers) > 1:
        frame = pd.DataFrame(
            [[one.name, one.r2, one.rmse, one.mae, one.deviation] for one in numbers],
            columns=["target", "r2", "rmse", "mae", "deviation"],
        )
        columns = (
            name_column("target", "Target"),
            number_column("r2", "R²"),
            number_column("rmse", "RMSE", "Root of the mean squared error.", format_figure),
            number_column("mae", "MAE", "Mean size of the error.", format_figure),
            number_column("deviation", "Guess", "RMSE of the mean.", format_figure),
        )
        tables = (Table("targets", "Scores of each target", frame, columns),)
    return Part("predictions", "Predictions", (text,), (), tuple(shown), tables)


def build_intervals(numbers: tuple[Numbers, ...]) -> Part:
    rows = []
    for one in numbers[:MOST_OUTPUTS]:
        for coverage in COVERAGES:
            lower, upper = one.bounds(coverage)
            width = float(np.median(upper - lower))
            rows.append([one.name, coverage, one.judge_coverage(coverage), width])
    frame = pd.DataFrame(rows, columns=["target", "asked", "covered", "width"])
    columns = [
        number_column("asked", "Asked for", write=format_percent),
        number_column("covered", "Rows within", write=_format_exact_percent),
        number_column("width", "Median width", "In units of the target.", format_figure),
    ]
    if len(numbers) > 1:
        columns.insert(0, name_column("target", "Target"))
    texts = [
        f"How many of {len(numbers[0].target):,} rows lie within their interval when its width is "
        "set by the errors of other rows only. predict_interval(X, coverage) uses the errors of "
        "all of them."
    ]
    if frame["covered"].isna().any():
        texts.append("A dash: too few rows for an interval that is not infinite.")
    table = Table("coverage", "Coverage out of fold", frame, tuple(columns))
    return Part("intervals", "Intervals", tuple(texts), tables=(table,))


def build_classes(classes: Classes) -> Part:
    roc = figures.draw_roc(classes)
    shown = (figures.draw_reliability(classes), *([roc] if roc is not None else []))
    text = "Every training row, judged by nets that had not seen it."
    if classes.weights is not None:
        text += " Scores and curves count rows by their weights, the confusion counts each once."
    if len(classes.names) <= MOST_CONFUSED:
        tables = (tabulate_confusion(classes),)
    else:
        tables = (tabulate_pairs(classes),)
    return Part("classes", "Classes", (text,), (), shown, tables)


def build_importances(facts: Facts) -> Part:
    figure = figures.draw_importances(facts)
    if figure is not None:
        return Part("importances", "Importances", figures=(figure,))
    if facts.flagship:
        text = "The time limit left no time for importances. Raise time_limit."
    else:
        text = (
            f"{facts.kind} does not measure importances. "
            "sklearn.inspection.permutation_importance does, on rows that were not trained on; "
            "MuddleRegressor and MuddleClassifier do so themselves."
        )
    return Part("importances", "Importances", (text,))


def _list_kinds(described: pd.DataFrame) -> str:
    sizes = described["holds"].replace("", "left out").value_counts()
    return ", ".join(f"{kind} ({n:,})" for kind, n in sizes.head(MOST_KINDS).items())


def _count_outputs(facts: Facts) -> int:
    return 1 if facts.task == "classification" else min(len(facts.target_names), MOST_OUTPUTS)


def _format_exact_percent(value: Any) -> str:
    return MISSING if is_missing(value) else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
