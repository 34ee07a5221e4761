"""Shapley values beside those that are known, or computed from every order of the columns."""

import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from muddle_runtime.errors import MuddleWarning
from muddle_runtime.explain import _choose_spread, _Game, _Timer, explain_rows
from muddle_runtime.fitted import Member
from muddle_runtime.forward import Linear

pytestmark = pytest.mark.filterwarnings("ignore:X holds")


def play(answer, rows, background, players=None, n_permutations=2, seed=0, at_once=4096):
    """The sample of a game whose features are those of the players, one each by default."""
    players = np.arange(rows.shape[1]) if players is None else np.array(players)
    game = _Game(
        *(players, players.max() + 1, rows, answer(rows), background, answer(background)),
        *(answer, at_once, _Timer(0.0, None, lambda: 0.0)),
    )
    return game.sample(n_permutations, np.random.default_rng(seed), None)


def enumerate_orders(answer, rows, background, players):
    """The definition: contributions in every order, for every background row. (n, P, C)"""
    n_players = max(players) + 1
    orders = list(itertools.permutations(range(n_players)))
    found = 0.0
    for there, order in itertools.product(background, orders):
        mixed, before = np.tile(there, (len(rows), 1)), answer(np.tile(there, (len(rows), 1)))
        values = np.zeros((len(rows), n_players, before.shape[1]))
        for player in order:
            own = np.equal(players, player)
            mixed[:, own] = rows[:, own]
            values[:, player], before = answer(mixed) - before, answer(mixed)
        found = found + values / (len(background) * len(orders))
    return found


def curve(matrix):
    """Two outputs with interactions of three features and steps."""
    a, b, c, d, *_ = matrix.T
    return np.column_stack([a * b * c + np.sin(d) * a, np.maximum(a, b) * (c > 0) - d])


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    return rng.normal(size=(5, 5)), rng.normal(size=(7, 5))


def test_values_of_a_linear_model_are_exact(tables):
    rows, background = tables
    slopes = np.array([2.0, -1.0, 0.5, 0.0, 3.0])
    sample = play(lambda matrix: matrix @ slopes[:, None] + 4.0, rows, background)
    expected = slopes * (rows - background.mean(axis=0))
    np.testing.assert_allclose(sample.mean[..., 0], expected, atol=1e-13)
    np.testing.assert_allclose(sample.error, 0.0, atol=1e-13)


def test_values_of_an_additive_model_are_its_parts_without_their_means(tables):
    rows, background = tables

    def parts(matrix):
        curves = (np.sin, np.square, np.abs, np.exp, np.sign)
        return np.column_stack([own(x) for own, x in zip(curves, matrix.T, strict=True)])

    sample = play(lambda matrix: parts(matrix).sum(axis=1, keepdims=True), rows, background)
    expected = parts(rows) - parts(background).mean(axis=0)
    np.testing.assert_allclose(sample.mean[..., 0], expected, atol=1e-13)


def test_interactions_of_pairs_are_exact(tables):
    rows, background = tables
    matrix = np.random.default_rng(1).normal(size=(5, 5))

    def answer(x):
        return np.einsum("ni,ij,nj->n", x, matrix, x)[:, None]

    sample = play(answer, rows, background)
    expected = enumerate_orders(answer, rows, background, [0, 1, 2, 3, 4])
    np.testing.assert_allclose(sample.mean, expected, atol=1e-12)


@pytest.mark.parametrize("players", [[0, 1, 2, 3], [0, 1, 0, 2, 1]])
def test_many_orders_come_near_the_definition_and_errors_tell_how_near(tables, players):
    """Features of one player change together."""
    rows, background = (table[:, : len(players)] for table in tables)
    expected = enumerate_orders(curve, rows, background, players)
    sample = play(curve, rows, background, players, n_permutations=200)
    assert sample.error.max() < 0.03
    off = np.abs(sample.mean - expected)
    assert (off <= 4 * sample.error + 1e-12).all()


