"""What each body adds to the flagship: its pool, weighed again without the body.

    python scripts/ablate_pool.py --datasets servo ionosphere --splits 2 --out ablation.csv.gz
    python scripts/ablate_pool.py --summary results/ablation_bodies.csv.gz

Every table is fitted once per split. The members of that pool are then mixed in several ways, by
the flagship's own rules, and each mixture is scored as a method of the benchmark. Data sets are
those of the data folder; the summary is per part of the data (docs/datasets.md).
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import muddle
from muddle.estimators import muddle as flagship
from muddle.estimators.calibrate import fit_calibration
from muddle.estimators.pool import Pool, fit_pool, prune_members, weigh_members
from muddle_bench.data.catalogue import part_of
from muddle_bench.ranking import compare_with, name_kinds, read_table
from muddle_bench.run.execution import Answer, records_from_predictions
from muddle_bench.run.records import write_table
from muddle_bench.run.splits import prepare_split
from muddle_runtime.columns import FloatArray
from muddle_runtime.labels import NumberTarget

WHOLE = "pool"
BODIES = ("kernel", "forest", "boosting", "linear")
METRICS = {
    "numbers": ["r2"],
    "two classes": ["auc", "log_loss"],
    "more classes": ["auc", "log_loss"],
}


def find_kind(name: str) -> str:
    """The body of a member by its configuration's name."""
    first = name.split(",")[0]
    return first if first in BODIES else "nets"


def list_variants(names: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """The members of each variant."""
    kinds = np.array([find_kind(name) for name in names])
    plain = np.array(["normal scores" not in name for name in names])
    variants = {WHOLE: np.ones(len(kinds), dtype=bool), "nets alone": kinds == "nets"}
    variants |= {f"without {kind}": kinds != kind for kind in ("nets", *BODIES) if kind in kinds}
    if not plain.all():
        variants["without normal scores"] = plain
    return variants


def mix(
    out_of_fold: FloatArray,
    new: FloatArray,
    labels: FloatArray,
    codes: NDArray[np.int64] | None,
    target: Any,
) -> FloatArray:
    """Predictions for new rows, or probabilities. (M, N, C), (M, n, C), (N, C), (N,)"""
    known = out_of_fold, labels, None
    weights, _ = prune_members(weigh_members(*known), *known)
    rest = (1 - weights.sum()) * labels.mean(axis=0)
    found: FloatArray = np.tensordot(weights, new, axes=1) + rest
    if isinstance(target, NumberTarget):
        return target.restore(target.clip(found))
    assert codes is not None
    mixed = np.tensordot(weights, out_of_fold, axes=1) + rest
    return fit_calibration(mixed, codes, None).apply(found)


@contextmanager
def captured() -> Iterator[list[Pool]]:
    """Pools that are fitted within."""
    pools: list[Pool] = []

    def capture(*given: Any, **options: Any) -> Pool:
        pools.append(fit_pool(*given, **options))
        return pools[-1]

    with patch.object(flagship, "fit_pool", capture):
        yield pools


def ablate(dataset: str, split: int, home: str | None, **options: Any) -> Iterator[Answer]:
    """Predictions of each variant for one cell."""
    problem = prepare_split(dataset, "clean", home, split, "table")
    kind = muddle.MuddleClassifier if problem.n_classes else muddle.MuddleRegressor
    with captured() as pools:
        model = kind(random_state=split, **options).fit(problem.train, problem.y_train).model_
    (pool,) = pools
    matrix, offset = model.transform(problem.test), np.zeros(pool.training.labels.shape[1])
    free = model.target
    if isinstance(free, NumberTarget):
        free = replace(free, bounds=None)
    alone = replace(model, offset=offset, target=free, fallback=None)
    new = [
        replace(alone, members=(member.to_fitted(1.0),)).labels(matrix) for member in pool.members
    ]
    known = np.stack([member.out_of_fold for member in pool.members])
    codes = problem.y_train[pool.training.rows] if problem.n_classes else None
    for variant, kept in list_variants([member.name for member in pool.members]).items():
        mixed = mix(known[kept], np.stack(new)[kept], pool.training.labels, codes, model.target)
        yield Answer(dataset, split, variant, mixed, None)


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Share of splits that the whole pool wins against each variant, in percent, and mean gain."""
    kinds, parts = name_kinds(table), table["dataset"].map(part_of)
    rows = []
    for kind, metrics in METRICS.items():
        for part in ("development", "evaluation"):
            records = table[(kinds == kind) & (parts == part)]
            if records.empty:
                continue
            for metric in metrics:
                for row in compare_with(records, WHOLE, metric).to_dict("records"):
                    if row["method"] == WHOLE:
                        continue
                    wide = records.pivot(
                        index=["dataset", "split"], columns="method", values=metric
                    ).dropna(subset=[row["method"]])
                    gain = (wide[WHOLE] - wide[row["method"]]).groupby("dataset").mean().mean()
                    won = [round(100 * row[name]) for name in ("won", "won_low", "won_high")]
                    rows.append(
                        {
                            "kind": kind,
                            "part": part,
                            "metric": metric,
                            "variant": row["method"],
                            "won by the pool, %": f"{won[0]} [{won[1]}, {won[2]}]",
                            "mean gain": round(gain if metric != "log_loss" else -gain, 4),
                            "data sets": row["datasets"],
                        }
                    )
    return pd.DataFrame(rows)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", default=[])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--data-home", default=None, help="default: $MUDDLE_DATA")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--out", type=Path, help="table of the benchmark, one method per variant")
    parser.add_argument("--summary", type=Path, help="a table that was written before")
    arguments = parser.parse_args(given)
    if arguments.summary is None:
        home = arguments.data_home
        answers = (
            answer
            for dataset in arguments.datasets
            for split in range(arguments.splits)
            for answer in ablate(dataset, split, home, preset=arguments.preset)
        )
        families = dict.fromkeys(
            [WHOLE, *list_variants([*BODIES, "waves, normal scores"])], "Flagship"
        )
        records = list(records_from_predictions(answers, families=families, data_home=home))
        write_table(records, arguments.out)
    print(summarise(read_table(arguments.summary or arguments.out)).to_string(index=False))


if __name__ == "__main__":
    main()
