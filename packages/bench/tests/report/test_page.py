"""The page shows what muddle_bench.ranking computes, for all kinds of tables."""

import re
import sys

import numpy as np
import pandas as pd
import pytest

from muddle.errors import DataFormatError, MissingPackageError
from muddle.page.html import HERE
from muddle_bench import ranking
from muddle_bench.report import write_report
from muddle_bench.report.benchmark_page import describe_ranking
from muddle_bench.report.boards import mark_best

pytestmark = pytest.mark.usefixtures("no_figures")

FIT = "Fit,\N{NO-BREAK SPACE}s"
SMALL = ("ens-mlr-released", "catboost", "baseline")


@pytest.fixture
def write(tmp_path, read_page):
    """Writes the report of a table and reads the page."""
    return lambda table, **options: read_page(write_report(table, tmp_path / "r.html", **options))


def test_sections_come_in_the_order_a_reader_asks_with_machines_and_commands_last(page, table):
    sections = ", ".join(text for tag, text in page.headings if tag == "h2")
    assert sections == (
        "Summary, Leader boards, Classes, Published, Every data set, Costs, Calibration, "
        "Differences, Data sets, Coverage, How"
    )
    assert page.column("machines", "Machine") == ["Some CPU, 2 cores, 24 GiB"]
    assert page.column("versions", "Package") == ["earth", "muddle", "python"]
    assert page.column("versions", "Version") == ["5.3 (R 4.2 Patched)", "0.5.0", "3.11.7"]
    assert "muddle benchmark run --suite all" in page.text


@pytest.mark.parametrize("metric", ["r2", "accuracy", "auc", "log_loss", "brier", "ece"])
def test_leader_board_shows_the_ranking(page, table, metric):
    ranked = ranking.rank_methods(table, metric)
    name = f"leaderboard_{metric}"
    assert page.column(name, "Method") == ranked["method"].tolist()
    for head, column in (("Mean rank", "rank"), (FIT, "fit_seconds"), ("Imputed", "imputed")):
        np.testing.assert_allclose(page.values(name, head), ranked[column], rtol=1e-5)
    if metric in ("r2", "accuracy", "auc"):
        for head, column in (("PMA", "pma"), ("P90", "p90"), ("P98", "p98")):
            np.testing.assert_allclose(page.values(name, head), ranked[column], rtol=1e-5)
    else:
        assert "PMA" not in page.tables[name][0]


def test_leader_board_rounds_and_names_shared_fits_and_methods_left_out(page, table):
    ranked = ranking.rank_methods(table, "r2").set_index("method")
    shown = dict(zip(page.column("leaderboard_r2", "Method"),
                     page.column("leaderboard_r2", "Mean R²"), strict=True))  # fmt: skip
    assert shown["catboost"] == f"{ranked.loc['catboost', 'mean']:.3f}"
    assert shown["baseline"].startswith("−0.0")
    seconds = dict(zip(page.column("leaderboard_r2", "Method"),
                       page.column("leaderboard_r2", FIT), strict=True))  # fmt: skip
    assert seconds["mlr-1-released"].endswith("†")
    assert not seconds["catboost"].endswith("†")
    assert page.tables["left_out_r2"][1][0] == "xgboost"
    assert "5 skipped" in page.tables["left_out_r2"][1][2]
    assert page.tables["left_out_log_loss"][1][0] == "ridge-classifier"


def test_win_rates_and_data_set_tables_are_those_of_the_ranking_with_the_best_marked(page, table):
    rates = ranking.win_rates(table, "accuracy")
    assert page.column("win_rates_accuracy", "Method") == list(rates)
    shown = [page.values("win_rates_accuracy", name) for name in rates]
    expected = rates.to_numpy(copy=True)
    np.fill_diagonal(expected, np.nan)
    np.testing.assert_allclose(np.transpose(shown), expected, rtol=1e-5)
    long = ranking.by_dataset(table, "brier").set_index(["method", "dataset"])
    best = long["mean"].xs("ionosphere", level="dataset").idxmin()
    methods = page.column("datasets_brier", "Method")
    np.testing.assert_allclose(
        page.values("datasets_brier", "ionosphere"),
        [long.loc[(method, "ionosphere"), "mean"] for method in methods],
        rtol=1e-5,
    )
    place = page.tables["datasets_brier"][0].index("ionosphere")
    marked = {
        method: cells[place].get("class", "")
        for method, cells in zip(methods, page.cells["datasets_brier"][1:], strict=True)
    }
    assert "best" in marked[best]
    assert sum("best" in classes for classes in marked.values()) == 1
    assert "near" not in marked["baseline"]


def test_one_lucky_split_of_many_makes_no_best(make_table):
    table = make_table(tasks=["regression"], methods=["catboost", "mlp"], whole=True, n_splits=4)
    servo = table["dataset"] == "servo"
    table.loc[servo & (table["method"] == "mlp") & (table["split"] > 0), "status"] = "timeout"
    table.loc[servo & (table["method"] == "mlp") & (table["split"] == 0), "r2"] = 0.999
    marks = mark_best(table, "servo", ranking.METRICS["r2"])
    assert marks["catboost"].classes == "best"


