"""The script that compares the flagship with other methods, and its speed benchmark."""

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from muddle_bench.methods.method import Method
from muddle_bench.run.records import Record, write_table

ROOT = Path(__file__).resolve().parents[4]


def load(folder, name):
    """A script as a module, with the modules beside it that it imports."""
    path = ROOT / folder / f"{name}.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        for module in ("speed", "textbook"):
            patch.delitem(sys.modules, module, raising=False)
        spec = importlib.util.spec_from_file_location(f"{folder}_{name}", path)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look up their module
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def evidence():
    return load("scripts", "flagship_evidence")


@pytest.fixture
def timing():
    return load("benchmarks", "flagship")


def make_record(dataset, method, split, task="regression", **fields):
    """A record as a run would write it."""
    scores = {"r2": 0.5} if task == "regression" else {"accuracy": 0.5, "auc": 0.7}
    common = {"recipe": "clean", "family": "F", "status": "ok", "n_train": 80, "n_test": 20}
    fields = scores | common | fields
    return Record(dataset=dataset, method=method, split=split, task=task, **fields)


def write(folder, name, records):
    write_table(records, folder / name)
    return str(folder / name)


@pytest.fixture
def two_tables(tmp_path):
    """Servo (development) and abalone (evaluation), which xgboost has too; then tables with two and
    three classes, one of them above 1,000 rows."""
    first = [
        make_record(dataset, method, 0, r2=score)
        for dataset, scores in {"servo": (0.9, 0.8, 0.7), "abalone": (0.5, 0.6, 0.7)}.items()
        for method, score in zip(("muddle", "catboost", "xgboost"), scores, strict=True)
    ]
    second = []
    for dataset, n_classes, n_train, scores in [
        ("coins", 2, 80, (0.7, 0.6)),
        ("noise", 2, 80, (0.5, 0.55)),
        ("birds", 3, 8000, (0.9, 0.9)),
    ]:
        for method, auc in zip(("muddle", "catboost"), scores, strict=True):
            more = {"auc": auc, "log_loss": 1 - auc, "ece": 0.1 * auc, "n_classes": n_classes}
            second.append(
                make_record(dataset, method, 0, "classification", n_train=n_train, **more)
            )
    failed = {"status": "failed", "reason": "no", "accuracy": None, "auc": None}
    second.append(make_record("coins", "catboost", 1, "classification", n_classes=2, **failed))
    return [write(tmp_path, "paper.csv", first), write(tmp_path, "more.csv", second)]


def test_the_text_compares_methods_that_all_tables_have_by_kind_part_and_metric(
    evidence, two_tables, capsys
):
    evidence.main(two_tables)
    text = capsys.readouterr().out
    assert text.startswith("catboost on coins: 1 failed, left out\n")
    assert "xgboost" not in text
    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in text.split("\n\n")}
    (rows,) = [lines for title, lines in blocks.items() if title.startswith("comparison")]
    found = {row[:50].strip(): row[50:].split() for row in rows}
    # coins: first byte of its hash is even, noise: odd, birds: odd.
    assert found["numbers, development, by r2"] == [
        "1",
        "1",
        "of",
        "2",
        "100.0",
        "[100.0,",
        "100.0]",
    ]
    assert found["numbers, evaluation, by r2"][:4] == ["1", "2", "of", "2"]
    assert found["numbers, all, by r2"] == ["2", "1", "of", "2", "50.0", "[0.0,", "100.0]"]
    assert found["two classes, all, by auc"][4] == "50.0"
    assert found["two classes, all, by auc, signal"][4] == "100.0"
    assert found["more classes, all, by auc"][4] == "50.0"
    assert found["classes, all, by auc"][:4] == ["3", "1", "of", "2"]
    assert found["classes, all, by ece, above 1,000 rows"][0] == "1"
    head, *board = blocks["numbers, all, by r2"]
    assert head.split() == [
        "method",
        "rank",
        "mean",
        "median",
        "won,",
        "%",
        "data",
        "sets",
        "splits",
        "fit,",
        "s",
    ]
    assert board[0].split()[:4] == ["catboost", "1.50", "0.7000", "0.7000"]
    assert len({len(line) for line in [head, *board]}) == 1
    line = next(one for one in blocks["regression, by data set: r2"] if one.startswith("servo"))
    assert line.split() == ["servo", "development", "1", "0.9000", "0.8000", "100"]


