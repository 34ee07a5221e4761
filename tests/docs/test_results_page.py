"""Numbers on docs/results.md and docs/choosing.md are those of the records."""

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = (ROOT / "results" / "flagship.txt").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
CHOOSING = " ".join((ROOT / "docs" / "choosing.md").read_text(encoding="utf-8").split())
TITLES = {
    "**muddle**": "muddle",
    'muddle, `preset="fast"`': "muddle-fast",
    "RealMLP-TD, 5 folds": "realmlp-5",
    "CatBoost": "catboost",
    "Ens-MLR": "ens-mlr-paper",
    "extra trees": "extra-trees",
    "TabM-D": "tabm",
    "random forest": "random-forest",
    "LightGBM": "lightgbm",
    "XGBoost": "xgboost",
    "mean or class shares": "baseline",
}
# Columns of a board in the records, in the page's order.
NUMBER_BOARD = ("rank", "r2", "won")
CLASS_BOARD = ("rank", "auc", "won", "accuracy", "log_loss", "ece")


def read_section(title):
    """Rows of a section of the records: name -> numbers as text."""
    section = RECORDS.split(f"{title}\n")[1].split("\n\n")[0]
    return {row.split()[0]: row.split()[1:] for row in section.splitlines()[2:]}


def read_boards(task):
    """The two boards of a task on the page: evaluation half, then development half."""
    heading = "## Numbers to predict" if task == "regression" else "## Classes to predict"
    section = RESULTS.split(heading)[1].split("\n## ")[0]
    boards = re.findall(r"\|---.*\n((?:\|.*\n)+)", section)
    return [
        [[cell.strip() for cell in row.strip("|").split("|")] for row in board.splitlines()]
        for board in boards
    ]


def check_boards(task, order):
    evaluation, development = read_boards(task)
    for half, board in (("evaluation", evaluation), ("development", development)):
        records = read_section(f"{task}, {half}")
        assert [TITLES[row[0]] for row in board] == list(records)
        for title, *cells in board:
            row = dict(zip(order, records[TITLES[title]], strict=False))
            expected = {
                "won": "" if row["won"] == "NaN" else f"{float(row['won']):.0f} %",
                "rank": f"{float(row['rank']):.1f}",
            }
            shown = NUMBER_BOARD if task == "regression" else CLASS_BOARD
            assert cells == [expected.get(name) or write(name, row) for name in shown]


def write(name, row):
    return "" if name == "won" else f"{float(row[name]):.3f}"


def test_boards_of_numbers_are_those_of_the_records():
    check_boards("regression", ("rank", "r2", "n", "won"))


def test_boards_of_classes_are_those_of_the_records():
    order = ("rank", "auc", "accuracy", "log_loss", "ece", "n", "won")
    check_boards("classification", order)


def test_every_data_set_is_on_the_page_with_its_scores():
    rows = {
        row.split(" | ")[0].strip("| "): [cell.strip(" *|") for cell in row.split(" | ")[1:]]
        for row in RESULTS.split("## Every data set")[1].split("## Intervals")[0].splitlines()
        if re.match(r"\| [a-z0-9-]+ \| [*\d]", row)
    }
    assert len(rows) == 32
    for task in ("regression", "classification"):
        for name, numbers in read_section(f"{task}, by data set").items():
            expected = ["failed" if one == "NaN" else f"{float(one):.4f}" for one in numbers[:3]]
            assert rows[name] == expected, name


def test_numbers_that_help_to_choose_are_those_of_the_records():
    overall = {task: read_section(f"{task}, all") for task in ("regression", "classification")}
    won = {
        name: round(float(row[3])) for name, row in overall["regression"].items() if row[3] != "NaN"
    }
    assert f"wins {won['catboost']} % of the splits against CatBoost" in CHOOSING
    assert f"{won['realmlp-5']} % against RealMLP-TD with five folds" in CHOOSING
    _, _, _, loss, error = zip(
        *(
            map(float, overall["classification"][name][:5])
            for name in ("muddle", "catboost", "realmlp-5")
        ),
        strict=True,
    )
    assert "log-loss ({:.3f}; CatBoost {:.3f}, RealMLP-TD {:.3f})".format(*loss) in CHOOSING
    assert "calibration error ({:.3f}, {:.3f}, {:.3f})".format(*error) in CHOOSING
    half = read_section("classification, evaluation")
    wins = [round(float(half[name][6])) for name in ("catboost", "realmlp-5")]
    assert "wins {} % of the splits against CatBoost and {} %".format(*wins) in CHOOSING
    ranks = [float(half[name][0]) for name in ("catboost", "muddle")]
    assert "better mean rank ({:.1f} against {:.1f})".format(*ranks) in CHOOSING
    sets = {
        **read_section("regression, by data set"),
        **read_section("classification, by data set"),
    }
    for name, words, digits in (
        ("squark-automotive-clv", "squark (R² {1} against {0})", 3),
        ("qsar-bioconcentration-classes", "bioconcentration ({1} against {0})", 3),
        ("tic-tac-toe-endgame", "tic-tac-toe (AUC {1} against {0})", 4),
        ("blr-real-estate-prices", "(R² {2} against {0}; CatBoost {1})", 3),
        ("concrete-slump-test-3", "R² {0}, CatBoost {1}, RealMLP-TD {2}", 2),
        ("adult", "CatBoost has an AUC of {1}, RealMLP-TD {2}, muddle {0}", 4),
        ("magic-gamma-telescope", "RealMLP-TD {2}, muddle {0}, CatBoost {1}", 3),
    ):
        numbers = [f"{float(one):.{digits}f}" for one in sets[name][:3]]
        assert words.format(*numbers) in CHOOSING, name


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
