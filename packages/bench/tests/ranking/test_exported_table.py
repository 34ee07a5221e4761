"""The exported table, read and checked; and tables as LaTeX."""

import gzip

import numpy as np
import pandas as pd
import pytest

from muddle.errors import DataFormatError
from muddle_bench.ranking import COLUMNS, list_metrics, rank_methods, read_table, to_latex

RECORD = {"dataset": "servo", "method": "ridge", "family": "GLM", "r2": 0.5}


def test_csv_plain_and_gzipped_read_alike_sorted_and_a_method_may_be_called_nan(table_of, tmp_path):
    table = table_of(RECORD, {**RECORD, "split": 1, "status": "failed", "reason": "a, b", "r2": ""})
    plain, packed = tmp_path / "t.csv", tmp_path / "t.csv.gz"
    table.to_csv(plain, index=False)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    pd.testing.assert_frame_equal(read_table(plain), read_table(packed))
    pd.testing.assert_frame_equal(read_table(str(plain)), read_table(table))
    assert read_table(plain)["reason"].tolist() == ["", "a, b"]
    table_of({**RECORD, "method": "nan"}).to_csv(plain, index=False)
    assert read_table(plain)["method"].tolist() == ["nan"]
    table = table_of({**RECORD, "split": 10}, {**RECORD, "split": 2}).assign(mood="good")
    read = read_table(table)
    assert read["split"].tolist() == [2, 10]
    assert list(read) == COLUMNS
    assert "mood" in table  # the caller's frame is as it was
    assert list_metrics(read_table(table_of(RECORD))) == ["r2"]


def test_missing_empty_and_damaged_files_and_empty_tables_are_refused(tmp_path, table_of):
    with pytest.raises(FileNotFoundError, match=r"no exported table .*t\.csv\. `muddle benchmark"):
        read_table(tmp_path / "t.csv")
    path = tmp_path / "t.csv"
    path.write_text("")
    with pytest.raises(DataFormatError, match="must be a CSV file"):
        read_table(path)
    with pytest.raises(DataFormatError, match="at least one record"):
        read_table(table_of(RECORD).iloc[:0])
    path = tmp_path / "t.csv.gz"
    for content in (b"no gzip", gzip.compress(b"0123" * 99)[:15], gzip.compress(b"a")[:10] + b"?"):
        path.write_bytes(content)
        with pytest.raises(DataFormatError, match="must be a CSV file"):
            read_table(path)


def test_a_missing_column_is_named_but_tables_without_ece_are_ranked(table_of, tmp_path):
    table = table_of(RECORD).rename(columns={"accuracy": "acuracy"})
    with pytest.raises(DataFormatError, match=r"lacks accuracy\. Did you mean 'acuracy'\?"):
        read_table(table)
    skipped = {**RECORD, "method": "ols", "status": "skipped", "r2": "", "rows_hash": ""}
    assert len(read_table(table_of(RECORD, skipped))) == 2
    records = [
        {"dataset": "wine", "method": method, "task": "classification", "accuracy": accuracy}
        for method, accuracy in (("a", 0.8), ("b", 0.9))
    ]
    old = table_of(*records).drop(columns=["ece", "details"])
    old.to_csv(tmp_path / "old.csv", index=False)
    read = read_table(tmp_path / "old.csv")
    assert list(read) == COLUMNS
    assert read["ece"].isna().all()
    assert read["details"].eq("").all()
    assert list_metrics(read) == list_metrics(old) == ["accuracy"]
    for table in (read, old):  # a frame that was not passed through read_table as well
        assert rank_methods(table, "accuracy", n_resamples=1)["method"].tolist() == ["b", "a"]
        with pytest.raises(ValueError, match="at least one score of ece, and has none"):
            rank_methods(table, "ece")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"status": "OK"}, r"status must be one of ok, .*got 'OK' for ridge on servo, split 0"),
        ({"task": "ranking"}, "task must be one of regression, classification, got 'ranking'"),
        ({"r2": "half"}, "r2 must hold finite numbers or nothing, got 'half' in record 1"),
        ({"r2": ""}, "a record with status ok must have r2, and ridge on servo, split 0 has none"),
        ({"split": 0.5}, r"split must be a whole number from 0, got 0\.5"),
        ({"family": ""}, "family must not be empty, and is for ridge on servo"),
    ],
)
def test_bad_record_is_named(table_of, wrong, message):
    with pytest.raises(DataFormatError, match=message):
        read_table(table_of({**RECORD, **wrong}))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({}, "ridge on servo, split 0 is there more often"),
        ({"split": 1, "family": "RF"}, "method 'ridge' must have one family, got GLM and RF"),
        (
            {"method": "ols", "task": "classification", "accuracy": 1, "split": 1},
            "dataset 'servo' must have one task, got classification and regression",
        ),
        ({"method": "ols", "rows_hash": "other"}, "split 0 of servo .* 2 different rows_hash"),
    ],
)
def test_records_that_contradict_each_other_are_refused(table_of, second, message):
    with pytest.raises(DataFormatError, match=message):
        read_table(table_of(RECORD, {**RECORD, **second}))


def test_recipes_metrics_and_tasks_that_cannot_be_ranked_are_named(table_of):
    table = read_table(table_of(RECORD, {**RECORD, "recipe": "clean"}))
    with pytest.raises(ValueError, match=r"has clean and published\. Choose one"):
        rank_methods(table, "r2")
    with pytest.raises(ValueError, match="Did you mean 'accuracy'"):
        rank_methods(read_table(table_of(RECORD)), "acuracy")
    with pytest.raises(ValueError, match="must hold records of classification, and has none"):
        rank_methods(read_table(table_of(RECORD)), "auc")


def test_latex_has_rules_sides_digits_caption_and_label():
    frame = pd.DataFrame(
        {"method": ["mlr_1", "a & b"], "n_pairs": [160, 20], "mean": [-0.5, np.nan]}
    )
    assert to_latex(frame).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & n pairs & mean \\",
        r"\midrule",
        r"mlr\_1 & 160 & $-$0.500 \\",
        r"a \& b & 20 & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    lines = to_latex(pd.DataFrame({"x": [1]}), caption="R² of 5 %", label="tab:r2").splitlines()
    assert lines[0] == r"\begin{table}"
    assert lines[2:4] == [r"\caption{R\textsuperscript{2} of 5 \%}", r"\label{tab:r2}"]
    assert lines[-1] == r"\end{table}"
    text = to_latex(pd.DataFrame({"x": [r"\ ~ ^ & % $ # _ { } < >"]})).splitlines()[4]
    assert text == (
        r"\textbackslash{} \textasciitilde{} \textasciicircum{} \& \% \$ \# \_ \{ \} "
        r"\textless{} \textgreater{} \\"
    )
