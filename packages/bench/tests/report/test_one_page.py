"""The page of several tables: a part per recipe, data sets that count alike, and numbers that come
from the tables alone."""

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from muddle.cli.app import make_app
from muddle.errors import DataFormatError
from muddle.page.html import format_number, format_signed
from muddle_bench import ranking
from muddle_bench.report import beside_peers, write_report
from muddle_bench.report.rank_figures import Point, find_front
from muddle_bench.report.strips import LIMIT, place_gain

pytestmark = pytest.mark.usefixtures("no_figures")

FIELD = ("muddle", "muddle-compact", "catboost", "realmlp-5", "baseline")
FEW = ("insurance", "servo", "ionosphere", "credit-approval")  # data sets of two splits
WITHOUT_SIGNAL = "insurance"
METHODS_OF_FEW = ("random-forest",)  # which ran on two data sets of each task
SCORES = ["r2", "rmse", "mae", "accuracy", "auc", "log_loss", "brier", "ece"]


@pytest.fixture(scope="module")
def clean(make_table):
    """Five methods on four data sets per task with unequal splits, one more on two of them; one
    data set without signal, one of many rows, and no times of predictions by muddle."""
    options = {"recipe": "clean", "n_datasets": 5, "n_splits": 4, "whole": True}
    wide = make_table(methods=FIELD, **options)
    more = make_table(methods=METHODS_OF_FEW, **options)
    kept = ("servo", "computer-hardware", "ionosphere", "breast-cancer-coimbra")
    table = pd.concat([wide, more[more["dataset"].isin(kept)]], ignore_index=True)
    table = table[~(table["dataset"].isin(FEW) & (table["split"] > 1))].reset_index(drop=True)
    table["n_classes"] = np.where(table["task"] == "classification", 2, np.nan)
    table.loc[table["dataset"] == "ionosphere", "n_classes"] = 3
    table.loc[table["dataset"] == WITHOUT_SIGNAL, "r2"] /= 100
    table.loc[table["dataset"] == "credit-approval", "n_train"] = 2000
    table.loc[table["method"].str.startswith("muddle"), "predict_seconds"] = np.nan
    return table


@pytest.fixture(scope="module")
def published(make_table):
    methods = ("ens-mlr-released", "mlr-1-released", "catboost", "nu-svm", "baseline")
    return make_table(methods=methods, n_datasets=3, n_splits=2, whole=True)


@pytest.fixture(scope="module")
def ablation(make_table):
    """Two places of a method, each with a variant that lacks a part."""
    names = {"catboost": "nets: whole", "mlp": "nets: no permutations",
             "xgboost": "pool: whole", "nu-svm": "pool: no permutations"}  # fmt: skip
    table = make_table(recipe="clean", methods=tuple(names), n_splits=2, whole=True, rename=names)
    return table.assign(family="Ablation", n_classes=2)


