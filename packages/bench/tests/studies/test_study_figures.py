"""Figures of studies: what is drawn is what the tables hold, and damaged tables are refused."""

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from muddle import EnsMLRRegressor, MLRRegressor
from muddle.errors import DataFormatError
from muddle_bench.studies import training_record
from muddle_bench.studies.figures import (
    arrange_steps,
    draw_steps,
    draw_study,
    plot_dependence,
    plot_rows,
    plot_steps,
    plot_training_record,
    write_figures,
)
from muddle_bench.studies.marks import INK, LOOKS, place_values
from muddle_bench.studies.points import HEURISTIC, STUDIES, WHOLE
from muddle_bench.studies.reading import NUMBERS, TEXTS, read_record, read_study
from muddle_bench.studies.tables import COLUMNS
from muddle_bench.studies.topics import TOPICS

PNG = b"\x89PNG"


def make_table(study, rows, **more):
    """rows: (dataset, value, score, published) in order; the default is the row after a star."""
    records = []
    for dataset, value, score, published in rows:
        records.append({
            "study": study, "dataset": dataset, "task": "regression", "value": value.strip("*"),
            "is_default": "yes" if value.endswith("*") else "no", "n_splits": 10, "n_nets": 100,
            "score": score, "score_se": 0.01, "bag": score + 0.05, "bag_se": 0.01,
            "seconds": 2.0, "score_published": published, "difference": score - published,
            "hardware": "a CPU", "commit": "abc1234", "warning": "",
        } | more)  # fmt: skip
    return pd.DataFrame(records).reindex(columns=[*TEXTS, *NUMBERS])


PENALTIES = make_table(
    "ridge_init",
    [
        ("a", "0", -0.1, -0.2), ("a", "0.001", -9.0, -8.0), ("a", "1000", 0.5, 0.6),
        ("a", "heuristic*", 0.7, 0.65), ("b", "0", 0.1, 0.1), ("b", "0.001", 0.2, 0.2),
        ("b", "1000", 0.8, 0.8), ("b", "heuristic*", 0.9, math.nan),
    ],
)  # fmt: skip
STEPS = make_table(
    "ablation", [("a", "FFNN", 0.1, 0.0), ("a", "+ Ridge", 0.2, 0.3), ("a", "MLR*", 0.4, 0.35)]
)


def marks_of(ax, *, filled, color):
    """Places of all marks of a colour: measured ones are filled, published ones open."""
    lines = [line for line in ax.lines if line.get_color() == color and len(line.get_xdata())
             and line.get_linestyle() == "None"
             and (line.get_fillstyle() == "full") == filled
             and line.get_markeredgecolor() == color]  # fmt: skip
    return sorted((float(x), float(y), line.get_marker())
                  for line in lines for x, y in line.get_xydata())  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "tables"
    source.mkdir()
    PENALTIES.to_csv(source / "ridge_init.csv", index=False)
    STEPS.to_csv(source / "ablation.csv", index=False)
    return source


# What is drawn


def test_every_study_is_presented_and_every_value_has_a_place():
    assert set(TOPICS) == set(STUDIES)
    for name, study in STUDIES.items():
        rows = [(p.dataset, p.value + "*" * p.is_default, 0.5, 0.5) for p in study.points]
        draw_study(make_table(name, rows), TOPICS[name])
        if TOPICS[name].scale not in ("steps", "rows"):
            axis = place_values(make_table(name, rows), TOPICS[name])
            assert set(axis.places) == {point.value for point in study.points}
            assert axis.edges <= {"0", HEURISTIC, WHOLE}


def test_the_columns_needed_are_those_that_are_written():
    assert set(TEXTS + NUMBERS) == set(COLUMNS)


