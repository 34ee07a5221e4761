"""What the parts of the method are worth: permuted labels, ridge, structured noise and penalty.

    python scripts/ablate_muddling.py --datasets servo ionosphere --splits 2 --out ablation.csv.gz
    python scripts/ablate_muddling.py --summary results/ablation_muddling.csv.gz

Each part is taken out of the method, or put in, in three places:

pool    the flagship with its kernel, trees and linear model; its nets are trained as VARIANTS says,
        the other bodies, folds, seeds and the mixing stay
nets    the nets of these same pools alone, mixed by the flagship's rules
mlr-2   the mean of five of the paper's nets of two hidden layers, the released code's settings, as
        in the paper's ablation

A method of the table is a place and a variant, as "pool: no permutations". Recipe clean, splits of
the benchmark. A gain is of the whole method over the variant: mean over splits, then over data
sets, with its bootstrap interval over data sets.
"""

import argparse
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from ablate_pool import find_kind, mix

import muddle
from muddle.estimators import muddle as flagship
from muddle.estimators import pool as pools
from muddle.estimators.pool import Plan, Pool
from muddle.training.config import TrainConfig
from muddle.training.outputs import RidgeOutput
from muddle_bench.data.catalogue import part_of
from muddle_bench.ranking import compare_with, find_signal, name_kinds, read_table
from muddle_bench.ranking.ranks import N_RESAMPLES, draw_weights, interval_of_means
from muddle_bench.run.execution import Answer, records_from_predictions
from muddle_bench.run.records import write_table
from muddle_bench.run.splits import prepare_split
from muddle_bench.studies.points import MORE, STEPS
from muddle_bench.studies.study_nets import StudyNets, make_config
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import Task
from muddle_runtime.labels import NumberTarget

WHOLE = "whole"
FIXED = "penalty not trained"
# What is changed in the nets of the flagship, whose 4 permutations, ridge with a trained penalty
# and lack of structured noise are WHOLE.
VARIANTS: dict[str, dict[str, Any]] = {
    WHOLE: {},
    "no permutations": {"n_permutations": 0},
    "16 permutations": {"n_permutations": 16},
    "structured noise": {"structured_noise": 1.0},
    FIXED: {},
    "trained output layer": {"head": "linear"},
}
# The paper's steps. The released code's loss limit fits no loss but its own: a plain net has none.
PAPER_STEPS = {
    WHOLE: STEPS["MLR"],
    "no permutations": STEPS["+ Ridge + Struct. Dithering"],
    "no structured noise": STEPS["+ Ridge + Permut."],
    "ridge alone": STEPS["+ Ridge"],
    "plain net": MORE["FFNN, no loss limit"],
}
PLACES = ("pool", "nets", "mlr-2")
N_NETS = 5
METRICS = {
    "numbers": ["r2"],
    "two classes": ["auc", "log_loss"],
    "more classes": ["auc", "log_loss"],
}
LEVEL = 0.9
SMALL = 200  # rows of a table


# --- the flagship --------------------------------------------------------------------------------


def change_nets(plan: Plan, settings: dict[str, Any]) -> Plan:
    """The plan with these settings in all nets."""

    def change(config: TrainConfig) -> TrainConfig:
        return replace(config, **settings)

    return replace(plan, nets=tuple(replace(c, config=change(c.config)) for c in plan.nets))


@contextmanager
def bodies_once() -> Iterator[None]:
    """Within, a body is fitted once and its trial is used again: no variant changes it."""
    known: dict[str, Any] = {}
    fit = pools.fit_body

    def fit_once(body: Any, task: Callable[[], Any]) -> Any:
        if body.name not in known:
            known[body.name] = fit(body, task)
        return known[body.name]

    with patch.object(pools, "fit_body", fit_once):
        yield


@contextmanager
def captured(variants: Iterable[str]) -> Iterator[dict[str, Pool]]:
    """The pools of a fit within, by variant; the estimator goes on with WHOLE."""
    found: dict[str, Pool] = {}
    fit = pools.fit_pool

    def fit_all(training: Any, plan: Plan, *, seeds: np.random.RandomState, **options: Any) -> Pool:
        with bodies_once():
            for variant in variants:
                with ExitStack() as changes:
                    if variant == FIXED:
                        changes.enter_context(patch.object(RidgeOutput, "parameters", list_none))
                    own = change_nets(plan, VARIANTS[variant])
                    drawn = copy.deepcopy(seeds)  # the same folds, starts and permutations
                    found[variant] = fit(training, own, seeds=drawn, **options)
        return found[WHOLE]

    with patch.object(flagship, "fit_pool", fit_all):
        yield found


def list_none(output: RidgeOutput) -> list[torch.Tensor]:
    """Parameters of an output layer that is not trained."""
    return []


