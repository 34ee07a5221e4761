"""Rebuild the authors' matrices from the raw files and compare: writes results/datasets.csv."""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from muddle.errors import MuddleError
from muddle_bench.data import Dataset, load
from muddle_bench.data.catalogue import Entry, built_in
from muddle_bench.data.files import data_home

# Stored in float32, a matrix keeps about seven digits.
TOLERANCE = 1e-5
NO_MATRIX = "no matrix"

# Names of the authors' matrices that are not the name of the data set.
MATRIX_NAMES = {
    "concrete-slump-test-1": "concrete-slump-test-compressive-strength",
    "concrete-slump-test-2": "concrete-slump-test-flow",
    "concrete-slump-test-3": "concrete-slump-test-slump",
}


@dataclass(frozen=True)
class Comparison:
    """One line of results/datasets.csv."""

    dataset: str
    task: str
    n_published: int | None
    d_published: int | None
    n_rebuilt: int
    d_rebuilt: int
    match: str
    difference_X: str  # largest difference, in standard deviations of the column
    difference_y: str
    n_clean: int
    features_clean: int  # raw columns, not encoded
    reason: str


def compare(entry: Entry, home: Path) -> Comparison:
    """Size and values of the rebuilt matrix against the published ones."""
    rebuilt, clean = load(entry.id, "published", home), load(entry.id, "clean", home)
    n, d = rebuilt.X.shape
    same_size = (n, d) == (entry.n_published, entry.d_published)
    reference = read_reference(entry.id, home)
    differences = measure_differences(rebuilt, *reference) if reference else None
    match = same_size and (differences is None or max(differences) < TOLERANCE)
    shown = [f"{value:.1e}" for value in differences] if differences else [NO_MATRIX] * 2
    return Comparison(
        dataset=entry.id,
        task=rebuilt.task,
        n_published=entry.n_published,
        d_published=entry.d_published,
        n_rebuilt=n,
        d_rebuilt=d,
        match=("yes" if differences else "size") if match else "no",
        difference_X=shown[0],
        difference_y=shown[1],
        n_clean=clean.meta.n_rows,
        features_clean=clean.meta.n_features,
        reason=entry.mismatch,
    )


def read_reference(name: str, home: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The authors' features and target, where their matrix is in the data folder."""
    path = home / "reference_matrices" / f"{MATRIX_NAMES.get(name, name)}.npz"
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        return arrays["X"], arrays["y"]


def measure_differences(rebuilt: Dataset, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Largest difference in X and y, in standard deviations of the column."""
    if X.shape != rebuilt.X.shape:
        return np.inf, np.inf
    # Rounded as the stored matrix is: a column far from zero has few digits left for its spread.
    return (
        _largest(rebuilt.X.to_numpy().astype(X.dtype), X),
        _largest(rebuilt.y.astype(y.dtype), y),
    )


def _largest(values: np.ndarray, reference: np.ndarray) -> float:
    spread = reference.std(axis=0, dtype=np.float64)
    difference = np.abs(values.astype(np.float64) - reference.astype(np.float64)).max(axis=0)
    return float(np.max(difference / np.where(spread > 0, spread, 1)))


def main() -> None:
    """Compare every data set whose file is there, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-home", help="folder with raw/ and reference_matrices/")
    parser.add_argument("--output", type=Path, default=Path("results/datasets.csv"))
    arguments = parser.parse_args()
    home = data_home(arguments.data_home)
    lines = []
    for entry in built_in().values():
        try:
            lines.append(compare(entry, home))
        except MuddleError as error:
            raise SystemExit(f"{entry.id}: {error}") from error
    table = pd.DataFrame([asdict(line) for line in lines])
    table.to_csv(arguments.output, index=False)
    print(table.to_string(index=False))
    print(table["match"].value_counts().to_dict(), "written to", arguments.output)


if __name__ == "__main__":
    main()
