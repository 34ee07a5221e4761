"""muddle datasets: list, fetch, show."""

import hashlib
import json
import re

import pytest
from typer.testing import CliRunner

from muddle.cli.app import make_app

ROWS = [f"{i},{'ash' if i % 3 else 'birch'},5,site-{i % 5},{i * i / 7:.2f}" for i in range(30)]
CSV = "\n".join(["No,tree,zone,site,height", *ROWS]) + "\n"
HASH = hashlib.sha256("\n".join(ROWS).encode()).hexdigest()


@pytest.fixture
def home(tmp_path, server):
    """A data folder with tables of its own: there, on the server, not on the server, by hand."""
    home = tmp_path / "home"
    (home / "raw").mkdir(parents=True)
    (home / "raw" / "here.csv").write_text(CSV)
    (home / "catalogue.toml").write_text(
        f"""
        gone = {{ file = "gone.csv", target = "height", url = "{server.url}.gone" }}
        handmade = {{ file = "handmade.csv", target = "height", page = "https://example.org" }}
        [served]
        file = "served.csv"
        target = "height"
        url = "{server.url}"
        sha256 = ["{server.hash}"]
        [here]
        file = "here.csv"
        target = "height"
        title = "Trees [north]"
        page = "https://example.org/trees"
        licence = "CC BY 4.0"
        note = "counted by hand"
        source = "Forest 7"
        sha256 = ["{HASH}"]
        drop = {{ "No" = "row number" }}
        leaks = {{ "site" = "known only afterwards" }}
        """
    )
    return home


def run(*arguments, **options):
    return CliRunner().invoke(make_app(), [str(argument) for argument in arguments], **options)


def test_list_has_a_line_per_data_set_and_says_which_are_here(home):
    result = run("datasets", "--data-home", home)
    assert result.exit_code == 0
    first, second, *_ = result.stdout.splitlines()
    assert first.index("present") == second.index("no")  # words stand on the left
    header, *lines = [line.split() for line in result.stdout.splitlines()]
    assert header == ["id", "task", "n", "d", "part", "present", "source"]
    by_id = {line[0]: line[1:] for line in lines}
    assert len(by_id) == 33 + 4
    assert by_id["servo"] == ["regression", "168", "24", "development", "no", "UCI", "87"]
    assert by_id["here"][-3:] == ["yes", "Forest", "7"]
    rows = json.loads(run("datasets", "--json", "--data-home", home).stdout)
    servo = next(row for row in rows if row["id"] == "servo")
    assert (servo["n"], servo["d"], servo["present"]) == (168, 24, False)


def test_fetch_says_what_was_there_what_came_and_what_is_left(home, server):
    result = run("datasets", "fetch", "here", "served", "gone", "handmade", "--data-home", home)
    raw = home / "raw"
    here, served, gone, handmade, summary = result.stdout.splitlines()
    assert here == f"present  here: {raw / 'here.csv'}"
    assert served == f"fetched  served: {raw / 'served.csv'}"
    assert gone.startswith("failed   gone: could not download gone.csv")
    assert handmade.startswith("by hand  handmade: ")
    assert f"download handmade.csv and save it as {raw / 'handmade.csv'}" in handmade
    assert summary == "1 present, 1 fetched, 1 by hand, 1 failed"
    assert result.exit_code == 1
    assert (raw / "served.csv").read_bytes() == server.content
    assert run("datasets", "fetch", "served", "--data-home", home).exit_code == 0
    result = run("datasets", "--data-home", home, "fetch", "served", "here")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "2 present"


def test_show_of_a_table_that_is_here(home):
    result = run("datasets", "show", "here", "--data-home", home)
    assert result.exit_code == 0
    lines = [re.split(r"  +", line.rstrip()) for line in result.stdout.splitlines()]
    assert ["title", "Trees [north]"] in lines
    assert ["licence", "CC BY 4.0"] in lines
    assert ["sha256", HASH] in lines
    assert ["path", str(home / "raw" / "here.csv")] in lines
    assert ["rows", "30"] in lines
    assert ["dropped", "No: row number"] in lines
    assert ["dropped by the clean recipe", "site: known only afterwards"] in lines
    assert "mismatch" not in result.stdout  # nothing to say
    header = next(line for line in lines if "treatment" in line)
    assert header[0] == "column"
    assert any(line[0] == "tree" for line in lines[lines.index(header) :])


def test_show_as_json_names_every_column_and_knows_tables_that_are_not_here(home):
    facts = json.loads(run("datasets", "show", "here", "--json", "--data-home", home).stdout)
    assert facts["dropped"] == {"No": "row number"}
    assert "counted by hand" in facts["notes"]
    assert facts["leaks"] == {"site": "known only afterwards"}
    assert (facts["task"], facts["n_rows"], facts["n_features"]) == ("regression", 30, 2)
    tree, zone = facts["columns"]
    assert (tree["column"], tree["features"]) == ("tree", 1)
    assert (zone["column"], zone["features"]) == ("zone", 0)  # constant
    before = json.loads(run("datasets", "--json", "--data-home", home, "show", "here").stdout)
    assert before == facts
    facts = json.loads(
        run("datasets", "show", "cylinder-bands", "--json", "--data-home", home).stdout
    )
    assert facts["path"] is None
    assert "n_rows" not in facts
    assert "broken over two lines" in facts["quirks"]["broken-record"]
    assert (facts["n_published"], facts["d_published"]) == (541, 111)


def test_a_wrong_name_or_folder_is_one_line(home):
    result = run("datasets", "show", "serv", "--data-home", home)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: no data set named 'serv'. Did you mean 'servo'?")
    result = run("datasets", "--data-home", home / "catalogue.toml")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the data folder must be a folder")
