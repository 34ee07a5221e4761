"""The lessons run from top to bottom, and print what they promise."""

import re
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from muddle.estimators import pool

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


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
