"""Records: their fields, the store with one file each, exported tables and back."""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muddle.errors import DataFormatError, MissingDataError
from muddle_bench.run.records import (
    COLUMNS,
    LONGEST_REASON,
    Record,
    Store,
    export_table,
    import_table,
    name_owner,
    read_records,
    read_texts,
    read_values,
    shorten,
    to_texts,
)

RECORD = Record(
    **{"recipe": "clean", "task": "regression", "dataset": "hills", "method": "ridge", "split": 0},
    **{"family": "GLM", "status": "ok", "r2": 0.1 + 0.2, "rmse": 1.0, "mae": 1e-17},
    **{"fit_seconds": 0.1, "n_train": 48, "rows_hash": "aaa", "fingerprint": "f1"},
    **{"machine": 'A "quoted", name', "finished": "2026-01-01T00:00:00.000000+00:00"},
)
RECORDS = [
    RECORD,
    replace(RECORD, split=10),
    replace(RECORD, split=2),
    replace(RECORD, method="lasso", fingerprint="f2"),
    replace(RECORD, method="mars", status="failed", r2=None, reason="it, of all, said “no”"),
    replace(RECORD, task="classification", dataset="trees", r2=None, accuracy=0.5, rows_hash="bbb"),
]


@pytest.fixture
def filled(tmp_path):
    return fill(tmp_path / "runs", RECORDS)


@given(
    r2=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    reason=st.text(),
    n_train=st.none() | st.integers(0, 10**9),
)
def test_a_record_comes_back_from_json_and_csv_to_the_last_bit(r2, reason, n_train):
    record = replace(RECORD, r2=r2, reason=shorten(reason), n_train=n_train)
    assert read_values(json.loads(json.dumps(asdict(record), allow_nan=False))) == record
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
        ({"method": 3}, "method must be a text, got 3"),
        ({"acuracy": 1.0}, "unknown field 'acuracy'. Did you mean 'accuracy'?"),
    ],
)
def test_a_wrong_field_is_named(change, said):
    with pytest.raises(DataFormatError) as caught:
        read_values(asdict(RECORD) | change)
    assert str(caught.value).rstrip(".") == said.rstrip(".")


@pytest.mark.parametrize(
    ("name", "value"), [("ece", 0.1), ("n_classes", 2), ("details", '{"a": 1}')]
)
def test_a_record_from_before_a_field_was_added_is_read_without_it(name, value):
    values = asdict(replace(RECORD, **{name: value}))
    assert getattr(read_values(values), name) == value
    del values[name]
    assert read_values(values) == RECORD
    del values["auc"]
    with pytest.raises(DataFormatError, match="the field 'auc' is missing"):
        read_values(values)


def test_a_reason_is_one_line_of_bearable_length():
    assert shorten("one\n  two\r\n\tthree\x00") == "one two three"
    assert shorten("bad \ud800 text") == "bad ? text"
    long = shorten("x" * 10_000)
    assert len(long) == LONGEST_REASON
    assert long.endswith("...")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def leave_behind(store, name, age=0.0):
    path = store.folder / "clean" / "hills" / "ridge" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_a_record_lies_where_its_cell_says_and_comes_back(store):
    assert store.read(RECORD.cell) is None
    assert store.scan().records == {}
    assert not store.folder.exists()
    store.save(replace(RECORD, r2=0.6))
    store.save(RECORD)
    path = store.folder / "clean" / "hills" / "ridge" / "0.json"
    assert json.loads(path.read_text()) == asdict(RECORD)
    assert store.read(RECORD.cell) == RECORD
    assert store.scan().records == {RECORD.cell: RECORD}
    assert os.listdir(path.parent) == ["0.json"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a record: Expecting value"),
        (b'{"recipe": "clea', "not a record: Unterminated string"),
        (b"\xff\xfe\x00", "not a record: "),
        (b"[1, 2]", "not a record: a record must be an object with fields"),
        (b"[" * 100_000, "not a record: nested too deeply"),
        (
            json.dumps(asdict(replace(RECORD, split=1))).encode(),
            "it is the record of ridge on hills, split 1 (clean)",
        ),
        (
            json.dumps(asdict(replace(RECORD, dataset="../up"))).encode(),
            "it is the record of ridge on ../up, split 0 (clean)",
        ),
    ],
)
def test_a_damaged_or_foreign_file_is_named_and_counts_as_not_finished(store, content, said):
    store.save(RECORD)
    path = store.path(RECORD.cell)
    path.write_bytes(content)
    contents = store.scan()
    assert contents.records == {}
    assert [damage.path for damage in contents.damaged] == [path]
    assert str(contents.damaged[0]).startswith(f"{path}: {said}")
    assert store.read(RECORD.cell) is None