def test_values_add_to_the_difference_of_answers_whatever_the_sample(tables):
    rows, background = tables
    sample = play(curve, rows, background)
    expected = curve(rows) - curve(background).mean(axis=0)
    np.testing.assert_allclose(sample.mean.sum(axis=1), expected, atol=1e-13)


def test_a_column_that_does_nothing_has_a_value_of_0_and_equal_columns_have_equal_values(tables):
    rows, background = tables
    rows[:, 1], background[:, 1] = rows[:, 0], background[:, 0]

    def answer(matrix):
        return (np.exp(matrix[:, 0] + matrix[:, 1]) * matrix[:, 2])[:, None]

    sample = play(answer, rows, background, n_permutations=400)
    assert (sample.mean[:, 3:] == 0).all()
    assert (sample.error[:, 3:] == 0).all()
    apart = np.abs(sample.mean[:, 0] - sample.mean[:, 1])
    assert (apart < 4 * np.hypot(sample.error[:, 0], sample.error[:, 1])).all()


def test_standard_errors_are_the_deviation_over_seeds(tables):
    rows, background = tables
    samples = [play(curve, rows, background, seed=seed) for seed in range(300)]
    deviation = np.std([sample.mean for sample in samples], axis=0)
    stated = np.sqrt(np.mean([sample.error**2 for sample in samples], axis=0))
    np.testing.assert_allclose(stated, deviation, rtol=0.15, atol=1e-12)


def test_standard_errors_of_a_part_of_the_background_count_its_choice_too(tables):
    rows, background = tables
    whole = play(curve, rows, background, n_permutations=400).mean

    def take_part(seed):
        evaluated = []

        def answer(matrix):
            evaluated.append(len(matrix))
            return curve(matrix)

        game = _Game(
            *(np.arange(5), 5, rows, curve(rows), background, curve(background), answer, 1),
            _Timer(0.0, 240.0, lambda: float(sum(evaluated))),
        )
        return game.sample(2, np.random.default_rng(seed), None)

    samples = [take_part(seed) for seed in range(300)]
    assert {sample.n_used for sample in samples} == {3}
    off = np.sqrt(np.mean([(sample.mean - whole) ** 2 for sample in samples], axis=0))
    stated = np.sqrt(np.mean([sample.error**2 for sample in samples], axis=0))
    np.testing.assert_allclose(stated, off, rtol=0.2, atol=0.01)


def test_values_do_not_depend_on_how_rows_are_cut(tables, monkeypatch):
    rows, background = tables
    rows[:, 3] = background[0, 3] = 1.0  # where nothing moves, nothing is evaluated
    together = play(curve, rows, background)
    for at_once in (1, 7, 100_000):
        found = play(curve, rows, background, at_once=at_once)
        np.testing.assert_allclose(found.mean, together.mean, atol=1e-14)
        np.testing.assert_allclose(found.error, together.error, atol=1e-14)
    monkeypatch.setattr("muddle_runtime.explain.MOST_VALUES", 1)
    np.testing.assert_allclose(play(curve, rows, background).mean, together.mean, atol=1e-14)
    alone = play(curve, rows[:1], background)
    np.testing.assert_allclose(alone.mean, together.mean[:1], atol=1e-14)


def test_a_column_equal_to_that_of_the_background_is_not_evaluated(tables):
    rows, background = tables
    n_evaluated = []
    for n_equal in (0, 3):
        background[:, :n_equal] = rows[0, :n_equal]
        count = []

        def answer(matrix, count=count):
            count.append(len(matrix))
            return curve(matrix)

        play(answer, rows[:1], background)
        n_evaluated.append(sum(count) - len(background) - 1)
    # 7 rows, 2 orders, 2 directions; 4 of 5 steps, or 1 of 2
    assert n_evaluated == [7 * 4 * 4, 7 * 4]


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_background_has_the_mean_of_all_rows(n_outputs):
    answers = np.random.default_rng(0).exponential(size=(1000, 1)) * np.arange(1, n_outputs + 1)
    chosen = _choose_spread(answers, 50)
    assert len(set(chosen.tolist())) == 50
    off = np.abs(answers[chosen].mean(axis=0) - answers.mean(axis=0)) / answers.std(axis=0)
    assert off.max() < 0.03  # 0.14 by chance
    assert _choose_spread(answers, 1000).tolist() == list(range(1000))


# --- models --------------------------------------------------------------------------------------


def test_values_and_base_add_to_the_prediction(stored):
    model = stored.model
    found = model.explain(stored.rows, n_background=5)
    shape = len(stored.rows), len(model.table.names)
    assert found.data.shape == shape
    if model.task == "classification":
        expected = model.predict_proba(stored.rows)
        assert found.output == "probability"
        assert found.output_names == tuple(map(str, model.classes_))
        shape = (*shape, len(model.classes_))
    else:
        expected = model.predict(stored.rows)
        assert found.output_names == ()
    assert found.values.shape == found.standard_errors.shape == shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.predictions, expected, rtol=0, atol=1e-12 * scale)
    assert len(found) == len(stored.rows)
    assert found.feature_names == model.table.names
    used = {name for name, _ in model.table.features}
    for place, name in enumerate(found.feature_names):
        assert (found.values[:, place] == 0).all() == (name not in used)


def test_log_odds_add_to_those_of_the_prediction(stored):
    if stored.model.task == "regression":
        with pytest.raises(ValueError, match="output goes with classes, got output='log_odds'"):
            stored.model.explain(stored.rows, output="log_odds")
        return
    found = stored.model.explain(stored.rows, output="log_odds", n_background=5)
    p = stored.model.predict_proba(stored.rows)
    np.testing.assert_allclose(found.predictions, np.log(p / (1 - p)), rtol=1e-9, atol=1e-9)
    if p.shape[1] == 2:
        np.testing.assert_allclose(found.values[..., 0], -found.values[..., 1], atol=1e-9)


def make_linear(model, slopes):
    """The model with nothing but a linear member, of which nothing is clipped."""
    head = np.append(slopes, 0.0)[None, :, None]
    member = Member(Linear(len(slopes)), head, 1.0)
    target = replace(model.target, bounds=None, support=None)
    return replace(
        model,
        members=(member,),
        selection=None,
        offset=np.zeros(1),
        spread=None,
        fallback=None,
        target=target,
    )


def test_a_linear_model_of_a_table_is_explained_exactly(counts):
    """All features of a date or a level make one value."""
    slopes = np.random.default_rng(0).normal(size=counts.model.table.n_features)
    model = make_linear(counts.model, slopes)
    found = model.explain(counts.rows[:4], background=counts.rows[4:9])
    there = model.transform(counts.rows[4:9]).mean(axis=0)
    parts = slopes * (model.transform(counts.rows[:4]) - there) * model.target.scale.deviation
    for place, name in enumerate(found.feature_names):
        own = [i for i, (column, _) in enumerate(model.table.features) if column == name]
        expected = parts[:, own].sum(axis=1)
        np.testing.assert_allclose(found.values[:, place], expected, atol=1e-9)
    assert found.n_background == 5
    assert np.abs(found.standard_errors).max() < 1e-9


