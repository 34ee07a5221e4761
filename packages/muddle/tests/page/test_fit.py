"""The report of one fit: valid, complete, and with the numbers that the model itself gives."""

import os
import re
import sys
import warnings
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

import muddle
from muddle.errors import MissingPackageError, ModelFileError
from muddle.estimators import student
from muddle.estimators.calibrate import fit_conformal
from muddle.page import fit
from muddle_runtime.summary import check_summary

SECTIONS = ["summary", "warnings", "data", "preprocessing", "leaderboard", "learning"]


def check_valid(page):
    assert page.html.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    assert "@import" not in page.html
    assert not re.search(r"url\((?!#)", page.html)
    # Namespaces of SVG are names, not addresses.
    assert not re.search(r"https?:", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page.html))
    for tag, attributes in page.attributes:
        assert "src" not in attributes, tag
        for key in {"href", "xlink:href"} & set(attributes):
            assert attributes[key].startswith("#"), attributes
            assert attributes[key][1:] in page.ids, attributes
        if tag == "svg":
            assert attributes["aria-label"]
    for name in re.findall(r"url\(#([^)]*)\)", page.html):
        assert name in page.ids


@pytest.mark.parametrize(
    ("fixture", "fitted", "outcome"),
    [
        ("homes_page", "regressor", ["predictions", "intervals"]),
        ("trees_page", "classifier", ["classes"]),
    ],
)
def test_the_page_is_valid_and_has_every_section(fixture, fitted, outcome, request):
    page = request.getfixturevalue(fixture)
    check_valid(page)
    last = ["importances", "shapley", "dependence", "use"]
    assert list(page.sections) == [*SECTIONS, *outcome, *last]
    importances = request.getfixturevalue(fitted).feature_importances_
    n_important = np.count_nonzero(importances > 0.01 * importances.max())
    n_swarms = 3 if fitted == "classifier" else 1
    # Each important column has a figure of partial dependence.
    assert page.tags.count("svg") == 5 + n_swarms + n_important


def test_the_summary_has_the_out_of_fold_scores(
    homes_page, regressor, homes, trees_page, classifier, trees
):
    expected = r2_score(homes[1], regressor.out_of_fold_)
    assert f"R² {expected:.3f}" in homes_page.sections["summary"]
    assert "to 90 rows with 5 columns to predict 'price'" in homes_page.sections["summary"]
    predicted = classifier.classes_[classifier.out_of_fold_.argmax(axis=1)]
    summary = trees_page.sections["summary"]
    assert f"{accuracy_score(trees[1], predicted):.3f}" in summary
    assert f"log-loss is {log_loss(trees[1], classifier.out_of_fold_):.3f}" in summary
    area = roc_auc_score(trees[1], classifier.out_of_fold_, multi_class="ovr")
    assert f"{area:.3f}" in summary


def test_the_confusion_matrix_counts_the_rows(trees_page, classifier, trees):
    predicted = classifier.classes_[classifier.out_of_fold_.argmax(axis=1)]
    expected = pd.crosstab(trees[1], predicted).reindex(columns=classifier.classes_, fill_value=0)
    assert trees_page.column("table-confusion", "True class") == ["ash", "birch", "cedar"]
    for name in classifier.classes_:
        found = [int(text) for text in trees_page.column("table-confusion", name)]
        assert found == expected[name].tolist()


def test_columns_and_members_are_listed(homes_page, regressor):
    described, board = regressor.preprocessor_.describe(), regressor.leaderboard_
    assert homes_page.column("table-columns", "Column") == described.index.tolist()
    assert homes_page.column("table-columns", "Treatment") == described["treatment"].tolist()
    assert homes_page.column("table-board", "Configuration") == board["configuration"].tolist()
    assert homes_page.column("table-board", "Weight") == [f"{w:.3f}" for w in board["weight"]]
    assert "Column 'key' is ignored" in homes_page.sections["warnings"]


