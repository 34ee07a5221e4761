"""The authors' matrices, rebuilt rule by rule and then whole."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle import TablePreprocessor
from muddle_bench import load_dataset
from muddle_bench.data.catalogue import Entry, built_in
from muddle_bench.data.published import QUIRKS, QUIRKS_OF_ALL, build_published

# Names of the authors' matrices that are not the name of the data set.
MATRIX_NAMES = {
    "concrete-slump-test-1": "concrete-slump-test-compressive-strength",
    "concrete-slump-test-2": "concrete-slump-test-flow",
    "concrete-slump-test-3": "concrete-slump-test-slump",
}
# Not among the matrices the authors released.
WITHOUT_MATRIX = {
    *("squark-automotive-clv", "chess-king-rook-vs-king-pawn", "adult"),
    *("internet-firewall-data", "beijing-pm25"),
}

# Rows of class 1 by the paper's counts, for sets without a matrix.
N_ONES = {
    "chess-king-rook-vs-king-pawn": 1527,  # nowin
    "adult": 7841,  # >50K
    "internet-firewall-data": 65532 - 37640,  # not allow
}


def build(columns, without=(), **options):
    """The matrix of a table given by columns of text; the target is y."""
    table = pd.DataFrame({"y": ["1", "2"] * 50, **columns}, dtype=object)
    options = {"target": "y", "task": "regression"} | options
    return build_published(table, Entry(id="tiny", file="tiny.csv", **options), without)


def build_column(values, **options):
    """What one column of text turns into, by name."""
    columns = {"y": [str(i) for i in range(len(values))], "x": list(values)}
    return build(columns, **options).features


def test_numbers_are_scaled_twice_and_those_of_few_values_encoded_too():
    values = np.arange(13.0)
    mean, spread = values.mean(), values.std()
    features = build_column([f"{value:g}" for value in values])
    assert list(features) == ["x"]
    np.testing.assert_allclose(features["x"], ((values - mean) / spread - mean) / spread)
    features = build_column(["3", "10", "7.5", "3"])
    assert list(features) == ["x=3", "x=7.5", "x=10", "x"]
    assert features["x=3"].tolist() == [1, 0, 0, 1]
    assert features["x=10"].tolist() == [0, 1, 0, 0]
    assert len(build_column([str(i) for i in range(12)]).columns) == 13
    assert len(build_column([str(i) for i in range(13)]).columns) == 1


def test_text_is_encoded_and_of_two_values_the_rarer_is_marked():
    assert build_column(["b", "a", "b"]).to_dict("list") == {"x=a": [0, 1, 0]}
    assert build_column(["1", "0", "1"]).to_dict("list") == {"x=0": [0, 1, 0]}
    assert list(build_column(["b", "a"])) == ["x=a"]  # of equally frequent ones the later
    assert list(build_column(["a", "b"])) == ["x=b"]
    letters = [chr(ord("a") + i) for i in range(13)]
    assert list(build_column(letters[:12])) == [f"x={letter}" for letter in letters[:12]]
    wide = build({"y": list(map(str, range(13))), "x": letters, "c": ["5"] * 13})
    assert wide.features.empty
    assert wide.dropped.keys() == {"x", "c"}
    assert build_column(["5", "", "5"]).empty
    assert build_column(["", "", ""]).empty
    assert list(build_column(["1", "?", "2"])) == ["x=1", "x=2", "x=?"]
    assert list(build_column(["b", "", "zebra"])) == ["x=b", "x=nan", "x=zebra"]


def test_gaps_are_the_mean_among_numbers_and_each_counts_as_a_value():
    few = [str(i % 4) for i in range(20)]
    features = build_column(few + ["", "NA"] * 5)
    assert list(features) == ["x"]  # 4 values and 10 gaps count as 14
    mean, spread = np.mean([0, 1, 2, 3]), np.std([0, 1, 2, 3])
    np.testing.assert_allclose(features["x"].iloc[-1], -mean / spread)


def test_each_quirk_of_all_can_be_left_away():
    def columns(values, *without):
        return build({"y": list(map(str, range(len(values)))), "x": values}, without=without)

    numbers = [f"{i:g}" for i in range(13)]
    scores = (np.arange(13.0) - 6) / np.std(np.arange(13.0))
    once = columns(numbers, "scaled-twice").features["x"]
    np.testing.assert_allclose(once, scores)
    assert list(columns(["3", "10", "7", "3"], "numbers-kept").features) == ["x=3", "x=7", "x=10"]
    assert list(columns([*numbers, "?"], "question-mark-is-text").features) == ["x"]
    gappy = [str(i % 4) for i in range(20)] + [""] * 10
    assert len(columns(gappy, "gaps-count-apart").features.columns) == 5


def test_quirks_of_a_set_can_be_left_away_too(data_folder):
    plain = load_dataset("abalone", "published", data_folder, without=["index-row", "leaks"])
    assert plain.X.shape == (4177, 10)
    assert plain.meta.notes == ["without the quirk 'index-row'", "without the quirk 'leaks'"]
    assert (
        "PRP" not in load_dataset("computer-hardware", "published", data_folder, without="leaks").X
    )
    seoul = load_dataset(
        "seoul-bike-sharing-demand", "published", data_folder, without="seoul-target"
    )
    count = load_dataset("seoul-bike-sharing-demand", data_home=data_folder).y
    np.testing.assert_allclose(seoul.y, (count - count.mean()) / count.std())
    path = data_folder / "reference_matrices" / "seoul-bike-sharing-demand-plain-target.npz"
    np.testing.assert_allclose(seoul.y, np.load(path)["y"], atol=1e-5)  # the authors had this too


def test_the_papers_preset_makes_the_same_columns_of_a_clean_table(data_folder):
    """TablePreprocessor.published("paper") and the published recipe without its quirks agree."""
    for name in ("insurance", "tic-tac-toe-endgame", "qsar-aquatic-toxicity"):
        quirks = [*QUIRKS_OF_ALL, *QUIRKS]
        published = load_dataset(name, "published", data_folder, without=quirks).X
        clean = load_dataset(name, data_home=data_folder).X
        ours = (
            TablePreprocessor.published("paper").set_output(transform="pandas").fit_transform(clean)
        )
        assert ours.shape == published.shape
        for column in published.columns.intersection(ours.columns):
            np.testing.assert_allclose(ours[column], published[column], atol=1e-9)
        assert len(published.columns.intersection(ours.columns)) > 0.7 * published.shape[1]


def test_unknown_quirks_cannot_be_left_away(data_folder):
    with pytest.raises(ValueError, match=r"got 'scaled-twise'. Did you mean 'scaled-twice'\?"):
        load_dataset("servo", "published", data_folder, without=["scaled-twise"])
    with pytest.raises(ValueError, match="the clean recipe has no quirks"):
        load_dataset("servo", data_home=data_folder, without=["index-row"])


def test_targets_are_transformed_before_they_are_standardised():
    columns = {"y": ["1", "2", "6"], "x": ["1", "2", "3"]}

    def standardise(values):
        return (values - values.mean()) / values.std()

    y = np.array([1.0, 2.0, 6.0])
    logs = np.log1p(y)
    expected = {
        ("none", ()): y,
        ("log", ()): np.log(y),
        ("log1p", ()): logs,
        ("none", ("seoul-target",)): np.log(2 + logs.max() - logs),
        ("log", ("restored-before-log",)): np.log((y - 3) / y.std() * y.std(ddof=1) + 3),
    }
    for (transform, quirks), values in expected.items():
        target = build(columns, transform=transform, quirks=quirks).target
        np.testing.assert_allclose(target, standardise(values), err_msg=str((transform, quirks)))


def test_class_one_is_all_but_the_most_frequent_or_the_largest_number():
    def code(*labels):
        return build({"y": labels, "x": ["1"] * len(labels)}, task="classification").target.tolist()

    assert code("deny", "allow", "allow", "drop") == [1, 0, 0, 1]
    assert code("A", "A", "A ", "S") == [0, 0, 1, 1]  # blanks tell texts apart
    assert code("2", "1", "2") == [1, 0, 1]  # the most frequent, and the largest


def test_the_index_row_makes_categories_and_counts_in_the_scale_even_if_removed():
    matrix = build({"y": ["5", "7"], "x": ["a", "b"], "c": ["k", "k"]}, quirks=("index-row",))
    assert list(matrix.features) == ["x=1", "x=a", "x=b", "c=2"]
    assert matrix.features["c=2"].tolist() == [1, 0, 0]
    assert len(matrix.target) == 3
    values = [str(i) for i in range(20, 40)]
    columns = {"y": values, "t": ["a", "b"] * 10, "x": values}
    kept = build(columns, quirks=("index-row",))
    matrix = build(columns, quirks=("index-row-removed",))
    pd.testing.assert_frame_equal(matrix.features, kept.features.iloc[1:].reset_index(drop=True))
    assert not matrix.features["t=1"].any()
    assert matrix.target.mean() == pytest.approx(0)


def test_the_first_record_read_as_a_header_gets_numbered_values():
    columns = {
        "y": ["1", "2", "3", "4"],
        "a": ["f", "t", "f", "f"],
        "b": ["f", "t", "t", "f"],
        "c": ["t", "t", "f", "t"],
    }
    features = build(columns, quirks=("header-as-row",)).features
    assert list(features) == ["a=t", "b=f", "b=f.1", "b=t", "c=f"]
    assert features["b=f.1"].tolist() == [1, 0, 0, 0]


def test_the_broken_record_is_two_rows_with_gaps():
    row = ["19930421", "x799", *(f"v{i}" for i in range(2, 40))]
    other = ["19930422", "x800", *(f"w{i}" for i in range(2, 40))]
    names = [f"c{i}" for i in range(39)]
    columns = {name: [row[i], other[i]] for i, name in enumerate(names)} | {"y": ["band", "no"]}
    table = pd.DataFrame(columns)
    entry = Entry(id="b", file="b", target="y", task="classification", quirks=("broken-record",))
    matrix = build_published(table, entry)
    assert len(matrix.target) == 3
    assert matrix.features["c2=v2"].tolist() == [1, 0, 0]
    assert matrix.features["c2=v19"].tolist() == [0, 1, 0]  # the second part starts at field 17
    assert matrix.features["c22=band"].tolist() == [0, 1, 0]  # and takes the target along
    assert matrix.features["c38=w38"].tolist() == [0, 0, 1]  # neither part reaches this column
    assert matrix.target.tolist() == [1, 1, 0]  # a gap is not the most frequent class


def test_every_quirk_is_used_by_some_data_set_and_told_in_the_docs():
    used = {quirk for entry in built_in().values() for quirk in entry.quirks}
    assert used == QUIRKS.keys()
    docs = Path(__file__).resolve().parents[4] / "docs" / "datasets.md"
    text = docs.read_text(encoding="utf-8")
    assert [name for name in {*QUIRKS, *QUIRKS_OF_ALL} if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", built_in())
def test_the_published_size_and_values_are_rebuilt(name, data_folder):
    entry, matrix = built_in()[name], load_dataset(name, "published", data_folder)
    size = (43824 - 2067, 33 - 1) if name == "beijing-pm25" else None
    assert matrix.X.shape == (size or (entry.n_published, entry.d_published))
    assert bool(entry.mismatch) == (size is not None)
    assert matrix.y.shape == (len(matrix.X),)
    assert np.isfinite(matrix.X.to_numpy()).all()
    assert np.isfinite(matrix.y).all()
    if matrix.task == "classification":
        assert set(matrix.y) == {0, 1}
    if name in N_ONES:
        assert matrix.y.sum() == N_ONES[name]
    if name in WITHOUT_MATRIX:
        return
    path = data_folder / "reference_matrices" / f"{MATRIX_NAMES.get(name, name)}.npz"
    with np.load(path) as reference:
        X, y = reference["X"], reference["y"]
    # To the last digit the reference is stored with.
    np.testing.assert_allclose(matrix.X.to_numpy().astype(X.dtype), X, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(matrix.y.astype(y.dtype), y, rtol=1e-6, atol=1e-7)
