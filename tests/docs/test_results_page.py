"""Numbers on docs/results.md, docs/choosing.md, docs/benchmark.md, docs/guides/production.md and
README.md are those of the records."""

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = (ROOT / "results" / "flagship_collection.txt").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
CHOOSING = " ".join((ROOT / "docs" / "choosing.md").read_text(encoding="utf-8").split())
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
TITLES = {"**muddle**": "muddle", "RealMLP-TD, 5 folds": "realmlp-5", "CatBoost": "catboost"}
OF_THE_PAPER = (ROOT / "results" / "flagship.txt").read_text(encoding="utf-8")
PEERS = {
    **TITLES,
    "Ens-MLR": "ens-mlr-paper",
    "TabM-D": "tabm",
    "extra trees": "extra-trees",
    "random forest": "random-forest",
    "LightGBM": "lightgbm",
    "XGBoost": "xgboost",
}
KINDS = ("numbers", "two classes", "more classes")


def read_section(title, records=RECORDS):
    """Rows of a section of the records: name -> its cells, intervals in one piece."""
    section = records.split(f"\n{title}\n")[1].split("\n\n")[0]
    rows = [re.split(r"  +", line.strip()) for line in section.splitlines()]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=False)) for row in rows[1:]}


def read_won(kind, part, metric, method):
    """Such as "64 % [56, 73]"."""
    cell = read_section(f"{kind}, {part}, by {metric}")[method]["won, %"]
    won, low, high = (round(float(one)) for one in re.findall(r"[\d.]+", cell))
    return f"{won} % [{low}, {high}]"


@pytest.mark.parametrize("part", ["Evaluation", "Development"])
def test_boards_are_those_of_the_records(part):
    section = RESULTS.split(f"### {part} part")[1].split("\n#")[0]
    boards = re.findall(r"\|---.*\n((?:\|.*\n)+)", section)
    assert len(boards) == 3
    for kind, board in zip(KINDS, boards, strict=True):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in board.splitlines()]
        metrics = ["r2"] if kind == "numbers" else ["auc", "log_loss", "ece", "accuracy"]
        records = [read_section(f"{kind}, {part.lower()}, by {metric}") for metric in metrics]
        assert [TITLES[row[0]] for row in rows] == list(records[0])
        for title, rank, mean, median, won, *more in rows:
            method = TITLES[title]
            first = records[0][method]
            assert [float(rank), float(mean), float(median)] == [
                pytest.approx(float(first[name]), abs=0.0051 if name == "rank" else 0.00051)
                for name in ("rank", "mean", "median")
            ]
            shown = {metrics[0]: won} | ({"log_loss": more[1]} if more else {})
            for metric, cell in shown.items():
                wanted = [] if method == "muddle" else read_won(kind, part.lower(), metric, method)
                numbers = [[float(n) for n in re.findall(r"\d+", t)] for t in (cell, str(wanted))]
                assert numbers[0] == pytest.approx(numbers[1], abs=1.0)  # rounded twice
            for cell, record in zip((more[0], *more[2:]) if more else (), records[1:], strict=True):
                assert float(cell) == pytest.approx(float(record[method]["mean"]), abs=0.00051)