def test_values_without_a_place_on_the_axis_stand_at_its_edges():
    axis = place_values(PENALTIES, TOPICS["ridge_init"])
    assert axis.places["0.001"] == pytest.approx(-3)
    assert axis.places["1000"] == pytest.approx(3)
    assert axis.places["0"] < -3 < 3 < axis.places["heuristic"]
    assert axis.edges == {"0", "heuristic"}
    assert axis.places["0"] < axis.separators[0] < -3
    assert 3 < axis.separators[1] < axis.places["heuristic"]
    assert sorted(axis.ticks)[1:3] == [(-3, "10⁻³"), (3, "10³")]


def test_on_a_linear_axis_zero_is_a_number():
    table = make_table("structured_noise", [("a", "0", 0.1, 0.1), ("a", "1*", 0.2, 0.2)])
    axis = place_values(table, TOPICS["structured_noise"])
    assert axis.places == {"0": 0.0, "1": 1.0}
    assert not axis.edges


def test_labels_of_neighbouring_values_do_not_touch():
    values = [*(str(2**power) for power in range(14)), "103", "546", "8760"]
    table = make_table("batch_size", [("a", value, 0.1, 0.1) for value in values])
    axis = place_values(table, TOPICS["batch_size"])
    places = sorted(place for place, _ in axis.ticks)
    assert min(np.diff(places)) >= 0.05 * 13
    assert len(places) > 6


def test_measured_scores_are_filled_marks_and_published_ones_open():
    ax = plot_dependence(PENALTIES, TOPICS["ridge_init"])
    places = place_values(PENALTIES, TOPICS["ridge_init"]).places
    (_, _), (color, shape) = LOOKS[:2]
    names = ("0", "0.001", "1000", "heuristic")
    measured = [
        (places[name], y, shape) for name, y in zip(names, (0.1, 0.2, 0.8, 0.9), strict=True)
    ]
    assert marks_of(ax, filled=True, color=color) == measured
    assert marks_of(ax, filled=False, color=color) == measured[:3]
    chosen = [line.get_xydata().tolist() for line in ax.lines
              if line.get_markeredgecolor() == INK and line.get_marker() != "None"
              and len(line.get_xdata())]  # fmt: skip
    assert chosen == [[[places["heuristic"], 0.7]], [[places["heuristic"], 0.9]]]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names[:2] == ["a", "b"]
    assert {"published", "default", "below −0.5"} < set(names)


def test_scores_far_below_are_carets_at_the_edge_and_flatten_nothing():
    ax = plot_dependence(PENALTIES, TOPICS["ridge_init"])
    color = LOOKS[0][0]
    for filled in (True, False):
        (at_edge,) = [mark for mark in marks_of(ax, filled=filled, color=color) if mark[0] == -3]
        assert at_edge[1:] == (-0.5, 7)
    assert -0.7 < ax.get_ylim()[0] <= -0.5


def test_the_band_is_two_standard_errors_wide():
    table = make_table("width", [("a", "16", 0.5, 0.5), ("a", "64*", 0.6, 0.6)])
    ax = plot_dependence(table, TOPICS["width"])
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.min() == pytest.approx(0.48)
    assert corners.max() == pytest.approx(0.62)


def test_one_split_has_marks_but_no_band():
    table = make_table("width", [("a", "16", 0.5, 0.5), ("a", "64*", 0.6, 0.6)], score_se=math.nan)
    ax = plot_dependence(table, TOPICS["width"])
    assert len(marks_of(ax, filled=True, color=LOOKS[0][0])) == 2
    assert all(len(path.vertices) == 0 for band in ax.collections for path in band.get_paths())


def test_points_without_a_score_are_gaps():
    rows = [("a", "16", math.nan, 0.5), ("a", "64*", 0.6, math.nan)]
    ax = plot_dependence(make_table("width", rows), TOPICS["width"])
    assert marks_of(ax, filled=True, color=LOOKS[0][0]) == [(6.0, 0.6, "o")]
    assert marks_of(ax, filled=False, color=LOOKS[0][0]) == [(4.0, 0.5, "o")]


