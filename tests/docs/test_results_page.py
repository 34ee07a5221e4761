"""Numbers on the pages are those of the tables in results/: `scripts/write_claims.py` writes the
blocks, tests here compare docs/how_it_works.md and docs/guides/production.md."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
OF_THE_TWO = ("readme", "worth-readme", "choosing-ranks", "choosing")


@pytest.fixture(scope="module")
def claims():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        spec = importlib.util.spec_from_file_location(
            "write_claims", ROOT / "scripts" / "write_claims.py"
        )
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look up their module
        spec.loader.exec_module(module)
        yield module


@pytest.fixture
def copied(tmp_path, claims, monkeypatch):
    """README, one page and the tables in a folder of their own; only the blocks of the two."""
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/choosing.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "results").mkdir()
    for name in claims.TABLES.values():
        if (ROOT / "results" / name).is_file():
            shutil.copy(ROOT / "results" / name, tmp_path / "results" / name)
    kept = {name: claims.BLOCKS[name] for name in OF_THE_TWO}
    monkeypatch.setattr(claims, "BLOCKS", kept)
    monkeypatch.setattr(claims, "SUMMARIES", {})
    return tmp_path


def check(claims, root):
    claims.main(["--check", "--root", str(root)])


@pytest.mark.parametrize("texts", ["pages", "summaries"])
def test_texts_are_those_of_the_tables(claims, texts):
    """As `make results-check`, in two halves."""
    compare = {"pages": claims.compare_pages, "summaries": claims.compare_summaries}[texts]
    assert [message for _, _, message in compare(ROOT)] == []


def test_a_number_changed_on_a_page_is_found_and_named(claims, copied, capsys):
    check(claims, copied)
    page = copied / "docs" / "choosing.md"
    text = page.read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| Ens-MLR \|.*$", text, flags=re.MULTILINE)
    rank = line.split(" | ")[1]
    page.write_text(text.replace(line, line.replace(rank, "1.40", 1)), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"1 file\(s\) are not what results/ says. `make results`"):
        check(claims, copied)
    message = capsys.readouterr().err
    assert "docs/choosing.md" in message
    assert "block choosing-ranks is not what the tables say" in message
    assert f"+{line}" in message
    assert "-| Ens-MLR | 1.40 |" in message
    claims.main(["--root", str(copied)])
    assert page.read_text(encoding="utf-8") == text


def test_a_score_changed_in_a_table_is_found_on_every_page(claims, copied, capsys):
    path = copied / "results" / claims.TABLES["collection"]
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    own = (table["dataset"] == "lake_trips") & (table["method"] == "muddle")
    table.loc[own, "r2"] = "0.9"
    claims.read_once.cache_clear()
    table.to_csv(path, index=False)
    with pytest.raises(SystemExit, match=r"2 file\(s\) are not what"):
        check(claims, copied)
    message = capsys.readouterr().err
    assert "block readme is not" in message
    assert "lake trips (muddle 0.900" in message


def test_a_block_without_its_table_says_so_and_numbers_need_their_table(claims, copied):
    (copied / "results" / claims.TABLES["paper"]).unlink()
    with pytest.raises(
        SystemExit, match=r"block choosing-ranks: it has numbers, and .*clean.csv.gz"
    ):
        check(claims, copied)
    page = copied / "docs" / "choosing.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(claims.MARKS.sub(r"<!-- results: \1 -->\n\n<!-- end -->", text), "utf-8")
    claims.main(["--root", str(copied)])
    assert "Not run: there is no results/benchmark_clean.csv.gz yet." in page.read_text("utf-8")
    check(claims, copied)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "results: choosing -->",
            "results: chosing -->",
            "no block is called 'chosing'; there are",
        ),
        ("<!-- end -->", "", "block choosing-ranks must end with <!-- end -->"),
        ("<!-- results: choosing -->", "", "no page has the markers of choosing"),
    ],
)
def test_markers_that_are_wrong_are_errors(claims, copied, old, new, message):
    page = copied / "docs" / "choosing.md"
    page.write_text(page.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(SystemExit, match=message):
        check(claims, copied)


def test_a_table_is_lost_by_its_mean_or_by_all_splits(claims):
    records = [
        {"dataset": dataset, "method": method, "split": split, "r2": score}
        for dataset, scores in {
            "near": ([0.5, 0.7], [0.6, 0.61]),  # 0.005 behind, one split won
            "far": ([0.5, 0.7], [0.6, 0.65]),  # 0.025 behind, one split won
            "none": ([0.5, 0.7], [0.501, 0.701]),  # hardly behind, no split won
        }.items()
        for method, own in zip(("muddle", "catboost"), scores, strict=True)
        for split, score in enumerate(own)
    ]
    from muddle_bench.ranking import COLUMNS

    common = {"recipe": "clean", "task": "regression", "status": "ok", "family": "F"}
    numbers = pd.DataFrame(records).assign(**common)
    rival = numbers[numbers["method"] == "catboost"].assign(method="realmlp-5", r2=0.0)
    classes = numbers.assign(task="classification", accuracy=0.5, auc=0.5, r2=None)
    classes = classes.assign(dataset="c" + classes["dataset"])
    more = classes[classes["method"] == "muddle"].assign(method="realmlp-5")
    table = pd.concat([numbers, rival, classes, more]).reindex(columns=COLUMNS)
    lost = claims.find_lost(table.astype({"r2": float}))
    assert lost["dataset"].tolist() == ["far", "none"]
    assert lost["lead"].tolist() == pytest.approx([-0.025, -0.001])
    assert lost["won"].tolist() == [0.5, 0.0]


def test_interval_scores_are_compared_on_common_splits_by_geometric_mean(claims):
    scores = {"a": [(1.0, 2.0), (1.0, 2.0)], "b": [(4.0, 2.0), (9.0, None)]}
    rows = pd.DataFrame(
        [
            {"dataset": dataset, "split": split, "method": method, "interval_score": score}
            for dataset, splits in scores.items()
            for split, both in enumerate(splits)
            for method, score in zip(("ours", "theirs"), both, strict=True)
            if score is not None
        ]
    )
    duel = claims.compare_interval_scores(rows, "ours", "theirs")
    assert duel == {"tables": "2", "won": "50 % [0, 100]", "ratio": "1.00 [0.50, 2.00]"}


def test_numbers_are_rounded_alike_whatever_the_last_bit(claims):
    assert claims.percent(0.1 + 0.2 + 0.325) == claims.percent(0.625) == "62 %"
    assert claims.number(-0.0005 - 1e-16) == claims.number(-0.0005)
    assert claims.signed(-0.25, 2) == "−0.25"
    assert claims.p_value(0.0004) == "< 0.001"
    assert claims.tabulate(["a", ""], [["1", "2"]]) == "| a |  |\n|---|---|\n| 1 | 2 |"


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
