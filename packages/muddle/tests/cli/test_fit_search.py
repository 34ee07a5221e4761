"""muddle fit --search."""

import importlib.util
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score

import muddle
from muddle import search as spaces
from muddle.cli import fitting, searching

optuna = pytest.importorskip("optuna")
NETS = ("--device", "cpu", "-o", "m.muddle")
PRICE = ("fit", "homes.csv", "--target", "price", *NETS)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Nets are narrow and soon trained, also those of the first trial."""
    make = fitting.make_estimator

    def make_small(*arguments):
        made = make(*arguments)
        return made.set_params(width=8, max_iter=4) if hasattr(made, "width") else made

    monkeypatch.setattr(fitting, "make_estimator", make_small)
    monkeypatch.setattr(searching, "WIDTH", 20)
    monkeypatch.setattr(spaces, "MAX_ITERATIONS", dict.fromkeys(range(1, 5), 2))
    monkeypatch.setattr(spaces, "NETS", (2, 3))


@pytest.mark.parametrize("kind", ["mlr", "bag"])
def test_the_best_settings_are_fitted_and_kept_in_the_model(shell, kind):
    options = ("--search", 3, "--model", kind, "--report", "page.html")
    result = shell.json(*PRICE, *options)
    found = result["search"]
    assert found["n_trials"] == 3
    assert 1 <= found["n_ended"] <= 3
    assert result["scores"]["r2"] == found["score"]
    model = muddle.load_model(shell.folder / "m.muddle")
    assert type(model).__name__ == {"mlr": "MLRRegressor", "bag": "BagMLRRegressor"}[kind]
    parameters = model.get_params()
    assert {name: parameters[name] for name in found["settings"]} == found["settings"]
    assert shell.json("info", "m.muddle")["training"]["search"] == found
    assert "best of 3 settings" in shell.ok("info", "m.muddle").stdout
    page = (shell.folder / "page.html").read_text(encoding="utf-8")
    assert "Settings were chosen by a search: best of 3 settings" in page
    shell.ok("predict", "m.muddle", "new.csv", "-o", "p.csv")
    assert len(shell.read("p.csv")) == 90


def test_classes_and_progress(shell):
    data = ("fit", "dear.csv", "--target", "dear", *NETS)
    result = shell.ok(*data, "--search", 2, "--model", "mlr")
    assert "Search: best of 2 settings" in result.stdout
    assert "AUC" in result.stdout
    assert "NEW.csv --proba -o" in result.stdout
    assert "settings 1 of 2: AUC " in result.stderr
    assert ", the best so far" in result.stderr


class Memory(BaseEstimator):
    """Predicts a tenth of the row's number, and fails on rows that it has seen."""

    def __init__(self, time_limit=None):
        self.time_limit = time_limit

    def fit(self, X, y, sample_weight=None):
        self.seen_, self.classes_ = set(X["row"]), np.unique(y)
        LIMITS.append(self.time_limit)
        return self

    def predict(self, X):
        assert not self.seen_ & set(X["row"])
        return X["row"].to_numpy() / 10

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


LIMITS: list[float | None] = []


def make_training(y, task):
    table = pd.DataFrame({"row": np.arange(len(y), dtype=float)})
    return SimpleNamespace(X=table, y=y, weights=None, task=task, hold_out={})


def test_scores_are_of_rows_that_models_have_not_seen():
    y = np.arange(20.0) / 10 + 0.3 * np.sin(np.arange(20))
    training = make_training(y, "regression")
    folds = searching._draw_folds(training, 0)
    scores = searching._cross_validate(Memory(), training, folds, math.inf)
    assert scores["r2"] == pytest.approx(r2_score(y, np.arange(20) / 10))
    assert scores["mae"] == pytest.approx(np.abs(0.3 * np.sin(np.arange(20))).mean())


