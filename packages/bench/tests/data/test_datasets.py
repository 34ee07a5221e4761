"""load_dataset and load_table: what they return, what they note, and what they refuse."""

import gzip
from functools import cache

import numpy as np
import pandas as pd
import pytest

from muddle.errors import DataFormatError, MissingDataError
from muddle_bench import load_dataset, load_table
from muddle_bench.data.catalogue import built_in

CSV = "id,size,colour,price\n1,10,red,1.5\n4,40,red,\n2,?,blue,2.5\n3,30,?,3.5\n"


@pytest.fixture
def csv_file(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(CSV)
    return path


def load_text(folder, text, target="y", **options):
    path = folder / "table.csv"
    path.write_text(text)
    return load_table(path, target, **options)


def test_a_csv_becomes_typed_columns_with_gaps(csv_file):
    data = load_table(csv_file, "price", drop=["id"])
    X, y, task, meta = data
    assert (X is data.X, y is data.y, task, meta) == (True, True, data.task, data.meta)
    assert repr(data) == "<Dataset 'prices.csv': regression, 3 rows, 2 features, clean>"
    assert list(data.X) == ["size", "colour"]
    np.testing.assert_array_equal(data.X["size"], [10, np.nan, 30])
    assert data.X["colour"].tolist()[:2] == ["red", "blue"]
    assert data.X["colour"].isna().tolist() == [False, False, True]
    assert data.X.index.tolist() == [0, 1, 2]
    assert data.y.tolist() == [1.5, 2.5, 3.5]
    assert data.task == "regression"
    assert data.meta.dropped == {"id": "on request"}
    assert "1 of 4 rows left out: they have no 'price'" in data.meta.notes
    assert "task guessed: regression, as the target has 3 values" in data.meta.notes
    assert (data.meta.n_rows, data.meta.n_features, data.meta.classes) == (3, 2, ())


def test_other_formats_give_the_same_table(tmp_path, csv_file):
    expected = load_table(csv_file, "price")
    zipped, tabbed, divided = (tmp_path / name for name in ("p.csv.gz", "p.tsv", "p.txt"))
    zipped.write_bytes(gzip.compress(CSV.encode()))
    tabbed.write_text(CSV.replace(",", "\t"))
    divided.write_text(CSV.replace(",", ";").replace("\n", "\r\n"))
    for path in (zipped, tabbed, divided):
        pd.testing.assert_frame_equal(load_table(path, "price").X, expected.X)
    assert "separator guessed: ';'" in load_table(divided, "price").meta.notes
    stated = load_table(divided, "price", separator=";")
    assert not any("separator" in note for note in stated.meta.notes)


def test_an_index_that_was_saved_is_no_part_of_the_table(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"x": [1, 2], "y": [2.5, 3.5]}, index=pd.Index([9, 8], name="row"))
    table.to_parquet(tmp_path / "p.parquet")
    data = load_table(tmp_path / "p.parquet", "y")
    assert list(data.X) == ["x"]
    assert data.X.index.tolist() == [0, 1]


@pytest.mark.parametrize(("n_values", "task"), [(20, "classification"), (21, "regression")])
def test_the_task_is_guessed_from_the_target_and_said_unless_it_is_stated(tmp_path, n_values, task):
    text = "x,y\n" + "".join(f"1,{value}\n" for value in range(n_values))
    data = load_text(tmp_path, text)
    assert data.task == task
    assert any(note.startswith(f"task guessed: {task}") for note in data.meta.notes)
    data = load_text(tmp_path, text, task="regression")
    assert data.task == "regression"
    assert data.y.dtype == float
    assert not any("task guessed" in note for note in data.meta.notes)


def test_classes_keep_their_names_and_gaps_are_marked_as_named(tmp_path):
    words = load_text(tmp_path, "x,y\n1,yes\n2,no\n3,yes\n")
    assert words.y.tolist() == ["yes", "no", "yes"]
    assert words.meta.classes == ("no", "yes")
    numbers = load_text(tmp_path, "x,y\n1,3\n2,1\n")
    assert numbers.y.dtype.kind == "i"
    assert numbers.meta.classes == (1, 3)
    text = "id,x,y\n1,NA,1.5\n2,4,2.5\n3,5,2.5\n"
    data = load_text(tmp_path, text, missing="NA", drop="id")
    assert data.X["x"].isna().tolist() == [True, False, False]
    assert data.meta.dropped.keys() == {"id"}
    data = load_text(tmp_path, text)
    assert any("'x' is text because of 'NA'" in note for note in data.meta.notes)


