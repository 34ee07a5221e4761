"""Figures of studies show the numbers of the tables."""

import math

import numpy as np
import pandas as pd
import pytest

from muddle_bench.studies import study_figures
from muddle_bench.studies.points import HEURISTIC, STUDIES, WHOLE

COLOR, SHAPE = study_figures.LOOKS[0]


@pytest.fixture(scope="module")
def penalties(study_table):
    rows = [
        ("a", "0", -0.1, -0.2), ("a", "0.001", -9.0, -8.0), ("a", "1000", 0.5, 0.6),
        ("a", "heuristic*", 0.7, 0.65), ("b", "0", 0.1, 0.1), ("b", "0.001", 0.2, 0.2),
        ("b", "1000", 0.8, 0.8), ("b", "heuristic*", 0.9, math.nan),
    ]  # fmt: skip
    return study_table(rows, "ridge_init")


@pytest.fixture(scope="module")
def steps(study_table):
    rows = [("a", "FFNN", 0.1, 0.0), ("a", "+ Ridge", 0.2, 0.3), ("a", "MLR*", 0.4, 0.35)]
    return study_table(rows, "ablation")


def find_marks(ax, *, filled, color=COLOR):
    """Positions of all marks of a colour: measured ones are filled, published ones open."""
    lines = [line for line in ax.lines if line.get_color() == color and len(line.get_xdata())
             and line.get_linestyle() == "None"
             and (line.get_fillstyle() == "full") == filled
             and line.get_markeredgecolor() == color]  # fmt: skip
    return sorted((float(x), float(y), line.get_marker())
                  for line in lines for x, y in line.get_xydata())  # fmt: skip


def draw(table, name):
    """The axes of a study with one plot."""
    figure = study_figures.draw_study(table, STUDIES[name])
    return figure.axes[0] if figure.axes else figure.subfigs[0].axes[0]


@pytest.mark.parametrize("name", STUDIES)
def test_every_value_of_a_study_has_a_place(study_table, name):
    study = STUDIES[name]
    rows = [(p.dataset, p.value + "*" * p.is_default, 0.5, 0.5) for p in study.points]
    table = study_table(rows, name)
    study_figures.draw_study(table, study)
    if study.scale not in ("steps", "rows"):
        axis = study_figures.place_values(table, study)
        assert set(axis.places) == {point.value for point in study.points}
        assert axis.edges <= {"0", HEURISTIC, WHOLE}


def test_values_without_a_place_on_the_axis_stand_at_its_edges(penalties, study_table):
    axis = study_figures.place_values(penalties, STUDIES["ridge_init"])
    assert (axis.places["0.001"], axis.places["1000"]) == pytest.approx((-3, 3))
    assert axis.places["0"] < axis.separators[0] < -3 < 3 < axis.separators[1]
    assert axis.separators[1] < axis.places["heuristic"]
    assert axis.edges == {"0", "heuristic"}
    assert sorted(axis.ticks)[1:3] == [(-3, "10⁻³"), (3, "10³")]
    axis = study_figures.place_values(
        study_table([("a", "0", 0.1), ("a", "1*", 0.2)]), STUDIES["structured_noise"]
    )
    assert axis.places == {"0": 0.0, "1": 1.0}
    assert not axis.edges
    values = [*(str(2**power) for power in range(14)), "103", "546", "8760"]
    table = study_table([("a", value, 0.1) for value in values])
    places = sorted(
        place for place, _ in study_figures.place_values(table, STUDIES["batch_size"]).ticks
    )
    assert min(np.diff(places)) >= 0.05 * 13
    assert len(places) > 6


