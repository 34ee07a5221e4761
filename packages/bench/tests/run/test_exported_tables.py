"""Records as one file and back."""

import gzip
from dataclasses import replace

import pandas as pd
import pytest

from muddle.errors import DataFormatError, MissingDataError
from muddle_bench.run.records import COLUMNS, Record
from muddle_bench.run.store import Store
from muddle_bench.run.tables import export_table, import_table, read_records

OK = Record(
    recipe="clean",
    task="regression",
    dataset="hills",
    method="ridge",
    split=0,
    family="GLM",
    status="ok",
    r2=0.1 + 0.2,
    rmse=1.0,
    mae=1e-17,
    fit_seconds=0.1,
    n_train=48,
    rows_hash="aaa",
    fingerprint="f1",
    machine='A "quoted", name',
    finished="2026-01-01T00:00:00.000000+00:00",
)
RECORDS = [
    OK,
    replace(OK, split=10),
    replace(OK, split=2),
    replace(OK, method="lasso", fingerprint="f2"),
    replace(OK, method="mars", status="failed", r2=None, reason="it, of all, said “no”"),
    replace(OK, task="classification", dataset="trees", r2=None, accuracy=0.5, rows_hash="bbb"),
]


@pytest.fixture
def store(tmp_path):
    return fill(tmp_path / "runs", RECORDS)


def fill(folder, records):
    store = Store(folder)
    for record in records:
        store.save(record)
    return store


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_table_goes_there_and_back_to_the_byte(tmp_path, store, suffix):
    first, second = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    exported = export_table(store, first)
    assert exported.n_records == len(RECORDS)
    other = Store(tmp_path / "other")
    assert import_table(first, other).n_added == len(RECORDS)
    assert other.scan().records == store.scan().records
    export_table(other, second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [first.name, second.name, "other", "runs"]
    )


def test_the_order_in_which_records_came_does_not_show(tmp_path, store):
    other = fill(tmp_path / "other", reversed(RECORDS))
    export_table(store, tmp_path / "a.csv")
    export_table(other, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_rows_are_sorted_and_splits_are_numbers(tmp_path, store):
    export_table(store, tmp_path / "a.csv")
    table = pd.read_csv(tmp_path / "a.csv")
    assert tuple(table.columns) == COLUMNS
    keys = list(zip(table.task, table.dataset, table.method, table.split, strict=True))
    assert keys == sorted(keys)
    assert table.split[table.method == "ridge"].tolist() == [0, 0, 2, 10]


def test_zipped_and_plain_tables_have_the_same_text(tmp_path, store):
    export_table(store, tmp_path / "a.csv")
    export_table(store, tmp_path / "a.csv.gz")
    packed = (tmp_path / "a.csv.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.csv").read_bytes()


def test_importing_twice_changes_nothing(tmp_path, store):
    export_table(store, tmp_path / "a.csv")
    other = Store(tmp_path / "other")
    import_table(tmp_path / "a.csv", other)
    before = {path: path.stat().st_mtime_ns for path in other.folder.rglob("*.json")}
    again = import_table(tmp_path / "a.csv", other)
    assert (again.n_unchanged, again.n_added, again.n_replaced) == (len(RECORDS), 0, 0)
    assert {path: path.stat().st_mtime_ns for path in other.folder.rglob("*.json")} == before


FAILED = replace(OK, status="failed", r2=None, rmse=None, mae=None, reason="no")


@pytest.mark.parametrize(
    ("here", "there", "replace_", "kept"),
    [
        (FAILED, OK, False, "there"),
        (OK, FAILED, False, "here"),
        (OK, FAILED, True, "here"),
        (OK, replace(OK, r2=0.9), False, "here"),
        (OK, replace(OK, r2=0.9), True, "there"),
        (FAILED, replace(FAILED, reason="never"), False, "here"),
        (FAILED, replace(FAILED, reason="never"), True, "there"),
    ],
)
def test_a_result_beats_none_and_otherwise_what_is_here_stays(
    tmp_path, here, there, replace_, kept
):
    export_table(fill(tmp_path / "there", [there]), tmp_path / "t.csv")
    store = fill(tmp_path / "here", [here])
    report = import_table(tmp_path / "t.csv", store, replace=replace_)
    assert store.read(OK.cell) == {"here": here, "there": there}[kept]
    assert (report.n_kept, report.n_replaced) == ((1, 0) if kept == "here" else (0, 1))


def test_records_of_another_configuration_are_said_and_not_mixed_in(tmp_path):
    there = replace(OK, fingerprint="f9", r2=0.9)
    export_table(fill(tmp_path / "there", [there]), tmp_path / "t.csv")
    store = fill(tmp_path / "here", [OK])
    report = import_table(tmp_path / "t.csv", store)
    assert report.conflicts == ["ridge on hills, split 0: fingerprint f1 here, f9 there"]
    assert store.read(OK.cell) == OK


def test_a_damaged_record_here_is_replaced(tmp_path, store):
    export_table(store, tmp_path / "a.csv")
    store.path(OK.cell).write_text("{")
    assert export_table(store, tmp_path / "b.csv").damaged[0].path == store.path(OK.cell)
    assert import_table(tmp_path / "a.csv", store).n_added == 1
    assert store.read(OK.cell) == OK


def test_an_export_says_what_is_mixed_and_what_is_not_paired(tmp_path):
    mixed = replace(OK, split=1, fingerprint="f9")
    unpaired = replace(OK, method="lasso", rows_hash="zzz")
    exported = export_table(fill(tmp_path / "runs", [OK, mixed, unpaired]), tmp_path / "a.csv")
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
        ("trees,ridge,0", "trees,ridge", "line 2: a row must have 32 fields"),
        (",ok,", ",good,", "line 2: status must be one of ok, failed, timeout, skipped"),
        ("hills,ridge,10", "hills,ridge,0", "line 7: a second record of ridge on hills, split 0"),
    ],
)
def test_a_wrong_table_is_an_error_that_names_the_line_and_writes_nothing(
    tmp_path, store, old, new, said
):
    export_table(store, tmp_path / "a.csv")
    edit(tmp_path / "a.csv", old, new)
    other = Store(tmp_path / "other")
    with pytest.raises(DataFormatError) as caught:
        import_table(tmp_path / "a.csv", other)
    assert said in str(caught.value)
    assert not other.folder.exists()


def drop_column(path, name):
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.drop(columns=name).to_csv(path, index=False)


def test_a_table_from_before_the_calibration_error_is_imported_with_that_column_empty(tmp_path):
    scored = [replace(record, ece=0.1) for record in RECORDS]
    export_table(fill(tmp_path / "runs", scored), tmp_path / "old.csv")
    drop_column(tmp_path / "old.csv", "ece")
    other = Store(tmp_path / "other")
    assert import_table(tmp_path / "old.csv", other).n_added == len(RECORDS)
    assert other.scan().records == {record.cell: record for record in RECORDS}
    assert import_table(tmp_path / "old.csv", other).n_unchanged == len(RECORDS)
    export_table(other, tmp_path / "new.csv")
    exported = pd.read_csv(tmp_path / "new.csv")
    assert tuple(exported.columns) == COLUMNS
    assert exported["ece"].isna().all()


def test_a_short_row_of_an_old_table_is_told_the_fields_of_that_table(tmp_path, store):
    export_table(store, tmp_path / "old.csv")
    drop_column(tmp_path / "old.csv", "ece")
    edit(tmp_path / "old.csv", "trees,ridge,0", "trees,ridge")
    with pytest.raises(DataFormatError, match="line 2: a row must have 31 fields"):
        read_records(tmp_path / "old.csv")


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
