"""Attack muddle: tables, forged model files, hostile CSV, kills, full disks, time limits, threads.

    python benchmarks/attack.py --out results/attacks.csv
    python benchmarks/attack.py tables --count 500 --seed 7

Every attack ends in one of three ways: it is *answered* (finite predictions, the same for a row
alone and in company), *refused* (an error that muddle raises itself), or it is a *fault*: an error
from another library, a number that is not finite, a traceback, a part of a file. Faults are printed
with what made them, and end the script with status 1.
"""

import argparse
import collections
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.base import RegressorMixin

import muddle
import muddle_runtime
from muddle import EnsMLRRegressor, MLRClassifier, MLRRegressor, MuddleClassifier, MuddleRegressor

ANSWERED, REFUSED, FAULT = "answered", "refused", "fault"
OWN = ("/muddle/", "/muddle_runtime/")
SMALL: dict[str, Any] = {"width": 8, "max_iter": 5, "depth": 1, "random_state": 0, "device": "cpu"}
QUICK: dict[str, Any] = {"preset": "fast", "random_state": 0, "device": "cpu"}
Outcome = tuple[str, str]  # how it ended, and the message
Attack = tuple[str, Callable[[], object]]  # in words, and to be run
OPTIONS = ["--preset", "fast", "--device", "cpu", "--seed", "0"]
FIT = ["--target", "y", *OPTIONS]
# Until a command has imported its modules, Ctrl-C is Python's.
IMPORT_SECONDS = 3.0


class Broken(Exception):
    """An answer that must not be given."""


class Refusal(Exception):
    """A command that ended with a message of its own."""


def judge(attack: Callable[[], object]) -> Outcome:
    """Run an attack; errors that muddle raises itself are refusals."""
    try:
        attack()
    except Broken as error:
        return FAULT, str(error)
    except Refusal as error:
        return REFUSED, str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        known = isinstance(error, (ValueError, TypeError, ImportError, OSError, AttributeError))
        text = f"{type(error).__name__}: {str(error)[:300]}"
        return (REFUSED if known and any(own in last for own in OWN) else FAULT), text
    return ANSWERED, ""


# --- tables --------------------------------------------------------------------------------------

Make = Callable[[np.random.Generator, int], Any]


def pick(values: list[Any]) -> Make:
    def make(rng: np.random.Generator, n: int) -> Any:
        return pd.Series(
            [values[place] for place in rng.integers(len(values), size=n)], dtype=object
        )

    return make


def with_gaps(values: Any, rng: np.random.Generator) -> Any:
    series = pd.Series(values)
    return series.mask(rng.random(len(series)) < 0.2)


