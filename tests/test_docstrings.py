import doctest

import pytest

import muddle


@pytest.mark.parametrize(
    "name", ["MLRRegressor", "MLRClassifier", "MuddleRegressor", "MuddleClassifier"]
)
def test_examples_in_docstrings_run(name):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    examples = finder.find(getattr(muddle, name), name, globs={})
    assert sum(len(test.examples) for test in examples) > 0
    assert sum(runner.run(test).failed for test in examples) == 0