def test_a_class_that_a_fold_lacks_has_no_probability_there():
    y = np.array(["a"] * 10 + ["b"] * 9 + ["c"])
    training = make_training(y, "classification")
    folds = searching._draw_folds(training, 0)
    scores = searching._cross_validate(Memory(), training, folds, math.inf)
    # Alone in its fold's test rows, "c" gets 0, which the loss takes as 1e-15.
    least = -math.log(1e-15)
    assert scores["log_loss"] > least / 20
    assert scores["accuracy"] == pytest.approx(0.5)


def test_fits_of_a_trial_share_the_time_and_a_late_trial_is_pruned(monkeypatch):
    training = make_training(np.arange(20.0), "regression")
    folds = searching._draw_folds(training, 0)
    LIMITS.clear()
    now = iter([0.0, 1.0, 2.0, 3.0, 4.0, 70.0, 74.5, 80.0])
    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with pytest.raises(optuna.TrialPruned):
        searching._cross_validate(Memory(time_limit=100.0), training, folds, 75.0)
    assert LIMITS == [5.0, 5.0, 5.0, 0.5]


def test_an_interrupted_search_goes_on_in_its_file(shell, monkeypatch):
    done, score = [], searching._cross_validate

    def interrupt(*arguments):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(score(*arguments)["r2"])
        return score(*arguments)

    monkeypatch.setattr(searching, "_cross_validate", interrupt)
    options = ("--search", 4, "--model", "mlr", "--search-storage", "s.db")
    assert shell(*PRICE, *options).exit_code == 130
    assert not (shell.folder / "m.muddle").exists()
    monkeypatch.setattr(
        searching, "_cross_validate", lambda *a: done.append(0.0) or {"r2": min(done) - 1}
    )
    found = shell.json(*PRICE, *options)["search"]
    assert len(done) == 4
    assert found["n_trials"] == found["n_ended"] == 4
    assert found["score"] == pytest.approx(max(done[:2]))  # of before the interrupt
    again = shell.json(*PRICE, *options)["search"]
    assert again == found
    assert len(done) == 4
    (shell.folder / "m.muddle").unlink()
    dear = ("fit", "dear.csv", "--target", "dear", *NETS)
    said = shell.fails(*dear, *options)
    assert said.startswith("--search-storage must be of the same table and model, got another task")


def test_the_flagship_is_searched_over_its_grid(shell, monkeypatch):
    monkeypatch.setattr(searching, "PRESETS", ("fast",))
    monkeypatch.setattr(spaces, "PRESETS", ("fast",))
    tried = []

    def score(model, training, columns):
        tried.append((model.preset, model.preprocessor.max_levels))
        return {"r2": -abs(model.preprocessor.max_levels - 11)}

    monkeypatch.setattr(searching, "_score_flagship", score)
    result = shell.json(*PRICE, "--search", 50)
    assert sorted(tried) == [("fast", 4), ("fast", 12), ("fast", 32)]
    expected = {"preset": "fast", "preprocessor__max_levels": 12}
    assert result["search"]["settings"] == expected
    assert any("the flagship has 3 settings to search over" in note for note in result["notes"])
    assert result["members"]
    model = muddle.load_model(shell.folder / "m.muddle")
    assert model.preset == "fast"
    assert model.preprocessor_.max_levels == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "bag"), "--model is an option of a search: pass --search N, too."),
        (("--search-storage", "s.db"), "--search-storage is an option of a search"),
        (("--search", 2, "--preset", "fast"), "--preset does not go with --search, which chooses"),
        (
            ("--search", 2, "--model", "bag", "--without-rows"),
            "--without-rows does not go with --search of --model bag.",
        ),
        (
            ("--search", 2, "--search-storage", "new.csv"),
            "--search-storage must name a new file or one that a search wrote, got new.csv.",
        ),
        (
            ("--search", 2, "--model", "mlr", "--time-limit", 1e-6),
            "no settings were scored by --search: raise --time-limit, got 1e-06 s.",
        ),
    ],
)
def test_options_that_do_not_fit(shell, options, said):
    assert shell.fails(*PRICE, *options).startswith(said)


def test_a_search_without_optuna_says_what_to_install(shell, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name)
    )
    said = shell.fails(*PRICE, "--search", 2)
    assert said == "--search needs the package optuna: pip install 'muddle[search]'."
