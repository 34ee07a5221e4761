"""What each ingredient of the flagship's pool adds.

    python scripts/ablate_flagship.py --splits 3 --out results/ablation_flagship.csv
    python scripts/ablate_flagship.py --summary --table results/benchmark_clean.csv.gz

Recipe clean, the benchmark's splits, score: test R² or AUC. The candidates are trained once, in as
many rounds as the preset has, and from these same nets answer:
  pool       what the estimator does: shrunken weights, further rounds for those that count
  alone      each candidate alone at its last iteration: "only bins, last iteration"
  snapshots  each candidate alone, ends of cycles weighed: "only bins"; and all of them at their
             last iteration
  without    the pool without each candidate: "without bins"
  weights    equal weights, the best single member, greedy selection
  rounds     fewer rounds of cross-fitting: "1 round"
The other variants change one setting of all candidates, and are trained in one round: what they are
compared with is "1 round". One row per data set, split and variant; rows that are there are not
made again. --table names a table of `muddle benchmark export`: the summary then has win rates
against CatBoost on the same splits.
"""

import argparse
import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from evidence import Cell, add_row, choose_datasets, read_cell, read_rows, split_by_half
from pool_variants import (
    FULL,
    GROUPS,
    ONE_ROUND,
    Answer,
    Run,
    Variant,
    answer_variant,
    list_variants,
)

from muddle.core.device import resolve_device
from muddle.errors import DivergenceError
from muddle.estimators.problems import NumberProblem, fit_features, read_classes, read_numbers
from muddle.flagship.calibration import fit_calibration
from muddle.flagship.estimators import BEYOND
from muddle.flagship.fitting import Lesson, Pool, fit_pool
from muddle.flagship.pool import Plan, Preset, make_plan
from muddle.flagship.targets import fit_normal_scores
from muddle.scores import area_under_curve, score_regression, spread
from muddle.tables import TablePreprocessor
from muddle.tables.checks import FloatArray
from muddle.training import trainer
from muddle.training.config import TrainConfig
from muddle.training.stopping import Deadline
from muddle_bench.ranking import read_table

ROOT = Path(__file__).resolve().parents[1]
KEY = ["dataset", "split", "variant"]
COLUMNS = [*KEY, "task", "score", "seconds"]
METRICS = {"regression": "r2", "classification": "auc"}
CONSTANT = "constant rate"


def changed(**settings: Any) -> Callable[[TrainConfig], TrainConfig]:
    return lambda config: replace(config, **settings)


