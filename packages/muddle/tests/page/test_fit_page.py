"""The page of one fit: valid, whole, and with the numbers that the model itself gives."""

import os
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

import muddle
from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    MuddleRegressor,
)
from muddle.errors import MissingPackageError
from muddle.flagship.conformal import fit_conformal
from muddle.page.facts import Classes, Numbers
from muddle.page.sections import build_classes

PARTS = ["summary", "warnings", "data", "preprocessing", "leaderboard", "learning"]


def check_valid(page):
    assert page.html.startswith("<!doctype html>")
    assert len(page.ids) == len(set(page.ids))
    assert "@import" not in page.html
    assert not re.search(r"url\((?!#)", page.html)
    # Namespaces of SVG are names, not addresses.
    assert not re.search(r"https?:", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page.html))
    for tag, attributes in page.attributes:
        assert "src" not in attributes, tag
        for key in ("href", "xlink:href"):
            if key in attributes:
                assert attributes[key].startswith("#"), attributes
                assert attributes[key][1:] in page.ids, attributes
        if tag == "svg":
            assert attributes["aria-label"]
    for name in re.findall(r"url\(#([^)]*)\)", page.html):
        assert name in page.ids


def test_page_of_a_regressor_is_valid_and_has_every_part(homes_page):
    check_valid(homes_page)
    assert list(homes_page.sections) == [*PARTS, "predictions", "intervals", "importances", "use"]
    assert homes_page.tags.count("svg") == 5


def test_page_of_a_classifier_is_valid_and_has_every_part(trees_page):
    check_valid(trees_page)
    assert list(trees_page.sections) == [*PARTS, "classes", "importances", "use"]
    assert trees_page.tags.count("svg") == 5


def test_summary_gives_the_out_of_fold_scores_of_a_regressor(homes_page, regressor, homes):
    expected = r2_score(homes[1], regressor.out_of_fold_)
    assert f"R² {expected:.3f}" in homes_page.sections["summary"]
    assert "90 rows of 5 columns to predict 'price'" in homes_page.sections["summary"]


def test_summary_gives_the_out_of_fold_scores_of_a_classifier(trees_page, classifier, trees):
    said = classifier.classes_[classifier.out_of_fold_.argmax(axis=1)]
    summary = trees_page.sections["summary"]
    assert f"{accuracy_score(trees[1], said):.3f}" in summary
    assert f"log-loss is {log_loss(trees[1], classifier.out_of_fold_):.3f}" in summary
    area = roc_auc_score(trees[1], classifier.out_of_fold_, multi_class="ovr")
    assert f"{area:.3f}" in summary


def test_confusion_counts_the_rows(trees_page, classifier, trees):
    said = classifier.classes_[classifier.out_of_fold_.argmax(axis=1)]
    expected = pd.crosstab(trees[1], said).reindex(columns=classifier.classes_, fill_value=0)
    assert trees_page.column("table-confusion", "Actual") == ["ash", "birch", "cedar"]
    for name in classifier.classes_:
        found = [int(text) for text in trees_page.column("table-confusion", name)]
        assert found == expected[name].tolist()


def test_every_column_is_listed_with_its_treatment(homes_page, regressor):
    described = regressor.preprocessor_.describe()
    assert homes_page.column("table-columns", "Column") == described.index.tolist()
    assert homes_page.column("table-columns", "Became") == described["treatment"].tolist()


def test_leader_board_has_every_member(homes_page, regressor):
    board = regressor.leaderboard_
    assert homes_page.column("table-board", "Configuration") == board["configuration"].tolist()
    assert homes_page.column("table-board", "Weight") == [f"{w:.3f}" for w in board["weight"]]


def test_ignored_columns_are_a_note(homes_page):
    assert "Column 'key' is ignored: an identifier" in homes_page.sections["warnings"]


def test_coverage_is_judged_by_rows_that_did_not_set_the_width():
    rng = np.random.default_rng(0)
    target = rng.normal(size=2000)
    nothing, ones = np.zeros(2000), np.ones(2000)
    one = Numbers("", target, nothing, ones, None, fit_conformal(target, nothing, ones, None))
    for coverage in (0.5, 0.9):
        assert one.judge_coverage(coverage) == pytest.approx(coverage, abs=0.03)
    few = Numbers(
        "", target[:12], nothing[:12], ones[:12], None,
        fit_conformal(target[:12], nothing[:12], ones[:12], None),
    )  # fmt: skip
    # Nine others set the width, of which 90 % would need all ten.
    assert np.isnan(few.judge_coverage(0.95))


