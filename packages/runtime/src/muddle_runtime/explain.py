"""Shapley values of the columns of a table: how much each one moved a prediction from the mean.

The value of a column is its contribution to f(row) - f(background row), averaged over the orders in
which columns take over the values of the row, and over the rows of a background. A contribution is
measured by walking from the background row to the row, one column after the other, and back in the
reversed order. A walk telescopes, so values and the mean over the background add to the prediction,
whatever the sample; a walk and its reverse together are exact where columns interact in pairs.

All features of a column change together, as they are functions of that column alone: a date, or a
column of levels, has one value.

Shapes: n rows, F features, P columns that the model uses, B background rows, W walks, C outputs.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray, Table, read_table
from muddle_runtime.errors import MuddleWarning
from muddle_runtime.forward import NUMPY
from muddle_runtime.labels import ClassTarget, NumberTarget
from muddle_runtime.parameters import check_choice, check_int, check_number
from muddle_runtime.summary import draw_columns
from muddle_runtime.tables import warn

if TYPE_CHECKING:
    from muddle_runtime.fitted import FittedModel

Output = Literal["prediction", "probability", "log_odds"]
CLASS_OUTPUTS = ("probability", "log_odds")
N_BACKGROUND, N_PERMUTATIONS = 50, 2
# Rows that a background is chosen from: of a longer table evenly spaced ones.
MOST_CANDIDATES = 1000
# Rows that are predicted at once; the clock is looked at between.
AT_ONCE, AT_ONCE_ELSEWHERE = 2**12, 2**16
MOST_VALUES = 2**22  # numbers held at once
# Background rows without which a standard error is not known.
FEWEST = 2

Indices = NDArray[np.intp]
Answer = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Explanation:
    """Shapley values of n rows and of all columns of the table; fields are named as in shap.

    Several targets, or classes, are the last axis: `base_values + values.sum(axis=1)` are the
    predictions that are explained.
    """

    values: FloatArray  # (n, columns) or (n, columns, outputs)
    base_values: FloatArray  # (n,) or (n, outputs): the mean prediction of the background
    data: NDArray[Any]  # (n, columns) as in the table
    feature_names: tuple[str, ...]
    output_names: tuple[str, ...]  # classes or targets; empty for a target without an axis
    standard_errors: FloatArray  # as values; of sampling orders and background rows
    output: Output  # what is explained
    n_background: int  # rows that are compared with

    def __len__(self) -> int:
        return len(self.values)

    @property
    def predictions(self) -> FloatArray:
        """What is explained: (n,) or (n, outputs)."""
        return np.asarray(self.base_values + self.values.sum(axis=1))

    def to_shap(self) -> Any:
        """The same as a `shap.Explanation`, which the plots of shap take (needs shap)."""
        try:
            import shap
        except ImportError as error:
            raise ImportError("to_shap needs the package shap: pip install shap.") from error
        return shap.Explanation(
            self.values,
            self.base_values,
            data=self.data,
            feature_names=list(self.feature_names),
            output_names=list(self.output_names) or None,
            error_std=self.standard_errors,
        )


def explain_rows(
    model: "FittedModel",
    X: Any,
    *,
    background: Any = None,
    n_background: int = N_BACKGROUND,
    n_permutations: int = N_PERMUTATIONS,
    max_seconds: float | None = None,
    output: str | None = None,
    random_state: int = 0,
    advance: Callable[[int], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Explanation:
    """The method `explain` of models. advance: told how many further background rows are done"""
    began = clock()
    check_int("n_background", n_background, minimum=FEWEST)
    check_int("n_permutations", n_permutations, minimum=2)
    check_int("random_state", random_state, minimum=0)
    if max_seconds is not None:
        check_number("max_seconds", max_seconds, above=0.0)
    found = _check_output(model, output)
    rows, owner = model.transform(X), model.estimator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MuddleWarning)  # `transform` has given them
        table = model.table.match(read_table(X, owner), owner)
    columns: dict[str, list[int]] = {}
    for feature, (name, _) in enumerate(model.table.features):
        columns.setdefault(name, []).append(feature)
    players = np.empty(model.table.n_features, dtype=np.intp)
    for player, features in enumerate(columns.values()):
        players[features] = player

    def answer(matrix: FloatArray) -> FloatArray:
        answers = model.answers(matrix)
        return _to_log_odds(answers) if found == "log_odds" else answers

    candidates = _list_candidates(model, background)
    answers = answer(candidates)
    chosen = _choose_spread(answers, n_background)
    game = _Game(
        players,
        len(columns),
        rows,
        answer(rows),
        candidates[chosen],
        answers[chosen],
        answer,
        AT_ONCE if model.library is NUMPY else AT_ONCE_ELSEWHERE,
        _Timer(began, max_seconds, clock),
    )
    sample = game.sample(n_permutations, np.random.default_rng(random_state), advance)
    if sample.n_used < len(chosen):
        warn(
            f"max_seconds={max_seconds}: rows were compared with {sample.n_used} of {len(chosen)} "
            "background rows; standard_errors tells how far values may be off. Explain fewer rows, "
            "or raise max_seconds."
        )
    names = model.table.names
    place = {name: i for i, name in enumerate(names)}
    own = [place[name] for name in columns]

    def spread(values: FloatArray) -> FloatArray:
        full = np.zeros((len(rows), len(names), answers.shape[1]))
        full[:, own] = values
        return full

    squeezed = isinstance(model.target, NumberTarget) and model.target.one_output
    shaped = (
        spread(sample.mean),
        np.tile(answers[chosen[sample.used]].mean(axis=0), (len(rows), 1)),
        spread(sample.error),
    )
    values, base, errors = (one[..., 0] if squeezed else one for one in shaped)
    return Explanation(
        values=values,
        base_values=base,
        data=_list_data(table, names),
        feature_names=names,
        output_names=() if squeezed else _name_outputs(model, answers.shape[1]),
        standard_errors=errors,
        output=found,
        n_background=sample.n_used,
    )


def _check_output(model: "FittedModel", output: str | None) -> Output:
    if isinstance(model.target, ClassTarget):
        chosen = "probability" if output is None else output
        check_choice("output", chosen, CLASS_OUTPUTS)
        return "log_odds" if chosen == "log_odds" else "probability"
    if output is not None:
        raise ValueError(
            f"output goes with classes, got output={output!r} for a model of {model.estimator}, "
            "which predicts numbers: leave it out."
        )
    return "prediction"


def _to_log_odds(probabilities: FloatArray) -> FloatArray:
    """Of each class against all others together. (N, C) -> (N, C)"""
    # A sum without the class itself: 1 - p would round to 0.
    others = probabilities @ (1.0 - np.eye(probabilities.shape[1]))
    least = np.finfo(np.float64).tiny
    return np.asarray(np.log(np.maximum(probabilities, least)) - np.log(np.maximum(others, least)))


def _name_outputs(model: "FittedModel", n_outputs: int) -> tuple[str, ...]:
    if isinstance(model.target, ClassTarget):
        return tuple(map(str, model.target.classes.tolist()))
    about = (model.training.table or {}).get("target", {})
    return tuple(about.get("names", ())) or tuple(f"output {i}" for i in range(n_outputs))


def _list_data(table: Table, names: Sequence[str]) -> NDArray[Any]:
    """The table as it was given, one array; a column that it lacks is empty. (n, columns)"""
    if table.numbers is not None and set(names) <= set(table.names):
        return table.select(names)
    data = np.full((table.n_rows, len(names)), None, dtype=object)
    for place, name in enumerate(names):
        if name in table.names:
            data[:, place] = table.values(name).each
    return data


# --- the background ------------------------------------------------------------------------------


def _list_candidates(model: "FittedModel", background: Any) -> FloatArray:
    """Rows that the background is chosen from: those given, else those that the model keeps, else
    rows drawn from its summary of each column. (M, F)"""
    if background is not None:
        matrix = model.transform(background)
        if len(matrix) > MOST_CANDIDATES:
            matrix = matrix[np.linspace(0, len(matrix) - 1, MOST_CANDIDATES).astype(np.intp)]
        return matrix
    training = model.training
    if training.background is not None:
        return training.background.astype(np.float64)
    if training.table is None or training.table["not_summarised"]:
        raise ValueError(
            "the model has no rows to compare with, and no summary of all its columns. Pass some "
            "rows of the training table: explain(X, background=rows)."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MuddleWarning)  # rare levels, gaps where there were few
        return model.transform(draw_columns(training.table, model.table.names, MOST_CANDIDATES))


def _choose_spread(answers: FloatArray, n_chosen: int) -> Indices:
    """Positions of rows whose predictions are spread as those of all rows, so that the mean of few
    is near the mean of all. (M, C) -> (n_chosen,), ascending"""
    n_rows = len(answers)
    if n_rows <= n_chosen:
        return np.arange(n_rows)
    centred = answers - answers.mean(axis=0)
    if centred.shape[1] > 1:
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        first = directions[0]
        centred = centred @ first[:, None] * np.sign(first[np.abs(first).argmax()])
    order = np.argsort(centred[:, 0], kind="stable")
    middles = (np.arange(n_chosen) + 0.5) * n_rows / n_chosen
    return np.sort(order[middles.astype(np.intp)])


# --- sampling ------------------------------------------------------------------------------------


class _TimeOver(Exception):
    pass


@dataclass
class _Timer:
    began: float
    limit: float | None
    clock: Callable[[], float]

    def elapsed(self) -> float:
        return self.clock() - self.began

    def check(self) -> None:
        if self.limit is not None and self.elapsed() > self.limit:
            raise _TimeOver


@dataclass
class _Sample:
    """Contributions by background row: their mean and sums of squares so far (Welford)."""

    n_rows: int  # of the background
    n_permutations: int
    used: list[int] = field(default_factory=list)
    mean: FloatArray = field(default_factory=lambda: np.zeros(()))  # (n, P, C)
    between: FloatArray = field(default_factory=lambda: np.zeros(()))  # squares around the mean
    within: FloatArray = field(default_factory=lambda: np.zeros(()))  # variances over orders

    @property
    def n_used(self) -> int:
        return len(self.used)

    def add(self, row: int, mean: FloatArray, variance: FloatArray) -> None:
        self.used.append(row)
        off = mean - self.mean
        self.mean = self.mean + off / self.n_used
        self.between = self.between + off * (mean - self.mean)
        self.within = self.within + variance

    @property
    def error(self) -> FloatArray:
        """Of a sample in two stages: background rows, without replacement, and orders for each.

        If all rows of the background were used, only the orders are chance. (n, P, C)
        """
        share, n_used = self.n_used / self.n_rows, self.n_used
        squares = share * self.within / (n_used**2 * self.n_permutations)
        if share < 1:
            squares = squares + (1 - share) * self.between / ((n_used - 1) * n_used)
        return np.sqrt(squares)


@dataclass(frozen=True)
class _Game:
    players: Indices  # (F,) the column that each feature belongs to
    n_players: int
    rows: FloatArray  # (n, F)
    answers: FloatArray  # (n, C) to the rows
    background: FloatArray  # (B, F)
    background_answers: FloatArray  # (B, C)
    answer: Answer
    at_once: int
    timer: _Timer

    def sample(
        self,
        n_permutations: int,
        rng: np.random.Generator,
        advance: Callable[[int], None] | None,
    ) -> _Sample:
        """Walks to all rows from one background row after the other, as far as there is time.

        Orders are the same for all rows, so that a row alone and beside others has the same values.
        """
        n_rows, n_background = len(self.rows), len(self.background)
        n_outputs = self.answers.shape[1]
        n_walks = 2 * n_permutations
        by_row = n_walks * n_rows * max(1, self.n_players - 1)
        n_together = min(n_background, math.ceil(self.at_once / by_row))
        kept = n_walks * n_together * (len(self.players) + (self.n_players + 1) * n_outputs)
        block = max(1, MOST_VALUES // kept)
        order = rng.permutation(n_background)
        found, started = _Sample(n_background, n_permutations), self.timer.elapsed()
        for first in range(0, n_background, n_together):
            own = order[first : first + n_together]
            taken = self.timer.elapsed() - started
            limit = self.timer.limit
            enough = found.n_used >= FEWEST
            if enough and limit is not None:
                expected = taken * (found.n_used + len(own)) / found.n_used
                if started + expected > limit:
                    break
            forward = np.stack(
                [rng.permutation(self.n_players) for _ in range(n_permutations * len(own))]
            )
            walks = np.concatenate([forward, forward[:, ::-1]])
            starts = np.tile(np.repeat(own, n_permutations), 2)
            parts = []
            try:
                for start in range(0, n_rows, block):
                    rows = slice(start, start + block)
                    parts.append(self._contribute(rows, starts, walks))
            except _TimeOver:
                break
            if advance is not None:
                advance(len(own))
            pairs = np.concatenate(parts, axis=1).reshape(
                2, len(own), n_permutations, n_rows, self.n_players, n_outputs
            )
            pairs = pairs.mean(axis=0)
            for row, values in zip(own.tolist(), pairs, strict=True):
                found.add(row, values.mean(axis=0), values.var(axis=0, ddof=1))
        if found.n_used < min(FEWEST, n_background):
            raise ValueError(
                f"max_seconds={self.timer.limit} is too short to compare {n_rows:,} row(s) with "
                f"{FEWEST} background rows. Explain fewer rows, or raise max_seconds."
            )
        return found

    def _contribute(self, rows: slice, starts: Indices, walks: Indices) -> FloatArray:
        """Contribution of each player in each walk to some rows. starts (W,) background rows;
        walks (W, P) players in the order in which they take over -> (W, n, P, C)"""
        own, n_players = self.rows[rows], self.n_players
        n_walks, n_rows = len(walks), len(own)
        moves = np.take_along_axis(self._find_moves(own, starts), walks[:, None, :], axis=2)
        later = np.logical_or.accumulate(moves[..., ::-1], axis=2)[..., ::-1]
        # Where nothing moves, or has moved already, the answer is known.
        needed = moves[..., :-1] & later[..., 1:]
        values = np.empty((n_walks, n_rows, n_players + 1, self.answers.shape[1]))
        values[:, :, 0] = self.background_answers[starts][:, None]
        values[:, :, 1:] = self.answers[rows][:, None]
        place = np.argsort(walks, axis=1)[:, self.players]  # of each feature in each walk
        asked = np.stack(np.nonzero(needed))
        for first in range(0, asked.shape[1], self._rows_at_once):
            self.timer.check()
            walk, row, step = asked[:, first : first + self._rows_at_once]
            taken = place[walk] <= step[:, None]
            mixed = np.where(taken, own[row], self.background[starts[walk]])
            values[walk, row, step + 1] = self.answer(mixed)
        for step in range(1, n_players):
            stays = ~moves[..., step - 1] & later[..., step]
            values[:, :, step][stays] = values[:, :, step - 1][stays]
        contributions = np.empty((n_walks, n_rows, n_players, values.shape[3]))
        steps = np.broadcast_to(walks[:, None, :, None], contributions.shape)
        np.put_along_axis(contributions, steps, np.diff(values, axis=2), axis=2)
        return contributions

    @property
    def _rows_at_once(self) -> int:
        return max(1, min(self.at_once, MOST_VALUES // max(1, len(self.players))))

    def _find_moves(self, own: FloatArray, starts: Indices) -> NDArray[np.bool_]:
        """Whether a player has other features in the row than in the background. (W, n, P)"""
        different, place = np.unique(starts, return_inverse=True)
        # Rows that a model keeps are float32.
        there = self.background[different][:, None].astype(np.float32)
        differ = own.astype(np.float32) != there
        found = np.zeros((len(different), len(own), self.n_players), dtype=bool)
        for feature, player in enumerate(self.players.tolist()):
            found[..., player] |= differ[..., feature]
        return found[place]
