"""Rows whose level of an important column was never seen: a smaller model without the column.

A column such as a country may carry most of the signal. The pool then trusts it, and has learnt
nothing about rows without it. Hiding levels of some training rows would teach it, but costs
accuracy where levels are known (docs/decisions/0019). So such rows get a model of their own: the
quick bodies of the pool, without nets, on all other features, cross-fitted by level, so that its
weights, calibration and intervals are those of levels that it has never seen.

Shapes: N rows, F features, C label columns.
"""

from dataclasses import replace

import numpy as np
import torch

from muddle.core.device import torch_threads
from muddle.estimators.crossfit import BodyCandidate, draw_grouped_folds
from muddle.estimators.pool import N_FOLDS, Pool, TrainingSet, estimate_body, fit_body, plan_body
from muddle.tables.target import Rows
from muddle_runtime.columns import FloatArray, Table, read_named
from muddle_runtime.tables import TablePlan

# A column with fewer levels has a level for every row to come, most likely.
FEWEST_LEVELS = 10
# It must carry this much of the signal: rise of the squared error, in units of the variance, when
# it is shuffled.
LEAST_IMPORTANCE = 0.1
# Cross-fitted means treat a level of one row like one never seen. Where so many rows have such
# levels, the pool has learnt what to do without.
MOST_SINGLE = 0.02
# No fold can be without a level that has more than this share of the rows.
LARGEST_LEVEL = 0.5


def find_column(plan: TablePlan, table: Table, importances: FloatArray) -> tuple[str, Rows] | None:
    """The most important column whose unseen levels need a model, and the level of each row."""
    sources = {s.name: s for s in (*plan.means, *plan.one_hot)}
    numbers = {source.name for source in plan.numbers}
    for place in np.argsort(-importances, kind="stable"):
        name = plan.names[place]
        if not importances[place] >= LEAST_IMPORTANCE:
            break
        if name not in sources or name in numbers or len(plan.used) < 2:
            continue
        source = sources[name]
        column = read_named(table, name, plan.missing_values)
        codes = source.levels.encode(column).codes
        sizes = np.bincount(codes[codes >= 0])  # a stream does not count the rarest levels
        enough = np.count_nonzero(sizes) >= FEWEST_LEVELS and not source.levels.rare
        few_single = np.count_nonzero(sizes == 1) <= MOST_SINGLE * len(codes)
        if enough and few_single and sizes.max() <= LARGEST_LEVEL * len(codes):
            return name, codes
    return None


def fit_without(
    column: str,
    levels: Rows,
    plan: TablePlan,
    training: TrainingSet,
    bodies: tuple[BodyCandidate, ...],
    device: torch.device,
    seed: int,
    seconds: float,
) -> Pool | None:
    """A pool of bodies on the features of other columns; None if no body has the time or can be
    fitted. levels (N,): code per row of the training set. Rows that must be held out together, by
    group or in time, are held out in this way instead of by level"""
    own, _ = plan.describe_unseen(column)
    matrix = np.delete(training.matrix, own, axis=1)
    n_numbers = training.n_numbers - int(np.count_nonzero(own < training.n_numbers))
    monotone = None if training.monotone is None else training.monotone.without(own)
    training = replace(training, matrix=matrix, n_numbers=n_numbers, monotone=monotone)
    if training.hold_out is None:
        folds = draw_grouped_folds(levels, min(N_FOLDS, len(np.unique(levels))), seed)
    else:
        folds = training.draw_folds(N_FOLDS, seed).first_round
    trials = []
    for body in bodies:
        if estimate_body(training, body, folds.n_nets) <= seconds:
            with torch_threads(1):
                trials.append(fit_body(body, plan_body(training, body, folds, seed, device)))
            seconds -= trials[-1].seconds
    pool = Pool.weigh(training, trials)
    return pool if pool.members else None