def test_the_board_of_the_paper_s_data_sets_is_that_of_the_records():
    board = RESULTS.split("| | R²: rank |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in board.splitlines()[2:]]
    assert [PEERS[row[0]] for row in rows] == [
        name for name in read_section("numbers, all, by r2", OF_THE_PAPER) if name != "baseline"
    ]
    metrics = ["r2", "auc", "accuracy", "log_loss", "ece"]
    records = {
        metric: read_section(
            f"{'numbers' if metric == 'r2' else 'two classes'}, all, by {metric}", OF_THE_PAPER
        )
        for metric in metrics
    }
    for metric in metrics:
        assert next(iter(records[metric])) == "muddle"  # has the best mean rank
    for title, *cells in rows:
        method = PEERS[title]
        own = {metric: records[metric][method] for metric in metrics}
        for start, metric in ((0, "r2"), (3, "auc")):
            rank, mean, won = cells[start : start + 3]
            assert float(rank) == pytest.approx(float(own[metric]["rank"]), abs=0.051)
            assert float(mean) == pytest.approx(float(own[metric]["mean"]), abs=0.00051)
            recorded = own[metric]["won, %"].split(" ")[0] if method != "muddle" else ""
            assert won.removesuffix(" %") == (recorded and f"{float(recorded):.0f}")
        for cell, metric in zip(cells[6:], ("accuracy", "log_loss", "ece"), strict=True):
            assert float(cell) == pytest.approx(float(own[metric]["mean"]), abs=0.00051)


def test_every_data_set_of_the_paper_is_on_the_page_with_its_scores():
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (dev|eval)\. \| (.+) \|$", RESULTS, re.MULTILINE)
    assert len(rows) == 32
    known = read_section("regression, by data set: r2")
    known |= read_section("classification, by data set: auc")
    for name, part, cells in rows:
        record = known[name]
        assert record["part"].startswith(part)
        shown = [cell.strip(" *") for cell in cells.split("|")]
        methods = ("muddle", "catboost", "realmlp-5")
        assert (
            shown == [record.get(method, "failed") for method in methods]
            or name == "internet-firewall-data"
        )


def test_numbers_that_help_to_choose_are_those_of_the_records():
    for kind, metric in (("numbers", "r2"), ("classes", "auc"), ("classes", "log_loss")):
        for method in ("catboost", "realmlp-5"):
            assert read_won(kind, "evaluation", metric, method) in CHOOSING
            for page in (ROOT / "docs" / "benchmark.md", ROOT / "CHANGELOG.md"):
                assert read_won(kind, "evaluation", metric, method) in page.read_text("utf-8")


def test_the_readme_has_the_numbers_of_tables_that_took_no_part_in_any_choice():
    from muddle_bench.data.catalogue import part_of
    from muddle_bench.ranking import compare_with, read_table

    table = read_table(ROOT / "results" / "benchmark_collection.csv.gz")
    table = table[table["dataset"].map(part_of) == "evaluation"]
    for metric in ("r2", "auc", "log_loss"):
        board = compare_with(table, "muddle", metric).set_index("method")
        assert board["rank"].idxmin() == "muddle"
        for method in ("catboost", "realmlp-5"):
            won, low, high = (100 * board.loc[method, n] for n in ("won", "won_low", "won_high"))
            assert f"{won:.0f} % [{low:.0f}, {high:.0f}]" in README


def test_the_readme_has_no_other_tables_of_scores_and_says_where_it_is_behind():
    assert len(re.findall(r"\d+ % \[\d+, \d+\]", README)) == 6
    assert not any(f"| {title} |" in README for title in PEERS)  # that of the paper's data sets
    from muddle_bench.data.catalogue import part_of
    from muddle_bench.ranking import compare_with, read_table

    table = read_table(ROOT / "results" / "benchmark_collection.csv.gz")
    table = table[table["dataset"].map(part_of) == "evaluation"]
    board = compare_with(table, "muddle", "r2").set_index("method")
    rival, own = board.loc["realmlp-5"], board.loc["muddle"]
    assert f"mean R² ({rival['mean']:.3f} against {own['mean']:.3f})" in README
    assert f"higher too ({rival['median']:.3f} against {own['median']:.3f})" in README


@pytest.mark.parametrize(
    ("part", "variant", "reference"),
    [
        ("last iterations only, no earlier copies", "last iterations only", "pool"),
        ("the best member alone, no weights", "best member", "pool"),
        ("equal weights", "equal weights", "pool"),
        ("no permutations", "no permutations", "1 round"),
        ("half the steps", "half the steps", "1 round"),
    ],
)
def test_what_each_part_is_worth_is_what_the_ablation_says(part, variant, reference):
    table = pd.read_csv(ROOT / "results" / "ablation_flagship.csv")
    wide = table.pivot(index=["task", "dataset", "split"], columns="variant", values="score")
    gaps = (wide[variant] - wide[reference]).dropna()
    cells = []
    for task in ("regression", "classification"):
        gap = gaps[task]
        by_dataset = gap.groupby(level="dataset").mean()
        cells += [f"{by_dataset.mean():+.4f}".replace("-", "−")]
        cells += [f"{100 * ((gap > 0).mean() + (gap == 0).mean() / 2):.0f} %"]
    page = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    assert f"| {part} | {' | '.join(cells)} |\n" in page


def test_attacks_are_those_of_the_last_run():
    page = (ROOT / "docs" / "guides" / "production.md").read_text(encoding="utf-8")
    section = page.split("## What was tried against it")[1].split("\n## ")[0]
    rows = [row.strip("|").split("|") for row in section.splitlines() if row.startswith("| `")]
    said = [[cell.strip(" `") for cell in (row[0], *row[2:])] for row in rows]
    counts = ["attack", "count", "answered", "refused", "fault"]
    found = pd.read_csv(ROOT / "results" / "attacks.csv", dtype=str)[counts]
    assert said == found.to_numpy().tolist()
