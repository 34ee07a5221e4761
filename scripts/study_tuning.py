"""What tuning adds to MLR, CatBoost, XGBoost and a random forest: the paper's experiment.

    OMP_NUM_THREADS=1 python scripts/study_tuning.py --folder runs/tuning --splits 0 1
    python scripts/study_tuning.py --folder runs/tuning --out results/tuning.csv \
        --published ../shared/paper/published/hpo.csv
    python scripts/study_tuning.py --summary results/tuning.csv \
        --published ../shared/paper/published/hpo.csv

A cell is a data set (the ten of the published tables, as the authors' matrices), a split and a
model. Optuna's TPE maximises the mean R² of a cross-validation of the training rows. Then models
with --repeats seeds are fitted to all training rows and scored on the test rows:

    default, default_bagging   default settings: mean of the scores, score of the mean prediction
    single, bagging            the best settings: the same
    ensemble                   the mean prediction of the --repeats best settings

The published tables print none of the budget. The authors' notebook has 50 trials of 5 folds within
6,000 s, 6 s for a fit of MLR (on a GPU), 10 seeds and 10 best settings; here folds are the same for
all trials. The ranges are those of `search_space("mlr")`, and the notebook's for the peers.

Defaults are for one core: less time, narrower nets, fewer seeds, at most --max-rows training rows.
Cells that have a file in --folder are not run again; n_trials says how many trials ended in time.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

from muddle import MLRRegressor, search_space
from muddle.errors import MuddleError
from muddle_bench.data.download import find_data_home
from muddle_bench.methods.method import Request
from muddle_bench.methods.registry import find_method
from muddle_bench.run.splits import prepare_split
from muddle_runtime.columns import FloatArray
from muddle_runtime.whole_file import write_whole

DATASETS = (
    *("concrete-slump-test-3", "servo", "computer-hardware", "yacht-hydrodynamics"),
    *("qsar-aquatic-toxicity", "insurance", "communities-and-crime", "squark-automotive-clv"),
    *("seoul-bike-sharing-demand", "blr-real-estate-prices"),
)  # small ones first
# Names in the published table, and in the registry.
MODELS = {"mlr": "mlr", "rf": "random-forest", "xgboost": "xgboost", "catboost": "catboost"}
STRATEGIES = ("single", "bagging", "ensemble")
SCORES = ("default", "default_bagging", *STRATEGIES)
Settings = dict[str, Any]
Rows = NDArray[np.int64]


class Budget(NamedTuple):
    trials: int = 50
    folds: int = 5
    repeats: int = 5
    time_limit: float = 300.0  # seconds of a search
    fit_limit: float = 6.0  # seconds of a fit of MLR in the search; twice as many for the last fits
    max_width: int = 1024
    max_rows: int | None = 2000


class Table(NamedTuple):
    train: FloatArray
    test: FloatArray
    y_train: FloatArray
    y_test: FloatArray


def suggest(name: str, trial: Any, max_width: int) -> Settings:
    """Settings that an Optuna trial chooses for a model."""
    if name == "mlr":
        return search_space("mlr", max_width=max_width).suggest(trial)
    if name == "rf":
        bootstrap = trial.suggest_categorical("bootstrap", [True, False])
        share = trial.suggest_float("max_samples", 0.05, 1.0)
        return {
            # PAPER: "auto" was the name of all features.
            "max_features": trial.suggest_categorical("max_features", [1.0, "sqrt", "log2"]),
            "max_depth": trial.suggest_int("max_depth", 2, 100, log=True),
            "max_leaf_nodes": trial.suggest_int("max_leaf_nodes", 2, 1024, log=True),
            "min_samples_leaf": trial.suggest_int("min_samples_leaf", 1, 16, log=True),
            "bootstrap": bootstrap,
            # Today's scikit-learn refuses it without bootstrap; then it was ignored.
            "max_samples": share if bootstrap else None,
        }
    if name == "xgboost":
        strengths = {"min_child_weight": 1e5, "reg_alpha": 1e2, "reg_lambda": 1e2, "gamma": 1e2}
        shares = ("subsample", "colsample_bytree", "colsample_bylevel")
        return {
            "learning_rate": trial.suggest_float("learning_rate", 1e-7, 1, log=True),
            "max_depth": trial.suggest_int("max_depth", 1, 10),
            **{share: trial.suggest_float(share, 0.2, 1) for share in shares},
            **{key: trial.suggest_float(key, 1e-16, m, log=True) for key, m in strengths.items()},
        }
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1, log=True),
        "random_strength": trial.suggest_int("random_strength", 1, 20),
        "bootstrap_type": "Bayesian",  # which alone has a temperature
        "bagging_temperature": trial.suggest_float("bagging_temperature", 0, 1),
        "l2_leaf_reg": trial.suggest_float("l2_leaf_reg", 1, 10, log=True),
        "leaf_estimation_iterations": trial.suggest_int("leaf_estimation_iterations", 1, 20),
    }


def make_model(name: str, settings: Settings, seed: int, seconds: float | None = None) -> Any:
    """An unfitted model with one thread; the limit is for MLR."""
    if name == "mlr":
        options = {"random_state": seed, "device": "cpu", "time_limit": seconds}
        return MLRRegressor().set_params(**(options | settings))
    model = find_method(MODELS[name]).make(Request("regression", seed=seed))
    prefix = "model__" if hasattr(model, "model") else ""
    return model.set_params(**{prefix + key: value for key, value in settings.items()})


def search(name: str, table: Table, budget: Budget, seed: int) -> list[tuple[float, Settings]]:
    """Scores and settings of the trials that ended, the best first."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folds = list(KFold(budget.folds, shuffle=True, random_state=seed).split(table.train))
    ended: list[tuple[float, Settings]] = []
    start = time.perf_counter()

    def objective(trial: Any) -> float:
        settings, scores = suggest(name, trial, budget.max_width), []
        for train, held_out in folds:
            # One trial is needed.
            if ended and time.perf_counter() - start > budget.time_limit:
                raise optuna.TrialPruned
            model = make_model(name, settings, seed, budget.fit_limit)
            model.fit(table.train[train], table.y_train[train])
            scores.append(r2_score(table.y_train[held_out], model.predict(table.train[held_out])))
        ended.append((float(np.mean(scores)), settings))
        return ended[-1][0]

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    # Of MLR, where the time is short for one iteration or no loss is finite.
    study.optimize(
        objective, n_trials=budget.trials, timeout=budget.time_limit, catch=(MuddleError,)
    )
    if not ended:
        raise RuntimeError(
            f"no trial of {name} ended in {budget.time_limit:g} s: raise --time-limit or "
            "--fit-limit, or lower --max-width."
        )
    return sorted(ended, key=lambda found: found[0], reverse=True)


