"""The lessons run from top to bottom, and print what they promise."""

import importlib.util
import math
import re
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.estimators import pool

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def run_lesson(tmp_path, monkeypatch, capsys):
    """Runs a lesson in an empty folder with small nets, and returns its output."""
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=30))
    monkeypatch.chdir(tmp_path)

    def run(name):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        plt.close("all")
        return capsys.readouterr().out

    return run


def test_the_first_lesson_writes_a_model_and_its_page(run_lesson):
    printed = run_lesson("first_model.py")
    assert "R² on the test rows: 0." in printed
    assert "of the test rows are inside" in printed
    assert Path("first_model.muddle").stat().st_size > 1000
    assert "Diabetes after a year" in Path("first_model.html").read_text(encoding="utf-8")


def test_the_second_lesson_compares_on_equal_folds(run_lesson):
    printed = run_lesson("honest_comparison.py")
    assert printed.count("AUC 0.9") == 2
    assert printed.count("by fold") == 2


def test_the_third_lesson_predicts_alike_everywhere_and_finds_the_drift(run_lesson):
    pytest.importorskip("onnx", reason="needs onnx, of the extra onnx")
    pytest.importorskip("onnxruntime", reason="needs onnxruntime, of requirements-dev.txt")
    printed = run_lesson("to_production.py")
    assert "refused: " in printed
    assert "nothing heavy" in printed
    assert "same labels: True" in printed
    (drift,) = [line for line in printed.splitlines() if line.startswith("warning: ")]
    assert "alcohol" in drift
    assert "as before: nothing found" in printed


@pytest.mark.parametrize("name", ["first_model.py", "honest_comparison.py", "to_production.py"])
def test_a_lesson_is_text_and_code_in_turns(name):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # Lesson ")
    assert text.count("# %% [markdown]") >= 5
    assert text.count("# %%\n") >= 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Spark's own
def test_spark_predicts_and_solves_as_one_machine(run_lesson):
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    printed = run_lesson("spark.py")
    rows, here = re.search(r"(\d+) rows predicted, largest difference (\S+)", printed).groups()
    assert (int(rows), float(here) < 1e-9) == (15_000, True)
    before, after = (float(r2) for r2 in re.findall(r"layer +(0\.\d+)", printed))
    assert 0.5 < before < after
    assert float(re.search(r"difference of a weight (\S+)", printed)[1]) < 1e-9


# --- the web service -----------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path, monkeypatch):
    """The module of the service around a small model, and the model."""
    pytest.importorskip("fastapi", reason="needs fastapi, of requirements-dev.txt")
    rng = np.random.default_rng(0)
    homes = pd.DataFrame({"area": rng.normal(90, 25, 60), "kind": rng.choice(["flat", "loft"], 60)})
    model = muddle.MuddleRegressor(preset="fast", random_state=0).fit(homes, 2 * homes["area"])
    monkeypatch.setenv("MODEL", str(model.save(tmp_path / "homes.muddle")))
    monkeypatch.setattr("logging.captureWarnings", lambda capture: None)
    spec = importlib.util.spec_from_file_location("service", EXAMPLES / "service.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "service", module)
    spec.loader.exec_module(module)
    return module, model


def test_the_page_shows_the_service_as_it_is():
    code = (EXAMPLES / "service.py").read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    assert f"```python\n{code}```" in (ROOT / "docs/guides/production.md").read_text(
        encoding="utf-8"
    )


def test_the_service_answers_as_the_model(service):
    module, model = service
    rows = [{"area": 80, "kind": "loft"}, {"area": None, "kind": "flat"}]
    with pytest.warns(muddle.MuddleWarning, match="1 missing"):
        found = module.predict(module.Question(rows=rows, coverage=0.5))
    with pytest.warns(muddle.MuddleWarning):
        expected = model.predict(pd.DataFrame(rows))
    np.testing.assert_allclose(found["predictions"], expected, rtol=1e-5)
    assert np.shape(found["intervals"]) == (2, 2)
    assert module.describe()["columns"] == {"area": "number", "kind": "text"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"area": "big", "kind": "loft"}, "column 'area' held numbers in fit"),
        ({"area": 80}, "lacks column 'kind'"),
        ({"area": math.inf, "kind": "loft"}, "must hold finite numbers"),
        ({}, "an empty record"),
    ],
    ids=["text", "lacking", "infinite", "empty"],
)
def test_rows_that_the_model_refuses_are_a_422_with_its_words(service, row, message):
    from fastapi import HTTPException

    module, _ = service
    with pytest.raises(HTTPException, match=message) as found:
        module.predict(module.Question(rows=[row]))
    assert found.value.status_code == 422


@pytest.mark.parametrize(
    "question",
    [{}, {"rows": []}, {"rows": [{"area": [1]}]}, {"rows": [{"area": 1}], "coverage": 2}],
    ids=["nothing", "no rows", "list", "coverage"],
)
def test_requests_of_another_form_are_refused_before_the_model(service, question):
    from pydantic import ValidationError

    module, _ = service
    with pytest.raises(ValidationError):
        module.Question.model_validate(question)
