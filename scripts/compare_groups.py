"""Intervals and sets on rows of new groups, by the flagship with `groups` and without.

    OMP_NUM_THREADS=1 python scripts/compare_groups.py
    python scripts/compare_groups.py --summary

Simulations: draws of a target of which columns explain half of the variance; of the rest, this
share (`strength`) is an effect of the group, and three columns that describe the group tell which
it is. Groups have six rows. Tables: those of the development part whose rows belong together,
chosen before any score was seen; 70 % of the groups to learn from, the columns that name the group
left out, 50 rows of a group and --max-rows rows at most. One row per fit; rows that are in the file
are not made again.

Coverage is the share of rows of new groups whose target is in the interval, or whose class is in
the set; size is the mean width of intervals, in deviations of the target, or classes in a set.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd

from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators.pool import Preset
from muddle_bench.data.catalogue import find_entry, part_of
from muddle_bench.data.datasets import load_dataset
from muddle_bench.data.download import find_data_home, locate

ROOT = Path(__file__).resolve().parents[1]
# The column that names groups, and others that name them too.
TABLES: dict[str, tuple[str, ...]] = {
    "arabidopsis_fruits": ("gen",),
    "computer-hardware": ("vendor",),
    "cpu_power": ("codename",),
    "epa_mileage": ("mfr_name", "division"),
    "fifa_value": ("nationality",),
    "hotel_rates": ("agent",),
    "market_value": ("country",),
    "metro_passengers": ("location",),
    "crash_death": ("caseid",),
    "immunization": ("mom",),
    "rice_insurance": ("address",),
    "vowels": ("speaker",),
    "yogurt_choice": ("id",),
}
STRENGTHS, N_GROUPS, ROWS_EACH = (0.0, 0.3, 0.6, 0.9), (10, 30), 6
NEW_GROUPS, MOST_EACH, COVERAGE = 200, 50, 0.9
KEY = ["data", "strength", "groups", "split", "passed"]


class Rows(NamedTuple):
    X: Any
    y: np.ndarray[Any, Any]
    groups: np.ndarray[Any, Any]

    def take(self, rows: np.ndarray[Any, Any]) -> "Rows":
        return Rows(self.X.iloc[rows].reset_index(drop=True), self.y[rows], self.groups[rows])


def simulate(strength: float, n_groups: int, split: int) -> tuple[Rows, Rows]:
    """Rows to learn from, and rows of other groups."""
    rng = np.random.default_rng([split, n_groups, round(10 * strength)])
    groups = np.repeat(np.arange(n_groups + NEW_GROUPS), ROWS_EACH)
    about = rng.normal(size=(n_groups + NEW_GROUPS, 3))[groups]
    own = rng.normal(size=(len(groups), 3))
    effects = rng.normal(size=n_groups + NEW_GROUPS)[groups]
    fixed = (own[:, 0] + about[:, 0] + np.sin(own[:, 1])) / np.sqrt(2.43)  # half of the variance
    noise = rng.normal(size=len(groups))
    y = fixed + np.sqrt(strength) * effects + np.sqrt(1 - strength) * noise
    rows = Rows(pd.DataFrame(np.hstack([about, own])).add_prefix("x"), y, groups)
    return rows.take(groups < n_groups), rows.take(groups >= n_groups)


def cut(dataset: str, split: int, max_rows: int, home: Path) -> tuple[Rows, Rows]:
    """Rows of 70 % of the groups, and of the others."""
    data, path = load_dataset(dataset, "clean", home), locate(find_entry(dataset, home), home)
    name, y = TABLES[dataset][0], np.asarray(data.y)
    named = data.X[name] if name in data.X else pd.read_parquet(path)[name]
    assert len(named) == len(y)
    X = data.X.drop(columns=[column for column in TABLES[dataset] if column in data.X])
    known = np.flatnonzero(named.notna())
    rows = Rows(X, y, pd.factorize(named)[0]).take(known)
    rng = np.random.default_rng(split)
    order = rng.permutation(np.unique(rows.groups))
    first = np.isin(rows.groups, order[: round(0.7 * len(order))])
    parts = []
    for own in (first, ~first):
        part = rows.take(rng.permutation(np.flatnonzero(own)))
        each = pd.Series(part.groups).groupby(part.groups).cumcount() < MOST_EACH
        part = part.take(np.flatnonzero(each))
        places = pd.Series(np.arange(len(order)), index=order)[part.groups]
        parts.append(part.take(np.argsort(places, kind="stable")[:max_rows]))
    return parts[0], parts[1]


def measure(train: Rows, new: Rows, passed: bool, split: int, preset: Preset) -> dict[str, Any]:
    classes = train.y.dtype.kind not in "fiu" or len(np.unique(train.y)) < 13
    kind = MuddleClassifier if classes else MuddleRegressor
    model = kind(preset=preset, device="cpu", random_state=split)
    model.fit(train.X, train.y, groups=train.groups if passed else None)
    if classes:
        new = new.take(np.flatnonzero(np.isin(new.y, model.classes_)))
        sets = model.predict_set(new.X, COVERAGE)
        inside = sets[np.arange(len(new.y)), np.searchsorted(model.classes_, new.y)]
        size, scores = sets.sum(axis=1).mean(), np.full(len(new.y), np.nan)
        error = np.mean(model.predict(new.X) != new.y)
    else:
        unit = train.y.std()
        low, high = model.predict_interval(new.X, COVERAGE).T
        inside, size = (low <= new.y) & (new.y <= high), np.mean(high - low) / unit
        outside = np.maximum(low - new.y, 0) + np.maximum(new.y - high, 0)
        scores = (high - low + 2 / (1 - COVERAGE) * outside) / unit
        error = np.sqrt(np.mean((new.y - model.predict(new.X)) ** 2)) / unit
    return {
        "preset": preset,
        "task": "classes" if classes else "numbers",
        "n_train": len(train.y),
        "n_new": len(new.y),
        "new_groups": len(np.unique(new.groups)),
        "out_of_fold_score": model.leaderboard_["score"].max(),
        "error": error,
        "coverage": inside.mean(),
        "size": size,
        "interval_score": scores.mean(),
    }


def summarise(found: pd.DataFrame) -> str:
    found = found.assign(passed=found["passed"].map({True: "groups", False: "none"}))
    by = ["task", "data", "strength", "groups"]
    means = found.groupby([*by, "passed"], dropna=False)[["coverage", "size", "interval_score"]]
    return str(means.mean().unstack("passed").round(3).to_string())


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--max-rows", type=int, default=1000)
    parser.add_argument("--preset", default="fast", choices=get_args(Preset))
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "groups.csv")
    parser.add_argument("--summary", action="store_true", help="only summarise the rows of --out")
    args = parser.parse_args(given)
    table = pd.read_csv(args.out) if args.out.is_file() else pd.DataFrame(columns=KEY)
    if args.summary:
        print(summarise(table))
        return
    warnings.simplefilter("ignore")
    home = find_data_home(args.data_home)
    cells: list[tuple[str, float, int, int]] = []
    for dataset in TABLES:
        known = locate(find_entry(dataset, home), home) is not None
        assert part_of(dataset, home) == "development"
        cells += [(dataset, np.nan, 0, split) for split in range(args.splits if known else 0)]
    cells += [
        ("simulated", strength, n_groups, draw)
        for draw in range(args.draws)
        for n_groups in N_GROUPS
        for strength in STRENGTHS
    ]
    done = {(*row[:1], f"{row[1]}", *row[2:]) for row in table[KEY].itertuples(index=False)}
    for data, strength, n_groups, split in cells:
        for passed in (False, True):
            if (data, f"{strength}", n_groups, split, passed) in done:
                continue
            if data == "simulated":
                train, new = simulate(strength, n_groups, split)
            else:
                train, new = cut(data, split, args.max_rows, home)
            about = dict(zip(KEY, (data, strength, n_groups, split, passed), strict=True))
            if data != "simulated":
                about["train_groups"] = len(np.unique(train.groups))
            row = pd.DataFrame([about | measure(train, new, passed, split, args.preset)])
            table = row if table.empty else pd.concat([table, row], ignore_index=True)
            table.sort_values(KEY).to_csv(args.out, index=False, float_format="%.4g")
            print(row.to_string(header=False, index=False), flush=True)
    print(summarise(table))


if __name__ == "__main__":
    main()
