"""muddle evaluate, explain and info."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score

import muddle
from muddle.cli.models.answers import match_labels


def load(shell, name):
    return muddle.load(shell.folder / f"{name}.muddle")


def rows_of(shell, name):
    return shell.read(name, dtype={"zip": str})


def test_scores_of_numbers_are_those_of_scikit_learn(shell):
    table, model = rows_of(shell, "homes.csv"), load(shell, "price")
    found = shell.json("evaluate", "price.muddle", "homes.csv", "--interval", 0.8)
    rows = table.drop(columns="price")
    said = model.predict(rows)
    assert found["rows"] == 90
    assert found["scores"]["r2"] == pytest.approx(r2_score(table["price"], said))
    assert found["scores"]["mae"] == pytest.approx(mean_absolute_error(table["price"], said))
    rmse = np.sqrt(np.mean((table["price"] - said) ** 2))
    assert found["scores"]["rmse"] == pytest.approx(rmse)
    lower, upper = model.predict_interval(rows, 0.8).T
    inside = (table["price"] >= lower) & (table["price"] <= upper)
    assert found["interval"]["level"] == 0.8
    assert found["interval"]["coverage"] == pytest.approx(inside.mean())
    assert found["interval"]["mean_width"] == pytest.approx(np.mean(upper - lower))


def test_scores_of_classes_are_those_of_scikit_learn(shell):
    table, model = rows_of(shell, "dear.csv"), load(shell, "dear")
    found = shell.json("evaluate", "dear.muddle", "dear.csv")
    rows = table.drop(columns="dear")
    probabilities, said = model.predict_proba(rows), model.predict(rows)
    scores = found["scores"]
    assert scores["accuracy"] == pytest.approx(np.mean(said == table["dear"]))
    assert scores["auc"] == pytest.approx(
        roc_auc_score(table["dear"] == "yes", probabilities[:, 1])
    )
    assert scores["log_loss"] == pytest.approx(log_loss(table["dear"], probabilities))
    assert 0 <= scores["calibration_error"] < 0.3
    counts = pd.crosstab(table["dear"], said).reindex(columns=["no", "yes"], fill_value=0)
    assert found["confusion"] == {"classes": ["no", "yes"], "counts": counts.to_numpy().tolist()}


def test_summaries_for_people(shell):
    printed = shell.ok("evaluate", "dear.muddle", "dear.csv").stdout
    assert printed.startswith("dear.csv: 90 rows, classification\n")
    assert "Rows by their class (down) and by what was said (across)" in printed
    assert "Intervals of 90 % hold" in shell.ok("evaluate", "price.muddle", "homes.csv").stdout


def test_target_may_have_another_name(shell):
    rows_of(shell, "homes.csv").rename(columns={"price": "paid"}).to_csv(
        shell.folder / "other.csv", index=False
    )
    found = shell.json("evaluate", "price.muddle", "other.csv", "--target", "paid")
    assert found["scores"] == shell.json("evaluate", "price.muddle", "homes.csv")["scores"]
    said = shell.fails("evaluate", "price.muddle", "other.csv")
    assert said == (
        "other.csv must have a column of targets, 'price' in fit. Name it with --target."
    )
    said = shell.fails("evaluate", "price.muddle", "other.csv", "--target", "payed")
    assert "Did you mean 'paid'?" in said


def test_rows_without_a_target_are_left_out_of_scores(shell):
    table = rows_of(shell, "homes.csv")
    table.loc[:4, "price"] = np.nan
    table.to_csv(shell.folder / "other.csv", index=False)
    found = shell.json("evaluate", "price.muddle", "other.csv")
    assert found["rows"] == 85
    assert "5 of 90 rows left out: they have no 'price'." in found["notes"]


def test_class_that_the_model_does_not_know(shell):
    table = rows_of(shell, "dear.csv")
    table.loc[:1, "dear"] = "maybe"
    table.to_csv(shell.folder / "other.csv", index=False)
    said = shell.fails("evaluate", "dear.muddle", "other.csv")
    assert "must be a class of the model ('no', 'yes'), got 'maybe' in 2 of 90 rows" in said


def test_numbers_as_classes_are_found_whatever_their_spelling(shell):
    rows = [f"{i % 7},{i * i % 23},{int(i % 7 > 2)}" for i in range(60)]
    (shell.folder / "t.csv").write_text("\n".join(["x,z,y", *rows]))
    shell.ok("fit", "t.csv", "--target", "y", "--preset", "fast", "-o", "m.muddle", "--quiet")
    shell.read("t.csv").astype({"y": float}).to_csv(shell.folder / "floats.csv", index=False)
    whole = shell.json("evaluate", "m.muddle", "t.csv")
    assert shell.json("evaluate", "m.muddle", "floats.csv")["scores"] == whole["scores"]
    assert whole["confusion"]["classes"] == [0, 1]


def test_a_label_with_zeros_in_front_is_another_than_its_number():
    found = match_labels(["007", "7", "7.0", 7, "07", "x"], np.array(["007", "7", "x"]))
    assert found.tolist() == [0, 1, 1, 1, -1, 2]


@pytest.mark.parametrize(("name", "data"), [("price", "homes.csv"), ("dear", "dear.csv")])
def test_importances_are_the_rise_of_the_error_when_a_column_is_shuffled(shell, name, data):
    found = shell.json("explain", f"{name}.muddle", data, "--repeats", 1, "--seed", 4)
    table, model = rows_of(shell, data), load(shell, name)
    X, y = table.drop(columns=name), table[name]
    order = np.random.default_rng(4).permutation(len(X))
    shuffled = X.assign(area=X["area"].to_numpy()[order])
    if name == "price":
        errors = [np.mean((model.predict(rows) - y) ** 2) / np.var(y) for rows in (X, shuffled)]
    else:
        errors = [log_loss(y, model.predict_proba(rows)) for rows in (X, shuffled)]
    by_column = {row["column"]: row["importance"] for row in found["importances"]}
    assert by_column["area"] == pytest.approx(errors[1] - errors[0], rel=1e-6)
    assert by_column["key"] == 0  # the model ignores it
    assert found["importances"][0]["column"] == "area"
    values = [row["importance"] for row in found["importances"]]
    assert values == sorted(values, reverse=True)


def test_importances_of_the_fit_need_no_rows(shell):
    found = shell.json("explain", "price.muddle")
    model = load(shell, "price")
    by_column = {row["column"]: row["importance"] for row in found["importances"]}
    names = model.feature_names_in_.tolist()
    assert [by_column[name] for name in names] == pytest.approx(model.feature_importances_.tolist())
    without = shell.json("explain", "price.muddle", "new.csv")
    assert without["importances"] == found["importances"]
    assert "new.csv has no column of targets" in without["notes"][0]


def test_rows_are_sampled_and_it_is_said(shell):
    found = shell.json("explain", "price.muddle", "homes.csv", "--max-rows", 30, "--repeats", 1)
    assert found["from"] == "homes.csv, 30 rows"
    assert found["notes"] == ["30 of 90 rows, drawn at random: --max-rows takes more."]


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot_is_written_in_the_format_of_its_name(shell, suffix, start):
    pytest.importorskip("matplotlib")
    result = shell.ok("explain", "price.muddle", "--plot", f"p.{suffix}", "--top", 3)
    assert (shell.folder / f"p.{suffix}").read_bytes().startswith(start)
    assert result.stdout.splitlines()[-1] == f"Wrote p.{suffix}"
    assert result.stdout.splitlines()[-2] == "and 2 more"


def test_a_plot_shows_as_many_columns_as_are_asked_for(shell, monkeypatch):
    plots = pytest.importorskip("muddle.page.plots")
    shown = []
    monkeypatch.setattr(plots, "plot_importances", lambda *_, top, **__: shown.append(top))
    shell.ok("explain", "price.muddle", "--plot", "p.svg", "--top", 3)
    assert shown == [3]


def test_plot_that_cannot_be_written(shell):
    assert "--plot must end in" in shell.fails("explain", "price.muddle", "--plot", "p.doc")
    assert "must exist" in shell.fails("explain", "price.muddle", "--plot", "nowhere/p.png")


@pytest.mark.parametrize("command", ["predict", "evaluate", "explain"])
def test_a_device_that_is_not_there_is_an_error(shell, command):
    said = shell.fails(command, "price.muddle", "homes.csv", "--device", "cuda:99")
    assert "device='cuda:99'" in said


def test_info_has_columns_training_and_versions(shell):
    facts = shell.json("info", "price.muddle")
    assert facts["estimator"] == "MuddleRegressor"
    assert facts["target"] == "price"
    assert facts["size"] == (shell.folder / "price.muddle").stat().st_size
    needed = {row["column"]: row["needed"] for row in facts["columns"]}
    assert needed == {"area": True, "kind": True, "zip": True, "sold": True, "key": False}
    assert facts["training"]["rows"] == 90
    assert facts["training"]["file"] == "homes.csv"
    assert facts["training"]["scores"]["r2"] > 0
    assert facts["versions"]["muddle"] == muddle.__version__
    printed = shell.ok("info", "price.muddle").stdout
    for part in ("MuddleRegressor, regression", "90 rows of homes.csv", "ignored: an identifier"):
        assert part in printed


def test_models_saved_by_python_without_names_work_by_position(shell):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = muddle.MLRRegressor(width=16, max_iter=5, random_state=0).fit(X, X[:, 0])
    model.save(shell.folder / "m.muddle")
    pd.DataFrame(X, columns=["a", "b", "c"]).to_csv(shell.folder / "t.csv", index=False)
    result = shell.ok("predict", "m.muddle", "t.csv", "-o", "p.csv")
    assert result.stderr == ""
    np.testing.assert_allclose(shell.read("p.csv")["prediction"], model.predict(X), rtol=1e-5)
    pd.DataFrame(X[:, :2], columns=["a", "b"]).to_csv(shell.folder / "two.csv", index=False)
    said = shell.fails("predict", "m.muddle", "two.csv")
    assert "must have the 3 columns of fit in their order" in said
    assert "needs a MuddleRegressor" in shell.fails("predict", "m.muddle", "t.csv", "--interval=.9")
    labelled = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=X[:, 0])
    labelled.to_csv(shell.folder / "y.csv", index=False)
    found = shell.json("explain", "m.muddle", "y.csv", "--target", "y", "--repeats", 1)
    assert found["importances"][0]["column"] == "x0"
    assert "interval" not in shell.json("evaluate", "m.muddle", "y.csv", "--target", "y")


def test_help_waits_for_nothing():
    code = (
        "import sys; from muddle.cli.app import make_app; make_app()\n"
        "slow = {'torch', 'pandas', 'numpy', 'sklearn', 'pyarrow', 'matplotlib'}\n"
        "sys.exit(repr(slow & set(sys.modules)) if slow & set(sys.modules) else 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_shell_completion_completes_commands_and_options(tmp_path):
    def complete(words, place):
        environment = {
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
            "_MUDDLE_COMPLETE": "complete_bash",
            "HOME": str(tmp_path),
        }
        command = [sys.executable, "-m", "muddle"]
        return subprocess.run(command, capture_output=True, text=True, env=environment).stdout

    assert complete("muddle pre", 1).split() == ["predict"]
    assert "--interval" in complete("muddle predict --int", 2).split()


def test_shell_completion_can_be_installed(tmp_path):
    pytest.importorskip("shellingham")
    environment = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "muddle", "--install-completion", "bash"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert ended.returncode == 0, ended.stderr
    assert any("muddle" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_info_starts_neither_torch_nor_pandas(shell):
    code = (
        "import sys; from muddle.cli import main\n"
        "sys.argv = ['muddle', 'info', 'price.muddle']\n"
        "try: main()\n"
        "finally: assert not {'torch', 'pandas', 'sklearn'} & set(sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=shell.folder
    )
    assert ended.returncode == 0, ended.stderr
    assert "MuddleRegressor" in ended.stdout