def test_shapley_values_are_of_the_rows_and_fewer_where_columns_are_many(homes, regressor):
    X, y = homes
    facts = fit.gather_facts(regressor, X, y)
    assert len(facts.explanation) == len(X)
    assert facts.explanation.n_background == 50
    expected = regressor.explain(X[:1])
    np.testing.assert_allclose(facts.explanation.values[:1], expected.values, rtol=1e-6, atol=1e-6)
    rng = np.random.default_rng(0)
    for n_columns, n_rows in ((90, 33), (101, None)):
        wide = rng.normal(size=(40, n_columns))
        with warnings.catch_warnings(action="ignore"):
            model = muddle.MLRRegressor(width=4, max_iter=2, depth=1).fit(wide, wide[:, 0])
        found = fit.gather_facts(model, wide, wide[:, 0]).explanation
        assert (None if found is None else len(found)) == n_rows
    page = fit.render_fit_report(fit.gather_facts(model, wide, wide[:, 0]))
    assert "drawn for tables of up to 100 columns" in page


@pytest.mark.parametrize(("n_rows", "coverages"), [(2000, (0.5, 0.9)), (12, (0.95,))])
def test_coverage_is_measured_with_widths_from_other_rows(n_rows, coverages):
    target = np.random.default_rng(0).normal(size=n_rows)
    zeros, ones = np.zeros(n_rows), np.ones(n_rows)
    conformal, support = fit_conformal(target, zeros, ones, None), np.array([-1.0, np.inf])
    one = fit.Numbers("", target, zeros, ones, None, conformal, support)
    assert min(one.bounds(coverages[-1])[0]) == -1
    for coverage in coverages:
        # Of 12 rows, nine others set the width: too few for a finite interval.
        expected = coverage if n_rows > 12 else np.nan
        assert one.judge_coverage(coverage) == pytest.approx(expected, abs=0.03, nan_ok=True)


@pytest.mark.parametrize("name", ["MLR", "BagMLR", "EnsMLR"])
@pytest.mark.parametrize("task", ["Regressor", "Classifier"])
def test_other_estimators_say_which_parts_they_lack(name, task, homes, trees, tiny, write_page):
    data, outcome = (trees, "classes") if task == "Classifier" else (homes, "predictions")
    make = getattr(muddle, name + task)
    more = {} if name == "MLR" else {"n_nets": 2}
    with warnings.catch_warnings(action="ignore"):
        model = make(**more, **tiny).fit(*data)
    page = write_page(model, *data)
    check_valid(page)
    assert "has no out-of-fold predictions" in page.sections[outcome]
    assert "does not measure importances" in page.sections["importances"]
    assert "there are no importances" in page.sections["dependence"]
    assert "validation rows" in page.sections["summary"]
    n_swarms = 1 if task == "Regressor" else 3
    assert page.tags.count("svg") == 2 + n_swarms


@pytest.mark.parametrize("fixture", ["regressor", "classifier"])
def test_the_page_of_a_model_file_says_which_parts_are_missing(
    fixture, request, tmp_path, write_page
):
    model = request.getfixturevalue(fixture)
    page = write_page(muddle.load_model(model.save(tmp_path / "model.muddle")))
    check_valid(page)
    outcome = "predictions" if fixture == "regressor" else "classes"
    assert "A model file holds no out-of-fold predictions" in page.sections[outcome]
    assert "were not checked" in page.sections["warnings"]
    assert "Partial dependence needs rows" in page.sections["dependence"]
    assert f"{len(model.out_of_fold_)} rows" in page.sections["summary"]
    assert len(page.column("table-board", "Weight")) == len(model.leaderboard_)


def test_several_targets_each_have_their_scores(numbers, write_page):
    X, y = numbers[0][:60], numbers[1][:60]
    both = pd.DataFrame({"first": y, "second": -y + X[:, 3]})
    model = muddle.MuddleRegressor(preset="fast", random_state=0)
    model.fit(X, both, sample_weight=np.arange(60) % 3)  # a third of the rows has weight 0
    page = write_page(model, X, both)
    check_valid(page)
    assert "first by x" in page.sections["dependence"]
    assert "second by x" in page.sections["dependence"]
    assert "Scores count rows by their weights" in page.sections["predictions"]
    assert page.column("table-targets", "Target") == ["first", "second"]
    assert page.column("table-coverage", "Target") == ["first"] * 4 + ["second"] * 4
    assert "40 rows" in page.sections["data"]
    assert "has 60 rows. The fit ignores rows of weight 0" in page.sections["data"]


