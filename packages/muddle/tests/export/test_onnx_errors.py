"""What cannot be exported says so, and leaves nothing behind."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from muddle import EnsMLRRegressor, MLRClassifier, MLRRegressor, MuddleRegressor, TablePreprocessor
from muddle.errors import MissingPackageError
from muddle.export import model as building
from muddle.export.exporting import export_onnx

SMALL = {"width": 8, "max_iter": 4, "depth": 1, "random_state": 0, "device": "cpu"}


@pytest.fixture
def fitted(numbers):
    return MLRRegressor(**SMALL).fit(*numbers)


def test_without_the_package_onnx(fitted, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"needs the package onnx: pip install"):
        fitted.to_onnx(tmp_path / "model.onnx")


def test_an_estimator_that_is_not_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        MLRRegressor().to_onnx(tmp_path / "model.onnx")


def test_an_estimator_of_another_package(numbers, tmp_path):
    with pytest.raises(TypeError, match="an estimator of muddle must be given"):
        export_onnx(Ridge().fit(*numbers), tmp_path / "model.onnx")


def test_a_folder_that_is_not_there_or_a_folder_as_the_file(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match="Create it first"):
        fitted.to_onnx(tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(IsADirectoryError, match="must name a file"):
        fitted.to_onnx(tmp_path)


def test_the_path_comes_back_and_a_file_is_replaced_whole(fitted, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("older")
    assert fitted.to_onnx(str(path)) == path
    assert path.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [path]


def test_a_graph_that_fails_its_check_is_not_written(fitted, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise ValueError("not a graph")

    monkeypatch.setattr(building.onnx.checker, "check_model", refuse)
    with pytest.raises(ValueError, match="not a graph"):
        fitted.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [MLRRegressor, EnsMLRRegressor])
def test_intervals_of_an_estimator_that_has_none(make, numbers, tmp_path):
    options = {name: value for name, value in SMALL.items() if name != "depth"}
    estimator = make(**options).fit(*numbers)
    with pytest.raises(ValueError, match=r"interval needs a MuddleRegressor.*interval=0.9 for a"):
        estimator.to_onnx(tmp_path / "model.onnx", interval=0.9)


@pytest.mark.parametrize("interval", [0, 1.5, "0.9"])
def test_a_coverage_that_is_none(interval, fitted, tmp_path):
    with pytest.raises((ValueError, TypeError), match="interval must"):
        fitted.to_onnx(tmp_path / "model.onnx", interval=interval)


def test_intervals_from_too_few_rows(numbers, small_pool, tmp_path):
    X, y = numbers
    estimator = MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(X, y)
    with pytest.raises(ValueError, match=r"interval=0.99 needs at least 99 training rows.*got 80"):
        estimator.to_onnx(tmp_path / "model.onnx", interval=0.99)


def test_labels_of_several_types(numbers, tmp_path):
    X, y = numbers
    estimator = MLRClassifier(**SMALL).fit(X, y > 0)
    estimator.classes_ = np.array([1, "many"], dtype=object)
    with pytest.raises(ValueError, match=r"classes must be all text.*got int, str"):
        estimator.to_onnx(tmp_path / "model.onnx")


def test_one_number_written_in_two_ways_as_two_levels(numbers, tmp_path):
    _, y = numbers
    table = pd.DataFrame({"n": np.resize(["1", "1.0", "2"], 80), "x": np.arange(80.0)})
    preprocessor = TablePreprocessor(few_values="levels", max_levels=5)
    estimator = MLRRegressor(preprocessor=preprocessor, **SMALL).fit(table, y)
    with pytest.raises(ValueError, match=r"levels of column 'n' must be different numbers.*'1.0'"):
        estimator.to_onnx(tmp_path / "model.onnx")


def test_a_model_too_large_for_the_format(fitted, monkeypatch, tmp_path):
    monkeypatch.setattr(building, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match=r"must be smaller than 2 GB, got a model of"):
        fitted.to_onnx(tmp_path / "model.onnx")
