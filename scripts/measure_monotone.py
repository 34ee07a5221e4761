"""What constraints cost: the flagship free and with up to four monotone columns.

    OMP_NUM_THREADS=1 python scripts/measure_monotone.py
    python scripts/measure_monotone.py --summary

Tables of the development part with columns along which the target plausibly rises or falls, chosen
before any score was seen; the benchmark's splits, --max-rows rows. Score: R², or the area under the
ROC curve. Order: share of pairs of test rows, one of them moved along a constrained column by a
random other row's value, whose predictions are in the wrong order. Seconds: of the processor, for
a thousand rows. One row per data set, number of
constrained columns and split; rows that are in the file are not made again.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score, roc_auc_score

from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators.pool import Preset
from muddle_bench.data.catalogue import part_of
from muddle_bench.data.datasets import load_dataset
from muddle_bench.data.download import find_data_home
from muddle_bench.run.splits import split_rows

ROOT = Path(__file__).resolve().parents[1]
TABLES = {
    "insurance": {"age": 1, "bmi": 1, "children": 1},
    "saratoga_houses": {"livingArea": 1, "landValue": 1, "lotSize": 1, "bathrooms": 1},
    "computer-hardware": {"MMAX": 1, "MMIN": 1, "CACH": 1, "MYCT": -1},
    "body_fat": {"abdom": 1, "height": -1},
    "heart_cleveland": {"ST by exercise": 1, "max HR": -1, "major vessels colored": 1},
}
KEY = ["dataset", "constrained", "split"]
N_PAIRS, N_TIMED, COVERAGE = 20_000, 1000, 0.9


def answer(model: Any, rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    if isinstance(model, MuddleRegressor):
        return np.asarray(model.predict(rows))
    return np.asarray(model.predict_proba(rows)[:, 1])


def count_disorder(model: Any, rows: pd.DataFrame, columns: dict[str, int]) -> float:
    rng = np.random.default_rng(0)
    wrong = 0
    for name, sign in columns.items():
        n_pairs = N_PAIRS // len(columns)
        rows = rows.dropna(subset=[name])
        base = rows.iloc[rng.integers(len(rows), size=n_pairs)].reset_index(drop=True)
        moved = base.assign(**{name: rng.choice(rows[name].to_numpy(), n_pairs)})
        both = answer(model, pd.concat([base, moved], ignore_index=True))
        steps = np.sign(moved[name] - base[name]).to_numpy() * sign
        wrong += int((steps * (both[n_pairs:] - both[:n_pairs]) < 0).sum())
    return wrong / N_PAIRS


def measure(dataset: str, n_columns: int, split: int, args: argparse.Namespace) -> dict[str, Any]:
    home = find_data_home(args.data_home)
    assert part_of(dataset, home) == "development"
    data = load_dataset(dataset, "clean", home)
    classes = data.task == "classification"
    X, y = data.X, np.asarray(data.y)
    if classes:  # disease is the second class
        y = (y != np.unique(y)[0]).astype(int)
    rows = split_rows(len(y), split)
    train, test = rows.train[: args.max_rows], rows.test
    chosen = dict(list(TABLES[dataset].items())[:n_columns])
    kind = MuddleClassifier if classes else MuddleRegressor
    model = kind(preset=args.preset, random_state=split, monotone=chosen or None)
    model.fit(X.iloc[train], y[train])
    new, wanted = X.iloc[test], y[test]
    predicted = answer(model, new)
    many = X.iloc[np.arange(N_TIMED) % len(X)]
    began = time.process_time()
    answer(model, many)
    seconds = time.process_time() - began
    found = {
        "dataset": dataset,
        "constrained": n_columns,
        "split": split,
        "preset": args.preset,
        "columns": " ".join(f"{name}:{sign:+d}" for name, sign in chosen.items()),
        "n_train": len(train),
        "n_test": len(test),
        "score": (roc_auc_score if classes else r2_score)(wanted, predicted),
        "wrong_order": count_disorder(model, new, chosen or TABLES[dataset]),
        "seconds_per_1000_rows": seconds,
    }
    if not classes:
        low, high = model.predict_interval(new, COVERAGE).T
        outside = np.maximum(low - wanted, 0) + np.maximum(wanted - high, 0)
        scores = (high - low + 2 / (1 - COVERAGE) * outside) / y[train].std()
        found["coverage"] = np.mean((low <= wanted) & (wanted <= high))
        found["interval_score"] = scores.mean()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--max-rows", type=int, default=600)
    parser.add_argument("--preset", default="fast", choices=get_args(Preset))
    parser.add_argument("--data-home", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "monotone.csv")
    parser.add_argument("--summary", action="store_true", help="only summarise the rows of --out")
    args = parser.parse_args()
    table = pd.read_csv(args.out) if args.out.is_file() else pd.DataFrame(columns=KEY)
    if args.summary:
        shown = ["score", "wrong_order", "interval_score", "coverage", "seconds_per_1000_rows"]
        print(table.groupby(["dataset", "constrained"])[shown].mean().round(3).to_string())
        return
    warnings.simplefilter("ignore")
    known = set(table[KEY].itertuples(index=False, name=None))
    for split in range(args.splits):
        for dataset, columns in TABLES.items():
            for n_columns in range(len(columns) + 1):
                if (dataset, n_columns, split) in known:
                    continue
                row = pd.DataFrame([measure(dataset, n_columns, split, args)])
                table = row if table.empty else pd.concat([table, row], ignore_index=True)
                table.sort_values(KEY).to_csv(args.out, index=False, float_format="%.6g")
                print(row.to_string(header=False, index=False), flush=True)


if __name__ == "__main__":
    main()
