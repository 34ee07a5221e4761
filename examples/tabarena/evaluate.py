"""Evaluate muddle with TabArena's own pipeline, as a submission to it needs.

    python evaluate.py --toy --out results            # three of scikit-learn's tables, no network
    python evaluate.py --configs 25 --out results     # TabArena-Lite: downloads tables and results of others

The folders `models/muddle` and `systems/muddle` beside this file are those of a pull request; here they are put on the
path of the installed package. Model and system are run in the official validation protocol, and the leaderboard is
printed. Needs ``pip install 'tabarena[plot]' muddle``. Finished parts are kept in the output folder, so a run goes on where it
was interrupted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.model_selection import ShuffleSplit

import tabarena.models
import tabarena.systems

HERE = Path(__file__).resolve().parent
TOYS = {"diabetes": load_diabetes, "breast_cancer": load_breast_cancer, "wine": load_wine}


def register() -> None:
    """Make the folders part of TabArena, as if they had been copied into it; before its registries are read."""
    for package, name in ((tabarena.models, "models"), (tabarena.systems, "systems")):
        if str(HERE / name) not in package.__path__:
            package.__path__.append(str(HERE / name))


def make_toys(folder: Path) -> list:
    """One split of each toy table, as tasks in files."""
    from tabarena.benchmark.task import UserTask

    tasks = []
    for name, load in TOYS.items():
        X, y = load(return_X_y=True, as_frame=True)
        split = next(ShuffleSplit(1, test_size=0.33, random_state=0).split(X))
        task = UserTask(task_name=name, task_cache_path=folder)
        task.save_task(
            task.create_task(
                dataset=pd.concat([X, y.rename("target")], axis=1),
                target_feature="target",
                problem_type="regression" if name == "diabetes" else "classification",
                splits={0: {0: tuple(part.tolist() for part in split)}},
            )
        )
        tasks.append(task)
    return tasks


def build_experiments(*, toy: bool, configs: int, time_limit: float | None) -> list:
    """The model with so many random configurations, and the system; for toys of preset "fast", beside two others."""
    from tabarena.benchmark.experiment import TabArenaV0pt1ExperimentBundle
    from tabarena.models.muddle import gen_muddle
    from tabarena.systems.muddle import gen_muddle_system

    limit = {} if time_limit is None else {"time_limit": time_limit}
    models = [(gen_muddle, configs)]
    if toy:
        gen_muddle.manual_configs = gen_muddle_system.manual_configs = [{"preset": "fast"}]
        models += [("Linear", 0), ("RandomForest", 0)]
    systems = TabArenaV0pt1ExperimentBundle(models=[(gen_muddle_system, 0)], system_experiments=True)
    return [
        *TabArenaV0pt1ExperimentBundle(models=models).build_experiments(**limit),
        *systems.build_experiments(**limit),
    ]


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--toy", action="store_true", help="three small tables of scikit-learn, preset fast: does it run?"
    )
    parser.add_argument("--configs", type=int, default=0, help="random configurations beside the default")
    parser.add_argument("--time-limit", type=float, help="seconds of a fit; default: TabArena's hour")
    parser.add_argument("--out", type=Path, default=Path("tabarena_results"), help="folder of results")
    asked = parser.parse_args(arguments)
    register()
    from tabarena.benchmark.task.metadata import TaskMetadataCollection
    from tabarena.contexts import TabArenaContext

    # Not in parallel: the classes are found through the path of this process alone.
    options = {"expname": str(asked.out / "experiments"), "debug_mode": True}
    if asked.toy:
        tasks = make_toys(asked.out / "tasks")
        context = TabArenaContext(
            task_metadata=TaskMetadataCollection.from_user_tasks(tasks),
            methods=[],
            fillna_method=None,
            calibration_method=None,
        )
        options |= {"user_tasks": tasks}
    else:
        context = TabArenaContext()
        options |= {"subset": "lite", "new_result_prefix": "[New] "}
    experiments = build_experiments(toy=asked.toy, configs=asked.configs, time_limit=asked.time_limit)
    context.build_and_run_jobs(experiments, **options)
    return context.compare(output_dir=asked.out / "leaderboard")  # prints it


if __name__ == "__main__":
    main()
