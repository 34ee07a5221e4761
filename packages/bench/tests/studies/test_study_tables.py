"""Tables of the studies, from records made by hand."""

import csv
import json
from dataclasses import replace

import pytest
from muddle_bench.run.store import Store

from muddle.errors import DataFormatError
from muddle_bench.run.records import Record
from muddle_bench.studies.points import STEPS, STUDIES, THREE, Variant, vary
from muddle_bench.studies.reading import POOLED, read_study
from muddle_bench.studies.tables import COLUMNS, make_rows, sort_records, write_tables

DETAILS = {
    "n_nets": 10,
    "net_score": 0.4,
    "n_lost": 0,
    "commit": "abc1234",
    "validation_score": 0.5,
    "best_iteration": 100.0,
    "first_penalty": 200.0,
    "n_diverged": 0,
    "n_raised": 0,
    "precision": "float32",
}


def make_record(split=0, variant=None, dataset=THREE[0], status="ok", **changes):
    details = {**DETAILS, **{k: v for k, v in changes.items() if k in DETAILS}}
    others = {k: v for k, v in changes.items() if k not in DETAILS}
    done = {"r2": 0.6, "fit_seconds": 2.0, "details": json.dumps(details)}
    return Record(
        recipe="published",
        task="regression",
        dataset=dataset,
        method=(variant or Variant()).name,
        split=split,
        family="Study",
        status=status,
        **{
            "machine": "a machine",
            "fingerprint": "f",
            **(done if status == "ok" else {}),
            **others,
        },
    )


def row_of(study, value, records, dataset=THREE[0], commit=""):
    rows = make_rows(STUDIES[study], sort_records(records), commit)
    (row,) = [row for row in rows if (row["dataset"], row["value"]) == (dataset, value)]
    return row


def test_a_row_holds_means_over_splits_and_their_standard_errors():
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


def test_a_row_says_what_was_not_multiplied_in_float32():
    records = [make_record(0), make_record(1, precision="reduced")]
    assert row_of("width", "1024", records)["hardware"] == (
        "a machine; a machine, reduced precision"
    )


def test_published_numbers_stand_beside_ours_with_the_difference():
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


def test_published_digits_are_kept():
    row = row_of("permutations", "0", [], "seoul-bike-sharing-demand")
    assert row["ridge_init_published"] == "10000.001"


def test_a_point_without_a_record_keeps_its_published_numbers():
    row = row_of("width", "64", [make_record()])
    assert (row["n_splits"], row["score"], row["difference"]) == ("0", "", "")
    assert row["score_published"] == "0.276"


def test_the_ablation_has_means_over_data_sets_beside_the_published_ones():
    scores = dict(zip(THREE, (0.2, 0.4, 0.9), strict=True))
    records = [
        make_record(split, dataset=name, net_score=score + shift, r2=score + 0.1)
        for name, score in scores.items()
        for split, shift in enumerate((-0.1, 0.1))
    ]
    row = row_of("ablation", "MLR", records, POOLED)
    assert (row["score"], row["bag"]) == ("0.5", "0.6")
    # Each data set's mean has an error of 0.1: √3 · 0.1 / 3.
    assert float(row["score_se"]) == pytest.approx(0.0577350, abs=1e-6)
    assert (row["score_published"], row["bag_published"]) == ("0.371", "0.433")
    assert (row["difference"], row["bag_difference"]) == ("0.129", "0.167")
    assert (row["n_splits"], row["n_nets"]) == ("2", "60")
    assert row_of("ablation", "MLR", records, THREE[1])["score_published"] == ""


def test_a_mean_over_data_sets_wants_all_of_them():
    row = row_of("ablation", "MLR", [make_record()], POOLED)
    assert (row["score"], row["n_splits"], row["difference"]) == ("", "0", "")


def test_troubles_of_nets_become_a_warning():
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


def test_records_of_two_configurations_are_told():
    records = [make_record(0), make_record(1, fingerprint="g")]
    assert "records of 2 configurations" in row_of("width", "1024", records)["warning"]


def test_a_plain_net_has_no_penalty():
    records = [make_record(variant=STEPS["FFNN"], first_penalty=None)]
    assert row_of("ablation", "FFNN", records)["ridge_init"] == ""


def test_a_commit_is_told_only_where_records_do_not_know_theirs():
    known, unknown = make_record(), make_record(variant=vary(width=64), commit="")
    assert row_of("width", "1024", [known, unknown], commit="given")["commit"] == "abc1234"
    assert row_of("width", "64", [known, unknown], commit="given")["commit"] == "given"
    assert row_of("width", "256", [known, unknown], commit="given")["commit"] == ""


def test_a_table_is_written_for_each_study_that_has_a_record(tmp_path):
    store = Store(tmp_path / "runs")
    store.save(make_record(variant=vary(width=64)))
    written = write_tables(store, tmp_path / "out")
    assert [path.name for path in written.paths] == ["width.csv"]
    assert written.n_missing == {"width": 14}
    with written.paths[0].open(encoding="utf-8", newline="") as file:
        assert tuple(next(csv.reader(file))) == COLUMNS


def test_tables_can_be_read_by_figures_and_report(tmp_path):
    store = Store(tmp_path / "runs")
    store.save(make_record())
    write_tables(store, tmp_path)
    table = read_study(tmp_path, "ablation")
    assert set(table["dataset"]) == {*THREE, POOLED}
    assert "bag_difference" in table
    assert read_study(tmp_path, "ridge_init")["score"].notna().sum() == 1


def test_a_point_that_failed_everywhere_is_a_row_with_the_reason(tmp_path):
    store = Store(tmp_path / "runs")
    variant = vary(batch_size=1)
    store.save(make_record(variant=variant, status="failed", reason="it must be at least 2"))
    (path,) = write_tables(store, tmp_path).paths
    row = read_study(tmp_path, path.stem).set_index(["dataset", "value"]).loc[THREE[0], "1"]
    assert row["warning"] == "1 split failed: it must be at least 2"
    assert row["score_published"] == -0.122


def test_a_record_without_details_of_a_study_is_an_error():
    with pytest.raises(DataFormatError, match="must have the details of a study, got ''"):
        row_of("width", "1024", [replace(make_record(), details="")])
