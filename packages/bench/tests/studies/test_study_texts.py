"""Studies in words: every number comes from the table, checked by hand."""

import math

import pytest

from muddle_bench.studies import study_texts
from muddle_bench.studies.points import STUDIES


def test_a_difference_is_clear_beyond_two_standard_errors_and_one_split_is_no_evidence(study_table):
    # sqrt(0.01² + 0.01²) = 0.01414: 0.028 is within two of them, 0.029 is not.
    rows = [("a", "1*", 0.5), ("a", "2", 0.528), ("a", "3", 0.529), ("a", "4", 0.471)]
    compared = study_texts.compare_default(study_table(rows))
    assert compared["clear"].tolist() == [False, True, True]
    assert compared["difference"].tolist() == pytest.approx([0.028, 0.029, -0.029])
    rows = [("a", "1*", 0.5), ("a", "2", 0.9)]
    text = study_texts.describe_default(study_table(rows, score_se=math.nan))
    assert text.endswith(
        "With one split there are no standard errors, so this is not evidence yet."
    )
    assert study_texts.describe_default(study_table(rows[1:])).startswith(
        "The default was not measured"
    )


@pytest.mark.parametrize(
    ("scores", "texts"),
    [
        # Default and other value on each data set.
        (
            [(0.5, 0.4), (0.5, 0.52)],
            ["The default has the best score on 1 of 2 data sets; on 1 more, no value is better by "
             "more than two standard errors. Nothing speaks against the default."],
        ),
        (
            [(0.5, 0.6), (0.5, 0.49)],
            ["on 1 of 2 data sets; on 0 more", "Clearly better: 2 on a (0.600 against 0.500).",
             "2 is clearly better than the default on 1 of 2 data sets, clearly worse on none, and "
             "better by 0.045 ± 0.010 in the mean: it is a candidate for the default."],
        ),
        # Better by 0.04 on one, which is clear; in the mean by 0.01 ± 0.0071, which is not.
        (
            [(0.5, 0.54), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)],
            ["Clearly better: 2 on a (0.540 against 0.500).",
             "None of these values is clearly better than the default in the mean"],
        ),
        (
            [(0.5, 0.6), (0.5, 0.4)],
            ["is clearly worse than the default on another data set, so there is no reason to "
             "change the default."],
        ),
    ],
    ids=["default is best", "candidate", "chance", "harm elsewhere"],
)  # fmt: skip
def test_the_default_beside_another_value(study_table, scores, texts):
    rows = [(dataset, value, score) for dataset, pair in zip("abcd", scores, strict=False)
            for value, score in zip(("1*", "2"), pair, strict=True)]  # fmt: skip
    found = study_texts.describe_default(study_table(rows))
    for text in texts:
        assert text in found
    assert ("candidate" in found) == any("candidate" in text for text in texts)


def test_means_count_the_default_once_and_steps_are_compared_with_the_published_order(study_table):
    table = study_table([("a", "16", 0.2), ("a", "64", 0.9), ("a", "103*", 0.4), ("b", "16", 0.4),
                         ("b", "546*", 0.8)])  # fmt: skip
    (text,) = study_texts.describe_means(table)
    assert "over 2 data sets" in text
    assert text.endswith("16: 0.300; default: 0.600. The highest is default.")
    (text,) = study_texts.describe_means(table.replace({"value": {"103": "n", "546": "n"}}))
    assert "default n: 0.600" in text
    rows = [("a", "FFNN", 0.1), ("a", "MLR*", 0.3), ("mean", "FFNN", 0.9), ("mean", "MLR*", 0.3)]
    texts = study_texts.describe_study(study_table(rows), STUDIES["ablation"])
    assert texts[0] == STUDIES["ablation"].about
    assert texts[1].startswith("The default has the best score on 1 of 1 data set;")
    rows = [
        ("mean", "FFNN", 0.1, -0.1),
        ("mean", "+ Ridge", 0.32, 0.3),
        ("mean", "MLR*", 0.31, 0.4),
    ]
    table = study_table(rows, bag=[0.1, 0.2, 0.3], bag_published=[0.0, 0.1, 0.2])
    assert study_texts.describe_order(table) == [
        "Single nets, mean over data sets: the order of the steps is not the published one: MLR "
        "minus + Ridge is −0.010, within two standard errors, published +0.100.",
        "Bags, mean over data sets: the order of the steps is the published one.",
    ]
    rows = [("a", "1*", 0.5, 0.51), ("a", "2", 0.6, 0.8), ("b", "1*", 0.7)]
    assert study_texts.describe_published(study_table(rows)) == (
        "2 of 3 rows have a published value. The median absolute difference is 0.105, the largest "
        "difference −0.200 (a at 2: 0.600, published 0.800)."
    )
    assert (
        study_texts.describe_published(study_table(rows[2:]))
        == "The paper has no numbers of this study."
    )
    rows = [("a", "1*", 0.5), ("a", "2", 0.6)]
    assert study_texts.describe_seconds(study_table(rows, seconds=[2.0, 54.3])) == (
        "A split takes between 2.0 s (a at 1) and 54 s (a at 2), in the median 2.0 s with the "
        "default."
    )
    assert (
        study_texts.describe_seconds(study_table(rows, seconds=[2.0, 54.3], hardware=["x", "y"]))
        == ""
    )


def test_conditions_gaps_marks_at_the_edge_and_warnings(study_table):
    rows = [("a", "1*", 0.5), ("a", "2", math.nan)]
    table = study_table(rows, n_splits=[10, 0], n_nets=[100, 0], hardware=["a CPU", ""])
    assert study_texts.describe_conditions(table) == (
        "10 splits with 100 nets in all for each point, on a CPU, commit abc1234. No score yet: "
        "1 of 2 rows."
    )
    table = study_table([("a", "1*", 0.5, -0.7), ("a", "2", -33.05)])
    assert study_texts.describe_off_scale(table, -0.5) == (
        "Below −0.5, drawn at the edge: a at 1: published −0.700; a at 2: here −33.050."
    )
    assert study_texts.describe_off_scale(table[:1].assign(score_published=0.1), -0.5) == ""
    rows = [("a", str(value), 0.5) for value in range(10)]
    texts = study_texts.describe_warnings(
        study_table(rows, warning=["", *["diverged: 1 of 100 nets"] * 9])
    )
    assert texts[0] == "a at 1: diverged: 1 of 100 nets"
    assert len(texts) == 9
    assert texts[-1] == "1 more, in the table"
