"""Fits to streams of rows: the same as in memory where they can be, and whole models where not."""

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle import (
    BagMLRRegressor,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    MuddleClassifier,
    MuddleRegressor,
    MuddleWarning,
)
from muddle.errors import BadFileError
from muddle.estimators import beyond_memory, pool
from muddle.tables.stream import Stream
from muddle_runtime.forward import PlainView

N_ROWS = 1200


def make_rows(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n_rows),
            "b": np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(size=n_rows)),
            "colour": rng.choice(["red", "green", "blue"], n_rows),
            "city": [f"city {i}" for i in rng.integers(0, 30, n_rows)],
        }
    )
    signal = 2 * frame["a"] + frame["b"].fillna(0) ** 2 + 2 * (frame["colour"] == "red")
    return frame.assign(y=signal + rng.normal(size=n_rows) / 3)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    frame = make_rows()
    for part in range(4):
        own = frame.iloc[part * 300 : (part + 1) * 300]
        own.to_parquet(place / f"part-{part}.parquet", row_group_size=150, index=False)
    return place


@pytest.fixture
def streamed(monkeypatch):
    """Nothing is small enough for memory, and samples are small."""
    monkeypatch.setattr(beyond_memory, "MOST_CELLS", 0)
    monkeypatch.setattr(beyond_memory, "MOST_JUDGED", 200)
    monkeypatch.setattr(beyond_memory, "MOST_LEARNT", 300)
    monkeypatch.setattr(beyond_memory, "BATCH_ROWS", 256)


def test_a_small_stream_is_fitted_as_in_memory(folder):
    frame = make_rows()
    options = {"width": 32, "max_iter": 10, "random_state": 0}
    streamed = MLRRegressor(**options).fit(folder, "y")
    in_memory = MLRRegressor(**options).fit(frame.drop(columns="y"), frame["y"])
    new = make_rows(50, seed=1).drop(columns="y")
    np.testing.assert_array_equal(streamed.predict(new), in_memory.predict(new))
    classes = frame.assign(y=np.where(frame["y"] > 1, "high", "low"))
    streamed = MLRClassifier(**options).fit([classes[:500], classes[500:]], "y")
    in_memory = MLRClassifier(**options).fit(classes.drop(columns="y"), classes["y"])
    assert streamed.classes_.tolist() == ["high", "low"]
    np.testing.assert_array_equal(streamed.predict_proba(new), in_memory.predict_proba(new))


def test_heads_are_the_ridge_of_all_rows(folder, streamed):
    """As solved in memory, in float64, on the hidden layer of every row."""
    model = MLRRegressor(depth=1, width=24, max_iter=12, batch_size=256, random_state=0)
    model.fit(folder, "y")
    frame = make_rows()
    stream = Stream(folder)
    streamed = beyond_memory.count_rows(
        stream,
        "y",
        "regression",
        muddle.TablePreprocessor(),
        owner="me",
        seed=int(np.random.RandomState(0).randint(2**31 - 1)),
        share=0.2,
        watch=lambda n, label: muddle.estimators.base.watch(n, label, False),
    )
    ((features, labels, _),) = streamed.batches().batches("all", batch_size=9999, shuffle=False)
    (member,) = model.model_.members
    nets = member.representation
    weight, bias = (np.asarray(array[0], np.float64) for array in (nets.weights[0], nets.biases[0]))
    hidden = np.maximum(features.astype(np.float64) @ weight + bias, 0)
    penalty = model.penalty_ / 256 * len(frame)
    gram = hidden.T @ hidden + penalty * np.eye(hidden.shape[1])
    wanted = np.linalg.solve(gram, hidden.T @ labels)
    np.testing.assert_allclose(member.head[0], wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MLRRegressor, {"depth": 2}),
        (BagMLRRegressor, {"n_nets": 3, "depth": 1}),
        (EnsMLRRegressor, {"n_nets": 2}),
    ],
    ids=["one", "bag", "ensemble"],
)
def test_nets_learn_a_stream_and_are_saved(folder, streamed, tmp_path, kind, options):
    model = kind(
        width=64, max_iter=60, batch_size=256, learning_rate=0.01, random_state=0, **options
    )
    model.fit(folder, "y")
    new = make_rows(300, seed=1)
    new, wanted = new.drop(columns="y"), new["y"]
    assert model.score(new, wanted) > 0.85
    again = kind(**model.get_params()).fit(folder, "y")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    loaded = muddle.load_model(model.save(tmp_path / "m.muddle"))
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    assert model.table_summary_["rows"] == N_ROWS
    gaps = {one["name"]: one["missing"] for one in model.table_summary_["columns"]}
    assert gaps["b"] == pytest.approx(make_rows()["b"].isna().mean())


@pytest.mark.filterwarnings("ignore:column 'colour' carries")
def test_the_flagship_of_a_stream_has_intervals_and_a_leaderboard(
    folder, streamed, monkeypatch, tmp_path
):
    monkeypatch.setattr(pool, "QUICK_STEPS", 60)
    model = MuddleRegressor(preset="fast", random_state=0).fit(folder, "y")
    new = make_rows(500, seed=1)
    X = new.drop(columns="y")
    assert model.score(X, new["y"]) > 0.9
    bounds = model.predict_interval(X, 0.8)
    assert 0.7 < np.mean((new["y"] >= bounds[:, 0]) & (new["y"] <= bounds[:, 1])) < 0.9
    names = model.leaderboard_["configuration"].tolist()
    assert {"bins, all rows", "kernel, 300 rows", "forest, 300 rows"} <= set(names)
    nets = model.leaderboard_.set_index("configuration").loc["bins, all rows"]
    assert nets["score"] > 0.85
    assert nets["weight"] > 0
    assert model.folds_ == "200 validation rows"
    assert model.table_summary_["rows"] == N_ROWS
    assert model.out_of_fold_.shape == (200,)
    # Out-of-fold predictions are of rows that nets have not seen, in the order of the stream.
    details = model.out_of_fold_details_
    assert 1 - np.mean((model.out_of_fold_ - details.target) ** 2) / details.target.var() > 0.9
    loaded = muddle.load_model(model.save(tmp_path / "m.muddle"))
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    assert loaded.model_.training.values["stream"] == {
        "rows": N_ROWS,
        "sampled": 500,
        "judged": 200,
        "bad_files": 0,
    }