def test_tables_without_the_flagship_are_refused(evidence, tmp_path, two_tables):
    other = write(tmp_path, "other.csv", [make_record("servo", "catboost", 0)])
    with pytest.raises(SystemExit, match=r"other\.csv has no scores of muddle"):
        evidence.main([*two_tables, other])


def test_of_the_flagship_s_presets_those_are_compared_that_were_asked_for(
    evidence, tmp_path, capsys
):
    methods = {"muddle": 0.8, "muddle-compact": 0.7, "muddle-fast": 0.6, "catboost": 0.5}
    table = write(
        tmp_path,
        "presets.csv",
        [make_record("servo", name, 0, r2=r2) for name, r2 in methods.items()],
    )

    def list_methods(*options):
        evidence.main([table, *options])
        board = capsys.readouterr().out.split("numbers, all, by r2\n")[1].split("\n\n")[0]
        return [line.split()[0] for line in board.splitlines()[1:]]

    assert list_methods() == ["muddle", "catboost"]
    compact = ["--method", "muddle-compact"]
    assert list_methods(*compact) == ["muddle-compact", "catboost"]
    assert list_methods(*compact, "--others", "muddle") == ["muddle", "muddle-compact", "catboost"]


def test_means_of_a_data_set_are_of_splits_that_all_methods_have(evidence, tmp_path, capsys):
    scores = {
        "servo": {"muddle": [0.9, 0.5, 0.7], "catboost": [0.8, None, 0.6]},
        "abalone": {"muddle": [0.5, 0.6, 0.4]},  # catboost has none here
    }
    records = [
        make_record(dataset, method, split, r2=score)
        for dataset, methods in scores.items()
        for method, own in methods.items()
        for split, score in enumerate(own)
        if score is not None
    ]
    evidence.main([write(tmp_path, "unequal.csv", records)])
    text = capsys.readouterr().out
    assert "Rank, mean and median: 1 data sets, 2 splits that all methods have." in text
    lines = [line.split() for line in text.split("by data set: r2\n")[1].splitlines()]
    assert lines[1] == ["abalone", "evaluation", "3", "0.5000"]
    assert lines[2] == ["servo", "development", "2", "0.8000", "0.7000", "100"]


def test_ratios_are_medians_over_turns(timing):
    table = timing.make_table("classification", 30)
    seconds = {"muddle": [1.0, 2.0, 9.0], "realmlp-5": [4.0, 1.0, 3.0]}
    row = timing.describe_row(table, seconds)
    assert (row["muddle_s"], row["realmlp-5_s"], row["muddle/realmlp-5"]) == (2.0, 3.0, 2.0)
    assert (row["rows"], row["columns"], row["task"]) == (30, 10, "classification")
    assert "muddle/realmlp-5" not in timing.describe_row(table, {"muddle": [1.0]})
    assert set(table.y) == {0, 1}


def test_speed_takes_turns_on_all_tables(timing, tables, tmp_path, monkeypatch, capsys):
    fitted = []

    class Told(Ridge):
        def fit(self, X, y):
            fitted.append((self.alpha, len(y)))
            return self

    ours = Method("muddle", "Flagship", lambda request: Told(alpha=1.0))
    theirs = Method("realmlp-5", "NN-today", lambda request: Told(alpha=2.0))
    monkeypatch.setattr(timing, "choose_methods", lambda *_: [ours, theirs])
    out = tmp_path / "speed.csv"
    options = ["--rows", "40", "--datasets", "hills", "servo", "--repeats", "2", "--commit", "abc"]
    timing.main([*options, "--data-home", str(tables), "--threads", "1", "--out", str(out)])
    assert [alpha for alpha, _ in fitted] == [1.0, 2.0] * 7  # warm-up, then three tables twice
    assert [n_rows for _, n_rows in fitted] == [60] * 2 + [40] * 8 + [48] * 4
    table = pd.read_csv(out)
    assert table["table"].tolist() == ["made up", "made up", "hills"]
    assert (table["muddle/realmlp-5"] > 0).all()
    assert (table["commit"] == "abc").all()
    text = capsys.readouterr().out
    assert "servo skipped: it is not in" in text
    assert "median over 3 tables: muddle/realmlp-5" in text
