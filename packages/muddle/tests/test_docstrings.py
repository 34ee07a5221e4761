"""Docstrings: examples run, and every parameter is described."""

import doctest

import pytest

import muddle
import muddle.tables
from muddle.estimators.base import Estimator

METHODS = ["save", "to_onnx", "report"]
MLR = [name for name in muddle.__all__ if "MLR" in name]
DESCRIBED = {
    **{name: getattr(muddle, name) for name in [*MLR, "MuddleRegressor", "MuddleClassifier"]},
    "load_model": muddle.load_model,
    "Stream": muddle.tables.Stream,
    **{name: getattr(Estimator, name) for name in METHODS},
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    examples = finder.find(DESCRIBED[name], name, globs={})
    assert sum(len(test.examples) for test in examples) > 3
    assert sum(runner.run(test).failed for test in examples) == 0


@pytest.mark.parametrize("name", MLR)
def test_every_parameter_of_an_estimator_is_described(name):
    text = DESCRIBED[name].__doc__.split("Attributes")[0].replace("\\\n", "").replace("\n", " ")
    assert set(DESCRIBED[name]().get_params()) <= set(text.replace(",", " ").split())


@pytest.mark.parametrize("name", MLR)
def test_every_fitted_attribute_of_an_estimator_is_described(name):
    kind = DESCRIBED[name]
    text = kind.__doc__.split("Attributes")[1].replace("\\\n", "").replace("\n", " ")
    public = {one for one in dir(kind) if one.endswith("_") and not one.startswith("_")}
    assert public - {"validation_metric_"} <= set(text.replace(",", " ").split())


@pytest.mark.parametrize("name", [*METHODS, "load_model"])
def test_every_parameter_of_a_function_is_described(name):
    described = DESCRIBED[name].__doc__.split("Parameters")[1].split("Examples")[0]
    names = set(DESCRIBED[name].__annotations__) - {"return"}
    assert names == {
        one
        for line in described.splitlines()
        if " : " in line
        for one in line.split(" : ")[0].strip().split(", ")
    }