def predict(
    name: str, all_settings: list[Settings], table: Table, seconds: float | None
) -> FloatArray:
    """Predictions of the test rows, with another seed for each settings. -> (repeats, n)"""
    found = []
    for seed, settings in enumerate(all_settings):
        model = make_model(name, settings, seed, seconds).fit(table.train, table.y_train)
        found.append(np.asarray(model.predict(table.test), dtype=np.float64))
    return np.stack(found)


def read_split(dataset: str, split: int, max_rows: int | None, home: str | None) -> Table:
    problem = prepare_split(dataset, "published", home, split, "matrix")
    n_rows = len(problem.y_train)
    kept = np.arange(n_rows)
    if max_rows is not None and n_rows > max_rows:
        kept = np.sort(np.random.default_rng(split).choice(n_rows, max_rows, replace=False))
    return Table(problem.train[kept], problem.test, problem.y_train[kept], problem.y_test)


def fit_cell(dataset: str, split: int, name: str, budget: Budget, home: str | None) -> Settings:
    """The record of a cell: scores, best settings, budget and seconds."""
    table = read_split(dataset, split, budget.max_rows, home)
    start = time.perf_counter()
    untuned = predict(name, [{}] * budget.repeats, table, None)
    before = time.perf_counter()
    trials = search(name, table, budget, split)
    after = time.perf_counter()
    best, limit = [settings for _, settings in trials[: budget.repeats]], 2 * budget.fit_limit
    tuned = predict(name, [best[0]] * budget.repeats, table, limit)
    mixed = predict(name, best, table, limit)

    def score(predictions: FloatArray) -> float:
        return round(float(r2_score(table.y_test, predictions)), 6)

    def score_each(predictions: FloatArray) -> float:
        return round(float(np.mean([r2_score(table.y_test, one) for one in predictions])), 6)

    return {
        "dataset": dataset,
        "split": split,
        "model": name,
        "default": score_each(untuned),
        "default_bagging": score(untuned.mean(axis=0)),
        "single": score_each(tuned),
        "bagging": score(tuned.mean(axis=0)),
        "ensemble": score(mixed.mean(axis=0)),
        "validation": round(trials[0][0], 6),
        "n_trials": len(trials),
        "n_train": len(table.y_train),
        "n_test": len(table.y_test),
        "default_seconds": round(before - start, 1),
        "search_seconds": round(after - before, 1),
        "seconds": round(time.perf_counter() - start, 1),
        **budget._asdict(),
        "settings": json.dumps(best[0]),
    }


