"""Every published number has ours beside it, or a reason: the table, its script and its page."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle_bench import ranking

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "results"
# Columns of the published tables with numbers, and those of related work that are words.
STATED = {
    "class_performance.csv": [
        *("friedman_rank_mean", "friedman_rank_std", "score_mean", "score_std"),
        *("p90", "p95", "p98", "pma_mean", "pma_std"),
    ],
    "overall_regression.csv": [
        *("r2_mean", "r2_std", "friedman_rank_mean", "friedman_rank_std"),
        *("pma_mean", "pma_std", "p90", "p95", "p98"),
    ],
    "overall_classification.csv": ["mean", "std"],
    "per_dataset_regression.csv": ["mean", "std"],
    "per_dataset_classification.csv": ["mean", "std"],
    "ablation.csv": ["mean_r2", "mean_r2_std", "bagging_r2", "bagging_r2_std"],
    "dependence.csv": ["r2", "time_s", "best_iter", "r2_val", "ridge_init"],
    "depth.csv": ["r2_mean", "r2_std"],
    "hpo.csv": ["mean", "std"],
    "architectures.csv": [
        *("L", "lr", "log10_lr", "max_iter", "fixB_min_table", "fixB_min_text", "J", "bs", "T"),
        *("sigma_reg", "sigma_clf"),
    ],
    "datasets.csv": ["n", "d", "num", "cat"],
    "related_work.csv": [
        *("end_to_end_differentiable", "works_without_hp_tuning", "task", "n_datasets"),
        *("range_n", "consistently_outperforms_gbdt"),
    ],
}
WITHOUT_NUMBERS = {"methods.csv"}


@pytest.fixture(scope="module")
def script():
    path = ROOT / "scripts" / "published_coverage.py"
    spec = importlib.util.spec_from_file_location("published_coverage", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def coverage(script):
    return pd.read_csv(RESULTS / script.COVERAGE, dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def compared(coverage):
    """Rows that have ours, with numbers as numbers."""
    rows = coverage[coverage["ours"] != ""].copy()
    for column in ("ours", "difference", "standard_errors", "splits"):
        rows[column] = pd.to_numeric(rows[column], errors="coerce")
    return rows


@pytest.fixture(scope="module")
def records():
    return ranking.read_table(RESULTS / "benchmark_published.csv.gz")


def test_every_published_number_has_a_row(coverage, published_folder):
    files = {path.name for path in published_folder.glob("*.csv")}
    assert files == set(STATED) | WITHOUT_NUMBERS
    for file, columns in STATED.items():
        table = pd.read_csv(published_folder / file, dtype=str, keep_default_na=False)
        printed = table[columns].to_numpy().ravel()
        own = coverage.loc[coverage["file"] == file, "printed"]
        assert sorted(own) == sorted(printed[printed != ""]), file


def test_rows_are_told_apart_by_their_key(coverage, script):
    assert not coverage.duplicated(script.KEY).any()


def test_no_row_is_without_status_and_what_is_not_measured_has_a_reason(coverage, script):
    assert set(coverage["status"]) == set(script.STATUSES)
    missing = coverage["status"] == script.MISSING
    fault = coverage["status"] == script.FAULT
    assert (coverage.loc[~(coverage["status"] == script.MEASURED), "remark"] != "").all()
    assert (coverage.loc[missing, ["ours", "source", "difference"]] == "").all(axis=None)
    assert (coverage.loc[~missing & ~fault, ["ours", "source"]] != "").all(axis=None)
    named = coverage.loc[coverage["source"].str.endswith((".csv", ".gz")), "source"].unique()
    for source in named:
        if not source.startswith("rows of "):
            assert (RESULTS / source).is_file(), source


def test_differences_are_ours_less_the_printed_number(compared):
    rows = compared[compared["difference"].notna()]
    beside = rows["printed_same_sets"].where(rows["printed_same_sets"] != "", rows["printed"])
    expected = rows["ours"] - beside.astype(float)
    np.testing.assert_allclose(rows["difference"], expected, rtol=2e-3, atol=1e-5)


def test_our_scores_are_means_over_the_records(compared, records):
    columns = {"r2": "r2", "acc": "accuracy", "auc": "auc"}
    rows = compared[compared["source"] == "benchmark_published.csv.gz"]
    rows = rows[rows["file"].str.startswith("per_dataset")]
    assert len(rows) > 1000
    ours = {printed: own for own, printed in ranking.PUBLISHED_NAMES["regression"].items()}
    # Names of both tasks.
    sample = rows[rows["method"].isin(["CATBOOST", "MLR3", "Ensemble-MLR", "CART", "RF"])]
    for _, row in sample.sample(60, random_state=0).iterrows():
        own = records[
            (records["dataset"] == row["dataset"]) & (records["method"] == ours[row["method"]])
        ][columns[row["metric"]]]
        assert row["ours"] == pytest.approx(getattr(own, row["statistic"])(), rel=1e-5)
        assert row["splits"] == len(own)


def test_standard_errors_are_those_of_compare_published(compared, records):
    theirs = ranking.compare_published(records).set_index(["dataset", "method", "metric"])["z"]
    rows = compared[(compared["file"] == "per_dataset_regression.csv")]
    rows = rows[(rows["source"] == "benchmark_published.csv.gz") & (rows["statistic"] == "mean")]
    names = {printed: own for own, printed in ranking.PUBLISHED_NAMES["regression"].items()}
    assert len(rows) > 100
    for row in rows.itertuples():
        expected = theirs[row.dataset, names[row.method], "r2"]
        assert row.standard_errors == pytest.approx(expected, abs=0.051)


def test_scores_of_studies_and_tuning_are_those_of_their_tables(compared):
    tuned = pd.read_csv(RESULTS / "tuning.csv").groupby(["dataset", "model"])["bagging"].mean()
    rows = compared.set_index(["file", "dataset", "method", "metric", "statistic"])["ours"]
    # As many splits as in print where there are so many, else ten.
    for folder, dataset in (
        ("studies_100", "concrete-slump-test-3"),
        ("studies", "seoul-bike-sharing-demand"),
    ):
        width = pd.read_csv(RESULTS / folder / "width.csv").set_index(["dataset", "value"])
        for value in (16, 4096):
            shown = rows["dependence.csv", dataset, f"width {value}", "r2", "mean"]
            assert shown == pytest.approx(width.loc[(dataset, value), "score"], rel=1e-5)
    shown = rows["hpo.csv", "servo", "catboost bagging", "r2", "mean"]
    assert shown == pytest.approx(tuned["servo", "catboost"], rel=1e-5)
    # Table 5: the mean over the ten data sets.
    means = tuned.xs("mlr", level="model")
    assert rows["hpo.csv", "Table 5", "mlr bagging", "r2", "mean"] == pytest.approx(means.mean())


def test_overall_means_are_those_of_the_data_sets_that_we_have(compared):
    rows = compared.assign(printed_number=pd.to_numeric(compared["printed"], errors="coerce"))
    for task, metric, statistic in (
        ("regression", "r2", "r2_mean"),
        ("classification", "auc", "mean"),
    ):
        single = rows[(rows["file"] == f"per_dataset_{task}.csv") & (rows["metric"] == metric)]
        single = single[single["statistic"] == "mean"].groupby("method")
        means, counts = single[["ours", "printed_number"]].mean(), single.size()
        overall = rows[(rows["file"] == f"overall_{task}.csv") & (rows["metric"] == metric)]
        overall = overall[overall["statistic"] == statistic].set_index("method")
        assert len(overall) > 15
        for method, row in overall.rename(index={"Lasso": "LAS"}).iterrows():
            assert row["ours"] == pytest.approx(means.loc[method, "ours"], rel=1e-4), method
            assert (row["printed_same_sets"] == "") == (counts[method] == 16), method
            if row["printed_same_sets"]:
                printed = means.loc[method, "printed_number"]
                assert float(row["printed_same_sets"]) == pytest.approx(printed, rel=1e-4), method


def test_settings_and_sizes_of_data_sets_are_as_printed(compared):
    settings = compared[(compared["file"] == "architectures.csv")]
    assert settings["difference"].abs().max() < 1e-9
    assert len(settings) == 36
    sizes = compared[(compared["file"] == "datasets.csv") & (compared["dataset"] != "beijing-pm25")]
    assert (sizes["difference"] == 0).all()
    assert len(sizes) == 128


def test_numbers_of_columns_are_counted_in_the_matrices(script, data_folder, tmp_path):
    table = pd.read_csv(RESULTS / "datasets.csv", dtype=str, keep_default_na=False)
    part = table[table["dataset"].isin(["servo", "yacht-hydrodynamics"])]
    cleared = part.drop(columns=["num_rebuilt", "cat_rebuilt"])
    cleared.to_csv(tmp_path / "datasets.csv", index=False)
    script.count_columns(tmp_path, data_folder)
    again = pd.read_csv(tmp_path / "datasets.csv", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(again, part.reset_index(drop=True))


def test_the_partner_is_the_one_with_the_fewest_departures(script):
    scores = script.Scores()
    for n_splits, source in ((3, "a"), (10, "b"), (10, "c")):
        told = ("raw columns",) if source == "a" else ()
        scores.add(("d", "m", "r2"), script.Score(0.5, 0.1, n_splits, source, told))
    assert scores.best("d", "m", "r2").source == "b"
    assert scores.best("d", "other", "r2") is None
    departures = [score.departures for score in scores.found["d", "m", "r2"]]
    assert departures == [("raw columns", "three splits, ten in print"), (), ()]


def test_records_of_ensembles_with_the_logistic_loss_have_no_departure_but_that_of_one_net(
    script, table_from_scores, tmp_path
):
    own = {"a": {f"{name}-{loss}": [0.5] * 10 for name in ("ens-mlr", "mlr-1")
                 for loss in ("released", "logistic")}}  # fmt: skip
    table_from_scores(own, {}, "auc").to_csv(tmp_path / "records.csv", index=False)
    scores = script.Scores()
    script.add_records(scores, tmp_path, "records.csv")
    found = {
        name: [score.departures for score in scores.found["a", name, "auc"]]
        for name in ("Ensemble-MLR", "MLR1")
    }
    assert sorted(found["Ensemble-MLR"]) == [(), (script.SQUARED,)]
    assert sorted(found["MLR1"]) == [(script.ONE_NET,), (script.SQUARED, script.ONE_NET)]


def test_a_system_of_related_work_is_measured_when_its_records_are_there(
    script, table_from_scores, tmp_path
):
    """On table a it beats CatBoost on both splits, on table b on one of two."""
    peers = {"catboost": [0.5, 0.5], "baseline": [0.0, 0.0]}
    scores = {"a": peers, "b": peers}
    table_from_scores(scores, {}).to_csv(tmp_path / "benchmark_published.csv.gz", index=False)
    pd.read_csv(RESULTS / "datasets.csv").to_csv(tmp_path / "datasets.csv", index=False)
    words = dict.fromkeys(STATED["related_work.csv"], "no")
    pd.DataFrame([{"method": "SNN", **words}]).to_csv(tmp_path / "related_work.csv", index=False)

    def find():
        sources = script.Sources(tmp_path, tmp_path, script.Scores())
        rows = [number.to_row() for number in script.cover_related(sources)]
        return {row["metric"]: row for row in rows}

    before = find()["consistently_outperforms_gbdt"]
    assert before["status"] == script.MISSING
    assert "benchmark_related.csv.gz" in before["remark"]
    own = {"a": {"snn": [0.6, 0.7]}, "b": {"snn": [0.4, 0.6]}}
    table_from_scores(own, {}).to_csv(tmp_path / "benchmark_related.csv.gz", index=False)
    after = find()
    assert after["consistently_outperforms_gbdt"]["ours"] == "0.75"
    assert after["works_without_hp_tuning"]["ours"] == "1"
    assert after["consistently_outperforms_gbdt"]["status"] == script.DEPARTS
    assert (
        "mean of 2 tables, 95 % interval 0.50 to 1.00"
        in (after["consistently_outperforms_gbdt"]["remark"])
    )


def test_the_table_is_what_our_tables_say(script, published_folder, capsys):
    assert script.main([str(published_folder), "--check"]) == 0, capsys.readouterr().out


def test_a_table_that_differs_is_named(script, published_folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "cover", lambda folder: pd.DataFrame({"a": [1]}))
    assert script.main([str(published_folder), "--check"]) == 1
    assert "published_coverage.csv is not what the tables say" in capsys.readouterr().out


def test_the_page_counts_the_rows_of_the_table(script, coverage):
    """`make results-check` compares all blocks; here one of them by another way of counting."""
    lines = (ROOT / "docs" / "published.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    shown = {row[0]: row[1:] for row in cells if len(row) == 6 and row[0].endswith(("csv", "**"))}
    assert set(shown) == {*STATED, "**all**"}
    for file, numbers in shown.items():
        own = coverage if file == "**all**" else coverage[coverage["file"] == file]
        counts = [(own["status"] == status).sum() for status in script.STATUSES]
        assert [int(text.replace(",", "")) for text in numbers] == [*counts, len(own)], file
