"""The catalogue states what is needed of every data set, and says what is wrong with a bad one."""

import csv
import re
from pathlib import Path

import pytest

from muddle.errors import DataFormatError
from muddle_bench.data.catalogue import built_in, find_entry, part_of, read_all, read_catalogue
from muddle_bench.data.published import QUIRKS
from muddle_bench.errors import UnknownDatasetError


def write_catalogue(folder, text):
    path = folder / "catalogue.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def paper_table():
    """The paper's table of data sets, which lies beside the checkout where there is one."""
    path = Path(__file__).resolve().parents[5] / "shared" / "paper" / "published" / "datasets.csv"
    if not path.is_file():
        pytest.skip("needs ../shared/paper/published/datasets.csv, which is not here")
    with path.open(encoding="utf-8", newline="") as file:
        return {row["dataset_id"]: row for row in csv.DictReader(file)}


def test_the_catalogue_holds_the_data_sets_of_the_paper_with_their_sizes(paper_table):
    assert built_in().keys() == paper_table.keys()
    for name, entry in built_in().items():
        row = paper_table[name]
        assert (entry.n_published, entry.d_published) == (int(row["n"]), int(row["d"])), name
        assert entry.task == row["task"], name
        # The paper numbers the columns of files without a header.
        by_number = row["target"].isdigit() and entry.columns
        target = entry.columns[int(row["target"])] if by_number else row["target"]
        assert entry.target == target, name


@pytest.mark.parametrize("entry", built_in().values(), ids=lambda entry: entry.id)
def test_every_entry_says_where_its_file_comes_from_and_names_columns_that_exist(entry):
    named = {*entry.drop, *entry.leaks, *entry.omitted}
    assert set(entry.quirks) <= QUIRKS.keys()
    assert entry.target not in named
    assert not entry.columns or named | {entry.target} <= set(entry.columns)
    assert entry.title
    assert entry.licence
    assert entry.page.startswith("https://")
    assert entry.sha256
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in entry.sha256)
    if entry.source.startswith("UCI"):
        number = entry.source.removeprefix("UCI ")
        assert f"/dataset/{number}/" in entry.page
        assert entry.url.startswith("https://archive.ics.uci.edu/ml/machine-learning-databases/")
        assert entry.url.rsplit("/", 1)[1] == entry.file.rsplit("/", 1)[1]
    else:
        assert entry.source.removeprefix("Kaggle ") in entry.page
        assert entry.url is None


def test_the_example_in_the_docs_is_a_catalogue(tmp_path):
    docs = Path(__file__).resolve().parents[4] / "docs" / "datasets.md"
    (example,) = re.findall(r"```toml\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    entries = read_catalogue(write_catalogue(tmp_path, example))
    assert [entry.target for entry in entries.values()] == ["price", "outcome"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[a]\nfile = "x"\n', r"\[a\] must have the key 'target'"),
        (
            '[a]\nfile = "x"\ntraget = "y"\n',
            r"\[a\] has an unknown key 'traget'. Did you mean 'tar",
        ),
        ('[a]\nfile = "x"\ntarget = 3\n', r"\[a\] target must be the target .*, got 3"),
        ('[a]\nheader = "maybe"\n', "header must be true, false or 'optional', got 'maybe'"),
        ('[a]\ntask = "ranking"\n', "task must be 'regression' or 'classification', got 'ranking'"),
        ('[a]\nmissing = "?"\n', r"missing must be a list of texts, got '\?'"),
        ('[a]\ntransform = "sqrt"\n', "transform must be 'none', 'log' or 'log1p'"),
        ('[a]\ndrop = ["No"]\n', "drop must be reasons by column"),
        ("[a]\nn_published = true\n", "n_published must be a whole number above 0"),
        ('file = "x"\n', r"'file' must be a table.*\[name-of-the-data-set\]"),
        ("[a\n", "must be a TOML file in UTF-8: .*line 1"),
    ],
)
def test_a_bad_catalogue_is_told_which_table_and_key(tmp_path, text, message):
    path = write_catalogue(tmp_path, text)
    with pytest.raises(DataFormatError, match=message) as caught:
        read_catalogue(path)
    assert str(path) in str(caught.value)


def test_an_own_catalogue_adds_to_the_built_in_one(tmp_path):
    write_catalogue(tmp_path, '[mine]\nfile = "mine.csv"\ntarget = "price"\n')
    assert list(read_all(tmp_path)) == [*built_in(), "mine"]
    assert find_entry("mine", tmp_path).target == "price"
    assert find_entry("servo", tmp_path) == built_in()["servo"]
    assert "mine" not in built_in()


def test_an_own_table_cannot_take_a_built_in_name(tmp_path):
    write_catalogue(tmp_path, '[servo]\nfile = "mine.csv"\ntarget = "price"\n')
    with pytest.raises(DataFormatError, match=r"\[servo\] is the name of a built-in data set"):
        find_entry("abalone", tmp_path)


def test_an_unknown_name_gets_a_suggestion(tmp_path):
    with pytest.raises(
        UnknownDatasetError, match=r"named 'Abalon'\. Did you mean 'abalone'"
    ) as caught:
        find_entry("Abalon", tmp_path)
    assert "lists all 33" in str(caught.value)
    assert str(tmp_path / "catalogue.toml") in str(caught.value)
    with pytest.raises(UnknownDatasetError, match=r"named 'zzz'\. muddle"):
        find_entry("zzz", tmp_path)


def test_the_hash_of_the_study_decides_the_part(tmp_path):
    # First bytes of sha256: servo 00, abalone 4b, hills a9; concrete-slump-test 0e, its tables
    # alone f3, f6, c6; electrical-grid-stability-simulated 51; qsar-toxicity c4, fish toxicity f1.
    assert part_of("servo") == "development"
    assert part_of("abalone") == "evaluation"
    assert part_of("hills") == "evaluation"  # of any other table, by its id
    assert {part_of(f"concrete-slump-test-{number}") for number in (1, 2, 3)} == {"development"}
    assert part_of("qsar-fish-toxicity") == "development"
    for ending in ("stab", "stabf"):
        assert part_of(f"electrical-grid-stability-simulated-{ending}") == "evaluation"
    write_catalogue(tmp_path, '[hills]\nfile = "hills.csv"\ntarget = "height"\nstudy = "servo"\n')
    assert part_of("hills", tmp_path) == "development"
