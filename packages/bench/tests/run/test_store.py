"""Records on disk: whole or not there, and what is wrong is said by name."""

import json
import os
import platform
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from muddle_bench.run.records import Record, to_values
from muddle_bench.run.store import Store, is_running, name_owner, write_whole

RECORD = Record(
    recipe="clean",
    task="regression",
    dataset="hills",
    method="ridge",
    split=0,
    family="GLM",
    status="ok",
    r2=0.5,
    finished="2026-01-01T00:00:00.000000+00:00",
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def leave_behind(store, name, age=0.0):
    path = store.folder / "clean" / "hills" / "ridge" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_record_lies_where_its_cell_says_and_comes_back(store):
    store.save(RECORD)
    path = store.folder / "clean" / "hills" / "ridge" / "0.json"
    assert json.loads(path.read_text()) == to_values(RECORD)
    assert store.read(RECORD.cell) == RECORD
    assert store.scan().records == {RECORD.cell: RECORD}
    assert os.listdir(path.parent) == ["0.json"]


def test_an_empty_or_absent_folder_has_no_records(store):
    assert store.read(RECORD.cell) is None
    assert store.scan().records == {}
    assert not store.folder.exists()


def test_a_later_record_takes_the_place_of_an_earlier_one(store):
    store.save(RECORD)
    store.save(replace(RECORD, r2=0.6))
    assert store.read(RECORD.cell).r2 == 0.6


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a record: Expecting value"),
        (b'{"recipe": "clea', "not a record: Unterminated string"),
        (b"\xff\xfe\x00", "not a record: "),
        (b"[1, 2]", "not a record: a record must be an object with fields"),
        (b"{}", "not a record: the field 'recipe' is missing"),
        (b"[" * 100_000, "not a record: nested too deeply"),
        (
            json.dumps(to_values(replace(RECORD, split=1))).encode(),
            "it is the record of ridge on hills, split 1 (clean)",
        ),
        (
            json.dumps(to_values(replace(RECORD, dataset="../up"))).encode(),
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


def test_a_folder_in_place_of_a_record_is_damage_too(store):
    store.path(RECORD.cell).mkdir(parents=True)
    assert len(store.scan().damaged) == 1
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


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail():
        with write_whole(path) as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


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
    gone = leave_behind(store, f"0.json.abcd.{host}-{dead_process()}.partial")
    ours = leave_behind(store, f"0.json.abcd.{host}-{os.getpid()}.partial")
    elsewhere = leave_behind(store, "0.json.abcd.other_host-1.partial")
    nameless = leave_behind(store, "x.partial")
    assert store.clean() == 1
    assert [path.exists() for path in (gone, ours, elsewhere, nameless)] == [False, *[True] * 3]


def test_what_is_older_than_a_day_is_removed_whoever_wrote_it(store):
    for name in ("0.json.abcd.other_host-1.partial", "x.partial", f"y.{name_owner()}.partial"):
        leave_behind(store, name, age=2 * 24 * 3600)
    assert store.clean() == 3


def test_an_owner_is_this_process_on_this_machine():
    assert name_owner().endswith(f"-{os.getpid()}")
    assert platform.node().replace("-", "_").replace(".", "_") in name_owner()
    assert is_running(os.getpid())
    assert not is_running(dead_process())