def test_the_page_names_table_and_target(homes_page, homes, tiny, write_page):
    assert "<h1>MuddleRegressor: price</h1>" in homes_page.html
    assert "Table: 90 rows and 5 columns. Target: 'price'." in homes_page.text
    with warnings.catch_warnings(action="ignore"):
        model = muddle.MLRRegressor(**tiny).fit(*homes)
    named = replace(model.model_.training, origin={"file": "homes <1>.csv"})
    model.model_ = replace(model.model_, training=named)
    page = write_page(model)  # the fit knows its target without y
    assert "Table: homes <1>.csv, 90 rows and 5 columns. Target: 'price'." in page.text
    assert "<h1>My homes</h1>" in write_page(model, title="My homes").html


@pytest.mark.parametrize("make_y", [np.asarray, pd.Series, pd.DataFrame])
def test_a_target_without_a_name_has_none(make_y, homes, tiny, write_page):
    with warnings.catch_warnings(action="ignore"):
        model = muddle.MLRRegressor(**tiny).fit(homes[0], make_y(homes[1].to_numpy()).squeeze())
    assert "names" not in model.table_summary_["target"]
    page = write_page(model)
    assert "<h1>MLRRegressor: report of a fit</h1>" in page.html
    assert "Target:" not in page.text


@pytest.mark.parametrize("names", ["tree", [1], ["a", "b"]])
def test_wrong_names_of_the_target_in_a_file_are_errors(names, net):
    summary = net.table_summary_
    assert summary["target"]["names"] == ["tree"]
    with pytest.raises(ModelFileError, match="names"):
        check_summary({**summary, "target": {**summary["target"], "names": names}})


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("balanced", "as if all were equally frequent"),
        ({"ash": 2, "birch": 1, "cedar": 1}, "class_weight={'ash': 2, 'birch': 1, 'cedar': 1}"),
    ],
)
def test_class_weights_are_described(weights, said, trees, write_page):
    X, y = (part[:60:2] for part in trees)
    model = muddle.MuddleClassifier(preset="fast", class_weight=weights, random_state=0)
    rare = (y == "ash").cumsum() > 7  # fewer rows of one class
    model.fit(X[~rare | (y != "ash")], y[~rare | (y != "ash")])
    summary = write_page(model).sections["summary"]
    assert said in summary
    assert "out of fold, weighted" in summary
    assert "fit without class_weight" in summary


def test_without_class_weights_nothing_is_said_of_them(trees_page):
    assert "weight" not in trees_page.sections["summary"]


def test_names_of_every_kind_are_shown_and_never_run(tiny, write_page):
    evil = "<script>alert('x')</script>"
    names = [evil, 'a\x00b\n"&', "日本語 $x^2$", "x" * 300, *range(300)]
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 304)), columns=names)
    X.columns = X.columns.astype(str)
    y = pd.Series(np.where(X[evil] > 0, "<b>$1", "b\x07"), name="</title>")
    model = muddle.EnsMLRClassifier(n_nets=1, **tiny).fit(X, y)
    page = write_page(model, X, y, title=evil)
    check_valid(page)
    assert page.tags.count("script") == 1
    assert page.tags.count("b") == 0
    assert evil in page.text
    assert "\x00" not in page.html
    columns = page.column("table-columns", "Column")
    assert max(map(len, columns)) <= 60
    assert len(columns) == 100
    assert "304 columns into 304 features" in page.sections["preprocessing"]
    assert "lists the first 100 columns" in page.sections["preprocessing"]


def test_findings_of_the_fit_are_shown_without_its_rows_and_as_text_only(trees, tiny, write_page):
    table, kinds = trees
    model = muddle.MLRClassifier(**tiny).fit(table.assign(answer=pd.factorize(kinds)[0]), kinds)
    assert "Column 'answer' almost determines the target" in write_page(model).sections["warnings"]
    (finding,) = model.table_summary_["findings"]
    finding["text"] = "<script>alert(1)</script>\x1b[31m"
    page = write_page(model)
    assert "<script>alert(1)</script>\N{REPLACEMENT CHARACTER}[31m" in page.sections["warnings"]
    assert "\x1b" not in page.html


