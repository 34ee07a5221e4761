"""What is said about studies: every number from the table, checked by hand."""

import math

import pandas as pd
import pytest

from muddle_bench.studies.reading import NUMBERS, TEXTS
from muddle_bench.studies.texts import (
    compare_default,
    say_conditions,
    say_default,
    say_means,
    say_off_scale,
    say_order,
    say_published,
    say_record,
    say_seconds,
    say_study,
    say_warnings,
    write,
    write_signed,
    write_value,
)
from muddle_bench.studies.topics import TOPICS


def make_table(rows, **more):
    """rows: (dataset, value, score), a star behind the default's value; standard errors of 0.01."""
    records = [
        {
            "study": "width", "dataset": dataset, "task": "regression",
            "value": value.strip("*"), "is_default": "yes" if value.endswith("*") else "no",
            "n_splits": 10, "n_nets": 100, "score": score, "score_se": 0.01, "bag_se": 0.01,
            "warning": "", "hardware": "a CPU", "commit": "abc1234",
        } | {name: values[place] for name, values in more.items()}
        for place, (dataset, value, score) in enumerate(rows)
    ]  # fmt: skip
    return pd.DataFrame(records).reindex(columns=[*TEXTS, *NUMBERS])


def test_a_difference_is_clear_beyond_two_standard_errors_of_both():
    # sqrt(0.01² + 0.01²) = 0.01414: 0.028 is within two of them, 0.029 is not.
    rows = [("a", "1*", 0.5), ("a", "2", 0.528), ("a", "3", 0.529), ("a", "4", 0.471)]
    compared = compare_default(make_table(rows))
    assert compared["clear"].tolist() == [False, True, True]
    assert compared["difference"].tolist() == pytest.approx([0.028, 0.029, -0.029])


def test_a_default_that_nothing_clearly_beats_is_left_alone():
    rows = [("a", "1*", 0.5), ("a", "2", 0.4), ("b", "1*", 0.5), ("b", "2", 0.52)]
    assert say_default(make_table(rows)) == (
        "The default has the best score on 1 of 2 data sets, and on 1 more none is better by more "
        "than two standard errors. Nothing here speaks against the default."
    )


def test_a_value_that_helps_and_harms_nowhere_is_a_candidate():
    rows = [("a", "1*", 0.5), ("a", "2", 0.6), ("b", "1*", 0.5), ("b", "2", 0.49)]
    text = say_default(make_table(rows))
    assert "on 1 of 2 data sets, and on 0 more" in text
    assert "Clearly better: 2 on a (0.600 against 0.500)." in text
    assert text.endswith(
        "2 is clearly better than the default on 1 of 2 data sets, clearly worse on none, and "
        "better in the mean by 0.045 ± 0.010: a candidate for the default."
    )


def test_one_data_set_of_many_makes_no_candidate():
    # Better by 0.04 on one, which is clear; over four in the mean by 0.01 ± 0.0071, which is not.
    rows = [(name, value, 0.54 if (name, value) == ("a", "2") else 0.5)
            for name in "abcd" for value in ("1*", "2")]  # fmt: skip
    text = say_default(make_table(rows))
    assert "Clearly better: 2 on a (0.540 against 0.500)." in text
    assert "candidate" not in text
    assert "In the mean over data sets none of these is clearly better" in text


def test_a_value_that_harms_elsewhere_is_no_candidate():
    rows = [("a", "1*", 0.5), ("a", "2", 0.6), ("b", "1*", 0.5), ("b", "2", 0.4)]
    text = say_default(make_table(rows))
    assert "candidate" not in text
    assert text.endswith("so there is no reason here to change it.")


def test_one_split_is_no_evidence():
    rows = [("a", "1*", 0.5), ("a", "2", 0.9)]
    text = say_default(make_table(rows, score_se=[math.nan] * 2))
    assert text.endswith("One split has no standard error: this is no evidence yet.")
    assert say_default(make_table(rows[1:])).startswith("No default among the values measured")


def test_means_count_the_default_as_one_value_and_leave_out_what_one_data_set_lacks():
    table = make_table([("a", "16", 0.2), ("a", "64", 0.9), ("a", "103*", 0.4), ("b", "16", 0.4),
                        ("b", "546*", 0.8)])  # fmt: skip
    (text,) = say_means(table)
    assert "over 2 data sets" in text
    assert text.endswith("16: 0.300; default: 0.600. The highest is that of default.")
    (text,) = say_means(table.replace({"value": {"103": "n", "546": "n"}}))
    assert "default n: 0.600" in text


