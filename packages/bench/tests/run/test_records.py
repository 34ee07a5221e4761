"""Records: what they hold, and that they come back as they were written."""

import csv
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muddle.errors import DataFormatError
from muddle_bench.run.records import (
    COLUMNS,
    LONGEST_REASON,
    Record,
    now,
    read_texts,
    read_values,
    shorten,
    to_texts,
    to_values,
)

RECORD = Record(
    recipe="clean",
    task="regression",
    dataset="hills",
    method="ridge",
    split=3,
    family="GLM",
    status="ok",
    r2=0.1 + 0.2,
    rmse=1e-300,
    mae=2.0,
    fit_seconds=0.5,
    n_train=48,
    fingerprint="abc",
    finished="2026-01-01T00:00:00.000000+00:00",
)


def test_the_columns_are_those_that_tables_and_rankings_agree_on():
    assert ", ".join(COLUMNS) == (
        "recipe, task, dataset, method, split, family, status, reason, r2, rmse, mae, accuracy, "
        "auc, log_loss, brier, ece, fit_seconds, predict_seconds, peak_mb, device_peak_mb, "
        "shared_fit, n_train, n_test, n_features, rows_hash, fingerprint, threads, device, "
        "versions, machine, finished, details"
    )


@given(
    r2=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    reason=st.text(),
    n_train=st.none() | st.integers(0, 10**9),
)
def test_a_record_comes_back_from_json_and_csv_to_the_last_bit(r2, reason, n_train):
    record = replace(RECORD, r2=r2, reason=shorten(reason), n_train=n_train)
    assert read_values(json.loads(json.dumps(to_values(record), allow_nan=False))) == record
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerow(to_texts(record))
    row = next(csv.reader(io.StringIO(file.getvalue(), newline="")))
    assert read_texts(dict(zip(COLUMNS, row, strict=True))) == record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "fine"}, "status must be one of ok, failed, timeout, skipped, got 'fine'"),
        ({"r2": "high"}, "r2 must be a finite number, got 'high'"),
        ({"r2": float("nan")}, "r2 must be a finite number, got nan"),
        ({"split": 1.5}, "split must be a whole number, got 1.5"),
        ({"split": True}, "split must be a whole number, got True"),
        ({"split": -1}, "split must be a whole number, got -1"),
        ({"split": None}, "split must be a whole number, got None"),
        ({"method": 3}, "method must be a text, got 3"),
        ({"acuracy": 1.0}, "unknown field 'acuracy'. Did you mean 'accuracy'?"),
    ],
)
def test_a_wrong_field_is_named(change, said):
    with pytest.raises(DataFormatError) as caught:
        read_values(to_values(RECORD) | change)
    assert str(caught.value).rstrip(".") == said.rstrip(".")


def test_a_record_from_before_the_calibration_error_is_read_without_one():
    values = to_values(replace(RECORD, ece=0.1))
    del values["ece"]
    assert read_values(values) == replace(RECORD, ece=None)


def test_a_record_from_before_details_is_read_without_any():
    values = to_values(replace(RECORD, details='{"a": 1}'))
    assert read_values(values).details == '{"a": 1}'
    del values["details"]
    assert read_values(values) == RECORD


def test_a_missing_field_is_named():
    values = to_values(RECORD)
    del values["auc"]
    with pytest.raises(DataFormatError, match="the field 'auc' is missing"):
        read_values(values)


@pytest.mark.parametrize("values", [None, [1], "text", 3])
def test_what_is_no_record_is_an_error(values):
    with pytest.raises(DataFormatError, match="must be an object with fields"):
        read_values(values)


def test_a_number_that_is_none_in_a_table_is_named():
    row = dict(zip(COLUMNS, to_texts(RECORD), strict=True)) | {"n_train": "many"}
    with pytest.raises(DataFormatError, match="n_train must be a whole number, got 'many'"):
        read_texts(row)


def test_a_reason_is_one_line_of_bearable_length():
    assert shorten("one\n  two\r\n\tthree\x00") == "one two three"
    assert shorten("bad \ud800 text") == "bad ? text"
    long = shorten("x" * 10_000)
    assert len(long) == LONGEST_REASON
    assert long.endswith("...")


def test_times_are_utc_and_sort_as_text():
    first, second = now(), now()
    assert first < second or first == second
    assert first.endswith("+00:00")
    assert len(first) == len(second)
