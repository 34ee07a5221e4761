"""Write a table that is larger than memory: a folder of Parquet files with a known best R².

    python benchmarks/big_table.py /tmp/big --rows 20000000
    python benchmarks/big_table.py /tmp/small --rows 200000

FOLDER/train has the rows, FOLDER/test a hundredth as many further ones, FOLDER/about.json what was
drawn. The columns: twenty numbers, of which twelve matter, alone and in pairs; towns, grades,
products and 20,000 shops; a note of three words; two dates; a flag, a count and an hour. Two of the
numbers, the flag and a date have gaps, some of which tell something. Row groups are in
the order of `opened`, as those of a table that grows: the first one is no sample of the others.

The target `y` is a function of the columns as they stand in the files, gaps included (`signal`),
plus normal noise. So the best R² that anything can reach is known: 1 - noise²/variance, in
about.json for the rows drawn, 0.8 but for chance. A row group is drawn from the seed and its
number alone and written before the next one: memory does not grow with the rows.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROW_GROUP, GROUPS_IN_FILE = 100_000, 10
TEST_SHARE = 0.01
BEST_R2 = 0.8
N_NUMBERS = 20
TOWNS, PRODUCTS, SHOPS = 12, 1_000, 20_000
DAYS = 3_650  # from the first `opened` to the last
FIRST_DAY = np.datetime64("2014-01-01", "D")
WORDS = (
    ["new", "used", "worn", "damaged", "rare", "late", "early", "plain"],
    ["red", "green", "blue", "grey", "white", "black", "brown", "yellow", "pink", "gold"],
    [
        "bowl",
        "chair",
        "lamp",
        "table",
        "shelf",
        "clock",
        "frame",
        "stool",
        "bench",
        "vase",
        "mirror",
        "chest",
    ],
)
GRADES = list("ABCDE")
Columns = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]


@cache
def effects() -> dict[str, Any]:
    """What each level, word and number adds; the same for every table."""
    rng = np.random.default_rng(20_000_000)
    return {
        "town": rng.normal(0, 0.5, TOWNS),
        "product": rng.normal(0, 0.5, PRODUCTS),
        "shop": rng.normal(0, 0.3, SHOPS),
        "words": [rng.normal(0, 0.3, len(words)) for words in WORDS],
        "numbers": rng.normal(0, 0.2, 4),  # of x8 to x11
    }


def draw(rng: np.random.Generator, n_rows: int, first: float, last: float) -> dict[str, Any]:
    """The columns of some rows, opened between two shares of the time; levels as their numbers,
    the words of the note in one number. Gaps are NaN, NaT and -1."""
    numbers = rng.standard_normal((N_NUMBERS, n_rows), dtype=np.float32)
    numbers[12] = 0.8 * numbers[0] + 0.6 * numbers[12]  # correlated, and without an effect
    numbers[13] = np.exp(numbers[13])
    numbers[4, rng.random(n_rows) < 0.1] = np.nan
    numbers[5, numbers[6] + 0.5 * rng.standard_normal(n_rows, dtype=np.float32) > 1.2] = np.nan
    opened = rng.uniform(first, last, n_rows) * DAYS
    days = rng.exponential(8.0, n_rows)
    days[rng.random(n_rows) < 0.05] = np.nan
    online = (rng.random(n_rows) < 0.4).astype(np.int8)
    online[rng.random(n_rows) < 0.03] = -1
    note = np.zeros(n_rows, np.int32)
    for words in WORDS:
        note = note * len(words) + rng.integers(0, len(words), n_rows, np.int32)
    columns: dict[str, Any] = {f"x{i}": values for i, values in enumerate(numbers)}
    columns |= {
        "town": rng.integers(0, TOWNS, n_rows, np.int32),
        "product": (PRODUCTS * rng.random(n_rows) ** 2).astype(np.int32),  # some are frequent
        "shop": rng.integers(0, SHOPS, n_rows, np.int32),
        "grade": rng.integers(0, len(GRADES), n_rows, np.int32),
        "note": note,
        "opened": FIRST_DAY + opened.astype("timedelta64[D]"),
        "delivered": FIRST_DAY + (opened + np.nan_to_num(days)).astype("timedelta64[D]"),
        "online": online,
        "count": rng.poisson(3.0, n_rows).astype(np.int16),
        "hour": rng.integers(0, 24, n_rows, np.int16),
    }
    columns["delivered"][np.isnan(days)] = np.datetime64("NaT")
    return columns


def signal(columns: Columns) -> Floats:
    """What is known of the target, from what stands in the files."""
    known, x = effects(), [np.asarray(columns[f"x{i}"], float) for i in range(N_NUMBERS)]
    found: Floats = np.sin(2 * x[0]) + 0.6 * x[1] * x[2] + 0.5 * np.abs(x[3])
    found += np.where(np.isnan(x[4]), 0.7, 0.5 * np.nan_to_num(x[4]))
    found += np.where(np.isnan(x[5]), -0.5, 0.3 * np.nan_to_num(x[5]) ** 2)
    found += 0.4 * (x[7] > 0.5) * (1 + (columns["online"] == 1) * np.sign(x[6]))
    found += sum(weight * x[8 + i] for i, weight in enumerate(known["numbers"]))
    for name in ("town", "product", "shop"):
        found += known[name][columns[name]]
    note = np.asarray(columns["note"])
    for words, added in zip(WORDS[::-1], known["words"][::-1], strict=True):
        note, word = np.divmod(note, len(words))
        found += added[word]
    found += 0.15 * (columns["grade"] - 2.0) * np.where(columns["online"] == 1, 1, -1)
    opened = (columns["opened"] - FIRST_DAY) / np.timedelta64(1, "D")
    waited = (columns["delivered"] - columns["opened"]) / np.timedelta64(1, "D")
    found += 0.5 * opened / DAYS + 0.3 * np.sin(2 * np.pi * opened / 365.25)
    found += np.where(np.isnan(waited), 0.6, -0.02 * np.nan_to_num(waited))
    return found + 0.1 * np.sqrt(columns["count"]) + 0.2 * (columns["hour"] >= 18)


@cache
def noise_deviation() -> float:
    """The deviation of the noise that leaves BEST_R2 of the target's variance."""
    known = signal(draw(np.random.default_rng(0), 500_000, 0.0, 1.0))
    return float(known.std() * np.sqrt(1 / BEST_R2 - 1))