@pytest.mark.filterwarnings("ignore:column 'colour' carries")
def test_the_flagship_of_a_stream_knows_classes(folder, streamed, monkeypatch):
    monkeypatch.setattr(pool, "QUICK_STEPS", 60)
    frame = make_rows(2000)
    names = np.array(["low", "middle", "high"])
    frame["y"] = names[pd.qcut(frame["y"], 3, labels=False)]
    new = make_rows(300, seed=1)
    new["y"] = names[pd.qcut(new["y"], 3, labels=False)]
    model = MuddleClassifier(preset="fast", random_state=0).fit([frame[:900], frame[900:]], "y")
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert np.mean(model.predict(new.drop(columns="y")) == new["y"]) > 0.75
    nets = model.leaderboard_.set_index("configuration").loc["bins, all rows"]
    assert nets["score"] > 0.85
    np.testing.assert_allclose(model.predict_proba(new.drop(columns="y")).sum(axis=1), 1)


def test_targets_beyond_the_sample_bound_predictions(streamed, monkeypatch):
    monkeypatch.setattr(pool, "QUICK_STEPS", 5)
    monkeypatch.setattr(beyond_memory, "MOST_JUDGED", 40)
    monkeypatch.setattr(beyond_memory, "MOST_LEARNT", 40)
    frame = make_rows(2000)
    frame["y"] = frame["y"].clip(-3, 6)
    frame.loc[[5, 6], "y"] = [-30.0, 60.0]
    model = MuddleRegressor(preset="fast", random_state=0).fit([frame], "y")
    low, high = model.model_.target.scale.undo(model.model_.target.bounds)[:, 0]
    assert low <= -30
    assert high >= 60


def test_what_a_stream_cannot_take_is_refused(folder, streamed):
    model = MuddleRegressor(preset="fast")
    with pytest.raises(TypeError, match="to fit to files, pass the name of the target's column"):
        model.fit(str(folder), np.zeros(3))
    with pytest.raises(ValueError, match="y must name a column of the rows, got 'yy'"):
        model.fit(folder, "yy")
    with pytest.raises(ValueError, match="groups goes with rows in memory"):
        model.fit(folder, "y", groups=np.zeros(3))
    with pytest.raises(ValueError, match="class_weight goes with rows in memory"):
        MuddleClassifier(class_weight="balanced").fit(folder, "colour")
    with pytest.raises(ValueError, match="keep_statistics=True goes with rows in memory"):
        MLRRegressor(keep_statistics=True).fit(folder, "y")
    with pytest.raises(ValueError, match="y must vary, got the same value 1"):
        model.fit([make_rows(50).assign(y=1.0)], "y")
    with pytest.raises(ValueError, match="at least 4 rows with a target 'y', got 0"):
        model.fit([make_rows(50).assign(y=np.nan)], "y")
    with pytest.raises(ValueError, match="y must hold numbers, got other values in batch 0"):
        model.fit([make_rows(50)], "colour")
    assert not hasattr(model, "model_")


def test_a_bad_file_leaves_the_model_as_it_was_or_is_counted(folder, streamed):
    model = MLRRegressor(width=16, max_iter=5, batch_size=256, random_state=0).fit(folder, "y")
    before = model.model_
    path = folder / "part-2.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadFileError, match=r"part-2\.parquet cannot be read"):
        model.fit(folder, "y")
    assert model.model_ is before
    with pytest.warns(MuddleWarning, match=r"1 bad file\(s\)"):
        model.fit(Stream(folder, on_bad_file="skip"), "y")
    assert model.table_summary_["rows"] == N_ROWS - 300


@pytest.mark.parametrize("n_ranks", [2, 3, 20])
def test_processes_share_the_rows_that_nets_see(n_ranks, folder, streamed):
    counted = beyond_memory.count_rows(
        Stream(folder),
        "y",
        "regression",
        muddle.TablePreprocessor(),
        owner="me",
        seed=0,
        share=0.2,
        watch=lambda n, label: muddle.estimators.base.watch(n, label, False),
    )
    own = counted.batches()
    features = np.random.default_rng(0).normal(size=(50, own.n_features))
    view = PlainView(own.n_features)
    rows = beyond_memory.ViewedBatches(own, (features, features[:, :1]), view, 0)

    def read(part, **options):
        read = rows.batches(part, batch_size=64, shuffle=False, **options)
        found = [np.hstack([features, labels]) for features, labels, _ in read]
        return np.concatenate([np.empty((0, own.n_features + 1)), *found])

    for part in ("train", "validation"):
        whole = read(part)
        shares = [read(part, rank=rank, n_ranks=n_ranks) for rank in range(n_ranks)]
        together = np.concatenate(shares)
        order = np.lexsort(together.T), np.lexsort(whole.T)
        np.testing.assert_array_equal(together[order[0]], whole[order[1]])