def test_other_files_in_the_folder_are_left_alone(store):
    store.save(RECORD)
    (store.folder / "notes.txt").write_text("mine")
    (store.folder / "clean" / "table.csv").write_text("mine")
    store.clean()
    assert store.scan().damaged == []
    assert (store.folder / "notes.txt").exists()


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a b", "a\n"])
def test_names_that_are_no_folder_are_an_error(store, name):
    with pytest.raises(ValueError, match=re.escape(f"got {name!r}")):
        store.save(replace(RECORD, dataset=name))


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "table.csv").write_text("")
    with pytest.raises(ValueError, match="records are kept in a folder, got the file"):
        Store(tmp_path / "table.csv")


def test_readers_see_a_whole_record_while_many_write(store):
    store.save(RECORD)

    def write(number):
        for turn in range(20):
            store.save(replace(RECORD, rmse=float(turn), n_train=number))

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(write, number) for number in range(3)]
        while not all(future.done() for future in running):
            assert store.read(RECORD.cell) is not None
            assert store.scan().damaged == []
    assert [future.result() for future in running] == [None] * 3
    assert os.listdir(store.path(RECORD.cell).parent) == ["0.json"]


def test_what_a_dead_process_left_is_removed_and_what_a_live_one_writes_is_not(store):
    host = name_owner().rpartition("-")[0]
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    gone = leave_behind(store, f"0.json.abcd.{host}-{process.pid}.partial")
    ours = leave_behind(store, f"0.json.abcd.{host}-{os.getpid()}.partial")
    elsewhere = leave_behind(store, "0.json.abcd.other_host-1.partial")
    nameless = leave_behind(store, "x.partial")
    store.clean()
    assert [path.exists() for path in (gone, ours, elsewhere, nameless)] == [False, *[True] * 3]


def test_what_is_older_than_a_day_is_removed_whoever_wrote_it(store):
    for name in ("0.json.abcd.other_host-1.partial", "x.partial", f"y.{name_owner()}.partial"):
        leave_behind(store, name, age=2 * 24 * 3600)
    store.clean()
    assert not list(store.folder.rglob("*.partial"))


def fill(folder, records):
    store = Store(folder)
    for record in records:
        store.save(record)
    return store


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_table_goes_there_and_back_to_the_byte(tmp_path, filled, suffix):
    first, second = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    exported = export_table(filled, first)
    assert exported.n_records == len(RECORDS)
    other = Store(tmp_path / "other")
    assert import_table(first, other).n_added == len(RECORDS)
    before = {path: path.stat().st_mtime_ns for path in other.folder.rglob("*.json")}
    again = import_table(first, other)
    assert (again.n_unchanged, again.n_added, again.n_replaced) == (len(RECORDS), 0, 0)
    assert {path: path.stat().st_mtime_ns for path in other.folder.rglob("*.json")} == before
    assert other.scan().records == filled.scan().records
    export_table(other, second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [first.name, second.name, "other", "runs"]
    )


def test_rows_are_sorted_whatever_the_order_of_the_records(tmp_path, filled):
    export_table(filled, tmp_path / "a.csv")
    export_table(fill(tmp_path / "other", reversed(RECORDS)), tmp_path / "b.csv.gz")
    plain, packed = ((tmp_path / name).read_bytes() for name in ("a.csv", "b.csv.gz"))
    assert gzip.decompress(packed) == plain
    table = pd.read_csv(tmp_path / "a.csv")
    assert tuple(table.columns) == COLUMNS
    keys = list(zip(table.task, table.dataset, table.method, table.split, strict=True))
    assert keys == sorted(keys)
    assert table.split[table.method == "ridge"].tolist() == [0, 0, 2, 10]