def ablate_flagship(
    dataset: str,
    split: int,
    home: str | None,
    variants: Sequence[str] = tuple(VARIANTS),
    **options: Any,
) -> Iterator[Answer]:
    """Predictions of the pool, and of its nets alone, for each variant."""
    problem = prepare_split(dataset, "clean", home, split, "table")
    kind = muddle.MuddleClassifier if problem.n_classes else muddle.MuddleRegressor
    with captured(variants) as found:
        model = kind(random_state=split, **options).fit(problem.train, problem.y_train).model_
    training = found[WHOLE].training
    matrix, offset = model.transform(problem.test), np.zeros(training.labels.shape[1])
    free = model.target
    if isinstance(free, NumberTarget):
        free = replace(free, bounds=None)
    alone = replace(model, offset=offset, target=free, fallback=None)
    codes = problem.y_train[training.rows] if problem.n_classes else None
    others: dict[str, FloatArray] = {}  # of bodies that all variants share
    for variant, pool in found.items():
        predicted = []
        for member in pool.members:
            is_net = find_kind(member.name) == "nets"
            new = None if is_net else others.get(member.name)
            if new is None:
                new = replace(alone, members=(member.to_fitted(1.0),)).labels(matrix)
            if not is_net:
                others[member.name] = new
            predicted.append(new)
        new, known = np.stack(predicted), np.stack([member.out_of_fold for member in pool.members])
        nets = np.array([find_kind(member.name) == "nets" for member in pool.members])
        for place, kept in (("pool", np.ones_like(nets)), ("nets", nets)):
            if kept.any():  # nets may all have diverged
                mixed = mix(known[kept], new[kept], training.labels, codes, model.target)
                yield Answer(dataset, split, f"{place}: {variant}", mixed, None)


# --- the paper's nets ----------------------------------------------------------------------------


def ablate_paper(dataset: str, split: int, home: str | None, device: str) -> Iterator[Answer]:
    """Predictions of the paper's steps."""
    problem = prepare_split(dataset, "clean", home, split, "table")
    task: Task = "classification" if problem.n_classes else "regression"
    for variant, step in PAPER_STEPS.items():
        config = make_config(task, 2, **dict(step.changes))
        nets = StudyNets(config, n_nets=N_NETS, random_state=split, device=device)
        nets.fit(problem.train, problem.y_train)
        found = (
            nets.predict_proba(problem.test) if problem.n_classes else nets.predict(problem.test)
        )
        yield Answer(dataset, split, f"mlr-2: {variant}", found, None)


def name_methods() -> list[str]:
    places = {place: PAPER_STEPS if place == "mlr-2" else VARIANTS for place in PLACES}
    return [f"{place}: {variant}" for place, own in places.items() for variant in own]


# --- the summary ---------------------------------------------------------------------------------


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """One row per place, variant, kind of target, metric and part: the gain of the whole method
    over the variant, and the share of splits that it wins, in percent, with intervals. Data sets
    without a signal are left out."""
    table = table[table["dataset"].isin(find_signal(table))]
    kinds, parts = name_kinds(table), table["dataset"].map(part_of)
    flags = {"all": parts != "", "development": parts == "development"}
    flags |= {"evaluation": parts == "evaluation"}
    flags |= {f"up to {SMALL} rows": table["n_train"] + table["n_test"] <= SMALL}
    rows = []
    for place in PLACES:
        for kind, metrics in METRICS.items():
            own = table["method"].str.startswith(f"{place}: ") & (kinds == kind)
            for part, chosen in flags.items():
                if not (own & chosen).any():
                    continue
                for metric in metrics:
                    rows += [
                        {"place": place, "kind": kind, "part": part, "metric": metric, **row}
                        for row in compare_variants(table[own & chosen], place, metric)
                    ]
    return pd.DataFrame(rows)


def compare_variants(table: pd.DataFrame, place: str, metric: str) -> Iterator[dict[str, Any]]:
    whole = f"{place}: {WHOLE}"
    sign = -1 if metric == "log_loss" else 1
    wide = table.pivot(index=["dataset", "split"], columns="method", values=metric)
    for row in compare_with(table, whole, metric).to_dict("records"):
        if row["method"] == whole:
            continue
        gains = sign * (wide[whole] - wide[row["method"]]).dropna().groupby("dataset").mean()
        weights = draw_weights(list(gains.index), N_RESAMPLES, 0)
        low, high = np.ravel(interval_of_means(weights, gains.to_numpy()[:, None], LEVEL))
        yield {
            "variant": row["method"].partition(": ")[2],
            "data_sets": row["datasets"],
            "gain": gains.mean(),
            "gain_low": low,
            "gain_high": high,
            "median_gain": gains.median(),
            "won": 100 * row["won"],
            "won_low": 100 * row["won_low"],
            "won_high": 100 * row["won_high"],
        }


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", default=[])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--data-home", default=None, help="default: $MUDDLE_DATA")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="table of the benchmark, one method per variant")
    parser.add_argument("--summary", type=Path, help="a table that was written before")
    arguments = parser.parse_args(given)
    if arguments.summary is None:
        home, device = arguments.data_home, arguments.device
        answers = (
            answer
            for dataset in arguments.datasets
            for split in range(arguments.splits)
            for answers in (
                ablate_flagship(dataset, split, home, device=device),
                ablate_paper(dataset, split, home, device),
            )
            for answer in answers
        )
        families = dict.fromkeys(name_methods(), "Ablation")
        records = list(records_from_predictions(answers, families=families, data_home=home))
        write_table(records, arguments.out)
    with pd.option_context("display.width", 200):
        print(summarise(read_table(arguments.summary or arguments.out)).round(4).to_string())


if __name__ == "__main__":
    main()