def test_published_numbers_stand_beside_ours(page, table):
    compared = ranking.compare_published(table)
    compared = compared[compared["metric"] == "r2"].reset_index(drop=True)
    name = "published_all_r2"
    assert page.column(name, "Data set") == compared["dataset"].tolist()
    np.testing.assert_allclose(page.values(name, "Difference"), compared["difference"], rtol=1e-4)
    place = page.tables[name][0].index("Difference")
    marked = ["beyond" in cells[place].get("class", "") for cells in page.cells[name][1:]]
    assert marked == (compared["z"].abs() > 3).tolist()
    assert len(page.tables["published_beyond_r2"]) - 1 == sum(marked)
    assert f"{sum(marked)} differences of {len(compared)} are larger than 3" in page.text


def test_class_tables_show_the_paper_s_way_and_the_honest_one(page, table):
    compared = ranking.compare_published_classes(table)
    ours = compared[(compared["metric"] == "auc") & (compared["statistic"] == "p95")]
    rows = page.tables["classes_published_auc"][2:]
    assert [row[0] for row in rows] == ours["family"].tolist()
    heads = page.tables["classes_published_auc"][0]
    at = 1 + 3 * (heads.index("P95") - 1)
    shown = [row[at] for row in rows]
    assert shown == [f"{100 * value:.0f}\N{NO-BREAK SPACE}%" for value in ours["measured"]]
    honest = ranking.rank_families(table, "auc", choose="other splits")
    assert page.column("classes_other_splits_auc", "Class") == honest["family"].tolist()
    np.testing.assert_allclose(
        page.values("classes_other_splits_auc", "Mean rank"), honest["rank"], rtol=1e-5
    )


def test_summary_says_who_is_first_how_clearly_and_what_is_missing(page, table):
    for task, metric in (("Regression", "r2"), ("Classification", "accuracy")):
        first, second = ranking.rank_methods(table, metric)["method"][:2]
        p = ranking.compare_ranks(table, metric).p_values.loc[first, second]
        verdict = "is significant" if p < 0.05 else "is not significant"
        duel = ranking.win_rates_against(table, metric, "ens-mlr-released").set_index("method")
        rate = 100 * duel.loc["catboost", "win_rate"]
        said = page.text[page.text.index(f"{task}. By mean rank") :].partition("\n")[0]
        assert f"{first} is first of" in said.replace("R²", "").replace(", ", " ")
        assert f"{second} second" in said
        assert verdict in said
        assert f"wins against catboost on {rate:.0f}\N{NO-BREAK SPACE}% of 30 pairs" in said
    assert "  " not in " ".join(describe_ranking(table, "r2"))
    assert "Of 930 cells, 2 failed, 1 timed out and 5 skipped. Coverage has" in page.text
    assert "Not ranked in regression, because too few cells finished: xgboost." in page.text
    counts = ranking.coverage(table, per_dataset=True).set_index(["method", "dataset"])
    matrix = page.tables["coverage_classification"]
    qda = next(row for row in matrix if row[0] == "qda")
    assert qda[matrix[0].index("ionosphere")] == "✓ 3 · ✗ 2"
    assert counts.loc[("qda", "ionosphere"), "failed"] == 2
    reasons = ranking.list_failures(table[table["task"] == "regression"])["reason"].tolist()
    assert page.column("reasons_regression", "Reason") == reasons


def test_page_is_valid_needs_no_network_and_can_be_read_by_everyone(report, page):
    text = report.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")
    for tag, attributes in page.attributes:
        assert "src" not in attributes, tag
        if "href" in attributes:
            target = attributes["href"]
            if target.startswith("#"):
                assert target[1:] in page.ids
            else:
                assert (report.parent / target).is_file()
    tags = {tag for tag, _ in page.attributes}
    assert {"main", "nav", "header", "footer", "title"} <= tags
    assert ("html", {"lang": "en"}) in page.attributes
    assert ("a", {"class": "skip", "href": "#main"}) in page.attributes
    for tag, attributes in page.attributes:
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or attributes["aria-label"]
        if tag == "th" and attributes.get("class", "").startswith("group"):
            continue
        if tag == "th":
            assert attributes["scope"] in ("row", "col")


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_contrast_reaches_aa_in_light_and_dark():
    style = (HERE / "style.css").read_text(encoding="utf-8")
    themes = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)[:2]
    assert len(themes) == 2
    for theme in themes:
        colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))
        for ground in ("page", "raised"):
            for ink in ("ink", "quiet", "link", "warn"):
                a, b = luminance(colors[ink]), luminance(colors[ground])
                assert (max(a, b) + 0.05) / (min(a, b) + 0.05) >= 4.5, (ink, ground)


