"""Files of every format so far are read, and their models say what they said."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.model_file.contents import FORMAT, read_contents

FOLDER = Path(__file__).parent / "fixtures"
FILES = sorted(FOLDER.glob("*.muddle"))


def read_record(path):
    record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    rows = pd.DataFrame(record["rows"])
    return rows.assign(took=pd.to_timedelta(rows["took"], "s")), record["answers"]


def ask(model, method, rows):
    if method == "quantiles":
        return model.predict(rows, quantiles=[0.1, 0.5, 0.9])
    options = {"coverage": 0.8} if method == "predict_interval" else {}
    return getattr(model, method)(rows, **options)


@pytest.mark.filterwarnings("ignore:X holds values")
@pytest.mark.parametrize("runtime", ["torch", "numpy"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stored_model_says_what_it_said_when_it_was_stored(path, runtime):
    rows, answers = read_record(path)
    model = muddle.load(path, runtime=runtime)
    for method, expected in answers.items():
        if runtime == "numpy" and not hasattr(model, "predict_nets") and method == "predict_nets":
            continue
        found = ask(model, method, rows)
        if isinstance(np.ravel(expected)[0], np.floating):
            scale = np.std(answers["predict"]) if path.stem.endswith("regressor") else 1.0
            atol = 1e-6 if runtime == "torch" else 1e-5
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol * scale)
        else:
            assert found.tolist() == expected


def test_every_format_has_its_files():
    kinds = {"regressor", "classifier", "ensemble"}
    expected = {f"format{number}_{kind}" for number in range(1, FORMAT + 1) for kind in kinds}
    assert {path.stem for path in FILES} == expected
    assert all(path.stat().st_size < 150_000 for path in FILES)


def test_the_stored_models_hold_what_a_format_can_hold():
    """So that a change of any part of the format is seen here."""
    headers = [read_contents(path).header for path in FILES]
    views = {view["kind"] for header in headers for view in header["views"]}
    assert views == {"plain", "bins", "waves"}
    assert any(part["normal"] for header in headers for part in header["parts"])
    assert any(header["spread"] for header in headers)
    regressor = next(header for header in headers if header["estimator"] == "MuddleRegressor")
    stored = regressor["preprocessor"]
    assert {source["kind"] for source in stored["numbers"]} == {"number", "date", "duration"}
    assert any(source["had_gaps"] for source in stored["numbers"])
    assert len(stored["means"]) == 1
    assert len(stored["one_hot"]) == 2