def to_arrow(columns: Columns, y: Floats) -> pa.Table:
    """Levels and notes as text, dates as dates, gaps as nulls."""
    names = {
        "town": [f"town {i}" for i in range(TOWNS)],
        "product": [f"P{i:04}" for i in range(PRODUCTS)],
        "shop": [f"shop-{i:05}" for i in range(SHOPS)],
        "grade": GRADES,
        "note": [f"{a} {b} {c}" for a in WORDS[0] for b in WORDS[1] for c in WORDS[2]],
    }
    arrays = {}
    for name, values in columns.items():
        if name in names:
            text = pa.DictionaryArray.from_arrays(values, names[name])
            arrays[name] = text.cast(pa.string())
        elif name == "online":
            arrays[name] = pa.array(values == 1, mask=values < 0)
        else:
            arrays[name] = pa.array(values, from_pandas=True)
    return pa.table(arrays | {"y": pa.array(y)})


def from_arrow(table: pa.Table) -> dict[str, Any]:
    """The columns that `to_arrow` was given, from the table alone."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        values = table[name].to_pandas()
        if name in ("town", "product", "shop"):
            columns[name] = values.str.extract(r"(\d+)", expand=False).astype(int).to_numpy()
        elif name == "grade":
            columns[name] = values.map(GRADES.index).to_numpy()
        elif name == "note":
            words = values.str.split(" ", expand=True)
            note = np.zeros(len(values), int)
            for place, known in enumerate(WORDS):
                note = note * len(known) + words[place].map(list(known).index).to_numpy()
            columns[name] = note
        elif name == "online":
            columns[name] = values.map({True: 1, False: 0}).fillna(-1).astype(int).to_numpy()
        elif name in ("opened", "delivered"):
            columns[name] = np.asarray(table[name].cast(pa.timestamp("s")), "datetime64[D]")
        else:
            columns[name] = values.to_numpy()
    return columns


class Sums:
    """Rows, sum and squares of the target and of its noise."""

    def __init__(self) -> None:
        self.sums = np.zeros(4)

    def add(self, y: Floats, noise: Floats) -> None:
        self.sums += [len(y), y.sum(), y @ y, noise @ noise]

    def describe(self) -> dict[str, float]:
        rows, total, squares, noise = self.sums.tolist()
        return {"rows": int(rows), "best_r2": 1 - noise / (squares - total**2 / rows)}


def write(folder: Path, n_rows: int, seed: int, group_rows: int = ROW_GROUP) -> dict[str, Any]:
    """Write both folders; a file has its name once it is whole."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(
            f"{folder} must be an empty or a new folder. Delete it or name another."
        )
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
    sums = {"train": Sums(), "test": Sums()}
    starts = range(0, n_rows, group_rows)
    test, test_path = None, folder / "test" / "part-00000.parquet"
    for first in range(0, len(starts), GROUPS_IN_FILE):
        path = folder / "train" / f"part-{first // GROUPS_IN_FILE:05}.parquet"
        train = None
        for group, start in list(enumerate(starts))[first : first + GROUPS_IN_FILE]:
            rng = np.random.default_rng([seed, group])
            n_train = min(group_rows, n_rows - start)
            n_drawn = n_train + max(1, round(TEST_SHARE * n_train))
            columns = draw(rng, n_drawn, start / n_rows, (start + n_train) / n_rows)
            noise = rng.normal(0, noise_deviation(), n_drawn)
            y = signal(columns) + noise
            table = to_arrow(columns, y)
            if train is None:
                train = pq.ParquetWriter(f"{path}.part", table.schema)
            if test is None:
                test = pq.ParquetWriter(f"{test_path}.part", table.schema)
            for name, writer, rows in (
                ("train", train, slice(0, n_train)),
                ("test", test, slice(n_train, n_drawn)),
            ):
                writer.write_table(table[rows])
                sums[name].add(y[rows], noise[rows])
        assert train is not None
        train.close()
        os.replace(f"{path}.part", path)
    assert test is not None
    test.close()
    os.replace(f"{test_path}.part", test_path)
    about = {"seed": seed, "row_group": group_rows, "columns": table.num_columns - 1}
    about |= {name: of.describe() for name, of in sums.items()}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(given)
    if arguments.rows < 1:
        parser.error(f"--rows must be 1 or more, got {arguments.rows}.")
    began = time.process_time()
    about = write(arguments.folder, arguments.rows, arguments.seed)
    size = sum(path.stat().st_size for path in arguments.folder.rglob("*.parquet"))
    print(json.dumps(about))
    print(f"{size / 1e9:.2f} GB in {time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
