"""Levels of a categorical column: which there are, their codes, and what they become."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muddle.tables.checks import FloatArray
from muddle.tables.columns import NUMBER, Codes, Column, as_levels

MISSING, OTHER = "missing", "other"
UNSEEN = -1
FOLDS = 5


@dataclass(frozen=True)
class Levels:
    """The levels `fit` saw in one column. Codes count `known`, then missing, then other."""

    known: tuple[str, ...]
    rare: frozenset[str]  # seen, but in too few rows to stand alone: "other"
    missing: int  # code of a gap; UNSEEN where there was none
    boolean: bool

    @property
    def other(self) -> int:
        """Code of a rare or unseen level; UNSEEN where nothing was rare."""
        return len(self) - 1 if self.rare else UNSEEN

    def __len__(self) -> int:
        own_level = self.missing == len(self.known)
        return len(self.known) + own_level + bool(self.rare)

    @property
    def names(self) -> list[str]:
        own_level = [MISSING] if self.missing == len(self.known) else []
        return [*self.known, *own_level, *([OTHER] if self.rare else [])]

    def encode(self, column: Column) -> "Encoded":
        """Code of each row; what `fit` never saw is "other", or UNSEEN where there is no other."""
        codes, keys = as_levels(column, self.boolean)
        place = {key: code for code, key in enumerate(self.known)}
        places = np.array([place.get(key, UNSEEN) for key in keys], dtype=np.intp)
        seen = np.array([key in self.rare for key in keys], dtype=bool) | (places >= 0)
        gap = self.other if self.missing == UNSEEN else self.missing
        found = np.append(np.where(places < 0, self.other, places), gap)
        new = np.append(~seen, self.missing == UNSEEN)[codes]
        if not new.any():
            return Encoded(found[codes], 0, None)
        first = codes[int(np.argmax(new))]
        return Encoded(
            found[codes], int(np.count_nonzero(new)), keys[first] if first >= 0 else None
        )


@dataclass(frozen=True)
class Encoded:
    """Codes of the rows of a column."""

    codes: Codes
    n_new: int  # rows with a level, or a gap, that `fit` never saw
    example: str | None  # the first such level; None for a gap


def find_levels(column: Column, min_rows: int, missing_as_mode: bool) -> Levels:
    """The levels of a column: those in at least `min_rows` rows, missing, and other."""
    codes, keys = as_levels(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(keys))
    known = sort_keys([key for key, count in zip(keys, counts, strict=True) if count >= min_rows])
    rare = frozenset(key for key, count in zip(keys, counts, strict=True) if 0 < count < min_rows)
    missing = UNSEEN
    if (codes < 0).any():
        most_frequent = keys[int(counts.argmax())] if len(keys) else None
        missing = (
            known.index(most_frequent) if missing_as_mode and most_frequent in known else len(known)
        )
    return Levels(tuple(known), rare, missing, column.kind == "boolean")


def sort_keys(keys: Sequence[str]) -> list[str]:
    """In order of size where all are numbers, else alphabetically."""
    if all(NUMBER.fullmatch(key) for key in keys):
        return sorted(keys, key=float)
    return sorted(keys)


def write_one_hot(codes: Codes, shares: FloatArray, out: FloatArray) -> None:
    """One column of 0 and 1 per level; of two levels only the second. A level never seen is 0 in
    each, or, of two, the share of the second: neither the one nor the other."""
    if out.shape[1] == 1:
        out[:, 0] = np.append([0.0, 1.0], shares[1])[codes]
        return
    out[:] = 0.0
    known = np.flatnonzero(codes >= 0)
    out[known, codes[known]] = 1.0


@dataclass(frozen=True)
class TargetMeans:
    """Mean of each target per level, drawn towards the overall mean where a level is rare."""

    means: FloatArray  # (targets, levels + 1), the last for a level never seen

    def encode(self, codes: Codes) -> FloatArray:
        """(N, targets)"""
        return self.means[:, codes].T


def fit_target_means(
    codes: Codes, n_levels: int, targets: FloatArray, seed: int
) -> tuple[TargetMeans, FloatArray]:
    """Means per level, and the means of the training rows, (N, targets), each from rows of other
    folds: a row must not find its own label in its features."""
    # Here, not above: muddle.runtime imports this module without scikit-learn.
    from sklearn.model_selection import KFold

    folds = KFold(min(FOLDS, len(codes)), shuffle=True, random_state=seed)
    crossed = np.empty(targets.shape)
    for others, fold in folds.split(codes):
        crossed[fold] = _means_per_level(codes[others], n_levels, targets[others])[:, codes[fold]].T
    return TargetMeans(_means_per_level(codes, n_levels, targets)), crossed


def _means_per_level(codes: Codes, n_levels: int, targets: FloatArray) -> FloatArray:
    """(targets, levels + 1)"""
    from sklearn.preprocessing import TargetEncoder

    means = np.empty((targets.shape[1], n_levels + 1))
    for target, row in zip(targets.T, means, strict=True):
        encoder = TargetEncoder(categories=[np.arange(n_levels)], target_type="continuous")
        encoder.fit(codes[:, None], target)
        row[:-1], row[-1] = encoder.encodings_[0], encoder.target_mean_
    return means