TRAINING: dict[str, Callable[[TrainConfig], TrainConfig]] = {  # other settings of all candidates
    "no feature scale": changed(scale_rate=0.0),
    CONSTANT: changed(),
    "second moment 0.999": changed(second_moment=0.999),
    "relu": changed(activation="relu"),
    "depth 2": changed(depth=2),
    "no permutations": changed(n_permutations=0),
    "released loss": changed(loss="released"),
    "structured noise": changed(structured_noise=1.0),
    "width 128": changed(width=128),
    "width 512": changed(width=512),
    "half the steps": lambda config: replace(config, max_iter=config.steps // 2),
    "batches of 4096": changed(batch_size=4096),
}


@dataclass(frozen=True)
class Exercise:
    """A cell as the flagship's nets learn it."""

    cell: Cell
    problem: Any  # NumberProblem or ClassProblem
    lesson: Lesson
    test: FloatArray  # (n, F)

    def score(self, answer: Answer) -> float | None:
        """R², or AUC of calibrated probabilities: None where all test rows are of one class."""
        cell, problem = self.cell, self.problem
        if isinstance(problem, NumberProblem):
            low, high = problem.labels.min(axis=0), problem.labels.max(axis=0)
            room = BEYOND * (high - low)
            said = problem.scale.undo(np.clip(answer.test, low - room, high + room))
            return score_regression(cell.y_test, said)["r2"]
        calibration = fit_calibration(answer.out_of_fold, problem.codes, problem.weights)
        table = spread(calibration.apply(answer.test), cell.seen, cell.n_classes)
        return area_under_curve(cell.y_test, table)


def read_exercise(cell: Cell) -> Exercise:
    """As the estimators do before they train."""
    owner = "the ablation"
    problem: Any
    if cell.task == "regression":
        problem = read_numbers(cell.train, cell.y_train, None, owner)
        strata, normal = problem.labels.mean(axis=1), fit_normal_scores(problem.labels)
    else:
        problem = read_classes(
            cell.train, cell.y_train, None, owner, class_weight=None, criterion="logistic"
        )
        strata, normal = problem.codes.astype(np.float64), None
    preprocessor, matrix = fit_features(TablePreprocessor(scaling="robust+clip"), problem)
    lesson = Lesson(
        matrix=matrix,
        n_numbers=len(preprocessor.plan_.block.kept),
        labels=problem.labels,
        strata=strata,
        weights=problem.weights,
        normal=normal,
    )
    return Exercise(cell, problem, lesson, np.asarray(preprocessor.transform(cell.test)))


def train_rounds(exercise: Exercise, plan: Plan, device: torch.device, n_rounds: int) -> list[Run]:
    """All candidates in all rounds; one that diverged in any is left out."""

    def watch(n_net_iterations: int, label: str) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def train_one(number: int) -> Pool:
        return fit_pool(
            exercise.lesson,
            replace(plan, n_rounds=1),
            device=device,
            deadline=Deadline(None),
            seeds=np.random.RandomState([exercise.cell.split, number]),
            watch=watch,
        )

    try:
        pools = [train_one(number) for number in range(n_rounds)]
    except DivergenceError:
        return []
    return gather_runs(pools, exercise.test, device)


def gather_runs(pools: Sequence[Pool], test: FloatArray, device: torch.device) -> list[Run]:
    runs = []
    for trials in zip(*(pool.trials for pool in pools), strict=True):
        members = [trial.members for trial in trials]
        name = trials[0].candidate.name
        if not all(members) or len({len(own) for own in members}) > 1:
            print(f"{name} left out: it has nets without a finite loss")
            continue
        said = [[member.out_of_fold for member in own] for own in members]
        on_test = [[member.part.predict(test, device) for member in own] for own in members]
        seconds = np.array([trial.seconds for trial in trials])
        runs.append(Run(name, np.array(said), np.array(on_test), seconds))
    return runs


def change_plan(plan: Plan, change: Callable[[TrainConfig], TrainConfig]) -> Plan:
    candidates = tuple(
        replace(candidate, config=change(candidate.config)) for candidate in plan.candidates
    )
    return replace(plan, candidates=candidates)


@contextlib.contextmanager
def train_as(variant: str) -> Iterator[None]:
    """Training needs cycles to keep nets at their ends; for a constant rate they are made flat."""
    if variant != CONSTANT:
        yield
        return
    with patch.object(trainer, "rate_factors", lambda schedule, n_steps: [1.0] * n_steps):
        yield


def run_cell(
    cell: Cell, preset: Preset, device: str, wanted: Sequence[str], done: set[str]
) -> Iterator[dict[str, Any]]:
    """Rows of the wanted groups and settings that are not done; one whose candidates all diverged
    has no score."""
    place = resolve_device(device)
    exercise = read_exercise(cell)
    lesson = exercise.lesson
    plan = make_plan(cell.task, preset, len(lesson.matrix), skewed=lesson.normal is not None)
    everyone = tuple(candidate.name for candidate in plan.candidates)

    def make_row(variant: Variant, runs: Sequence[Run]) -> dict[str, Any]:
        row: dict[str, Any] = dict(zip(KEY, (cell.dataset, cell.split, variant.name), strict=True))
        row["task"] = cell.task
        found = answer_variant(variant, runs, lesson.labels, lesson.weights)
        if found is not None:
            row |= {"score": exercise.score(found), "seconds": round(found.seconds, 2)}
        return row

    groups = [group for group in GROUPS if group in wanted]
    left = [variant for variant in list_variants(plan, groups) if variant.name not in done]
    if left:
        runs = train_rounds(exercise, plan, place, max(variant.n_rounds for variant in left))
        yield from (make_row(variant, runs) for variant in left)
    for name in [name for name in TRAINING if name in wanted and name not in done]:
        with train_as(name):
            runs = train_rounds(exercise, change_plan(plan, TRAINING[name]), place, 1)
        yield make_row(Variant(name, everyone, 1), runs)


def read_rival(path: Path | None, rival: str = "catboost") -> pd.Series | None:
    """Scores of the rival's records under the clean recipe, by data set and split."""
    if path is None:
        return None
    table = read_table(path)
    own = table[
        (table["method"] == rival) & (table["recipe"] == "clean") & (table["status"] == "ok")
    ]
    if own.empty:
        raise SystemExit(f"{path} has no scores of {rival} under the recipe clean.")
    is_number = own["task"] == "regression"
    scores = own[METRICS["regression"]].where(is_number, own[METRICS["classification"]])
    return pd.Series(
        scores.to_numpy(), pd.MultiIndex.from_frame(own[["dataset", "split"]]), name="rival"
    )


def summarise(rows: pd.DataFrame, rival: pd.Series | None) -> pd.DataFrame:
    """Means over data sets, each of them the mean over its splits; shares of splits won, ties
    counting half. Variants are compared with "pool", or "1 round" if trained so, on splits that
    both have."""
    found = []
    for half, part in split_by_half(rows).items():
        for task, own in part.groupby("task"):
            wide = own.pivot(index=["dataset", "split"], columns="variant", values="score")
            seconds = own.groupby("variant")["seconds"].mean()
            for variant in own["variant"].unique():
                scores = wide[variant].dropna()
                line = {
                    "half": half,
                    "task": task,
                    "variant": variant,
                    "data sets": scores.index.get_level_values("dataset").nunique(),
                    "splits": len(scores),
                    "mean": scores.groupby("dataset").mean().mean(),
                    "seconds": seconds[variant],
                }
                reference = ONE_ROUND if variant in TRAINING else FULL
                if reference in wide:
                    gap = (scores - wide[reference]).dropna()
                    line["gap"] = gap.groupby("dataset").mean().mean()
                    line["won, %"] = share_won(gap) if variant != reference else np.nan
                if rival is not None:
                    line["won against rival, %"] = share_won((scores - rival).dropna())
                found.append(line)
    return pd.DataFrame(found).set_index(["half", "task", "variant"])


def share_won(gaps: pd.Series) -> float:
    return float(100 * ((gaps > 0) + 0.5 * (gaps == 0)).mean()) if len(gaps) else np.nan


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    every = [*GROUPS, *TRAINING]
    parser.add_argument("--datasets", nargs="+", help="default: the paper's")
    parser.add_argument("--task", choices=list(METRICS), help="of data sets not named")
    parser.add_argument("--max-rows", type=int, default=2000, help="of data sets not named")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first-split", type=int, default=0)
    parser.add_argument("--variants", nargs="+", default=every, choices=every)
    parser.add_argument("--preset", default="default", choices=get_args(Preset))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "ablation_flagship.csv")
    parser.add_argument("--table", type=Path, help="of `muddle benchmark export`")
    parser.add_argument("--summary", action="store_true", help="of the rows that are there, alone")
    return parser.parse_args(given)


def run_and_write(dataset: str, split: int, arguments: argparse.Namespace) -> None:
    rows = read_rows(arguments.out, COLUMNS)
    here = rows[(rows["dataset"] == dataset) & (rows["split"] == split)]
    cell = read_cell(dataset, split, arguments.data_home)
    done = set(here["variant"])
    for row in run_cell(cell, arguments.preset, arguments.device, arguments.variants, done):
        add_row(arguments.out, COLUMNS, row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    rival = read_rival(arguments.table)
    if not arguments.summary:
        datasets = choose_datasets(
            arguments.datasets, arguments.task, arguments.max_rows, arguments.data_home
        )
        first = arguments.first_split
        # Split by split, so that a run that is stopped has seen all data sets.
        for split in range(first, first + arguments.splits):
            for dataset in datasets:
                with warnings.catch_warnings():
                    # Of columns left out and new levels.
                    warnings.simplefilter("ignore", UserWarning)
                    run_and_write(dataset, split, arguments)
    rows = read_rows(arguments.out, COLUMNS)
    if rows.empty:
        raise SystemExit(f"{arguments.out} has no rows yet: run without --summary first.")
    print(summarise(rows, rival).round(4).to_string())


if __name__ == "__main__":
    main()
