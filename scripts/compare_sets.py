"""Sets of classes of the flagship beside plain thresholds.

    python scripts/compare_sets.py
    python scripts/compare_sets.py --summary

Recipe clean, the benchmark's splits, coverage 0.9, all development tables of classes up to 6,000
rows. One fit gives three kinds of sets: `conformal` is `predict_set(X)`, `by class` is
`predict_set(X, by_class=True)`, and `plain` takes the likeliest classes until their calibrated
probabilities sum to 0.9.

Size is the mean number of classes in a set; the uncertain half are the test rows whose likeliest
class has a probability below the median; the lowest class is that with the lowest coverage, of
those with 10 test rows or more.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle import MuddleClassifier
from muddle.estimators.pool import Preset
from muddle_bench.data.catalogue import part_of, read_all
from muddle_bench.data.datasets import Dataset, load_dataset
from muddle_bench.data.download import find_data_home, locate
from muddle_bench.run.splits import split_rows

ROOT = Path(__file__).resolve().parents[1]
COVERAGE, FEWEST = 0.9, 10
SCORES = ["coverage", "size", "uncertain_half", "certain_half", "lowest_class"]


def sum_plainly(probabilities: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The likeliest classes until they sum to the coverage. (n, classes) -> (n, classes)"""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    inside = np.empty(probabilities.shape, dtype=bool)
    np.put_along_axis(inside, order, ranked.cumsum(axis=1) - ranked < COVERAGE, axis=1)
    return inside


def score_sets(
    sets: NDArray[np.bool_], probabilities: NDArray[np.float64], codes: NDArray[np.int64]
) -> dict[str, float]:
    inside, certainty = sets[np.arange(len(codes)), codes], probabilities.max(axis=1)
    uncertain = certainty < np.median(certainty)
    counts = np.bincount(codes)
    classes = [inside[codes == c].mean() for c in np.flatnonzero(counts >= FEWEST)]
    halves = (inside[rows].mean() if rows.any() else np.nan for rows in (uncertain, ~uncertain))
    found = inside.mean(), sets.sum(axis=1).mean(), *halves, min(classes, default=np.nan)
    return dict(zip(SCORES, map(float, found), strict=True))


def run(data: Dataset, name: str, split: int, preset: Preset) -> list[dict[str, Any]]:
    rows = split_rows(len(data.y), split)
    train, test = (data.X.iloc[part].reset_index(drop=True) for part in (rows.train, rows.test))
    y = np.asarray(data.y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about ignored columns, rare classes, levels
        model = MuddleClassifier(preset=preset, device="cpu", random_state=split)
        probabilities = model.fit(train, y[rows.train]).predict_proba(test)
        known = np.isin(y[rows.test], model.classes_)
        codes = np.searchsorted(model.classes_, y[rows.test][known])
        kinds = {
            "conformal": model.predict_set(test, COVERAGE),
            "by class": model.predict_set(test, COVERAGE, by_class=True),
            "plain": sum_plainly(probabilities),
        }
    probabilities = probabilities[known]
    about = {
        "dataset": name,
        "split": split,
        "preset": preset,
        "n_train": len(rows.train),
        "n_test": len(codes),
        "classes": len(model.classes_),
        "accuracy": float((probabilities.argmax(axis=1) == codes).mean()),
    }
    return [
        about | {"sets": kind} | score_sets(sets[known], probabilities, codes)
        for kind, sets in kinds.items()
    ]


def summarise(found: pd.DataFrame) -> str:
    """Means over data sets: all, and those where the likeliest class is not enough."""
    lines = []
    hard = found["accuracy"] < COVERAGE
    for title, rows in [
        ("all data sets", found),
        (f"accuracy below {COVERAGE}", found[hard]),
        (f"accuracy below {COVERAGE}, three classes or more", found[hard & (found["classes"] > 2)]),
    ]:
        means = rows.groupby(["sets", "dataset"])[SCORES].mean().groupby("sets").mean()
        n_sets = rows["dataset"].nunique()
        lines += [f"{title} ({n_sets}), means over data sets", means.round(3).to_string(), ""]
    return "\n".join(lines)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--max-rows", type=int, default=6000)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--preset", default="fast", choices=get_args(Preset))
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "sets.csv")
    parser.add_argument("--summary", action="store_true", help="only summarise the rows of --out")
    arguments = parser.parse_args(given)
    if not arguments.summary:
        home, rows = find_data_home(arguments.data_home), []
        for entry in read_all(home).values():
            developed = part_of(entry.id, home) == "development"
            if entry.task == "regression" or not developed or not locate(entry, home):
                continue
            data = load_dataset(entry.id, "clean", home)
            if data.task != "classification" or len(data.y) > arguments.max_rows:
                continue
            for split in range(arguments.splits):
                rows += run(data, entry.id, split, arguments.preset)
                print(", ".join(f"{key} {value}" for key, value in rows[-3].items()), flush=True)
        pd.DataFrame(rows).to_csv(arguments.out, index=False, float_format="%.4g")
    print(summarise(pd.read_csv(arguments.out)))


if __name__ == "__main__":
    main()