def test_steps_show_single_nets_and_bags_in_the_order_of_the_table():
    ax = plot_steps(STEPS)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["FFNN", "+ Ridge", "MLR (default)"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first on top
    (single, _), (bag, _) = LOOKS[:2]
    assert [x for x, _, _ in marks_of(ax, filled=True, color=single)] == [0.1, 0.2, 0.4]
    np.testing.assert_allclose(
        [x for x, _, _ in marks_of(ax, filled=True, color=bag)], [0.15, 0.25, 0.45]
    )
    assert [x for x, _, _ in marks_of(ax, filled=False, color=single)] == [0.0, 0.3, 0.35]
    with pytest.raises(ValueError, match=r"must be about one data set, got 2: a, b\. Choose"):
        plot_steps(PENALTIES)


def test_data_sets_with_the_same_steps_stand_side_by_side():
    other = make_table("ablation", [("z", "tanh", 0.1, 0.1), ("z", "MLR*", 0.1, 0.1)])
    parts = [STEPS.assign(dataset=name) for name in "abcd"]
    table = pd.concat([*parts, other], ignore_index=True)
    bands = [[part["dataset"].iloc[0] for part in band] for band in arrange_steps(table)]
    assert bands == [["a", "b"], ["c", "d"], ["z"]]
    figure = draw_steps(table, TOPICS["ablation"])
    titles = [ax.get_title() for row in figure.subfigs for ax in row.axes]
    assert titles == ["a", "b", "c", "d", "z"]


def test_the_legend_has_what_is_on_any_of_the_plots():
    bare = STEPS.assign(dataset="a", score_published=np.nan, bag_published=np.nan)
    table = pd.concat([bare, STEPS.assign(dataset="b")], ignore_index=True)
    (legend,) = draw_steps(table, TOPICS["ablation"]).legends
    assert [text.get_text() for text in legend.get_texts()].count("published") == 1


def test_depth_has_a_line_per_data_set_and_a_mark_per_depth():
    rows = [(name, f"{depth}" + "*" * (depth == 2), 0.1 * depth, 0.1 * depth + 0.01)
            for name in ("a", "b", "c") for depth in (1, 2, 3, 4)]  # fmt: skip
    ax = plot_rows(make_table("depth", rows), TOPICS["depth"])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b", "c"]
    for depth, (color, shape) in zip((1, 2, 3, 4), LOOKS, strict=False):
        marks = marks_of(ax, filled=True, color=color)
        assert [round(y) for _, y, _ in marks] == [0, 1, 2]
        assert {(round(x, 6), mark) for x, _, mark in marks} == {(round(0.1 * depth, 6), shape)}
    assert "hidden layers: 2 (default)" in [text.get_text() for text in ax.get_legend().get_texts()]


# The training record


@pytest.fixture(scope="module")
def net():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return MLRRegressor(width=8, max_iter=6, random_state=0).fit(X, X[:, 0])


def test_training_record_shows_score_penalty_and_the_iteration_kept(net):
    ax = plot_training_record(net.history_)
    history = net.history_
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), history["validation_score"])
    (best,) = ax.lines[1].get_xdata()
    assert best == history["validation_score"].idxmax()
    other = next(each for each in ax.figure.axes if each is not ax)
    np.testing.assert_array_equal(other.lines[0].get_ydata(), history["penalty"])
    assert other.get_yscale() == "log"


def test_a_net_without_a_penalty_has_a_record_too(net):
    ax = plot_training_record(net.history_.assign(penalty=math.nan))
    assert {each.get_yscale() for each in ax.figure.axes} == {"linear"}


def test_histories_that_are_no_nets_are_refused(net):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    many = EnsMLRRegressor(n_nets=1, width=8, max_iter=2, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"must be that of one net.*history_\.loc\[0\]"):
        plot_training_record(many.history_)
    plot_training_record(many.history_.loc[0])
    with pytest.raises(ValueError, match=r"lacks penalty\. Did you mean 'penalties'\?"):
        plot_training_record(net.history_.rename(columns={"penalty": "penalties"}))
    with pytest.raises(ValueError, match=r"one row at least, and is empty\. Fit"):
        plot_training_record(net.history_.iloc[:0])


