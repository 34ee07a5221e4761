"""The section on studies: its tables, figures and words, and what it says of what is missing."""

import re

import pandas as pd
import pytest
from typer.testing import CliRunner

from muddle.cli.app import make_app
from muddle.errors import DataFormatError
from muddle_bench.report import write_report
from muddle_bench.studies.points import STUDIES
from muddle_bench.studies.study_tables import NUMBERS, TEXTS


def make_study(name):
    """Two data sets of three values, the second the default; one warning, one name to escape."""
    rows = [
        {
            "study": name, "dataset": dataset, "task": "regression", "value": value,
            "is_default": "yes" if value == "2" else "no", "n_splits": 10, "n_nets": 100,
            "score": score, "score_se": 0.01, "bag": score + 0.1, "bag_se": 0.01, "seconds": 3.0,
            "best_iteration": 61.25, "score_published": score - 0.002, "difference": 0.002,
            "warning": "diverged: 3 of 100 nets" if score < 0 else "", "hardware": "a <CPU>",
            "commit": "abc1234",
        }
        for dataset, scores in (("a", (0.3, 0.5, -2.0)), ("b & <c>", (0.7, 0.6, 0.5)))
        for value, score in zip(("1", "2", "3"), scores, strict=True)
    ]  # fmt: skip
    return pd.DataFrame(rows).reindex(columns=[*TEXTS, *NUMBERS])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All but one study, and a training record."""
    folder = tmp_path_factory.mktemp("studies")
    for name in STUDIES:
        if name != "width":
            make_study(name).to_csv(folder / f"{name}.csv", index=False)
    record = {"dataset": "a", "iteration": [0, 1], "validation_score": [0.1, 0.2], "penalty": 9.0}
    pd.DataFrame(record).to_csv(folder / "training_record.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def studied(make_table, folder, tmp_path_factory, read_page):
    out = tmp_path_factory.mktemp("studied") / "report.html"
    small = make_table(tasks=["regression"], methods=("catboost", "baseline"), n_datasets=2)
    write_report(small, out, studies=folder)
    return out, read_page(out)


def test_every_study_has_a_table_a_figure_and_a_text_with_warnings(studied):
    _, page = studied
    assert ("h2", "Studies") in page.headings
    labels = [attributes["aria-label"] for tag, attributes in page.attributes
              if tag == "svg" and attributes.get("role") == "img"]  # fmt: skip
    for name, study in STUDIES.items():
        assert (f"study_{name}" in page.tables) == (name != "width")
        assert (study.about in page.text) == (name != "width")
        assert any(label.startswith(f"{study.title}. {study.about}") for label in labels) == (
            name != "width"
        )
    assert "The best validation score is 0.200 at iteration 1 of 1" in page.text
    assert "so there is no reason to change the default." in page.text
    assert "a at 3: diverged: 3 of 100 nets" in page.text
    assert "Below −0.5, drawn at the edge: a at 3: here −2.000" in page.text
    assert "on a <CPU>, commit abc1234" in page.text


@pytest.mark.usefixtures("no_figures")
def test_a_study_without_rows_has_the_command_that_makes_them(studied, small, tmp_path, read_page):
    _, page = studied
    assert "Width: `muddle study dependence width`" in page.text
    assert "muddle study ablation" not in page.text
    (tmp_path / "empty").mkdir()
    empty = read_page(write_report(small, tmp_path / "r.html", studies=tmp_path / "empty"))
    for study in STUDIES.values():
        assert f"{study.title}: `{study.command}`" in empty.text
    assert "Training record: `muddle study record`" in empty.text


def test_tables_mark_the_best_score_and_figures_live_on_one_page(studied):
    out, page = studied
    rows = page.tables["study_depth"]
    assert rows[1][:2] == ["Data set", "Value"]
    assert rows[2][:5] == ["a", "1", "0.300 ± 0.010", "0.298", "+0.002"]
    assert rows[3][1] == "2 (default)"
    best = [row[:2] for row, cells in zip(rows, page.cells["study_depth"], strict=True)
            if any("best" in cell.get("class", "") for cell in cells)]  # fmt: skip
    assert best == [["a", "2 (default)"], ["b & <c>", "1"]]
    written = pd.read_csv(out.with_name("report_tables") / "study_depth.csv")
    assert written["score"].tolist() == make_study("depth")["score"].tolist()
    # Columns without one value are left out; the file has them.
    assert "published" not in rows[1][rows[1].index("published") + 1 :]
    assert "ridge_init" in written
    out, page = studied
    assert len(page.ids) == len(set(page.ids))
    text = out.read_text(encoding="utf-8")
    used = set(re.findall(r'(?:href="#|url\(#)([\w-]+)', text))
    assert used <= set(page.ids)
    assert text.count("<style") == 1  # rules of a figure would be the page's
    section = text[text.index('<section id="studies">') : text.index('<section id="how">')]
    assert "#000000" not in section  # ink is the page's, dark or light
    assert "currentColor" in section
    assert ">hidden layers: 2 (default)<" in section  # text stays text


def test_a_damaged_or_missing_folder_stops_before_anything_is_written(small, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_report(small, tmp_path / "r.html", studies=tmp_path / "nowhere")
    make_study("depth").drop(columns="score").to_csv(tmp_path / "depth.csv", index=False)
    with pytest.raises(DataFormatError, match=r"depth\.csv must have the columns"):
        write_report(small, tmp_path / "r.html", studies=tmp_path)
    assert not (tmp_path / "r.html").exists()


def run_report(*arguments):
    given = [str(argument) for argument in ("report", *arguments)]
    return CliRunner().invoke(make_app(), given, prog_name="muddle")


@pytest.mark.usefixtures("no_figures")
def test_the_command_takes_the_folder(small, folder, tmp_path, read_page):
    small.to_csv(tmp_path / "table.csv", index=False)
    out = tmp_path / "r.html"
    result = run_report(tmp_path / "table.csv", "--studies", folder, "--output", out)
    assert result.exit_code == 0, result.output
    assert "study_depth" in read_page(out).tables
    result = run_report(tmp_path / "table.csv", "--studies", tmp_path / "no", "--output", out)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: there is no folder")