def test_order_of_steps_against_the_published_one():
    rows = [("mean", "FFNN", 0.1), ("mean", "+ Ridge", 0.32), ("mean", "MLR*", 0.31)]
    table = make_table(rows, score_published=[-0.1, 0.3, 0.4], bag=[0.1, 0.2, 0.3],
                       bag_published=[0.0, 0.1, 0.2])  # fmt: skip
    assert say_order(table) == [
        "Single nets, mean over data sets: the order of the steps is not the published one: MLR "
        "less + Ridge is −0.010, within two standard errors, published +0.100.",
        "Bags, mean over data sets: the order of the steps is the published one.",
    ]


def test_means_over_data_sets_are_no_data_set():
    rows = [("a", "FFNN", 0.1), ("a", "MLR*", 0.3), ("mean", "FFNN", 0.9), ("mean", "MLR*", 0.3)]
    texts = say_study(make_table(rows), TOPICS["ablation"])
    assert texts[0] == TOPICS["ablation"].about
    assert texts[1].startswith("The default has the best score on 1 of 1 data set,")


def test_published_numbers_and_their_largest_difference():
    rows = [("a", "1*", 0.5), ("a", "2", 0.6), ("b", "1*", 0.7)]
    table = make_table(rows, score_published=[0.51, 0.8, math.nan],
                       difference=[-0.01, -0.2, math.nan])  # fmt: skip
    assert say_published(table) == (
        "2 of 3 rows have a published partner. The median difference is 0.105 in size, the largest "
        "−0.200 (a at 2: 0.600, published 0.800)."
    )
    assert say_published(make_table(rows)) == "The paper has no numbers for this."


def test_seconds_of_different_machines_are_not_compared():
    rows = [("a", "1*", 0.5), ("a", "2", 0.6)]
    table = make_table(rows, seconds=[2.0, 54.3])
    assert say_seconds(table) == (
        "A split takes between 2 s (a at 1) and 54 s (a at 2), in the median 2 s with the default."
    )
    assert say_seconds(make_table(rows, seconds=[2.0, 54.3], hardware=["x", "y"])) == ""


def test_conditions_and_what_is_missing():
    rows = [("a", "1*", 0.5), ("a", "2", math.nan)]
    table = make_table(rows, n_splits=[10, 0], n_nets=[100, 0], hardware=["a CPU", ""])
    assert say_conditions(table) == (
        "10 splits with 100 nets in all for each point, on a CPU, commit abc1234. No score yet: "
        "1 of 2 rows."
    )


def test_marks_at_the_edge_have_their_numbers_in_words():
    table = make_table([("a", "1*", 0.5), ("a", "2", -33.05)], score_published=[-0.7, math.nan])
    assert say_off_scale(table, -0.5) == (
        "Below −0.5, drawn at the edge: a at 1: published −0.700; a at 2: here −33.050."
    )
    assert say_off_scale(table[:1].assign(score_published=0.1), -0.5) == ""


def test_warnings_are_said_and_many_are_cut():
    rows = [("a", str(value), 0.5) for value in range(10)]
    texts = say_warnings(make_table(rows, warning=["", *["diverged: 1 of 100 nets"] * 9]))
    assert texts[0] == "a at 1: diverged: 1 of 100 nets"
    assert len(texts) == 9
    assert texts[-1] == "1 more, in the table"


def test_the_training_record_in_words():
    history = pd.DataFrame({"iteration": [0, 1, 2], "validation_score": [-0.1, 0.5, 0.4],
                            "penalty": [216.2, 100.0, 50.0]})  # fmt: skip
    assert say_record(history)[1] == (
        "The best validation score is 0.500 at iteration 1 of 2; it starts at −0.100 and ends at "
        "0.400. The penalty goes from 216.2 to 100 there, and to 50 at the end."
    )


def test_numbers_read_well():
    assert [write(-0.0001), write(-1.5), write(-2e5)] == ["0.000", "−1.500", "−2.0e+05"]
    assert [write_signed(0.02), write_signed(0.0001), write_signed(-0.02)] == [
        "+0.020", "0.000", "−0.020",
    ]  # fmt: skip
    assert [write_value(v) for v in ("0.001", "0.1", "10", "1000", "100000", "4096", "0", "n")] == [
        "10⁻³", "0.1", "10", "10³", "10⁵", "4096", "0", "n",
    ]  # fmt: skip