def test_many_classes_have_a_list_of_mistakes():
    codes = np.append(np.arange(100), np.zeros(50, dtype=np.int64))
    probabilities = np.full((150, 100), 1e-6)
    probabilities[np.arange(150), codes] = 0.5
    probabilities[100:110, 7] = 0.9  # ten rows of class 0 are predicted as class 7
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    names = tuple(f"class {i}" for i in range(100))
    weights = np.random.default_rng(0).random(150)
    section = fit.build_classes(fit.Classes(names, probabilities, codes, weights))
    (table,) = section.tables
    assert table.frame.iloc[0].tolist() == ["class 0", "class 7", 10, 10 / 51]
    assert len(section.figures) == 2


def test_a_wide_table_says_which_columns_are_summarised(regressor, tmp_path):
    wide, training = copy(regressor), regressor.model_.training
    table = {**training.table, "not_summarised": 3}
    wide.model_ = replace(regressor.model_, training=replace(training, table=table))
    for model in (regressor, wide):
        model.report(tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        only = f"for the first {len(training.table['columns'])} columns only."
        assert (only in page) == (model is wide)


def test_weak_or_shortened_fits_are_warnings(regressor, classifier):
    board = regressor.leaderboard_.assign(outcome="shortened", n_recoveries=1)
    (numbers,) = fit.gather_facts(regressor, None, None).numbers
    classes = fit.gather_facts(classifier, None, None).classes
    assert fit.find_in_fit(regressor.leaderboard_, (numbers,), classes) == []
    shortened, recovered, numeric, classified = fit.find_in_fit(
        board,
        (replace(numbers, predicted=numbers.predicted[::-1]),),
        replace(classes, probabilities=classes.probabilities[:, ::-1]),
    )
    assert "were cut short to keep the time limit" in shortened.text
    assert "The ridge penalty was raised" in recovered.text
    assert "no better than the mean (R² −" in numeric.text
    assert "no better than the shares of the classes" in classified.text


def test_a_failed_write_keeps_the_old_page_and_leaves_no_other_file(net, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        net.report(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_paths_are_errors(net, tmp_path):
    with pytest.raises(FileNotFoundError, match="must exist"):
        net.report(tmp_path / "nowhere" / "report.html")
    with pytest.raises(ValueError, match=r"Call it report\.html"):
        net.report(tmp_path / "report.pdf")
    assert list(tmp_path.iterdir()) == []


def test_the_page_of_a_student_says_how_far_it_is_from_its_teacher(
    regressor, homes, write_page, monkeypatch
):
    monkeypatch.setattr(student, "CONFIG", replace(student.CONFIG, max_iter=20))
    monkeypatch.setattr(student, "N_MADE", 2000)
    monkeypatch.setattr(student, "N_MADE_FOLD", 1000)
    small = regressor.distil()
    about = small.model_.training.values["student"]
    page = write_page(small, *homes)
    check_valid(page)
    said = page.sections["warnings"]
    assert f"one net of {about['weights']:,} weights" in said
    assert f"differs from the pool by {fit.format_number(about['difference'])} of the" in said
    assert "taught" in page.column("table-board", "Outcome")
    other = write_page(regressor, *homes).sections["warnings"]
    assert "one net" not in other


def test_wrong_estimators_and_tables_are_errors(regressor, homes, tmp_path):
    X, y = homes
    path = tmp_path / "report.html"
    with pytest.raises(NotFittedError):
        muddle.MuddleRegressor().report(path)
    with pytest.raises(ValueError, match="lacks column 'area'"):
        regressor.report(path, X.drop(columns="area"), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        regressor.report(path, X, y[:-1])
    with pytest.raises(ValueError, match="Pass X as well"):
        regressor.report(path, None, y)
    assert not path.exists()


@pytest.mark.parametrize("package", ["jinja2", "matplotlib.figure"])
def test_without_a_package_the_error_says_what_to_install(package, net, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match="pip install 'muddle"):
        net.report(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