def test_texts_of_the_table_are_escaped(small, write, tmp_path):
    evil = "<script>alert('x')</script>"
    small.loc[small["method"] == "catboost", "family"] = "<i>&amp;</i>"
    table = small.assign(machine=evil)
    table.loc[0, ["status", "reason"]] = ["failed", evil]
    table = table.replace({"dataset": {"computer-hardware": "<b>bold"}})
    page = write(table, title=evil, commands=[evil])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert text.count("<script") == 2  # our own
    assert "alert(" not in re.findall(r"<script.*?</script>", text, flags=re.DOTALL)[0]
    assert "<b>bold" not in text
    assert page.column("reasons_regression", "Reason") == [evil]
    assert ("h1", evil) in page.headings


def test_one_method_data_set_or_split_is_reported_without_comparisons(make_table, write):
    table = make_table(tasks=["regression"], methods=["catboost"], n_datasets=2, n_splits=2)
    page = write(table)
    assert "only catboost can be ranked" in page.text.lower()
    assert "No critical-difference diagram: ranks can be compared for at least two" in page.text
    assert "No win rates" in page.text
    assert page.column("leaderboard_r2", "Method") == ["catboost"]
    table = make_table(tasks=["classification"], methods=SMALL, n_datasets=1, n_splits=3)
    page = write(table)
    assert (
        "One data set is too few to test whether the difference is more than chance." in page.text
    )
    assert "No critical-difference diagram" in page.text
    assert "win_rates_accuracy" in page.tables
    table = make_table(tasks=["regression"], methods=SMALL, n_datasets=3, n_splits=1)
    page = write(table)
    assert "±" not in "".join(page.column("datasets_r2", "insurance"))
    assert set(page.column("leaderboard_r2", "Std over splits")) == {"–"}
    assert "No class table with members chosen on other splits" in page.text


def test_methods_and_data_sets_that_nobody_knows_are_reported(make_table, write):
    rename = {"computer-hardware": "my-data", "concrete-slump-test-1": "your-data"}
    table = make_table(
        tasks=["regression"], methods=["my-own", "other-own"], n_datasets=2, rename=rename
    )
    page = write(table)
    assert sorted(page.column("leaderboard_r2", "Method")) == ["my-own", "other-own"]
    assert "No method and data set of this table is in the published tables." in page.text
    assert "No class table in the paper's way" in page.text
    assert page.tables["datasets_r2"][0][1:] == ["my-data", "your-data"]


def test_tables_that_cannot_be_ranked_have_a_page(small, write, make_table):
    gone = small["method"] == "catboost"
    small.loc[gone, ["status", "reason"]] = ["skipped", "needs catboost"]
    small.loc[gone, ["r2", "rmse", "mae"]] = np.nan
    page = write(small)
    assert "catboost" in page.column("coverage_regression", "Method")
    assert page.column("reasons_regression", "Reason") == ["needs catboost"]
    assert "catboost" not in page.column("leaderboard_r2", "Method")
    table = make_table(tasks=["regression"], methods=SMALL[:2], n_datasets=2, n_splits=2)
    holes = [0, 1, 6, 7]  # each method has one of the two data sets
    table.loc[holes, ["status", "reason"]] = ["skipped", "not here"]
    page = write(table)
    assert "No leader board: no method has r2 on" in page.text
    assert "Nothing can be ranked" in page.text
    assert "datasets_r2" in page.tables


def test_records_without_times_have_no_time_plot(small, write):
    small[["fit_seconds", "predict_seconds"]] = np.nan
    small["finished"] = ""
    page = write(small)
    assert "No score against time: the records have no fit times." in page.text
    assert set(page.column("leaderboard_r2", FIT)) == {"–"}
    assert "the records have no time" in page.text


def test_tables_without_a_finished_cell_are_errors(table, tmp_path, make_table):
    with pytest.raises(DataFormatError, match="is empty"):
        write_report(table.iloc[:0], tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []
    table = make_table(methods=SMALL, n_datasets=1, n_splits=1)
    table["status"] = "failed"
    with pytest.raises(DataFormatError, match="at least one record with status ok"):
        write_report(table, tmp_path / "r.html")
    with pytest.raises(ValueError, match=r"Call it report\.html"):
        write_report(table, tmp_path / "report.pdf")


def test_two_recipes_need_a_choice(make_table, write):
    parts = [
        make_table(recipe=recipe, tasks=["regression"], methods=SMALL, n_datasets=2, n_splits=2)
        for recipe in ("clean", "published")
    ]
    table = pd.concat(parts, ignore_index=True)
    table["rows_hash"] = ""
    with pytest.raises(ValueError, match=r"the table has clean and published.*recipe='clean'"):
        write(table)
    with pytest.raises(ValueError, match="Did you mean 'clean'"):
        write(table, recipe="cleen")
    page = write(table, recipe="clean")
    assert "Published" not in [text for _, text in page.headings]


def test_without_jinja2_the_error_says_what_to_install(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'muddle\[report\]'"):
        write_report(small, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []
