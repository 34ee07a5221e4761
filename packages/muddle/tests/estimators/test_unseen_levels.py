"""Rows of levels that fit never saw: a model without the column answers them, and says so."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

import muddle
import muddle_runtime
from muddle import MuddleClassifier, MuddleRegressor
from muddle.cli.info import describe_model
from muddle.errors import ModelFileError
from muddle.estimators import unseen_levels
from muddle.estimators.crossfit import draw_grouped_folds
from muddle.estimators.pool import Trial
from muddle.estimators.problems import fit_features, read_numbers
from muddle.estimators.unseen_levels import find_column
from muddle.tables.preprocessor import TablePreprocessor
from muddle_runtime.file import restore_model, store_model

N_COUNTRIES, N_YEARS = 40, 8
SEEN = 30  # countries of the training rows


def make_panel(n_countries=N_COUNTRIES):
    """Countries of several years each; each has an effect, beside that of its income."""
    rng = np.random.default_rng(1)
    country = np.repeat(np.arange(n_countries), N_YEARS)
    income = rng.normal(0, 1, n_countries)[country] + rng.normal(0, 0.2, len(country))
    effect = rng.normal(0, 1.5, n_countries)[country]
    table = pd.DataFrame(
        {
            "country": [f"c{code}" for code in country],
            "income": income,
            "year": np.tile(np.arange(N_YEARS), n_countries),
        }
    )
    return table, 2 * income + effect + rng.normal(0, 0.2, len(country)), country


@pytest.fixture(scope="module", params=[MuddleRegressor, MuddleClassifier])
def panel(request):
    """A model of some countries, and rows of them and of others."""
    table, y, country = make_panel()
    target = y if request.param is MuddleRegressor else np.where(y > 0, "rich", "poor")
    known = country < SEEN
    model = request.param(preset="fast", random_state=0, device="cpu")
    with pytest.warns(UserWarning, match="'country' carries much of the signal") as given:
        model.fit(table[known], target[known])
    assert len(given) == 1
    return model, table, target, known


def ignore_news():
    return pytest.warns(UserWarning, match="column 'country'")


def test_rows_of_unseen_levels_are_answered_better_by_the_other_model(panel):
    model, table, target, known = panel
    without = replace(model.model_, fallback=None)
    rows, y = table[~known], target[~known]
    with ignore_news():
        if isinstance(model, MuddleClassifier):
            errors = [log_loss(y, one.predict_proba(rows)) for one in (model, without)]
        else:
            errors = [np.mean((one.predict(rows) - y) ** 2) for one in (model, without)]
    assert errors[0] < 0.8 * errors[1]


def test_intervals_of_unseen_levels_cover_what_they_promise(panel):
    model, table, target, known = panel
    if isinstance(model, MuddleClassifier):
        pytest.skip("classes have no intervals")
    with ignore_news():
        low, high = model.predict_interval(table[~known], coverage=0.9).T
        less, more = replace(model.model_, fallback=None).predict_interval(table[~known]).T
    y = target[~known]
    assert np.mean((low <= y) & (y <= high)) > 0.8
    assert np.mean((less <= y) & (y <= more)) < 0.7


def test_numbers_far_off_widen_the_intervals_of_unseen_levels_too(panel):
    model, table, _, known = panel
    if isinstance(model, MuddleClassifier):
        pytest.skip("classes have no intervals")
    rows = table[~known]
    with ignore_news():
        usual = np.ptp(model.predict_interval(rows), axis=1)
    with pytest.warns(UserWarning, match="column 'country': 80 new .*; and numbers far .* 'year'"):
        far = np.ptp(model.predict_interval(rows.assign(year=1e9)), axis=1)
    assert (far >= usual.max()).all()


def test_rows_of_known_levels_are_answered_as_without_it_alone_and_in_company(panel):
    model, table, _, known = panel
    find = model.predict if isinstance(model, MuddleRegressor) else model.predict_proba
    without = replace(model.model_, fallback=None)
    plain = getattr(without, find.__name__)(table[known])
    assert (find(table[known]) == plain).all()
    with ignore_news():
        mixed = find(table)
    np.testing.assert_allclose(mixed[known], plain, atol=1e-6)
    for row in (0, len(table) - 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = find(table.iloc[[row]])
        np.testing.assert_allclose(alone[0], mixed[row], atol=1e-6)


def test_the_page_says_so(panel, tmp_path):
    model = panel[0]
    model.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Column &#39;country&#39; carries much of the signal." in page


def test_a_file_keeps_it(panel, tmp_path):
    model, table, _, _ = panel
    path = model.save(tmp_path / "panel.muddle")
    for loaded in (muddle.load_model(path), muddle_runtime.load_model(path)):
        with ignore_news():
            again, before = loaded.predict(table), model.predict(table)
        assert (again == before).all()
    half = muddle_runtime.load_model(model.save(tmp_path / "half.muddle", dtype="float16"))
    with ignore_news():
        near, exact = half.predict(table), model.predict(table)
    if isinstance(model, MuddleRegressor):
        np.testing.assert_allclose(near, exact, atol=0.05)
    else:
        assert np.mean(near == exact) > 0.95


FORGERIES = [
    (lambda h, _: h["fallback"].pop("column"), "must have the entry 'column'"),
    (lambda h, _: h["fallback"].update(column="income"), "fallback.column must be"),
    (lambda h, _: h["fallback"].update(column="nobody"), "fallback.column must be"),
    (lambda h, _: h["fallback"].update(more=1), "fallback must be an object of"),
    (lambda h, _: h.update(fallback=None), "fallback must be an object"),
    (lambda h, _: h.update(format=1), "also 'fallback'"),
    (lambda h, _: h["fallback"]["parts"].pop(), "nothing in the header asks for the tensor"),
    (lambda h, a: a.pop("fallback.mixture.offset"), "'mixture.offset' must be there"),
    (lambda h, a: h.pop("fallback"), "nothing in the header asks for the tensor 'fallback."),
]


@pytest.mark.parametrize(("change", "message"), FORGERIES)
def test_a_forged_file_is_refused_by_name(panel, change, message):
    header, arrays = store_model(panel[0].model_)
    header = json.loads(json.dumps(header))
    restore_model(header, arrays)
    change(header, arrays)
    with pytest.raises(ModelFileError, match=message):
        restore_model(header, arrays)


def test_the_command_line_tells_of_it(panel, tmp_path):
    path = panel[0].save(tmp_path / "panel.muddle")
    notes = {column["column"]: column["note"] for column in describe_model(path)["columns"]}
    expected = {"country": "rows of new levels are predicted without it", "income": "", "year": ""}
    assert notes == expected


def test_a_graph_has_it(panel, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, table, _, _ = panel
    options = {"interval": 0.9} if isinstance(model, MuddleRegressor) else {}
    session = onnxruntime.InferenceSession(model.to_onnx(tmp_path / "panel.onnx", **options))
    feed = {
        "country": table[["country"]].to_numpy(dtype=object),
        "income": table[["income"]].to_numpy(dtype=np.float64),
        "year": table[["year"]].to_numpy(dtype=np.float64),
    }
    wanted = {one.name: one for one in session.get_inputs()}
    found = session.run(None, {name: feed[name].reshape(-1, 1) for name in wanted})
    with ignore_news():
        if options:
            expected = [model.predict(table), *model.predict_interval(table).T]
        else:
            expected = [model.predict(table), model.predict_proba(table)]
    for one, other in zip(found, expected, strict=True):
        if other.dtype.kind in "OU":
            assert (one == other).all()
        else:
            np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.assign(country=(t.index % 9).map(str)), "few levels"),
        (
            lambda t: t.assign(country=t.country.where(t.index % 9 > 0, t.index.astype(str))),
            "single",
        ),
        (lambda t: t.assign(country=t.country.where(t.index % 3 > 1, "c0")), "one level is most"),
    ],
)
def test_columns_whose_unseen_levels_need_no_model(change, reason):
    table, y, _ = make_panel()
    found = find_important(change(table), y)
    assert found is None, reason
    assert find_important(table, y)[0] == "country"


def find_important(table, y, importance=1.0):
    problem = read_numbers(table, y, None, "MuddleRegressor")
    preprocessor, _ = fit_features(TablePreprocessor(), problem)
    importances = np.array([importance, 0.5, 0.0])
    return find_column(preprocessor.plan_, problem.table, importances)


@pytest.mark.parametrize("importance", [0.01, np.nan])
def test_a_column_that_carries_little_needs_no_model(importance):
    table, y, _ = make_panel()
    assert find_important(table, y, importance) is None


def test_bodies_that_have_no_time_or_diverge_leave_the_model_as_it_is(monkeypatch):
    table, y, _ = make_panel(20)
    options = {"preset": "fast", "random_state": 0, "device": "cpu"}

    def diverge(body, task):
        return Trial.none(body, "diverged")

    monkeypatch.setattr(unseen_levels, "fit_body", diverge)
    assert MuddleRegressor(**options).fit(table, y).model_.fallback is None
    monkeypatch.undo()
    monkeypatch.setattr(unseen_levels, "estimate_body", lambda *_: 1e9)
    assert MuddleRegressor(**options, time_limit=1e6).fit(table, y).model_.fallback is None


def test_grouped_folds_hold_out_whole_groups():
    groups = np.repeat(np.arange(9), [1, 2, 30, 4, 5, 6, 7, 8, 9])
    folds = draw_grouped_folds(groups, 4, seed=0)
    assert sorted(np.concatenate(folds.held_out)) == list(range(len(groups)))
    for train, held_out in zip(folds.train, folds.held_out, strict=True):
        assert sorted([*train, *held_out]) == list(range(len(groups)))
        assert not set(groups[held_out]) & set(groups[train])
    assert min(map(len, folds.held_out)) >= 13
    same = np.repeat(np.arange(20), 3)
    one, other = (draw_grouped_folds(same, 4, seed=seed).held_out for seed in (0, 1))
    assert any(set(a) != set(b) for a, b in zip(one, other, strict=True))