FAILED = replace(RECORD, status="failed", r2=None, rmse=None, mae=None, reason="no")


@pytest.mark.parametrize(
    ("here", "there", "replace_", "kept"),
    [
        (FAILED, RECORD, False, "there"),
        (RECORD, FAILED, False, "here"),
        (RECORD, replace(RECORD, r2=0.9), False, "here"),
        (RECORD, replace(RECORD, r2=0.9), True, "there"),
        (FAILED, replace(FAILED, reason="never"), False, "here"),
    ],
)
def test_a_result_beats_none_else_what_is_here_stays(tmp_path, here, there, replace_, kept):
    export_table(fill(tmp_path / "there", [there]), tmp_path / "t.csv")
    store = fill(tmp_path / "here", [here])
    report = import_table(tmp_path / "t.csv", store, replace=replace_)
    assert store.read(RECORD.cell) == {"here": here, "there": there}[kept]
    assert (report.n_kept, report.n_replaced) == ((1, 0) if kept == "here" else (0, 1))


def test_a_damaged_record_here_is_replaced(tmp_path, filled):
    export_table(filled, tmp_path / "a.csv")
    filled.path(RECORD.cell).write_text("{")
    assert export_table(filled, tmp_path / "b.csv").damaged[0].path == filled.path(RECORD.cell)
    assert import_table(tmp_path / "a.csv", filled).n_added == 1
    assert filled.read(RECORD.cell) == RECORD


def test_an_export_says_what_is_mixed_and_what_is_not_paired(tmp_path):
    mixed = replace(RECORD, split=1, fingerprint="f9")
    unpaired = replace(RECORD, method="lasso", rows_hash="zzz")
    exported = export_table(fill(tmp_path / "runs", [RECORD, mixed, unpaired]), tmp_path / "a.csv")
    assert exported.mixed == ["ridge (regression)"]
    assert exported.unpaired == ["hills, split 0 (clean)"]
    clean = export_table(fill(tmp_path / "other", RECORDS), tmp_path / "b.csv")
    assert (clean.mixed, clean.unpaired) == ([], [])


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("recipe,", "recipes,", "line 1: unknown field 'recipes'. Did you mean 'recipe'?"),
        (",finished", "", "line 1: the field 'finished' is missing"),
        (",finished", ",finished,r2", "line 1: a field occurs twice"),
        ("trees,ridge,0", "trees,ridge,zero", "line 2: split must be a whole number, got 'zero'"),
        ("trees,ridge,0", "trees,ridge", "line 2: a row must have 33 fields"),
        ("hills,ridge,10", "hills,ridge,0", "line 7: a second record of ridge on hills, split 0"),
    ],
)
def test_a_wrong_table_names_the_line_and_writes_nothing(tmp_path, filled, old, new, said):
    export_table(filled, tmp_path / "a.csv")
    edit(tmp_path / "a.csv", old, new)
    other = Store(tmp_path / "other")
    with pytest.raises(DataFormatError) as caught:
        import_table(tmp_path / "a.csv", other)
    assert said in str(caught.value)
    assert not other.folder.exists()


def test_a_file_that_is_no_table_is_an_error(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(b"no gzip")
    (tmp_path / "b.csv").write_bytes(b"\xff\xff")
    (tmp_path / "c.csv").write_bytes(b"")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(bytes(range(256)))[:100])
    (tmp_path / "odd.csv.gz").write_bytes(gzip.compress(b"a" * 500)[:10] + b"garbage, garbage")
    for name in ("a.csv.gz", "b.csv", "c.csv", "cut.csv.gz", "odd.csv.gz"):
        with pytest.raises(DataFormatError, match=name):
            read_records(tmp_path / name)
    with pytest.raises(MissingDataError, match="there is no file"):
        read_records(tmp_path / "d.csv")
    with pytest.raises(ValueError, match=r"a .csv or .csv.gz file, got 'd.xlsx'"):
        export_table(Store(tmp_path), tmp_path / "d.xlsx")
