"""Rows that are not held out at random: groups, which stay together, and rows in order of time.

Shapes: N rows, K folds.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle_runtime.columns import Values, guess_form, read_column, to_floats, unmask

Rows = NDArray[np.int64]
Pair = tuple[Rows, Rows]
HoldOutKind = Literal["groups", "time", "validation"]

# Rows before this share of them, in time, are never predicted: the first fold learns from them. The
# nets of five folds then learn from 70 % of the rows in the mean, against 80 % of shuffled folds.
FIRST_SHARE = 0.5
FEWEST_BEFORE = 3  # rows before the first that is predicted


@dataclass(frozen=True, eq=False)
class HoldOut:
    """What decides which rows are held out together."""

    kind: HoldOutKind
    codes: Rows  # (N,) a group, a place in time, or 1 for validation rows and 0 for others

    def take(self, rows: Rows | NDArray[np.bool_]) -> "HoldOut":
        return replace(self, codes=self.codes[rows])

    def in_blocks(self, n_folds: int) -> "HoldOut":
        """With the blocks of time that folds are made of, which then stay if rows are left out."""
        return replace(self, codes=cut_time(self.codes, n_folds)) if self.kind == "time" else self

    def divide(self, n_folds: int, seed: int, classes: Rows | None = None) -> list[Pair]:
        """Training and held-out rows of each fold, ascending; in time, the first rows are in no
        fold's held-out rows, and there may be fewer folds. classes (N,): codes to be balanced"""
        if self.kind == "validation":
            return [(np.flatnonzero(self.codes == 0), np.flatnonzero(self.codes == 1))]
        if self.kind == "time":
            blocks = cut_time(self.codes, n_folds)
            folds = range(1, int(blocks.max()) + 1)
            return [(np.flatnonzero(blocks < k), np.flatnonzero(blocks == k)) for k in folds]
        own = deal_groups(self.codes, n_folds, np.random.default_rng(seed), classes)
        return [
            (np.flatnonzero(own != k), np.flatnonzero(own == k)) for k in range(int(own.max()) + 1)
        ]

    def set_aside(self, fraction: float, seed: int) -> Pair:
        """Training and validation rows of one net, the latter about this share."""
        codes, n_rows = self.codes, len(self.codes)
        if self.kind == "validation":
            chosen = codes == 1
        elif self.kind == "time":
            before, later = _list_cuts(codes)
            chosen = codes >= later[np.abs(before - (1 - fraction) * n_rows).argmin()]
        else:
            sizes = np.bincount(codes)
            present = np.flatnonzero(sizes)
            order = np.random.default_rng(seed).permutation(present)
            n_chosen = np.abs(np.cumsum(sizes[order])[:-1] - fraction * n_rows).argmin() + 1
            chosen = np.isin(codes, order[:n_chosen])
        return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def deal_groups(
    groups: Rows, n_folds: int, rng: np.random.Generator, classes: Rows | None = None
) -> Rows:
    """The fold of each row, (N,): larger groups come first, each into the fold that has the least
    of its classes, or the fewest rows. No fold is empty. classes (N,): codes"""
    codes = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(codes)
    columns = np.zeros_like(codes) if classes is None else classes
    counts = np.zeros((len(sizes), int(columns.max()) + 1))
    np.add.at(counts, (codes, columns), 1.0)
    shares = counts / np.maximum(counts.sum(axis=0), 1.0)
    n_folds = min(n_folds, len(sizes))
    own, n_rows = np.zeros((n_folds, counts.shape[1])), np.zeros(n_folds)
    fold_of = np.zeros(len(sizes), dtype=np.int64)
    for group in np.lexsort((rng.random(len(sizes)), -sizes)):
        fold = np.lexsort((n_rows, own @ shares[group]))[0]
        fold_of[group] = fold
        own[fold] += shares[group]
        n_rows[fold] += sizes[group]
    return np.asarray(fold_of[codes])


def cut_time(codes: Rows, n_folds: int) -> Rows:
    """The block of each row, (N,), in order of time: 0 for the first rows, 1 ... for those that one
    fold after the other predicts. Rows of one time share a block."""
    n_rows = len(codes)
    before, later = _list_cuts(codes)
    wanted = n_rows * (FIRST_SHARE + (1 - FIRST_SHARE) * np.arange(n_folds) / n_folds)
    cuts = np.unique([np.abs(before - rows).argmin() for rows in wanted])
    return np.searchsorted(later[cuts], codes, side="right")


