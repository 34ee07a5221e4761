"""Points: each published row has one, the base is the preset, names say what is changed."""

import csv
from collections import Counter
from dataclasses import replace

import pytest

from muddle.training.config import OLD_NAMES, preset_config
from muddle_bench.methods.method import Request
from muddle_bench.methods.registry import METHODS, by_name
from muddle_bench.studies import points as study_points
from muddle_bench.studies.study_nets import make_config
from muddle_bench.studies.study_tables import POOLED, published_rows

PRINTED_NAMES = {"structured_dithering": "structured_noise", "dither": "label_noise"}
PARAMETERS = {"permutations": "n_permutations", "label_noise": "dither", "ridge_init": "penalty"}
PARAMETERS |= {name: name for name in ("structured_noise", "width", "batch_size")}


def read(folder, name):
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def printed_rows(folder):
    """Study, data set, value in our words and R², of every printed row."""
    for row in read(folder, "ablation"):
        yield "ablation", POOLED, row["step"], row["mean_r2"]
    for row in read(folder, "dependence"):
        study = PRINTED_NAMES.get(row["study"], row["study"])
        word = {"ridge_init": "heuristic", "batch_size": "n"}.get(study)
        value = word if word and row["is_default"] == "yes" else row["value"]
        yield study, row["dataset_id"], value, row["r2"]
    for row in read(folder, "depth"):
        yield "depth", row["dataset_id"], row["depth"], row["r2_mean"]


def test_every_printed_row_is_known_with_its_numbers_and_its_default(published_folder):
    printed = list(printed_rows(published_folder))
    assert len(printed) == 5 + 128 + 64
    known = {key: row["score"] for key, row in published_rows().items()}
    assert {tuple(key): float(score) for *key, score in printed} == known
    rows = published_rows()
    for row in read(published_folder, "ablation"):
        assert rows["ablation", POOLED, row["step"]]["bag"] == float(row["bagging_r2"])
    defaults = {
        (point.study, point.dataset, point.value): point.is_default
        for name in study_points.DEPENDENCES
        for point in study_points.STUDIES[name].points
    }
    keys = [tuple(key) for *key, _ in printed[5:133]]
    for key, source in zip(keys, read(published_folder, "dependence"), strict=True):
        assert rows[key]["score_val"] == float(source["r2_val"])
        assert rows[key]["best_iteration"] == float(source["best_iter"])
        if source["study"] != "ridge_init":
            assert rows[key]["ridge_init"] == float(source["ridge_init"])
        assert defaults[key] == (source["is_default"] == "yes")


def test_every_published_row_has_exactly_one_point_and_equal_points_are_shared():
    points = Counter(
        (point.study, point.dataset, point.value)
        for study in study_points.STUDIES.values()
        for point in study.points
    )
    assert set(points.values()) == {1}
    for study, dataset, value in published_rows():
        for one in study_points.THREE if dataset == POOLED else [dataset]:
            assert points[study, one, value] == 1, (study, one, value)
    published = set(published_rows())
    for name in study_points.DEPENDENCES:
        for point in study_points.STUDIES[name].points:
            assert (name, point.dataset, point.value) in published
    permuted = study_points.find_study("permutations").points[0]
    assert (
        permuted.variant
        == study_points.STEPS["+ Ridge + Struct. Dithering"]
        == study_points.vary(n_permutations=0)
    )
    assert (
        study_points.STEPS["MLR"]
        == study_points.vary(structured_noise=1, width=1024)
        == study_points.Variant()
    )
    by_name([*METHODS.values(), *study_points.METHODS])
    variants = {point.variant for study in study_points.STUDIES.values() for point in study.points}
    assert len(variants) == len(study_points.all_variants())


@pytest.mark.parametrize(("study", "parameter"), PARAMETERS.items())
def test_a_value_is_that_of_its_setting(study, parameter):
    for point in study_points.STUDIES[study].points:
        changes = dict(point.variant.changes)
        if point.is_default:
            assert changes == {}
        elif (study, point.value) == ("ridge_init", "0"):
            assert changes == {"penalty": study_points.NO_PENALTY}
        else:
            assert changes == {parameter: float(point.value)}


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_points_have_the_released_preset(task):
    # Regressors break ties by the error: no two R² are equal.
    ties = "error" if task == "regression" else "first"
    models = {
        method.name: method.make(Request(task=task, seed=3))
        for method in study_points.METHODS
        if method.name == study_points.Variant().name or method.name.startswith("study-depth")
    }
    assert len(models) == 5
    base = models.pop(study_points.Variant().name)
    preset = preset_config("mlr-2", "released", task)
    assert base.config == replace(preset, batch_size=2**14, ties=ties)
    assert (base.n_nets, base.random_state) == (10, 3)
    for name, model in models.items():
        preset = preset_config(f"mlr-{name[-1]}", "released", task)
        assert model.config == replace(preset, ties=ties)


def test_every_variant_has_settings_that_nets_accept():
    for variant in study_points.all_variants().values():
        config = make_config("regression", variant.depth or 2, **dict(variant.changes))
        for key, value in variant.changes:
            assert getattr(config, key) == OLD_NAMES.get(key, {}).get(value, value)
