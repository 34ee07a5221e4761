"""Small data sets every test may use."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def numbers() -> tuple[np.ndarray, np.ndarray]:
    """80 rows, 4 features, a smooth target with a little noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=80)


@pytest.fixture
def classes() -> tuple[np.ndarray, np.ndarray]:
    """90 rows, 3 features, three named classes that overlap a little."""
    rng = np.random.default_rng(1)
    codes = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + 2.5 * np.eye(3)[codes]
    return X, np.array(["ash", "birch", "cedar"])[codes]


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The paper's raw files and the authors' matrices, which lie beside the checkout where there
    are any."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the data in ../shared/data, which is not here")
    return folder


@pytest.fixture(scope="session")
def reference_matrices(data_folder) -> Path:
    """The authors' preprocessed matrices."""
    return data_folder / "reference_matrices"