@pytest.fixture(scope="module")
def intervals(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = [
        {"dataset": dataset, "split": split, "method": method,
         "coverage": 0.9 + 0.05 * rng.normal(), "width": 1.0,
         "interval_score": size * (1 + 0.2 * rng.random())}
        for method, size in (("muddle", 0.8), ("catboost", 1.0))
        for dataset in ("servo", "insurance", "computer-hardware")
        for split in range(1 if method == "catboost" else 2)
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("intervals") / "intervals.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def build(clean, published, ablation, intervals, tmp_path_factory, read_page):
    """Writes the page of all tables, one of them changed perhaps, and reads it."""

    def write(**changed):
        given = {"clean": clean, "ablation": ablation, "intervals": intervals} | changed
        out = tmp_path_factory.mktemp("one") / "r.html"
        tables = [given["clean"], published]
        write_report(tables, out, intervals=given["intervals"], ablation=given["ablation"])
        return read_page(out)

    return write


@pytest.fixture(scope="module")
def drawn():
    """Without drawings of matplotlib, which tests of one page do not read, and with few draws for
    intervals of Elo, which take a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside_peers, "N_ELO", 5)
        for name in ("draw_critical_difference", "draw_score_against_time"):
            svg = '<svg role="img" aria-label="a figure"></svg>'
            patch.setattr(beside_peers.rank_figures, name, lambda *_, svg=svg: svg)
        yield


@pytest.fixture(scope="module")
def page(drawn, build):
    return build()


def select_field(table, metric, number=0):
    """The finished records of a field on the data sets that its methods share."""
    return beside_peers.list_fields(table, ranking.METRICS[metric], "muddle")[number]


def test_each_recipe_is_a_part_with_its_own_sections_in_the_order_of_the_tables(page):
    heads = [text for tag, text in page.headings if tag == "h2"]
    raw = [f"Raw tables{name}" for name in (
        "Leader boards", "Every data set", "Costs", "Calibration", "Prediction intervals",
        "Parts of the method", "Differences", "Coverage")]  # fmt: skip
    matrices = [f"The authors' matrices{name}" for name in (
        "Leader boards", "Classes", "Published", "Every data set", "Costs", "Calibration",
        "Differences", "Data sets", "Coverage")]  # fmt: skip
    parts = ["Raw tables", *raw, "The authors' matrices", *matrices]
    assert heads == ["Summary", *parts, "How"]
    links = [of["href"] for tag, of in page.attributes if tag == "a" and of["href"][0] == "#"]
    assert {"#clean", "#published", "#clean-every", "#published-classes"} <= set(links)
    assert {link[1:] for link in links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_boards_are_those_of_compare_with_and_say_how_many_splits_each_row_has(page, clean):
    part = select_field(clean, "r2")
    board = ranking.compare_with(part, "muddle", "r2")
    name = "clean_against_r2"
    assert page.column(name, "Method") == board["method"].tolist()
    heads = {"Mean rank": "rank", "Mean R²": "mean", "Median": "median", "muddle wins": "won"}
    for head, key in (heads | {"Data sets": "datasets", "Splits": "splits"}).items():
        np.testing.assert_allclose(page.values(name, head), board[key], rtol=1e-4)
    assert set(page.column(name, "per data set")) == {"2 to 4"}
    assert "over 5 data sets" in page.text
    assert "(2 on 2, 4 on 3)" in page.text
    ends = [f"{100 * low:.0f} to {100 * high:.0f}" for low, high in
            zip(board["won_low"], board["won_high"], strict=True)]  # fmt: skip
    shown = page.column(name, "90\N{NO-BREAK SPACE}% interval")
    assert shown == [end if "nan" not in end else "–" for end in ends]
    # One statistic over pairs would count the data sets of four splits twice.
    assert not any(name.startswith("clean_leaderboard") for name in page.tables)
    assert "published_leaderboard_r2" in page.tables


def test_ranks_stand_beside_those_without_the_second_preset(page, clean):
    part = select_field(clean, "auc")
    alone = ranking.compare_with(part[part["method"] != "muddle-compact"], "muddle", "auc")
    expected = alone.set_index("method")["rank"]
    methods = page.column("clean_against_auc", "Method")
    values = page.values("clean_against_auc", "without presets")
    shown = dict(zip(methods, values, strict=True))
    assert np.isnan(shown.pop("muddle-compact"))
    assert shown == pytest.approx(expected.to_dict())


def test_methods_of_few_data_sets_have_a_board_of_their_own(page, clean):
    assert "random-forest" not in page.column("clean_against_r2", "Method")
    part = select_field(clean, "r2", 1)
    assert part["dataset"].nunique() == 2
    board = ranking.compare_with(part, "muddle", "r2")
    assert page.column("clean_against_r2_2", "Method") == board["method"].tolist()
    np.testing.assert_allclose(page.values("clean_against_r2_2", "Mean R²"), board["mean"], 1e-4)


def test_shares_are_shown_by_part_kind_and_signal_and_tables_without_signal_apart(page, clean):
    assert page.tables["clean_won_r2"][0][1:3] == ["All", "With signal"]
    kinds = ["Development", "Evaluation", "Two classes", "More classes"]
    assert page.tables["clean_won_auc"][0][-4:] == kinds
    signal = clean[(clean["dataset"] != WITHOUT_SIGNAL) & (clean["task"] == "regression")]
    board = ranking.compare_with(signal, "muddle", "r2").set_index("method")
    row = next(row for row in page.tables["clean_won_r2"] if row[0] == "catboost")
    assert row[4] == f"{100 * board.loc['catboost', 'won']:.0f}\N{NO-BREAK SPACE}%"
    assert row[6] == str(board.loc["catboost", "datasets"]) == "4"
    assert page.column("clean_no_signal_r2", "Data set") == [WITHOUT_SIGNAL]
    own = clean[(clean["dataset"] == WITHOUT_SIGNAL) & (clean["method"] == "muddle")]
    assert page.values("clean_no_signal_r2", "muddle") == pytest.approx([own["r2"].mean()], 1e-4)


def read_strips(page_text, panel):
    """Data sets of a panel's first figure in order, each with the titles of its rows."""
    text = page_text[page_text.index(f'id="{panel}"') :]
    text = text[text.index('class="strips"') : text.index("</figure>")]
    found = re.findall(r'<div class="strip"><b>(.*?)</b><svg(.*?)</svg>', text)
    rows = r'<g class="(\w)"><title>(\S+): (\S+) '
    return {name: re.findall(rows, marks) for name, marks in found}


def test_every_data_set_has_a_panel_the_largest_losses_first_and_none_left_out(
    build, drawn, clean, published, tmp_path
):
    path = write_report([clean, published], tmp_path / "r.html")
    text = path.read_text(encoding="utf-8")
    for metric in ("r2", "auc", "log_loss"):
        part = select_field(clean, metric)
        part = part[~part["method"].isin(["muddle-compact", "baseline"])]
        gains = ranking.gains_by_dataset(part, "muddle", metric)
        worst = gains.groupby("dataset")["gain"].min().sort_values(kind="stable")
        strips = read_strips(text, f"clean-every-{metric}")
        assert list(strips) == worst.index.tolist()
        by_pair = gains.set_index(["dataset", "method"])["gain"]
        n_marks = 0
        for dataset, rows in strips.items():
            for side, method, shown in rows:
                gain = by_pair[dataset, method]
                assert shown == format_signed(gain)
                assert side == ("w" if gain > 0 else "l")
                n_marks += 1
        assert n_marks == len(gains)  # losses as well as wins
        assert (gains["gain"] < 0).any() or metric != "r2"


def test_gains_are_placed_on_both_sides_of_the_middle_and_never_outside():
    assert place_gain(0.0) == 50
    assert place_gain(0.03) == pytest.approx(100 - place_gain(-0.03))
    assert 50 < place_gain(0.001) < place_gain(0.01) < place_gain(0.1) < place_gain(LIMIT) < 100
    assert place_gain(-7.0) == place_gain(-LIMIT) > 0


def test_costs_name_the_front_of_fits_and_of_predictions_and_what_has_no_time(page, clean):
    part = select_field(clean, "r2")
    means = ranking.compare_with(part, "muddle", "r2").set_index("method")["mean"]
    costs = ranking.list_costs(part).set_index("method").drop(index="baseline")
    for seconds, head in (("fit_seconds", "Fit"), ("predict_seconds", "Predict")):
        points = [Point(name, "", float(s), float(means[name]))
                  for name, s in costs[seconds].dropna().items()]  # fmt: skip
        front = {point.method for point in find_front(points, True)}
        heads = page.tables["clean_costs_r2"][0]
        place = heads.index(f"{head},\N{NO-BREAK SPACE}s") + 1
        rows = page.tables["clean_costs_r2"][1:]
        assert {row[0] for row in rows if row[place] == "✓"} == front
    assert "muddle and muddle-compact have no prediction times in the records." in page.text
    seconds = page.values("clean_costs_r2", "Fit,\N{NO-BREAK SPACE}s")
    shown = dict(zip(page.column("clean_costs_r2", "Method"), seconds, strict=True))
    assert shown == pytest.approx(costs["fit_seconds"].to_dict(), rel=1e-4)


def test_calibration_has_medians_with_intervals_and_large_data_sets_apart(page, clean):
    rows = [row for row in page.tables["clean_calibration_error"][1:] if row[0] == "muddle"]
    assert [row[1] for row in rows] == ["all", "above 1,000 rows"]
    own = clean[(clean["method"] == "muddle") & clean["ece"].notna()]
    means = own.groupby("dataset")["ece"].mean()
    assert rows[0][2:4] == ["5", format_number(means.median())]
    assert rows[1][2:4] == ["1", format_number(means["credit-approval"])]
    low, high = ranking.average_datasets(means.to_frame())[["median_low", "median_high"]].iloc[0]
    assert f"{format_number(means.median())} ({format_number(low)} to" in page.text
    assert low < means.median() < high


def test_differences_have_corrected_tests_and_elo_of_each_field(page, clean):
    tests = ranking.paired_tests(select_field(clean, "r2"), "r2", reference="muddle")
    assert page.column("clean_paired_r2", "Method") == tests["other"].tolist()
    np.testing.assert_allclose(
        page.values("clean_paired_r2", "p, corrected"), tests["p_holm"], rtol=1e-4
    )
    elo = ranking.bradley_terry(select_field(clean, "r2"), "r2", n_resamples=1)
    assert page.column("clean_elo_r2", "Method") == elo["method"].tolist()
    np.testing.assert_allclose(page.values("clean_elo_r2", "Elo"), elo["elo"], rtol=1e-4)
    assert {"clean_elo_r2_2", "clean_paired_auc", "published_elo_r2"} <= set(page.tables)


def test_intervals_have_coverage_and_scores_beside_the_rival(page, intervals):
    rows = pd.read_csv(intervals)
    coverage = rows.groupby(["method", "dataset"])["coverage"].mean().groupby("method").mean()
    name = "clean_intervals_coverage"
    shown = dict(zip(page.column(name, "Method"), page.values(name, "Mean coverage"), strict=True))
    assert shown == pytest.approx(coverage.to_dict(), rel=1e-4)
    assert page.column(name, "Splits") == ["3", "6"]  # catboost has fewer, and the page says so
    wide = rows.pivot(index=["dataset", "split"], columns="method", values="interval_score")
    ratio = np.log(wide["muddle"] / wide["catboost"]).dropna().groupby("dataset").mean().mean()
    assert page.values("clean_intervals_score", "Ratio") == pytest.approx([np.exp(ratio)], rel=1e-4)
    assert page.column("clean_intervals_score", "Splits") == ["3"]


def test_parts_of_the_method_have_gains_and_losses_by_place_kind_and_part(page, ablation):
    own = ablation[ablation["method"].str.startswith("nets: ")]
    own = own[own["task"] == "regression"]
    board = ranking.compare_with(own, "nets: whole", "r2").set_index("method")
    expected = board.loc["nets: no permutations"]
    rows = {(row[1], row[3]): row for row in page.tables["clean_parts_r2"][1:]}
    assert {place for place, _ in rows} == {"nets", "pool"}
    row = rows["nets", "all"]
    assert row[:4] == ["no permutations", "nets", "numbers", "all"]
    assert row[4] == format_signed(expected["ahead"])
    assert row[7] == f"{100 * expected['won']:.0f}\N{NO-BREAK SPACE}%"
    assert {part for _, part in rows} == {"all", "development", "evaluation"}
    assert f"loses {100 * expected['won']:.0f}\N{NO-BREAK SPACE}% of splits" in page.text


def test_without_intervals_and_ablation_there_are_no_such_sections(clean, tmp_path, read_page):
    page = read_page(write_report(clean, tmp_path / "r.html"))
    heads = [text for tag, text in page.headings if tag == "h2"]
    assert heads == ["Summary", "Leader boards", "Every data set", "Costs", "Calibration",
                     "Differences", "Coverage", "How"]  # fmt: skip
    assert "against_r2" in page.tables  # one recipe: no part in front of the names


def read_numbers(page):
    """All cells of all tables."""
    return {name: rows for name, rows in page.tables.items() if not name.startswith("published_")}


def test_one_changed_score_changes_the_numbers_that_depend_on_it_and_no_other(
    page, build, clean, drawn
):
    changed = clean.copy()
    cell = (clean["method"] == "catboost") & (clean["dataset"] == "servo") & (clean["split"] == 0)
    assert cell.sum() == 1
    changed.loc[cell, "r2"] -= 0.5
    after = build(clean=changed)
    before, now = (
        dict(zip(one.column("clean_against_r2", "Method"),
                 one.values("clean_against_r2", "Mean R²"), strict=True))
        for one in (page, after)
    )  # fmt: skip
    # One of two splits of one of five data sets.
    assert now["catboost"] == pytest.approx(before["catboost"] - 0.5 / 2 / 5, abs=1e-5)
    assert now["muddle"] == before["muddle"]
    moved = {name for name, rows in read_numbers(page).items() if rows != after.tables[name]}
    assert {"clean_against_r2", "clean_every_r2", "clean_costs_r2", "clean_paired_r2"} <= moved
    assert all("r2" in name for name in moved)
    published = {name for name in page.tables if name.startswith("published_")}
    assert all(page.tables[name] == after.tables[name] for name in published)


def test_scores_of_another_world_leave_no_number_of_this_one(page, build, clean, drawn):
    other = clean.copy()
    rng = np.random.default_rng(5)
    factors = 0.5 + 0.3 * rng.random((len(other), len(SCORES)))
    other[SCORES] = other[SCORES].to_numpy(float) * factors
    after = build(clean=other)
    for name in ("clean_against_r2", "clean_against_auc", "clean_calibration_error"):
        assert not set(page.values(name, "Median")) & set(after.values(name, "Median"))
    means = re.compile(r"has the best mean \((\S+)\)")
    assert len(means.findall(page.text)) == 3
    assert not set(means.findall(page.text)) & set(means.findall(after.text))


def test_the_summary_names_the_losses_beside_the_wins(page, clean):
    part = select_field(clean, "r2")
    part = part[part["method"] != "muddle-compact"]
    gains = ranking.gains_by_dataset(part, "muddle", "r2").query("gain < 0")
    assert len(gains)
    worst = gains.sort_values("gain").iloc[0]
    said = page.text[page.text.index("Regression: R².") :].partition("\n")[0]
    assert f"behind at least one of them on {gains['dataset'].nunique()} of 5" in said
    assert f"{worst['dataset']} ({format_signed(worst['gain'])} to {worst['method']})" in said
    board = ranking.compare_with(part, "muddle", "r2").set_index("method")
    assert f"catboost on {100 * board.loc['catboost', 'won']:.0f}\N{NO-BREAK SPACE}% (" in said


def test_tables_that_share_a_cell_are_refused(clean, tmp_path):
    with pytest.raises(DataFormatError, match="every cell must be there once"):
        write_report([clean, clean.head(1)], tmp_path / "r.html")
    with pytest.raises(ValueError, match="at least one table"):
        write_report([], tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_several_files(
    clean, published, intervals, ablation, tmp_path, read_page
):
    for name, table in (("c", clean), ("p", published), ("a", ablation)):
        table[table["task"] == "regression"].to_csv(tmp_path / f"{name}.csv.gz", index=False)
    given = [tmp_path / "c.csv.gz", tmp_path / "p.csv.gz", "-o", tmp_path / "r.html",
             "--intervals", intervals, "--ablation", tmp_path / "a.csv.gz"]  # fmt: skip
    result = CliRunner().invoke(make_app(), ["report", *map(str, given)])
    assert result.exit_code == 0, result.output
    page = read_page(tmp_path / "r.html")
    assert {"clean_against_r2", "clean_parts_r2", "clean_intervals_score"} <= set(page.tables)
    files = set(pd.read_csv(tmp_path / "r_tables" / "index.csv")["file"])
    assert {f"{name}.csv" for name in page.tables} <= files