def run_cells(arguments: argparse.Namespace, budget: Budget, home: str | None) -> None:
    for split in arguments.splits:
        for dataset in arguments.datasets:
            for name in arguments.methods:
                path = arguments.folder / dataset / f"{name}-{split}.json"
                if path.is_file():
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    record = fit_cell(dataset, split, name, budget, home)
                except (MuddleError, RuntimeError) as error:
                    print(f"{dataset} {split} {name}: {type(error).__name__}: {error}", flush=True)
                    continue
                with write_whole(path) as file:
                    file.write(json.dumps(record, indent=1).encode())
                print(
                    f"{dataset} {split} {name}: R² {record['default']:.3f} → "
                    f"{record['single']:.3f}, {record['n_trials']} of {budget.trials} trials, "
                    f"{record['seconds']:.0f} s",
                    flush=True,
                )


def read_cells(folder: Path) -> pd.DataFrame:
    """One row per cell."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*/*.json"))]
    if not records:
        raise ValueError(f"no cell has ended in {folder}: pass --splits to run some.")
    return pd.DataFrame(records).sort_values(["dataset", "split", "model"], ignore_index=True)


def summarise(table: pd.DataFrame, published: pd.DataFrame | None) -> Iterator[str]:
    """Means per data set and over data sets, ours beside the published ones."""
    key = ["dataset", "model"]
    means = table.groupby(key)[list(SCORES)].mean()
    if published is not None:
        rows = published[(published["scope"] == "dataset") & (published["metric"] == "r2")]
        rows = rows.rename(columns={"dataset_id": "dataset"})
        printed = rows.pivot_table(index=key, columns="strategy", values="mean")
        means = means.join(printed[list(STRATEGIES)].add_prefix("published "))
    told = table.groupby(key)[["n_train", "n_trials", "split"]].agg(
        {"n_train": "max", "n_trials": "mean", "split": "count"}
    )
    told = told.rename(columns={"n_trials": "trials", "split": "splits"})
    shown = means.round(3).join(told.round(0).astype(int))
    order = [one for one in DATASETS if one in means.index.get_level_values("dataset")]
    others = sorted(set(means.index.get_level_values("dataset")) - set(order))
    yield f"R², mean over splits\n{shown.reindex([*order, *others], level=0).to_string()}\n"
    # Only data sets where all models have ended.
    counts = means.groupby("dataset").size()
    whole = counts.index[counts == table["model"].nunique()]
    if len(whole):
        overall = means.loc[list(whole)].groupby("model").mean().round(3)
        yield f"R², mean over {len(whole)} data sets\n{overall.to_string()}\n"
    gains = table.assign(
        **{
            "tuned less default": table["single"] - table["default"],
            "tuning won, %": 100.0 * (table["single"] > table["default"]),
            "bagging won, %": 100.0 * (table["bagging"] > table["default_bagging"]),
            "all trials ended, %": 100.0 * (table["n_trials"] >= table["trials"]),
            "cells": 1,
        }
    )
    names = ["tuned less default", "tuning won, %", "bagging won, %", "all trials ended, %"]
    board = gains.groupby("model")[names].mean().round(3)
    board["median difference"] = gains.groupby("model")["tuned less default"].median().round(4)
    board["cells"] = gains.groupby("model")["cells"].sum()
    yield f"what tuning changed, over cells\n{board.to_string()}"


def main(given: list[str] | None = None) -> None:
    defaults = Budget()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, help="folder of cells")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--splits", type=int, nargs="*", default=[], help="run these splits")
    parser.add_argument("--methods", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--trials", type=int, default=defaults.trials, help="of a search")
    parser.add_argument("--folds", type=int, default=defaults.folds)
    parser.add_argument("--repeats", type=int, default=defaults.repeats, help="seeds, settings")
    parser.add_argument(
        "--time-limit", type=float, default=defaults.time_limit, help="seconds of a cell's search"
    )
    parser.add_argument(
        "--fit-limit", type=float, default=defaults.fit_limit, help="seconds of a fit of MLR in it"
    )
    parser.add_argument("--max-width", type=int, default=defaults.max_width, help="of MLR")
    parser.add_argument(
        "--max-rows", type=int, default=defaults.max_rows, help="training rows, drawn at random"
    )
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, help="table of all cells of the folder")
    parser.add_argument("--summary", type=Path, help="a table that was written before")
    parser.add_argument("--published", type=Path, help="the published table")
    arguments = parser.parse_args(given)
    if arguments.summary is None and arguments.folder is None:
        parser.error("pass --folder, to run cells, or --summary, to read a table")
    if arguments.folder is not None:
        budget = Budget(**{name: getattr(arguments, name) for name in Budget._fields})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits that were cut short
            run_cells(arguments, budget, str(find_data_home(arguments.data_home)))
        if arguments.out is None:
            return
        read_cells(arguments.folder).to_csv(arguments.out, index=False)
    published = None if arguments.published is None else pd.read_csv(arguments.published)
    for text in summarise(pd.read_csv(arguments.summary or arguments.out), published):
        print(text)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
