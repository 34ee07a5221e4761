"""The results in docs/studies.md are those in results/studies."""

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split("## Results")[1].split("## A point of a study")[0].split())
SMALL = ["concrete-slump-test-3", "qsar-aquatic-toxicity"]
SEOUL = "seoul-bike-sharing-demand"
STEPS = ["+ Ridge", "+ Ridge + Struct. Dithering", "+ Ridge + Permut.", "MLR"]


def read_study(name):
    table = pd.read_csv(ROOT / "results" / "studies" / f"{name}.csv", dtype={"value": str})
    return table.set_index(["value", "dataset"])


def say(number):
    return f"{number:+.3f}".replace("-", "−")


def test_the_level_of_the_two_small_sets():
    table = read_study("ablation")
    for column, said in (("score", r"mean here: .*? \(printed"), ("bag", r"bags .*? \(")):
        numbers = re.findall(r"0\.\d{3}", re.search(said, TEXT)[0])
        means = [table.loc[step].loc[SMALL, column].mean() for step in STEPS]
        assert numbers == [f"{mean:.3f}" for mean in means]


def test_what_structured_dithering_adds():
    score = read_study("ablation")["score"].unstack("dataset")
    ridge = score.loc["+ Ridge + Struct. Dithering"] - score.loc["+ Ridge"]
    permuted = score.loc["MLR"] - score.loc["+ Ridge + Permut."]
    first, second = (
        f"{say(step[SMALL[0]])} and {say(step[SMALL[1]])}" for step in (ridge, permuted)
    )
    assert f"({first} after the ridge, {second} after permutations)" in TEXT
    assert ridge[SEOUL] == pytest.approx(-0.02, abs=0.005)
    assert permuted[SEOUL] == pytest.approx(-0.02, abs=0.005)


def test_how_far_depth_is_from_print():
    difference = read_study("depth")["difference"]
    said = re.search(r"(\d+) rows .*? differences (0\.\d+), half of them below (0\.\d+)", TEXT)
    assert int(said[1]) == len(difference)
    assert said[2] == f"{difference.abs().mean():.3f}"
    assert difference.abs().median() < float(said[3])
    far = difference[difference.abs() > 0.02]
    assert all(value in "34" and "slump" in dataset for value, dataset in far.index)
    assert re.search(r"slump tests, (0\.\d+) to (0\.\d+) below", TEXT).groups() == (
        f"{-far.max():.2f}",
        f"{-far.min():.2f}",
    )


def test_how_far_seoul_lies_above_print():
    names = ["permutations", "structured_noise", "ridge_init", "label_noise", "width", "batch_size"]
    tables = [read_study(name).xs(SEOUL, level="dataset") for name in names]
    table = pd.concat(tables, keys=names)["difference"].drop(("ridge_init", "0"))
    said = re.search(r"Seoul bike lies (0\.\d+) to (0\.\d+) above print", TEXT)
    assert said.groups() == (f"{table.min():.2f}", f"{table.max():.2f}")


def test_losses_and_classes():
    score = read_study("ablation_more")["score"].unstack("dataset")
    loss = score.loc["paper loss"] - score.loc["MLR"]
    assert f"by {-loss[SMALL[0]]:.2f} and {-loss[SMALL[1]]:.2f} on the small sets" in TEXT
    assert f"ahead by {loss[SEOUL]:.3f} on Seoul bike" in TEXT
    # A step adds one thing: the ridge, then noise or permutations, then the other.
    steps = [("FFNN", "+ Ridge"), *(("+ Ridge", step) for step in STEPS[1:3])]
    steps += [(step, "MLR") for step in STEPS[1:3]]
    classes = score.loc[["FFNN", *STEPS]].drop(columns=[*SMALL, SEOUL])
    largest = max((classes.loc[b] - classes.loc[a]).abs().max() for a, b in steps)
    assert f"no step changes the AUC by more than {largest:.3f}" in TEXT


def test_every_figure_of_the_studies_is_on_the_page():
    figures = {path.name for path in (ROOT / "docs" / "figures" / "studies").iterdir()}
    assert figures == set(re.findall(r"\]\(figures/studies/([\w.]+)\)", PAGE))
