"""Tables of the studies: from records made by hand, those in results/studies, damaged ones."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from muddle.errors import DataFormatError
from muddle_bench.run.records import Record, Store, read_records
from muddle_bench.studies import study_tables
from muddle_bench.studies.points import STEPS, STUDIES, THREE, Variant, vary

RESULTS = Path(__file__).parents[4] / "results" / "studies"
DETAILS = {
    **{"n_nets": 10, "net_score": 0.4, "n_lost": 0, "commit": "abc1234", "precision": "float32"},
    **{"validation_score": 0.5, "best_iteration": 100.0, "first_penalty": 200.0},
    **{"n_diverged": 0, "n_raised": 0},
}


def make_record(split=0, variant=None, dataset=THREE[0], status="ok", **changes):
    details = {**DETAILS, **{k: v for k, v in changes.items() if k in DETAILS}}
    others = {k: v for k, v in changes.items() if k not in DETAILS}
    done = {"r2": 0.6, "fit_seconds": 2.0, "details": json.dumps(details)}
    known = {"recipe": "published", "task": "regression", "dataset": dataset, "family": "Study"}
    known |= {"machine": "a machine", "fingerprint": "f", **(done if status == "ok" else {})}
    method = (variant or Variant()).name
    return Record(method=method, split=split, status=status, **known | others)


def row_of(study, value, records, dataset=THREE[0], commit=""):
    rows = study_tables.make_rows(STUDIES[study], study_tables.sort_records(records), commit)
    (row,) = [row for row in rows if (row["dataset"], row["value"]) == (dataset, value)]
    return row


def test_a_row_holds_means_over_splits_their_standard_errors_and_published_numbers():
    records = [
        make_record(0, net_score=0.3, best_iteration=90.0, r2=0.5),
        make_record(1, net_score=0.5, best_iteration=110.0, r2=0.7, fit_seconds=4.0),
    ]
    row = row_of("width", "1024", records)
    assert (row["score"], row["score_se"]) == ("0.4", "0.1")
    assert (row["bag"], row["bag_se"]) == ("0.6", "0.1")
    assert (row["best_iteration"], row["best_iteration_se"]) == ("100", "10")
    assert (row["score_val"], row["score_val_se"]) == ("0.5", "0")
    assert (row["ridge_init"], row["seconds"]) == ("200", "3")
    assert (row["n_splits"], row["n_nets"], row["is_default"]) == ("2", "20", "yes")
    assert (row["hardware"], row["commit"], row["warning"]) == ("a machine", "abc1234", "")
    records = [make_record(0), make_record(1, precision="reduced")]
    assert row_of("width", "1024", records)["hardware"] == (
        "a machine; a machine, reduced precision"
    )
    records = [make_record(variant=STEPS["FFNN"], first_penalty=None)]
    assert row_of("ablation", "FFNN", records)["ridge_init"] == ""
    row = row_of("width", "64", [make_record()])
    assert (row["n_splits"], row["score"], row["difference"]) == ("0", "", "")
    assert row["score_published"] == "0.276"
    row = row_of("width", "1024", [make_record()])
    assert (row["score_published"], row["difference"]) == ("0.344", "0.056")
    assert (row["score_val_published"], row["best_iteration_published"]) == ("0.484", "113.61")
    assert (row["ridge_init_published"], row["bag_published"]) == ("222.455", "")
    assert row["score_se"] == ""


@pytest.mark.parametrize(
    ("study", "value", "published"),
    [("ridge_init", "heuristic", "0.347"), ("batch_size", "n", "0.401"), ("depth", "2", "0.313")],
)
def test_defaults_that_are_words_meet_their_published_row(study, value, published):
    variant = Variant(depth=2) if study == "depth" else Variant()
    row = row_of(study, value, [make_record(variant=variant)])
    assert (row["score"], row["score_published"], row["is_default"]) == ("0.4", published, "yes")


def test_the_ablation_has_means_over_data_sets_beside_the_published_ones():
    scores = dict(zip(THREE, (0.2, 0.4, 0.9), strict=True))
    records = [
        make_record(split, dataset=name, net_score=score + shift, r2=score + 0.1)
        for name, score in scores.items()
        for split, shift in enumerate((-0.1, 0.1))
    ]
    row = row_of("ablation", "MLR", records, study_tables.POOLED)
    assert (row["score"], row["bag"]) == ("0.5", "0.6")
    # Each data set's mean has an error of 0.1: √3 · 0.1 / 3.
    assert float(row["score_se"]) == pytest.approx(0.0577350, abs=1e-6)
    assert (row["score_published"], row["bag_published"]) == ("0.371", "0.433")
    assert (row["difference"], row["bag_difference"]) == ("0.129", "0.167")
    assert (row["n_splits"], row["n_nets"]) == ("2", "60")
    assert row_of("ablation", "MLR", records, THREE[1])["score_published"] == ""
    row = row_of("ablation", "MLR", [make_record()], study_tables.POOLED)
    assert (row["score"], row["n_splits"], row["difference"]) == ("", "0", "")


def test_troubles_of_nets_become_a_warning_and_commits_are_told_where_unknown():
    records = [
        make_record(0, n_diverged=3, n_raised=2),
        make_record(1, n_diverged=1, n_lost=1),
        make_record(2, status="failed", reason="ValueError: batch_size must be at least 2"),
    ]
    row = row_of("width", "1024", records)
    assert row["warning"] == (
        "diverged: 4 of 20 nets; without one finite iteration, counted by the training rows' "
        "mean: 1 of 20 nets; penalty raised, as a Gram matrix could not be factored: 2 of 20 "
        "nets; 1 split failed: ValueError: batch_size must be at least 2"
    )
    assert row["n_splits"] == "2"
    records = [make_record(0), make_record(1, fingerprint="g")]
    assert "records of 2 configurations" in row_of("width", "1024", records)["warning"]
    known, unknown = make_record(), make_record(variant=vary(width=64), commit="")
    assert row_of("width", "1024", [known, unknown], commit="given")["commit"] == "abc1234"
    assert row_of("width", "64", [known, unknown], commit="given")["commit"] == "given"
    assert row_of("width", "256", [known, unknown], commit="given")["commit"] == ""
    with pytest.raises(DataFormatError, match="must have the details of a study, got ''"):
        row_of("width", "1024", [replace(make_record(), details="")])


def test_a_table_is_written_for_each_study_that_has_a_record(tmp_path):
    store = Store(tmp_path / "runs")
    store.save(make_record(variant=vary(width=64)))
    written = study_tables.write_tables(store, tmp_path / "out")
    assert [path.name for path in written.paths] == ["width.csv"]
    assert written.n_missing == {"width": 14}
    assert tuple(pd.read_csv(written.paths[0])) == study_tables.COLUMNS
    store = Store(tmp_path / "failed")
    variant = vary(batch_size=1)
    store.save(make_record(variant=variant, status="failed", reason="it must be at least 2"))
    (path,) = study_tables.write_tables(store, tmp_path).paths
    row = (
        study_tables.read_study(tmp_path, path.stem)
        .set_index(["dataset", "value"])
        .loc[THREE[0], "1"]
    )
    assert row["warning"] == "1 split failed: it must be at least 2"
    assert row["score_published"] == -0.122


@pytest.fixture(scope="module")
def records():
    return study_tables.sort_records(read_records(RESULTS / "records.csv.gz"))


@pytest.mark.parametrize("name", STUDIES)
def test_recorded_tables_are_those_of_the_records(name, records):
    rows = pd.DataFrame(study_tables.make_rows(STUDIES[name], records, "431fbe0"))
    stored = pd.read_csv(RESULTS / f"{name}.csv", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(rows, stored, check_dtype=False)


def test_every_printed_row_has_a_measured_partner_with_its_difference():
    tables = {name: study_tables.read_study(RESULTS, name) for name in STUDIES}
    measured = {
        (name, row.dataset, row.value): row
        for name, table in tables.items()
        for row in table.itertuples()
    }
    for key, printed in study_tables.published_rows().items():
        row = measured[key]
        assert row.n_splits >= 5, key
        assert row.score_published == pytest.approx(printed["score"]), key
        assert row.difference == pytest.approx(row.score - printed["score"], abs=1e-5), key
        assert row.hardware, key
    # Depth is replicated: the one study whose splits are known.
    depth = tables["depth"]
    assert depth["difference"].abs().mean() < 0.008
    assert (depth["difference"].abs() < 2 * depth["score_se"] + 0.005).mean() > 0.9


@pytest.fixture
def penalties(study_table):
    return study_table([("a", "0", 0.1, 0.2), ("a", "heuristic*", 0.7, 0.6)], "ridge_init")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="score_se"), r"must have the columns .*lacks score_se\."),
        (lambda t: t.rename(columns={"score": "scores"}), r"lacks score\. Did you mean 'scores'\?"),
        (lambda t: t.assign(score="high"), "score must hold .* got 'high' in record 1"),
        (lambda t: t.assign(study="width"), "have ridge_init in the column study, got 'width'"),
        (lambda t: t.assign(score_se=-1.0), "standard errors of 0 or more .* got -1 in line 2"),
        (lambda t: pd.concat([t, t[:1]]), "one row for each data set and value, .* a and 0"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused(penalties, tmp_path, change, message):
    change(penalties).to_csv(tmp_path / "ridge_init.csv", index=False)
    with pytest.raises(DataFormatError, match=message) as caught:
        study_tables.read_study(tmp_path, "ridge_init")
    assert str(caught.value).startswith("ridge_init.csv")


def test_files_that_are_not_tables_are_refused_and_empty_ones_are_none(tmp_path, penalties):
    (tmp_path / "width.csv").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(DataFormatError, match=r"width\.csv must be a CSV file in UTF-8"):
        study_tables.read_study(tmp_path, "width")
    (tmp_path / "training_record.csv").write_text(
        "dataset,iteration,validation_score,penalty\na,1,0,1\na,0,0,1\n"
    )
    with pytest.raises(DataFormatError, match="must have its iterations in order"):
        study_tables.read_record(tmp_path)
    (tmp_path / "width.csv").write_text("")
    penalties.iloc[:0].to_csv(tmp_path / "depth.csv", index=False)
    for name in ("width", "depth", "permutations"):
        assert study_tables.read_study(tmp_path, name) is None