def test_a_file_without_a_header_is_read_by_position(tmp_path):
    data = load_text(tmp_path, "1.5,a,7\n2.5,b,8\n", target=0)
    assert list(data.X) == ["1", "2"]
    assert data.y.tolist() == [1.5, 2.5]
    assert "no header: columns are named by their position" in data.meta.notes
    named = load_text(tmp_path, "x,2019\n1,2.5\n2,3.5\n", target=2019)  # a name, not a position
    assert named.y.tolist() == [2.5, 3.5]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,price\n1,2\n", {"target": "prize"}, r"column of .*, got 'prize'. Did you mean 'price'"),
        ("a,b,y\n1,2,3\n", {"drop": "c"}, "every column to drop must be a column of"),
        ("a,y\n1,\n2,?\n", {}, "must have targets, but column 'y' has only gaps"),
        ("a,y\n1,x\n2,3\n", {"task": "regression"}, "must be numbers in regression, got 'x'"),
        ("a,y\n1,2\n", {"drop": "a"}, "must have a column besides the target"),
        ("", {}, "it is empty"),
        ("a,y\n", {}, "must hold rows below its header"),
        ("a,y\n1,2\n", {"task": "regresion"}, "task='regresion'. Did you mean 'regression'"),
        ("a,y\n1,2\n", {"separator": ", "}, "separator must be one character"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_reason(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        load_text(tmp_path, text, **options)


def test_a_file_that_is_not_there_gets_a_suggestion(csv_file):
    with pytest.raises(MissingDataError, match=r"no file .*Did you mean 'prices.csv'"):
        load_table(csv_file.with_name("price.csv"), "price")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_table(csv_file.parent / "nowhere" / "price.csv", "price")
    with pytest.raises(DataFormatError, match="must be a file, got the folder"):
        load_table(csv_file.parent, "price")


def own_table(folder, text, content="x,y\n1,2.5\n2,3.5\n", name="mine.csv"):
    (folder / "raw").mkdir()
    (folder / "raw" / name).write_text(content)
    (folder / "catalogue.toml").write_text(f'[mine]\nfile = "{name}"\ntarget = "y"\n{text}')
    return folder


@pytest.mark.parametrize(("transform", "value"), [("log", 0), ("log1p", -1)])
def test_a_target_without_a_logarithm_is_refused(tmp_path, transform, value):
    home = own_table(tmp_path, f'transform = "{transform}"\n', f"x,y\n1,{value}\n2,3.5\n")
    with pytest.raises(DataFormatError, match=f"must be above {value} .*got {value}"):
        load_dataset("mine", data_home=home)


def test_one_class_can_be_set_against_the_rest(tmp_path):
    home = own_table(tmp_path, 'binary = "a"\n', "x,y\n1,a\n2,b\n3,c\n")
    assert load_dataset("mine", data_home=home).y.tolist() == ["a", "not a", "not a"]
    (home / "raw" / "mine.csv").write_text("x,y\n1,A\n2,b\n")
    with pytest.raises(
        DataFormatError, match=r"binary must be a class .*got 'a'\. Did you mean 'A'"
    ):
        load_dataset("mine", data_home=home)


def test_dates_are_no_target(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"x": [1, 2], "y": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    table.to_parquet(tmp_path / "dates.parquet")
    with pytest.raises(DataFormatError, match=r"got dates such as .* in column 'y'"):
        load_table(tmp_path / "dates.parquet", "y")
    with pytest.raises(DataFormatError, match="must be numbers in regression"):
        load_table(tmp_path / "dates.parquet", "y", task="regression")


# Rows and raw feature columns of the clean recipe, by hand from the descriptions of the download.
CLEAN = {
    "concrete-slump-test-1": (103, 7), "concrete-slump-test-2": (103, 7),
    "concrete-slump-test-3": (103, 7), "servo": (167, 4), "computer-hardware": (209, 7),
    "yacht-hydrodynamics": (308, 6), "qsar-aquatic-toxicity": (546, 8),
    "qsar-bioconcentration-classes": (779, 9), "qsar-fish-toxicity": (908, 6),
    "insurance": (1338, 6), "communities-and-crime": (1994, 122), "abalone": (4177, 8),
    "squark-automotive-clv": (8099, 21), "seoul-bike-sharing-demand": (8760, 12),
    "electrical-grid-stability-simulated-stab": (10000, 12), "blr-real-estate-prices": (13320, 8),
    "cervical-cancer-behavior-risk": (72, 19), "post-operative-patient": (90, 8),
    "breast-cancer-coimbra": (116, 9), "heart-failure-clinical-records": (299, 11),
    "ionosphere": (351, 34), "congressional-voting-records": (435, 16),
    "cylinder-bands": (540, 37), "credit-approval": (690, 15), "tic-tac-toe-endgame": (958, 9),
    "qsar-biodegradation": (1055, 41), "chess-king-rook-vs-king-pawn": (3196, 36),
    "mushroom": (8124, 22), "electrical-grid-stability-simulated-stabf": (10000, 12),
    "magic-gamma-telescope": (19020, 10), "adult": (32561, 14),
    "internet-firewall-data": (65532, 11), "beijing-pm25": (41757, 11),
}  # fmt: skip


@pytest.mark.parametrize("name", built_in())
def test_the_clean_recipe_holds_the_real_rows_and_columns(name, data_folder):
    entry, (data, _) = built_in()[name], load_clean(name, data_folder)
    assert data.X.shape == CLEAN[name]
    assert data.task == entry.task
    assert data.meta.dropped == {**entry.drop, **entry.leaks}
    assert not {*data.X} & {entry.target, *entry.drop, *entry.leaks}
    assert not data.X.isin(["?"]).any(axis=None) or name == "congressional-voting-records"
    if data.task == "classification":
        assert len(data.meta.classes) == 2
    else:
        assert data.y.dtype == float
        assert np.isfinite(data.y).all()


@cache
def load_clean(name, data_folder):
    data = load_dataset(name, data_home=data_folder)
    return data, " ".join(data.meta.notes)


def test_numbers_words_and_classes_of_the_raw_files_keep_their_kind(data_folder):
    adult, _ = load_clean("adult", data_folder)
    assert adult.X["age"].dtype.kind == "i"
    assert adult.X["workclass"].iloc[0] == "State-gov"  # no blank in front
    assert adult.X["workclass"].isna().sum() == 1836
    assert adult.meta.classes == ("<=50K", ">50K")
    credit, _ = load_clean("credit-approval", data_folder)
    assert credit.X["A2"].dtype == float  # numbers, once "?" is a gap
    assert credit.X["A2"].isna().sum() == 12
    data, notes = load_clean("post-operative-patient", data_folder)
    assert data.meta.classes == ("A", "not A")
    assert (data.y == "A").sum() == 64
    assert "against the rest" in notes
    data, notes = load_clean("internet-firewall-data", data_folder)
    assert (data.y == "allow").sum() == 37640
    assert data.meta.classes == ("allow", "not allow")
    assert "4 classes binary" in notes


def test_rows_without_a_target_are_counted_and_targets_are_on_the_scale_of_the_paper(data_folder):
    assert "1035 blank records left out" in load_clean("squark-automotive-clv", data_folder)[1]
    notes = load_clean("beijing-pm25", data_folder)[1]
    assert "2067 of 43824 rows left out: they have no 'pm2.5'" in notes
    data, notes = load_clean("insurance", data_folder)
    assert data.y[0] == pytest.approx(np.log(16884.924))
    assert "the target is log(charges)" in notes
    data, notes = load_clean("communities-and-crime", data_folder)
    assert data.y[0] == pytest.approx(np.log(1.2))
    data, notes = load_clean("seoul-bike-sharing-demand", data_folder)
    assert data.y[0] == 254
    assert "plain count" in notes


def test_the_official_file_with_its_broken_record_gives_the_same_table(tmp_path, data_folder):
    lines = (data_folder / "raw" / "cylinder-bands" / "bands.data").read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("19930421,x799"))
    fields = lines[at].split(",")
    lines[at : at + 1] = [",".join(fields[:17]) + ",", ",".join(fields[17:])]
    target = tmp_path / "raw" / "cylinder-bands" / "bands.data"
    target.parent.mkdir(parents=True)
    target.write_text("\n".join(lines))
    for recipe in ("clean", "published"):
        official, joined = (
            load_dataset("cylinder-bands", recipe, home) for home in (tmp_path, data_folder)
        )
        pd.testing.assert_frame_equal(official.X, joined.X)
        np.testing.assert_array_equal(official.y, joined.y)
