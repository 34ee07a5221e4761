"""CSV and LaTeX files beside the page, and reports that are written whole or not at all."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from muddle import MLRRegressor
from muddle.cli.app import make_app
from muddle_bench.ranking import compare_published, rank_methods
from muddle_bench.report import write_report


def read_rows(path):
    """The cells of a LaTeX table, the head first."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.removesuffix(r" \\") for line in lines if line.endswith(r"\\")]
    return [re.split(r"(?<!\\) & ", row) for row in rows]


def test_every_table_has_an_unrounded_csv_file_a_latex_file_and_an_index_line(report, page, table):
    folder = report.with_name("report_tables")
    index = pd.read_csv(folder / "index.csv")
    expected = {f"{name}.{kind}" for name in page.tables for kind in ("csv", "tex")}
    assert set(index["file"]) == expected
    assert {path.name for path in folder.iterdir()} == expected | {"index.csv"}
    rows = index.set_index("file")["rows"]
    assert rows["leaderboard_r2.csv"] == len(page.column("leaderboard_r2", "Method"))
    folder = report.with_name("report_tables")
    ranked = rank_methods(table, "accuracy")
    read = pd.read_csv(folder / "leaderboard_accuracy.csv", keep_default_na=True)
    assert list(read) == list(ranked)
    np.testing.assert_array_equal(read["mean"], ranked["mean"])
    np.testing.assert_array_equal(read["rank_low"], ranked["rank_low"])
    compared = compare_published(table).query("metric == 'auc'")
    read = pd.read_csv(folder / "published_all_auc.csv")
    np.testing.assert_array_equal(read["difference"], compared["difference"])
    folder = report.with_name("report_tables")
    for name, rows in page.tables.items():
        latex = read_rows(folder / f"{name}.tex")
        body = rows[2:] if name.startswith("classes_published") else rows[1:]
        assert len(latex) == len(body) + 1, name
        assert {len(row) for row in latex} == {len(body[0])}, name
    board = read_rows(folder / "leaderboard_r2.tex")
    assert [row[0] for row in board[1:]] == page.column("leaderboard_r2", "Method")
    shown = [text.replace("−", "$-$") for text in page.column("leaderboard_r2", "Mean R²")]
    assert [row[3] for row in board[1:]] == shown


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex, which is not here")
def test_latex_files_compile(report, tmp_path):
    folder = report.with_name("report_tables")
    inputs = "\n".join(rf"\input{{{path}}}\clearpage" for path in sorted(folder.glob("*.tex")))
    source = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}"
    (tmp_path / "all.tex").write_text(source + r"\end{document}", encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}  # fmt: skip


@pytest.mark.usefixtures("no_figures")
def test_a_report_that_fails_leaves_the_old_one(small, tmp_path, monkeypatch):
    write_report(small, tmp_path / "r.html")
    before = snapshot(tmp_path)
    write = Path.write_text

    def fill_the_disk(path, *args, **kwargs):
        if path.name == "machines.csv":
            raise OSError(28, "No space left on device")
        return write(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        write_report(small.assign(machine="another"), tmp_path / "r.html")
    assert snapshot(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"r.html", "r_tables"}


@pytest.mark.usefixtures("no_figures")
def test_files_of_an_older_report_go_and_files_of_others_stay(make_table, small, tmp_path):
    methods = ("catboost", "baseline", "mlp")  # with a cell that timed out
    write_report(make_table(tasks=["regression"], methods=methods, n_splits=2), tmp_path / "r.html")
    folder = tmp_path / "r_tables"
    (folder / "mine.csv").write_text("kept")
    assert (folder / "reasons_regression.csv").is_file()
    write_report(small, tmp_path / "r.html")
    assert not (folder / "reasons_regression.csv").exists()
    assert (folder / "leaderboard_r2.csv").is_file()
    assert (folder / "mine.csv").read_text() == "kept"


def test_the_same_records_give_the_same_page_from_a_frame_or_a_file(small, tmp_path):
    first = write_report(small, tmp_path / "a" / "r.html").read_bytes()
    small.sample(frac=1, random_state=0).to_csv(tmp_path / "table.csv.gz", index=False)
    again = write_report(tmp_path / "table.csv.gz", tmp_path / "b" / "r.html")
    assert again.read_bytes() == first


@pytest.mark.usefixtures("no_figures")
def test_an_index_that_points_elsewhere_deletes_nothing(small, tmp_path):
    precious = tmp_path / "precious.csv"
    precious.write_text("kept")
    (tmp_path / "r_tables").mkdir()
    (tmp_path / "r_tables" / "index.csv").write_text("file,title,rows\n../precious.csv,x,1\n")
    write_report(small, tmp_path / "r.html")
    assert precious.read_text() == "kept"


def test_report_of_a_model_file_is_a_page_on_the_model(numbers, tmp_path):
    model = MLRRegressor(width=16, max_iter=5, random_state=0).fit(*numbers)
    path = model.save(tmp_path / "m.muddle")
    page = tmp_path / "page.html"
    result = CliRunner().invoke(make_app(), ["report", str(path), "-o", str(page)])
    assert result.stdout.startswith(f"Wrote {page}: the model alone.")
    assert "MLRRegressor" in page.read_text(encoding="utf-8")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.muddle", "page.html"]


def test_a_full_disk_names_a_file_of_the_report(small, tmp_path, file_limit):
    with pytest.raises(OSError, match=r"too large: '.*r(\.html|_tables/.*)'"), file_limit(1000):
        write_report(small, tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []
