import doctest

import pytest

import muddle
from muddle.shipping import Shipping

ESTIMATORS = ["MLRRegressor", "MLRClassifier", "MuddleRegressor", "MuddleClassifier"]
DESCRIBED = {
    **{name: getattr(muddle, name) for name in [*ESTIMATORS, "load"]},
    **{name: getattr(Shipping, name) for name in ("save", "to_onnx", "report")},
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    examples = finder.find(DESCRIBED[name], name, globs={})
    assert sum(len(test.examples) for test in examples) > 0
    assert sum(runner.run(test).failed for test in examples) == 0


@pytest.mark.parametrize("name", ["save", "to_onnx", "report"])
def test_every_parameter_of_a_way_out_is_described(name):
    method = DESCRIBED[name]
    described = method.__doc__.split("Parameters")[1].split("Examples")[0]
    names = set(method.__annotations__) - {"return"}
    assert names == {
        one
        for line in described.splitlines()
        if " : " in line
        for one in line.split(" : ")[0].strip().split(", ")
    }