@pytest.mark.parametrize(
    "make", [MLRRegressor, BagMLRRegressor, EnsMLRRegressor], ids=lambda make: make.__name__
)
def test_other_regressors_say_what_they_do_not_have(make, homes, tiny, write_page):
    more = {} if make is MLRRegressor else {"n_nets": 2}
    with warnings.catch_warnings(action="ignore"):
        model = make(**more, **tiny).fit(*homes)
    page = write_page(model, *homes)
    check_valid(page)
    assert "has no out-of-fold predictions" in page.sections["predictions"]
    assert "does not measure importances" in page.sections["importances"]
    assert page.tags.count("svg") == 2


@pytest.mark.parametrize(
    "make", [MLRClassifier, BagMLRClassifier, EnsMLRClassifier], ids=lambda make: make.__name__
)
def test_other_classifiers_say_what_they_do_not_have(make, trees, tiny, write_page):
    more = {} if make is MLRClassifier else {"n_nets": 2}
    page = write_page(make(**more, **tiny).fit(*trees), *trees)
    check_valid(page)
    assert "has no out-of-fold predictions" in page.sections["classes"]
    assert "validation rows" in page.sections["summary"]


@pytest.mark.parametrize("fixture", ["regressor", "classifier"])
def test_a_model_from_a_file_has_a_page_that_says_what_is_gone(
    fixture, request, tmp_path, write_page
):
    model = request.getfixturevalue(fixture)
    page = write_page(muddle.load(model.save(tmp_path / "model.muddle")))
    check_valid(page)
    part = "predictions" if fixture == "regressor" else "classes"
    assert "has left its training rows behind" in page.sections[part]
    assert "not looked for" in page.sections["warnings"]
    assert f"{len(model.out_of_fold_)} rows" in page.sections["summary"]
    assert len(page.column("table-board", "Weight")) == len(model.leaderboard_)


def test_several_targets_each_have_their_scores(numbers, write_page):
    X, y = numbers
    both = pd.DataFrame({"first": y, "second": -y + X[:, 3]})
    model = MuddleRegressor(preset="fast", random_state=0)
    model.fit(X, both, sample_weight=np.arange(80) % 3)  # a third of the rows weighs nothing
    page = write_page(model, X, both)
    check_valid(page)
    assert page.column("table-targets", "Target") == ["first", "second"]
    assert page.column("table-coverage", "Target") == ["first"] * 4 + ["second"] * 4
    assert "53 rows" in page.sections["data"]
    assert "has 80 rows. Rows of weight 0 are left out" in page.sections["data"]


def test_names_of_every_kind_are_shown_and_never_run(tiny, write_page):
    rng = np.random.default_rng(0)
    evil = "<script>alert('x')</script>"
    names = [evil, 'a\x00b\n"&', "日本語 $x^2$", "x" * 300]
    X = pd.DataFrame(rng.normal(size=(60, 4)), columns=names)
    y = pd.Series(np.where(X[evil] > 0, "<b>$1", "b\x07"), name="</title>")
    model = EnsMLRClassifier(n_nets=1, **tiny).fit(X, y)
    page = write_page(model, X, y, title=evil)
    check_valid(page)
    assert page.tags.count("script") == 1
    assert page.tags.count("b") == 0
    assert evil in page.text
    assert "\x00" not in page.html
    assert max(map(len, page.column("table-columns", "Column"))) <= 60


def test_thousands_of_columns_are_listed_in_part(tiny, write_page):
    X = np.random.default_rng(0).normal(size=(60, 1500))
    model = MLRRegressor(**tiny).fit(X, X[:, 0])
    page = write_page(model, X, X[:, 0])
    check_valid(page)
    assert len(page.column("table-columns", "Column")) == 100
    assert "1,500 columns became 1,500 features" in page.sections["preprocessing"]
    assert "100 columns are listed" in page.sections["preprocessing"]