def _list_cuts(codes: Rows) -> Pair:
    """Where time can be cut: rows before, and the first place in time after."""
    places, counts = np.unique(codes, return_counts=True)
    before, later = np.cumsum(counts)[:-1], places[1:]
    enough = before >= FEWEST_BEFORE
    return before[enough], later[enough]


# --- what the caller passes ----------------------------------------------------------------------


def read_hold_out(
    groups: Any, time: Any, n_rows: int, present: NDArray[np.bool_] | None, fewest_groups: int
) -> HoldOut | None:
    """`groups` or `time` of a fit, checked; None if neither is given. present (N,): rows of weight
    above 0, which alone are kept; None: all"""
    if groups is not None and time is not None:
        raise ValueError(
            "groups and time exclude each other, got both. Pass time if new rows come later than "
            "these, groups if they come from new groups."
        )
    if groups is not None:
        values = _read_values("groups", groups, n_rows, present)
        return HoldOut("groups", _code_groups(values, fewest_groups))
    if time is not None:
        return HoldOut("time", _rank_times(_read_values("time", time, n_rows, present)))
    return None


def _code_groups(values: NDArray[Any], fewest: int) -> Rows:
    codes, n_rows = np.asarray(pd.factorize(values)[0], dtype=np.int64), len(values)
    n_groups = int(codes.max()) + 1
    if n_groups == n_rows:
        raise ValueError(
            f"groups must hold rows together, got {n_rows} groups of one row each. Leave groups "
            "out: folds are then drawn row by row."
        )
    if n_groups < fewest:
        what = "one group" if n_groups == 1 else f"{n_groups} groups"
        raise ValueError(
            f"groups must hold at least {fewest} groups, as many as there are folds, got {what}. "
            "Pass finer groups, or hold out rows of your own as X_val and y_val."
        )
    return codes


def _rank_times(values: NDArray[Any]) -> Rows:
    column = read_column("time", Values(values), ())
    form = guess_form(column)
    if form == "levels":
        shown = next((v for v in values if isinstance(v, str)), values[0])
        raise ValueError(
            f"time must hold numbers or dates, got {str(shown)[:60]!r}. Convert it, e.g. with "
            "pandas.to_datetime."
        )
    numbers = to_floats(column, "duration" if column.kind == "duration" else form)
    if not np.isfinite(numbers).all():
        odd = values[~np.isfinite(numbers)][0]
        raise ValueError(f"time must hold finite numbers or dates, got {odd}. Leave such rows out.")
    codes = np.unique(numbers, return_inverse=True)[1]
    if not len(_list_cuts(codes)[0]):
        n_before = np.count_nonzero(codes < codes.max())
        what = f"{n_before} row(s) before it" if n_before else "one value"
        raise ValueError(
            f"time must differ, with {FEWEST_BEFORE} rows or more before its last value, got "
            f"{what}: no rows can be predicted from earlier ones. Pass a finer time, or leave it "
            "out."
        )
    return codes


def _read_values(
    name: str, given: Any, n_rows: int, present: NDArray[np.bool_] | None
) -> NDArray[Any]:
    """A value per row, none of them missing."""
    values = np.asarray(unmask(given))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"{name} must hold one value per row, got {_describe(given, values)}. Pass a column: "
            f"{name}=X[...]."
        )
    if len(values) != n_rows:
        raise ValueError(
            f"{name} must hold one value for each of the {n_rows} rows of X, got {len(values)}."
        )
    gaps = np.asarray(pd.isna(values))
    if gaps.any():
        row, n_gaps = int(gaps.argmax()), int(gaps.sum())
        others = f" ({n_gaps} rows have none)" if n_gaps > 1 else ""
        raise ValueError(
            f"{name} must have a value in every row, got {values[row]} in row {row}{others}. Leave "
            "such rows out, or fill the gaps."
        )
    return values if present is None else values[present]


def _describe(given: Any, values: NDArray[Any]) -> str:
    if isinstance(given, str):
        return f"the text {given!r}"
    return f"an array of shape {values.shape}" if values.ndim else f"a {type(given).__name__}"