def test_a_written_record_is_read_and_drawn(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    data = SimpleNamespace(X=X, y=X["a"].to_numpy(), task="regression")
    monkeypatch.setattr(training_record, "load", lambda *given: data)
    small = {"width": 8, "max_iter": 5}
    path = training_record.write_training_record(tmp_path / "new", "some-set", **small)
    assert path == tmp_path / "new" / "training_record.csv"
    first = path.read_bytes()
    training_record.write_training_record(tmp_path / "new", "some-set", **small)
    assert path.read_bytes() == first
    record = read_record(tmp_path / "new")
    assert list(record["iteration"]) == [0, 1, 2, 3, 4, 5]
    assert set(record["dataset"]) == {"some-set"}
    names = [path.name for path in write_figures(tmp_path / "new", tmp_path / "out")]
    assert names == ["training_record.svg", "training_record.png"]
    data.task = "classification"
    with pytest.raises(ValueError, match="some-set is one of classification"):
        training_record.write_training_record(tmp_path, "some-set")


# Files


def test_figures_are_written_as_svg_and_png_and_are_the_same_each_time(folder, tmp_path):
    paths = write_figures(folder, tmp_path / "first")
    assert [path.name for path in paths] == [
        "ablation.svg", "ablation.png", "ridge_init.svg", "ridge_init.png",
    ]  # fmt: skip
    assert all(path.read_bytes()[:4] == PNG for path in paths if path.suffix == ".png")
    again = write_figures(folder, tmp_path / "second")
    for one, other in zip(paths, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_an_empty_table_is_one_that_is_not_there(folder, tmp_path):
    (folder / "width.csv").write_text("")
    PENALTIES.iloc[:0].to_csv(folder / "depth.csv", index=False)
    assert read_study(folder, "width") is None
    assert read_study(folder, "depth") is None
    assert read_study(folder, "permutations") is None
    assert len(write_figures(folder, tmp_path / "out")) == 4


def test_a_missing_folder_is_an_error_that_says_what_makes_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere.* `muddle study`"):
        write_figures(tmp_path / "nowhere", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="score_se"), r"must have the columns .*lacks score_se\."),
        (lambda t: t.rename(columns={"score": "scores"}), r"lacks score\. Did you mean 'scores'\?"),
        (lambda t: t.assign(score="high"), "nothing in the column score, got 'high' in line 2"),
        (lambda t: t.assign(study="width"), "have ridge_init in the column study, got 'width'"),
        (lambda t: t.assign(task="ranking"), "classification or regression in the column task"),
        (lambda t: t.assign(is_default="maybe"), "no or yes in the column is_default"),
        (lambda t: t.assign(score_se=-1.0), "standard errors of 0 or more .* got -1 in line 2"),
        (lambda t: pd.concat([t, t[:1]]), "one row for each data set and value, .* a and 0"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused_and_nothing_is_written(folder, tmp_path, change, message):
    change(PENALTIES).to_csv(folder / "ridge_init.csv", index=False)
    with pytest.raises(DataFormatError, match=message) as caught:
        write_figures(folder, tmp_path / "out")
    assert str(caught.value).startswith("ridge_init.csv must have")
    assert not (tmp_path / "out").exists()


def test_what_is_no_table_is_refused(folder):
    (folder / "width.csv").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(DataFormatError, match=r"width\.csv must be a table with commas between"):
        read_study(folder, "width")
    (folder / "training_record.csv").write_text(
        "dataset,iteration,validation_score,penalty\na,1,0,1\na,0,0,1\n"
    )
    with pytest.raises(DataFormatError, match="must have its iterations in order"):
        read_record(folder)


def test_figures_need_neither_torch_nor_scikit_learn(folder, tmp_path):
    code = (
        "import sys\n"
        "from muddle_bench.studies.figures import write_figures\n"
        f"write_figures({str(folder)!r}, {str(tmp_path / 'out')!r})\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
