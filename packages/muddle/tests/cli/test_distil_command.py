"""muddle distil, and muddle fit --preset compact."""

from dataclasses import replace

import numpy as np
import pytest

import muddle
from muddle.estimators import student


@pytest.fixture(autouse=True)
def short_lessons(monkeypatch):
    monkeypatch.setattr(student, "CONFIG", replace(student.CONFIG, max_iter=100))
    monkeypatch.setattr(student, "N_MADE", 3000)
    monkeypatch.setattr(student, "N_MADE_FOLD", 1000)


def load(shell, name):
    return muddle.load_model(shell.folder / name)


def test_a_student_is_written_beside_its_teacher_and_answers_like_it(shell):
    facts = shell.json("distil", "price.muddle", "new.csv", "-o", "small.muddle")
    teacher, small = load(shell, "price.muddle"), load(shell, "small.muddle")
    rows = shell.read("new.csv")
    assert np.corrcoef(teacher.predict(rows), small.predict(rows))[0, 1] > 0.97
    assert small.model_.n_nets == 1
    assert facts["size"] == (shell.folder / "small.muddle").stat().st_size
    assert facts["size_before"] == (shell.folder / "price.muddle").stat().st_size
    about = small.model_.training.values["student"]
    assert {name: facts[name] for name in about} == about
    printed = shell.ok("distil", "price.muddle", "-o", "other.muddle").stdout
    assert printed.startswith("Wrote other.muddle: ")
    assert "instead of" in printed
    assert "differs from the model by" in printed


def test_a_target_makes_calibration_and_intervals_anew(shell):
    shell.ok("distil", "dear.muddle", "dear.csv", "-o", "first.muddle")
    shell.ok("distil", "dear.muddle", "dear.csv", "--target", "dear", "-o", "second.muddle")
    teacher, first, second = (
        load(shell, f"{name}.muddle").model_.calibration for name in ("dear", "first", "second")
    )
    np.testing.assert_array_equal(teacher.slopes, first.slopes)
    assert not np.array_equal(teacher.slopes, second.slopes)


def test_options_reach_the_student(shell):
    shell.ok("distil", "price.muddle", "new.csv", "--budget", 2000, "-o", "tiny.muddle", "--quiet")
    assert load(shell, "tiny.muddle").model_.training.values["student"]["weights"] <= 2000
    said = shell("distil", "price.muddle", "new.csv", "--time-limit", 1e-6, "-o", "a.muddle")
    assert said.exit_code == 1
    assert "--time-limit 1e-06 s was over before" in said.stderr
    assert not (shell.folder / "a.muddle").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "price"], "--target is a column of DATA: pass DATA, too."),
        (["new.csv", "--budget", 10], "budget must be at least 2000, got budget=10"),
        (["absent.csv"], "absent.csv"),
        (["homes.csv", "--target", "cost"], "'cost'"),
    ],
)
def test_what_cannot_be_is_said(shell, arguments, message):
    assert message in shell.fails("distil", "price.muddle", *arguments, "-o", "small.muddle")


def test_the_teacher_is_not_overwritten(shell):
    assert "price.muddle" in shell.fails("distil", "price.muddle", "-o", "price.muddle")


def test_nets_cannot_be_distilled(shell):
    table = shell.read("homes.csv")
    net = muddle.MLRRegressor(width=8, max_iter=2, random_state=0, device="cpu")
    net.fit(table[["area"]].fillna(0), table["price"]).save(shell.folder / "net.muddle")
    said = shell.fails("distil", "net.muddle", "-o", "small.muddle")
    assert said.endswith("which `muddle fit` writes without --model, got a MLRRegressor.")


def test_compact_is_a_preset_of_fit(shell):
    options = ("--preset", "compact", "--device", "cpu")
    result = shell.ok("fit", "homes.csv", "--target", "price", *options, "-o", "small.muddle")
    assert "student" in result.stdout
    small = load(shell, "small.muddle")
    assert small.leaderboard_["configuration"].iloc[0] == "student"
    assert small.preset == "compact"
    said = " ".join(shell.ok("info", "small.muddle").stdout.split())
    assert "learnt from a larger model by" in said
    assert shell.json("info", "small.muddle")["student"]["weights"] > 2000
    assert shell.json("info", "price.muddle")["student"] is None