DAYS = pd.date_range("2020-01-31", periods=60, freq="7D")
COLUMNS: dict[str, Make] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "long tail": lambda rng, n: np.exp(rng.normal(0, 4, n)),
    "far away": lambda rng, n: 1e15 + rng.normal(size=n),
    "tiny": lambda rng, n: 1e-300 * rng.normal(size=n),
    "specks": pick([0.0, 1e-310, 3e-310, -1.0, 1.0]),
    "huge": lambda rng, n: 1e140 * rng.normal(size=n),
    "beyond": lambda rng, n: 1e300 * rng.normal(size=n),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.1, -np.inf, rng.normal(size=n)),
    "gaps": lambda rng, n: with_gaps(rng.normal(size=n), rng),
    "empty": lambda rng, n: np.full(n, np.nan),
    "constant": lambda rng, n: np.ones(n),
    "whole": lambda rng, n: rng.integers(-5, 5, n),
    "above 2^53": lambda rng, n: rng.integers(2**53, 2**62, n),
    "unsigned": lambda rng, n: rng.integers(0, 2**63, n).astype(np.uint64) * 2,
    "half": lambda rng, n: rng.normal(size=n).astype(np.float16),
    "boolean": lambda rng, n: rng.random(n) < 0.5,
    "nullable": lambda rng, n: with_gaps(pd.array(rng.integers(0, 9, n), dtype="Int64"), rng),
    "nullable boolean": lambda rng, n: with_gaps(pd.array(rng.random(n) < 0.5, "boolean"), rng),
    "True and 1": pick([True, 1, 1.0, "1", False, 0]),
    "mixed": pick([1, "a", 2.5, None, True, b"x", ("t",)]),
    "texts": pick(["red", "green", "blue"]),
    "texts and gaps": pick(["red", "", None, "NaN", float("nan"), "n/a", pd.NA, pd.NaT]),
    "hostile texts": pick(
        ["=1+1", "\x1b[31m", "\x00\x00", "a" * 5000, "\u202e", "<b>", "\ud800"[:0]]
    ),
    "numbers as text": pick(["1", "2.5", "1e3", "-7", "x"]),
    "money": pick(["$12.80", "$3.00", "$1,200.00"]),
    "dates as text": pick(["31.12.2024", "01.02.2023", "2024-01-01"]),
    "many levels": lambda rng, n: pd.Series([f"l{i}" for i in rng.integers(0, max(2, n // 3), n)]),
    "identifier": lambda rng, n: pd.Series([f"id{i}" for i in range(n)]),
    "category": lambda rng, n: pd.Categorical(rng.choice(["x", "y", "z"], n), ["z", "y", "x", "w"]),
    "dates": lambda rng, n: pd.Series(rng.choice(DAYS, n)),
    "dates with gaps": lambda rng, n: with_gaps(rng.choice(DAYS, n), rng),
    "dates with zone": lambda rng, n: pd.Series(rng.choice(DAYS, n)).dt.tz_localize("Asia/Tokyo"),
    "durations": lambda rng, n: pd.Series(pd.to_timedelta(rng.integers(0, 10**6, n), unit="s")),
    "periods": lambda rng, n: pd.Series(pd.PeriodIndex(rng.choice(DAYS, n), freq="M")),
    "intervals": lambda rng, n: pd.Series(pd.cut(rng.normal(size=n), 4)),
    "complex": lambda rng, n: rng.normal(size=n) + 1j,
    "lists": lambda rng, n: pd.Series([[i] for i in range(n)]),
    "sparse": lambda rng, n: pd.arrays.SparseArray(rng.integers(0, 2, n).astype(float)),
}
CLASSES: dict[str, Make] = {
    "two": lambda rng, n: np.arange(n) % 2,
    "words": pick(["yes", "no"]),
    "three": lambda rng, n: np.array(["a", "b", "c"])[np.arange(n) % 3],
    "booleans": lambda rng, n: rng.random(n) < 0.5,
    "one": lambda rng, n: np.zeros(n),
    "one row of a class": lambda rng, n: (np.arange(n) == 3).astype(int),
    "gaps": pick(["yes", "no", None]),
    "NaT": pick([pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01"), pd.NaT]),
    "NA": pick(["yes", "no", pd.NA]),
    "numbers": lambda rng, n: rng.normal(size=n),
    "mixed": pick(["yes", 1]),
}
NUMBERS: dict[str, Make] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "counts": lambda rng, n: rng.poisson(2.0, n),
    "constant": lambda rng, n: np.full(n, 3.0),
    "outlier": lambda rng, n: np.where(np.arange(n) == 1, 1e9, rng.normal(size=n)),
    "tiny": lambda rng, n: 1e-200 * rng.normal(size=n),
    "large": lambda rng, n: 1e100 * rng.normal(size=n),
    "beyond": lambda rng, n: 1e300 * rng.normal(size=n),
    "infinite": lambda rng, n: np.where(np.arange(n) == 2, np.inf, rng.normal(size=n)),
    "gaps": lambda rng, n: with_gaps(rng.normal(size=n), rng),
    "None": pick([1.0, 2.0, None]),
    "NA": lambda rng, n: with_gaps(pd.array(rng.integers(0, 9, n), dtype="Int64"), rng),
    "10**400": pick([1, 2, 10**400]),
    "words": pick(["a", "b"]),
    "money": pick(["$12.80", "$3.00"]),
    "dates": lambda rng, n: pd.Series(rng.choice(DAYS, n)),
    "durations": lambda rng, n: pd.Series(pd.to_timedelta(rng.integers(0, 99, n), unit="s")),
    "durations with gaps": lambda rng, n: with_gaps(pd.to_timedelta(np.arange(n), unit="s"), rng),
    "two columns": lambda rng, n: rng.normal(size=(n, 2)),
    "complex": lambda rng, n: rng.normal(size=n) + 1j,
}
WEIGHTS: dict[str, Make] = {
    "zeros": lambda rng, n: (rng.random(n) < 0.8).astype(float),
    "tiny": lambda rng, n: 1e-300 * (1 + rng.random(n)),
    "large": lambda rng, n: 1e300 * (1 + rng.random(n)),
    "wide": lambda rng, n: 10.0 ** rng.uniform(-100, 100, n),
    "negative": lambda rng, n: rng.normal(size=n),
    "gaps": lambda rng, n: with_gaps(rng.random(n), rng),
}


def to_frame(table: pd.DataFrame, kind: str) -> Any:
    """The table in the hands of another library; as pandas if that refuses it."""
    try:
        if kind == "polars":
            import polars

            return polars.from_pandas(table)
        if kind == "pyarrow":
            import pyarrow

            return pyarrow.Table.from_pandas(table, preserve_index=False)
    except Exception:
        return table
    if kind == "array":
        return table.to_numpy()
    return table


def attack_tables(count: int, seed: int, folder: Path) -> Iterator[Attack]:
    """Fit and predict tables of odd columns, targets, weights and names."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        n_rows = int(rng.choice([5, 24, 60]))
        usual = rng.random() < 0.5  # half of the targets are, so that columns come to be fitted
        kinds = rng.choice(list(COLUMNS), size=int(rng.integers(1, 5)), replace=False).tolist()
        table = pd.DataFrame({kind: COLUMNS[kind](rng, n_rows) for kind in kinds})
        table["usual"] = rng.normal(size=n_rows)
        names = str(rng.choice(["texts", "texts", "places", "numbers", "dates", "levels", "same"]))
        if names == "places":
            table.columns = list(range(table.shape[1]))
        elif names == "numbers":
            table.columns = list(range(10, 10 + table.shape[1]))
        elif names == "dates":
            table.columns = list(DAYS[: table.shape[1]])
        elif names == "levels":
            table.columns = pd.MultiIndex.from_tuples([("a", name) for name in table.columns])
        elif names == "same":
            table.columns = ["same"] * table.shape[1]
        frame = str(rng.choice(["pandas", "pandas", "polars", "pyarrow", "array"]))
        classes = rng.random() < 0.5
        targets = CLASSES if classes else NUMBERS
        target = ("two" if classes else "normal") if usual else str(rng.choice(list(targets)))
        weight = str(rng.choice(list(WEIGHTS))) if rng.random() < 0.2 else None
        large = rng.random() < 0.5
        if large:
            model: Any = (MuddleClassifier if classes else MuddleRegressor)(**QUICK)
        else:
            model = (MLRClassifier if classes else MLRRegressor)(**SMALL)
        y = targets[target](rng, n_rows)
        weights = None if weight is None else WEIGHTS[weight](rng, n_rows)

        about = f"{kinds} as {frame}, names {names}, {n_rows} rows, target {target}"
        about += f", weights {weight}, {type(model).__name__}, number {number}"
        yield about, partial(check_table, model, to_frame(table, frame), y, weights, folder)


def check_table(model: Any, X: Any, y: Any, weights: Any, folder: Path) -> None:
    """Fit, and ask the model, one row of it, and its file; then in other forms, and other rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, y, sample_weight=weights)
        answers = _answer(model, X)
        if not np.isfinite(answers).all():
            raise Broken(f"{np.count_nonzero(~np.isfinite(answers))} answers are not finite")
        size = max(float(np.std(answers)), float(np.abs(answers).max()), 1e-300)
        alone = _answer(model, X[:1])
        if np.abs(alone[0] - answers[0]).max() > 1e-5 * size:
            raise Broken(f"a row alone gets {alone[0]}, in company {answers[0]}")
        try:
            served = muddle_runtime.load_model(model.save(folder / "odd.muddle"))
        except muddle_runtime.ModelFileError as error:
            raise Broken(f"a fitted model cannot be saved: {error}") from error
        same = {"the file": _answer(served, X)}
        if isinstance(X, pd.DataFrame):
            same["columns reversed"] = _answer(model, X[X.columns[::-1]])
            same["records"] = _answer(model, X.to_dict("records"))
        for form, found in same.items():
            if np.abs(found - answers).max() > 1e-5 * size:
                raise Broken(f"{form}: other answers")
        if isinstance(X, pd.DataFrame):
            check_rows(served, make_strange(X))


def make_strange(table: pd.DataFrame) -> pd.DataFrame:
    """The table with levels that were never seen, and numbers far away."""
    strange = table.copy()
    for place, kind in enumerate(table.dtypes):
        column = table.iloc[:, place]
        if kind.kind == "O" or pd.api.types.is_string_dtype(kind):
            column = column.map(lambda value: f"{value}!" if isinstance(value, str) else value)
        elif pd.api.types.is_float_dtype(kind):
            column = column * 1e4
        strange.isetitem(place, column)
    return strange


def check_rows(model: Any, rows: Any) -> None:
    """Answers are numbers, those of a row alone the same, and bounds in order."""
    answers, alone = _answer(model, rows), _answer(model, rows[:1])
    if answers.dtype.kind != "f" or not np.isfinite(answers).all():
        raise Broken("answers are not finite")
    if not np.allclose(alone[0], answers[0], rtol=1e-4, atol=1e-5 * np.abs(answers).max()):
        raise Broken(f"a row alone gets {alone[0]}, in company {answers[0]}")
    if hasattr(model, "predict_interval"):
        lower, upper = np.moveaxis(model.predict_interval(rows), -1, 0)
        if not (lower <= upper).all():
            raise Broken("bounds are not in order")


def _answer(model: Any, X: Any) -> Any:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


# --- model files ---------------------------------------------------------------------------------

VALUES: list[Any] = [
    0,
    -1,
    1,
    2**31,
    -(2**63),
    1e30,
    1e308,
    -1e308,
    1e-320,
    None,
    True,
    "",
    "\x1b[2J",
]
VALUES += [[], {}, [[]], "x" * 10_000, float("nan"), float("inf")]
NUMBERS_IN_ARRAYS = [0.0, -1.0, 1e30, -1e30, 1e308, -1e308, 1e-320, np.nan, np.inf]


def make_models(folder: Path) -> list[tuple[Path, pd.DataFrame]]:
    """Model files with all that a file can hold, and rows to answer."""
    rng = np.random.default_rng(0)
    n = 80
    table = pd.DataFrame(
        {
            "number": with_gaps(rng.normal(size=n), rng),
            "colour": rng.choice(["red", "blue", "green"], n),
            "place": [f"p{i}" for i in rng.integers(0, 16, n)],
            "day": rng.choice(DAYS, n),
        }
    )
    y = table["number"].fillna(0) + (table["colour"] == "red") + np.exp(rng.normal(size=n))
    # A column of levels with most of the signal, of which 12 are known: rows of others get a model
    # of their own. And more columns than nets see.
    levels = rng.integers(0, 12, 4 * n)
    level = np.exp(rng.normal(size=12))[levels]
    by_level = pd.DataFrame({"number": rng.normal(size=4 * n), "place": [f"p{i}" for i in levels]})
    wide = pd.DataFrame(rng.normal(size=(40, 510))).add_prefix("x")
    found: list[tuple[Path, pd.DataFrame]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, rows, target in (
            ("default", MuddleRegressor(random_state=0, device="cpu"), table, y),
            ("classes", MuddleClassifier(**QUICK), table, pd.cut(y, 3, labels=False).astype(str)),
            ("net", MLRRegressor(**SMALL), table, y),
            ("levels", MuddleRegressor(**QUICK), by_level, level + 0.1 * by_level["number"] ** 2),
            ("wide", MuddleRegressor(**QUICK), wide, wide.iloc[:, :40].sum(axis=1)),
        ):
            path = folder / f"{name}.muddle"
            model.fit(rows, target).save(path)
            found.append((path, rows))
    assert muddle_runtime.load_model(folder / "levels.muddle").fallback is not None
    assert "chosen" in _read_header(folder / "wide.muddle")
    return found


def attack_files(count: int, seed: int, folder: Path) -> Iterator[Attack]:
    """Change a byte, a field of the header or values of a tensor."""
    models = make_models(folder)
    forged = folder / "forged.muddle"
    for number in range(count):
        choose = random.Random(f"{seed} {number}")
        path, table = models[number % len(models)]
        kind = choose.choice(["bytes", "header", "tensor", "tensor"])
        if kind == "bytes":
            content = bytearray(path.read_bytes())
            for _ in range(choose.randint(1, 8)):
                place = choose.randrange(
                    min(len(content), choose.choice([300, 30_000, len(content)]))
                )
                content[place] = choose.randrange(256)
            forged.write_bytes(
                content[: choose.choice([len(content), choose.randrange(len(content))])]
            )
            about = f"{path.name}: bytes, number {number}"
        else:
            tensors = load_file(path)
            header = json.loads(_read_header(path))
            if kind == "header":
                where = _change_field(header, choose)
            else:
                where = choose.choice(sorted(name for name in tensors if tensors[name].size))
                value = choose.choice(NUMBERS_IN_ARRAYS)
                array = tensors[where].copy()
                with np.errstate(all="ignore"):
                    if choose.random() < 0.5:
                        array[...] = np.array(value).astype(array.dtype)
                    else:
                        array.flat[choose.randrange(array.size)] = np.array(value).astype(
                            array.dtype
                        )
                tensors[where] = array
                where += f" = {value}"
            save_file(tensors, forged, metadata={"muddle": json.dumps(header)})
            about = f"{path.name}: {where}, number {number}"

        yield about, partial(check_file, forged, table)


def check_file(path: Path, table: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = muddle_runtime.load_model(path)
        check_rows(model, table)
        check_rows(model, make_strange(table))
        _ = repr(model), model.columns, model.findings_, model.drift(table)
        _ = muddle.load_model(path)._repr_html_()


def _read_header(path: Path) -> str:
    with safe_open(path, "numpy") as file:
        text: str = file.metadata()["muddle"]
        return text


def _change_field(header: Any, choose: random.Random) -> str:
    """Put another value in some field, or take the field away."""
    where, parent = [], header
    while True:
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        key = choose.choice(keys)
        where.append(str(key))
        inner = parent[key]
        if isinstance(inner, (dict, list)) and inner and choose.random() < 0.8:
            parent = inner
            continue
        if choose.random() < 0.15:
            del parent[key]
            return ".".join(where) + " removed"
        parent[key] = choose.choice(VALUES)
        return ".".join(where) + f" = {str(parent[key])[:40]!r}"


# --- the command line ----------------------------------------------------------------------------

CELLS = [
    "1",
    "2.5",
    "-3",
    "",
    "NA",
    "red",
    "blue",
    '"a,b"',
    '"',
    "=1+1",
    "\x00",
    "\x1b[31m",
    "é",
    "1e999",
]
CELLS += ["31.12.2024", "$1.50", "\ufeff", "\r", "true", "nan", "inf", "0x10", "1_000", "'", "\t"]


def run_command(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "muddle", *arguments]
    return subprocess.run(command, capture_output=True, env=environment, timeout=300, **options)


def check_command(ended: subprocess.CompletedProcess[bytes], outputs: list[Path]) -> None:
    """No traceback, no raw control characters, no part of a file."""
    text = (ended.stdout + ended.stderr).decode(errors="replace")
    if "Traceback" in text or re.search(r"\.py:\d", text):
        raise Broken(f"a traceback, or a warning of another library: {text[-500:]}")
    if ended.returncode not in (0, 1, 2):
        raise Broken(f"status {ended.returncode}: {text[-300:]}")
    if "\x1b" in text or "\x00" in text:
        raise Broken(f"control characters are printed: {text[-300:]!r}")
    for path in outputs:
        if ended.returncode != 0 and path.exists() and path.suffix == ".muddle":
            muddle_runtime.load_model(path)  # a model that was saved stays whole
    left = [one for path in outputs for one in path.parent.glob(f".{path.name}*")]
    if left:
        raise Broken(f"parts of files are left: {left}")
    if ended.returncode != 0:
        raise Refusal(text[-300:])


def attack_csv(count: int, seed: int, folder: Path) -> Iterator[Attack]:
    """Fit and predict hostile CSV files by the command line."""
    for number in range(count):
        choose = random.Random(f"{seed} {number}")
        n_columns, n_rows = choose.randint(1, 5), choose.choice([0, 1, 5, 40])
        ends = choose.choice(["\n", "\r\n"])
        separator = choose.choice([",", ",", ";", "\t"])
        names = choose.sample(["a", "b", "", "=x", "\x1b[1m", '"q"'], n_columns)
        if choose.random() < 0.1:
            names[0] = names[-1]
        odd = choose.random() < 0.5
        lines = [separator.join([*names, "y"])]
        for _ in range(n_rows):
            cells = [
                choose.choice(CELLS)
                if odd and choose.random() < 0.2
                else f"{choose.gauss(0, 1):.3f}"
                for _ in names
            ]
            target = choose.choice(CELLS) if choose.random() < 0.02 else f"{choose.gauss(0, 1):.3f}"
            cells.append(target)
            if odd and choose.random() < 0.02:
                cells = cells[:-1]
            lines.append(separator.join(cells))
        path, model = folder / "odd.csv", folder / f"csv{number}.muddle"
        coding = choose.choice(["utf-8", "utf-8", "utf-16", "latin-1"])
        path.write_bytes(ends.join(lines).encode(coding, errors="replace"))
        targets = choose.choice([["y"], ["y"], ["y"], ["y", "a"], ["y", "b"], ["y", "y"], ["none"]])
        roles = [word for target in targets for word in ("--target", target)]

        fit = ["fit", str(path), *roles, "-o", str(model), *OPTIONS]
        yield f"csv number {number}", partial(check_csv, fit, model, path)


def check_csv(fit: list[str], model: Path, table: Path) -> None:
    check_command(run_command(fit), [model])
    out = model.with_suffix(".csv")
    check_command(run_command(["predict", str(model), str(table), "-o", str(out)]), [out])
    check_command(run_command(["info", str(model)]), [])


def write_table(folder: Path) -> Path:
    rng, n_rows = np.random.default_rng(0), 60
    path = folder / "table.csv"
    frame = pd.DataFrame(rng.normal(size=(n_rows, 4)), columns=list("abcd"))
    frame.assign(y=frame["a"] + rng.normal(size=n_rows)).to_csv(path, index=False)
    return path


def attack_kills(count: int, seed: int, folder: Path) -> Iterator[Attack]:
    """Kill or interrupt a fit at any moment: the old model stays, or the new one is whole."""
    table, model = write_table(folder), folder / "kept.muddle"
    page = folder / "kept.html"
    fit = ["fit", str(table), "-o", str(model), "--report", str(page), *FIT]
    began = time.perf_counter()
    check_command(run_command(fit), [model])
    whole = time.perf_counter() - began
    for number in range(count):
        choose = random.Random(f"{seed} {number}")
        sent = choose.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        after = choose.uniform(0, 1.1 * whole)

        yield f"{sent.name} after {after:.1f} s", partial(check_kill, fit, model, sent, after)


def check_kill(fit: list[str], model: Path, sent: signal.Signals, after: float) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "muddle", *fit],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        ended = process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        process.send_signal(sent)
        ended = process.communicate(timeout=300)
    output = b"".join(ended).decode(errors="replace")
    if sent == signal.SIGINT and "Traceback" in output and after > IMPORT_SECONDS:
        raise Broken(f"a traceback after Ctrl-C: {output[-400:]}")
    muddle_runtime.load_model(model)
    left = list(model.parent.glob(".*"))
    for one in left:
        one.unlink()
    if left and sent == signal.SIGINT:
        raise Broken("parts of files are left")


def attack_disk(count: int, seed: int, folder: Path) -> Iterator[Attack]:
    """Files may not grow beyond a size: the error names the file, and the old one stays."""
    table, model = write_table(folder), folder / "full.muddle"
    fit = ["fit", str(table), "-o", str(model), *FIT]
    check_command(run_command(fit), [model])
    before = model.read_bytes()
    for number in range(count):
        size = int(10 ** random.Random(f"{seed} {number}").uniform(2, 5))

        yield f"files of {size} bytes", partial(check_disk, fit, model, before, size)


def check_disk(fit: list[str], model: Path, before: bytes, size: int) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    ended = run_command(fit, preexec_fn=limit)
    text = (ended.stdout + ended.stderr).decode(errors="replace")
    if ended.returncode == 0 or model.read_bytes() != before:
        raise Broken("the old model is gone")
    if model.name not in text.replace("\n", ""):
        raise Broken(f"the error does not name the file: {text[-300:]}")
    check_command(ended, [model])


# --- time limits ---------------------------------------------------------------------------------


def attack_limits(count: int, seed: int, folder: Path) -> Iterator[Attack]:
    """Small tables and little time: a model in time, or an error that says how much it takes."""
    makers = [MuddleRegressor, MuddleClassifier, MLRRegressor, MLRClassifier, EnsMLRRegressor]
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        X = rng.normal(size=(int(rng.choice([8, 60, 600])), 4))
        make = makers[int(rng.integers(len(makers)))]
        y = X[:, 0] if issubclass(make, RegressorMixin) else X[:, 0] > 0
        seconds = float(10 ** rng.uniform(-3, 0.5))
        model = make(time_limit=seconds, random_state=0, device="cpu")

        about = f"{make.__name__}, {len(X)} rows, {seconds:.3g} s, number {number}"
        yield about, partial(check_limit, model, X, y, seconds)


def check_limit(model: Any, X: Any, y: Any, seconds: float) -> None:
    began = time.process_time()  # other processes may keep this one waiting
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            check_rows(model.fit(X, y), X)
    finally:
        taken = time.process_time() - began
        if taken > 1.1 * seconds + 1:  # of one thread, answers included
            raise Broken(f"{taken:.1f} s of the processor")


# --- threads -------------------------------------------------------------------------------------


def attack_threads(count: int, seed: int, folder: Path) -> Iterator[Attack]:
    """Models fitted and asked in several threads answer as alone, and leave torch as it was."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    makers: list[tuple[Callable[[], Any], Any]] = [
        (lambda: MuddleRegressor(**QUICK), y),
        (lambda: MLRRegressor(**SMALL), y),
        (lambda: MuddleClassifier(**QUICK), y > 0),
    ]
    alone = [make().fit(X, target).predict(X) for make, target in makers]
    for number in range(count):
        yield f"four threads, number {number}", partial(check_threads, makers, X, alone)


def check_threads(makers: list[tuple[Callable[[], Any], Any]], X: Any, alone: list[Any]) -> None:
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()

    def work(place: int) -> Any:
        make, target = makers[place % len(makers)]
        return make().fit(X, target).predict(X)

    with ThreadPoolExecutor(4) as pool:
        for place, answer in enumerate(pool.map(work, range(4))):
            if not np.allclose(answer, alone[place % len(makers)], rtol=1e-5, atol=1e-5):
                raise Broken("another answer than alone")
    if before != (torch.get_num_threads(), torch.get_float32_matmul_precision()):
        raise Broken("settings of torch are changed")


ATTACKS: dict[str, tuple[Callable[[int, int, Path], Iterator[Attack]], int]] = {
    "tables": (attack_tables, 400),
    "files": (attack_files, 1500),
    "csv": (attack_csv, 60),
    "kills": (attack_kills, 20),
    "disk": (attack_disk, 8),
    "limits": (attack_limits, 40),
    "threads": (attack_threads, 10),
}


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("attacks", nargs="*", choices=[*ATTACKS, []], help="default: all")
    parser.add_argument("--count", type=int, help="of each attack; each has a default of its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="CSV of the counts")
    parser.add_argument("--show-refusals", action="store_true", help="print every error")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    arguments = parse_arguments(given)
    rows = []
    for name in arguments.attacks or ATTACKS:
        attack, usual = ATTACKS[name]
        ends: collections.Counter[str] = collections.Counter()
        with tempfile.TemporaryDirectory() as folder:
            for about, run in attack(arguments.count or usual, arguments.seed, Path(folder)):
                end, text = judge(run)
                ends[end] += 1
                if end == FAULT or arguments.show_refusals:
                    print(f"{end}: {about}\n    {text}", flush=True)
        counts = {end: ends[end] for end in (ANSWERED, REFUSED, FAULT)}
        rows.append({"attack": name, "count": ends.total(), "seed": arguments.seed, **counts})
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if arguments.out is not None:
        pd.DataFrame(rows).to_csv(arguments.out, index=False)
    return int(any(row[FAULT] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