def test_measured_scores_are_filled_marks_published_ones_open_and_steps_in_order(penalties, steps):
    ax = draw(penalties, "ridge_init")
    places = study_figures.place_values(penalties, STUDIES["ridge_init"]).places
    color, shape = study_figures.LOOKS[1]
    scores = {"0": 0.1, "0.001": 0.2, "1000": 0.8, "heuristic": 0.9}
    measured = [(places[name], score, shape) for name, score in scores.items()]
    assert find_marks(ax, filled=True, color=color) == measured
    assert find_marks(ax, filled=False, color=color) == measured[:3]
    chosen = [line.get_xydata().tolist() for line in ax.lines
              if line.get_markeredgecolor() == study_figures.INK and line.get_marker() != "None"
              and len(line.get_xdata())]  # fmt: skip
    assert chosen == [[[places["heuristic"], 0.7]], [[places["heuristic"], 0.9]]]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names[:2] == ["a", "b"]
    assert {"published", "default", "below −0.5"} < set(names)
    # Scores far below are carets at the edge and flatten nothing.
    for filled in (True, False):
        (at_edge,) = [mark for mark in find_marks(ax, filled=filled) if mark[0] == -3]
        assert at_edge[1:] == (-0.5, 7)
    assert -0.7 < ax.get_ylim()[0] <= -0.5
    ax = draw(steps, "ablation")
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["FFNN", "+ Ridge", "MLR (default)"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first on top
    expected = {(COLOR, True): [0.1, 0.2, 0.4], (COLOR, False): [0.0, 0.3, 0.35]}
    expected[study_figures.LOOKS[1][0], True] = [0.15, 0.25, 0.45]
    for (color, filled), scores in expected.items():
        marks = find_marks(ax, filled=filled, color=color)
        np.testing.assert_allclose([x for x, _, _ in marks], scores)


def test_the_band_is_two_standard_errors_wide_and_one_split_has_none(study_table):
    rows = [("a", "16", 0.5, 0.5), ("a", "64*", 0.6, 0.6)]
    ax = draw(study_table(rows), "width")
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == pytest.approx((0.48, 0.62))
    ax = draw(study_table(rows, score_se=math.nan), "width")
    assert len(find_marks(ax, filled=True)) == 2
    assert all(len(path.vertices) == 0 for band in ax.collections for path in band.get_paths())
    rows = [("a", "16", math.nan, 0.5), ("a", "64*", 0.6, math.nan)]
    ax = draw(study_table(rows), "width")
    assert find_marks(ax, filled=True) == [(6.0, 0.6, "o")]
    assert find_marks(ax, filled=False) == [(4.0, 0.5, "o")]


@pytest.fixture
def history():
    columns = {"iteration": [0, 1, 2], "validation_score": [0.1, 0.4, 0.3], "penalty": [9.0, 5, 3]}
    return pd.DataFrame(columns).assign(dataset="a")


def test_training_record_shows_score_penalty_and_the_best_iteration(history):
    ax, other = study_figures.draw_record(history).axes
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), history["validation_score"])
    assert list(ax.lines[1].get_xdata()) == [1]
    np.testing.assert_array_equal(other.lines[0].get_ydata(), history["penalty"])
    assert other.get_yscale() == "log"
    plain = study_figures.draw_record(history.assign(penalty=math.nan))  # a net without a ridge
    assert {each.get_yscale() for each in plain.axes} == {"linear"}


def test_files_are_the_same_each_time(steps, penalties, history, tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    penalties.to_csv(folder / "ridge_init.csv", index=False)
    steps.to_csv(folder / "ablation.csv", index=False)
    history.to_csv(folder / "training_record.csv", index=False)
    (folder / "width.csv").write_text("")  # as good as missing
    paths = study_figures.write_figures(folder, tmp_path / "first")
    assert [path.name for path in paths] == [
        f"{name}.{kind}" for name in ("ablation", "ridge_init", "training_record")
        for kind in ("svg", "png")
    ]  # fmt: skip
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths if path.suffix == ".png")
    study_figures.write_figures(folder, tmp_path / "second")
    for path in paths:
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere.* `muddle study`"):
        study_figures.write_figures(tmp_path / "nowhere", tmp_path / "out")