def test_the_background_is_given_or_kept_or_drawn_from_the_summary(counts):
    model, rows = counts.model, counts.rows
    given = model.explain(rows[:2], background=rows)
    np.testing.assert_allclose(given.base_values, model.predict(rows).mean(), rtol=1e-12)
    kept = model.transform(rows).astype(np.float32)
    keeping = replace(model, training=replace(model.training, background=kept))
    found = keeping.explain(rows[:2])
    np.testing.assert_allclose(found.values, given.values, rtol=1e-4, atol=1e-3)
    drawn = model.explain(rows[:2])
    assert drawn.n_background == 50
    spread = np.ptp(model.predict(rows))
    assert abs(drawn.base_values[0] - given.base_values[0]) < spread
    for table in (None, {**model.training.table, "not_summarised": 1}):
        lacking = replace(model, training=replace(model.training, table=table))
        with pytest.raises(ValueError, match=r"no rows to compare with.*background=rows"):
            lacking.explain(rows)
        assert lacking.explain(rows[:2], background=rows).n_background == min(50, len(rows))


class Evaluations:
    """A clock that goes on by a second per row that a model answers."""

    def __init__(self, monkeypatch, model):
        self.n_rows = 0
        answer = type(model).answers

        def count(own, matrix):
            self.n_rows += len(matrix)
            return answer(own, matrix)

        monkeypatch.setattr(type(model), "answers", count)

    def __call__(self):
        return float(self.n_rows)


def test_max_seconds_holds_and_values_still_add_up(counts, monkeypatch):
    model, rows = counts.model, counts.rows[:3]
    clock = Evaluations(monkeypatch, model)
    whole = explain_rows(model, rows, clock=clock)
    n_whole, clock.n_rows = clock.n_rows, 0
    monkeypatch.setattr("muddle_runtime.explain.AT_ONCE", 16)
    limit = n_whole / 2 + 500
    with pytest.warns(MuddleWarning, match=r"were compared with \d+ of 50 background rows"):
        found = explain_rows(model, rows, max_seconds=limit, clock=clock)
    assert 0.5 * limit < clock.n_rows <= limit + 16
    assert 2 <= found.n_background < 50
    np.testing.assert_allclose(found.predictions, model.predict(rows), rtol=1e-12)
    assert found.standard_errors.mean() > whole.standard_errors.mean()
    clock.n_rows = 0
    with pytest.raises(ValueError, match=r"max_seconds=1100 is too short to compare 3 row\(s\)"):
        explain_rows(model, rows, max_seconds=1100, clock=clock)
    assert clock.n_rows <= 1100 + 16


def test_enough_time_changes_nothing(counts):
    rows = counts.rows[:2]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "max_seconds")
        found = counts.model.explain(rows, n_background=3, max_seconds=1e6)
    expected = counts.model.explain(rows, n_background=3)
    assert np.array_equal(found.values, expected.values)
    other = counts.model.explain(rows, n_background=3, random_state=1)
    assert not np.array_equal(found.values, other.values)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"n_background": 1}, ValueError, "n_background must be at least 2, got n_background=1"),
        ({"n_background": 2.5}, TypeError, "n_background must be a whole number"),
        ({"n_permutations": 1}, ValueError, "n_permutations must be at least 2"),
        ({"max_seconds": 0}, ValueError, "max_seconds must be above 0"),
        ({"max_seconds": "long"}, TypeError, "max_seconds must be a number"),
        ({"max_seconds": math.inf}, ValueError, "max_seconds must be finite"),
        ({"random_state": None}, TypeError, "random_state must be a whole number"),
        ({"random_state": -1}, ValueError, "random_state must be at least 0"),
        ({"output": "prediction"}, ValueError, "output goes with classes"),
        ({"background": []}, ValueError, "Expected 2D array"),
    ],
)
def test_a_bad_argument_is_one_clear_error(counts, options, error, said):
    with pytest.raises(error, match=said):
        counts.model.explain(counts.rows[:1], **options)


def test_an_unknown_output_of_classes_is_named(ensemble):
    if ensemble.model.task == "regression":
        pytest.skip("predicts numbers")
    said = r"output must be one of 'probability', 'log_odds', got output='logodds'\. Did you mean"
    with pytest.raises(ValueError, match=said):
        ensemble.model.explain(ensemble.rows[:1], output="logodds")
