"""The script that trains a small CNN on few digits."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("study_cnn", ROOT / "scripts" / "study_cnn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("wrong", [0.0, 0.2])
def test_splits_have_the_images_and_wrong_labels_that_were_asked_for(script, wrong):
    codes = load_digits(return_X_y=True)[1]
    train, test, labels = script.draw_split(codes, 10, wrong, split=3)
    assert np.bincount(codes[train]).tolist() == [10] * 10
    assert sorted([*train, *test]) == list(range(len(codes)))
    assert (labels != codes[train]).mean() == wrong
    again = script.draw_split(codes, 10, wrong, split=3)
    assert all(np.array_equal(a, b) for a, b in zip(again, (train, test, labels), strict=True))
    assert np.array_equal(train, script.draw_split(codes, 10, 0.0, split=3)[0])
    assert not np.array_equal(train, script.draw_split(codes, 10, wrong, split=4)[0])


def test_all_methods_run_and_are_summarised(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "STEPS", 15)
    monkeypatch.setattr(script, "DROPOUTS", (0.0, 0.5))
    monkeypatch.setattr(script, "DECAYS", (0.0,))
    out, figure = tmp_path / "cnn.csv", tmp_path / "cnn.svg"
    script.main(["--splits", "0", "--per-class", "10", "--out", str(out), "--figure", str(figure)])
    table = pd.read_csv(out)
    methods = ["cross-entropy", "cross-entropy, tuned", "MLR", "MLR, no permutations"]
    assert table["method"].tolist() == methods * 2
    assert (table["accuracy"] > 0.2).all()
    assert figure.read_text(encoding="utf-8").startswith("<?xml")
    assert "won against cross-entropy" in capsys.readouterr().out


def test_the_page_has_the_recorded_means(script):
    found = script.summarise(pd.read_csv(ROOT / "results" / "cnn_digits.csv"))
    page = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    methods = ["MLR", "MLR, no permutations", "cross-entropy", "cross-entropy, tuned"]
    for (per_class, wrong), row in found.iterrows():
        said = "none" if wrong == 0 else f"{wrong:.0%}".replace("%", " %")
        (line,) = re.findall(rf"^\| {per_class} \| {said} \| (.+) \|$", page, re.MULTILINE)
        *means, won = line.split(" | ")
        assert [float(mean) for mean in means] == pytest.approx(row[methods].tolist(), abs=0.0006)
        assert won == f"{100 * row['won against cross-entropy, tuned']:.0f} %"