def test_a_thousand_classes_have_a_list_of_mistakes():
    rng = np.random.default_rng(0)
    codes = np.append(np.arange(1000), np.zeros(500, dtype=np.int64))
    probabilities = np.full((1500, 1000), 1e-6)
    probabilities[np.arange(1500), codes] = 0.5
    probabilities[1000:1100, 7] = 0.9  # a hundred rows of class 0 are taken for class 7
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    names = tuple(f"class {i}" for i in range(1000))
    part = build_classes(Classes(names, probabilities, codes, rng.random(1500)))
    (table,) = part.tables
    assert table.frame.iloc[0].tolist()[:3] == ["class 0", "class 7", 100]
    assert len(part.figures) == 2


def test_a_class_that_no_judged_row_has_leaves_a_page():
    codes = np.array([0, 0, 1, 1])
    classes = Classes(("a", "b", "c"), np.full((4, 3), 1 / 3), codes, None)
    assert set(classes.areas) == {0, 1}
    assert len(build_classes(classes).figures) == 2


def test_importances_that_time_left_out_are_said(classifier, trees, write_page, monkeypatch):
    monkeypatch.setattr(classifier, "feature_importances_", np.full(3, np.nan))
    page = write_page(classifier, *trees)
    assert "left no time for importances" in page.sections["importances"]


def test_scores_that_are_nan_leave_a_page(trees, tiny, write_page):
    model = EnsMLRClassifier(n_nets=1, **tiny).fit(*trees)
    model.history_["validation_score"] = np.nan
    model._records["validation_score"] = np.nan
    model.validation_scores_ = np.full(2, np.nan)
    page = write_page(model, *trees)
    check_valid(page)
    assert "No iteration has a score" in page.sections["learning"]


def test_what_was_cut_is_a_warning(regressor, write_page, monkeypatch):
    board = regressor.leaderboard_.assign(outcome="shortened")
    monkeypatch.setattr(regressor, "leaderboard_", board)
    page = write_page(regressor)
    assert "were cut short to keep the time limit" in page.sections["warnings"]


def test_predictions_worse_than_the_mean_are_a_warning(regressor, homes, write_page, monkeypatch):
    monkeypatch.setattr(regressor, "out_of_fold_", regressor.out_of_fold_[::-1])
    page = write_page(regressor, *homes)
    assert "no better than the mean (R² -" in page.sections["warnings"]
    assert "R² −" in page.sections["summary"]


# Files


def test_same_model_gives_the_same_page(classifier, trees, tmp_path):
    first = classifier.report(tmp_path / "a.html", *trees).read_bytes()
    assert classifier.report(tmp_path / "b.html", *trees).read_bytes() == first


def test_a_page_that_fails_leaves_the_old_one_and_nothing_else(classifier, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        classifier.report(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_error_before_any_work(classifier, tmp_path):
    with pytest.raises(FileNotFoundError, match="must exist"):
        classifier.report(tmp_path / "nowhere" / "report.html")
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_or_another_kind_of_file_is_an_error(classifier, tmp_path):
    folder = tmp_path / "folder.html"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        classifier.report(folder)
    with pytest.raises(ValueError, match=r"Call it report\.html"):
        classifier.report(tmp_path / "report.pdf")


def test_an_unfitted_estimator_is_an_error(tmp_path):
    with pytest.raises(NotFittedError):
        MuddleRegressor().report(tmp_path / "report.html")


def test_another_table_than_that_of_fit_is_an_error(regressor, homes, tmp_path):
    X, y = homes
    path = tmp_path / "report.html"
    with pytest.raises(ValueError, match="lacks column 'area'"):
        regressor.report(path, X.drop(columns="area"), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        regressor.report(path, X, y[:-1])
    with pytest.raises(ValueError, match="Pass X as well"):
        regressor.report(path, None, y)
    assert not path.exists()


@pytest.mark.parametrize("package", ["jinja2", "matplotlib.figure"])
def test_without_a_package_the_error_says_what_to_install(
    package, classifier, tmp_path, monkeypatch
):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingPackageError, match="pip install 'muddle"):
        classifier.report(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
