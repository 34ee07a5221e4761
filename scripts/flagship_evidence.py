"""The flagship beside other methods, for numbers, two and more classes, and both parts of the data.

    python scripts/flagship_evidence.py results/benchmark_clean.csv.gz > results/flagship.txt
    python scripts/flagship_evidence.py results/benchmark_c*.csv.gz --method muddle-compact \
        --others muddle catboost realmlp-5 > results/compact_collection.txt

Settings are chosen on data sets of the development part alone (docs/datasets.md). Several tables
are read as one; methods are compared that all of the tables have, and of the flagship's presets
the one of `--method` and those of `--others`. `won` is the share of splits on which the former
beats another method, in percent: a tie is half a win, splits are averaged per data set, then data
sets, and the interval is a 90 % bootstrap interval over data sets. Ranks, means and medians are
over data sets, of means over the splits that all methods have; a line under a board says how many,
if some have more. `signal`: without data sets on which no method reaches a mean R² of 0.05 or AUC
of 0.6. Cells that did not finish count as not run, and are listed.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pandas as pd

from muddle_bench.data.catalogue import part_of
from muddle_bench.methods.registry import METHODS
from muddle_bench.ranking import (
    compare_with,
    find_signal,
    name_kinds,
    pivot_scores,
    read_table,
    wins_by_dataset,
)

PARTS = ("development", "evaluation", "all")
PRESETS = {name for name in METHODS if name.partition("-")[0] == "muddle"}
METRICS = {"regression": ["r2"], "classification": ["auc", "log_loss", "ece", "accuracy"]}
LARGE = 1000  # rows from which the calibration error says more than chance


@dataclass(frozen=True)
class Group:
    """Records of one kind of target and one part, and how they are compared."""

    kind: str
    part: str
    metric: str
    choice: str  # "": all data sets; "signal", or "above 1,000 rows"
    ours: str  # the method that is compared with the others
    records: pd.DataFrame

    @property
    def title(self) -> str:
        return f"{self.kind}, {self.part}, by {self.metric}{self.choice and f', {self.choice}'}"

    @cached_property
    def board(self) -> pd.DataFrame:
        return compare_with(self.records, self.ours, self.metric).set_index("method")


@cache
def read_once(path: Path) -> pd.DataFrame:
    return read_table(path)


def read_tables(paths: list[Path], ours: str, others: list[str]) -> pd.DataFrame:
    """The records of all tables, of the methods that each of them has, without presets of the
    flagship that nobody asked for."""
    tables = [read_once(path) for path in paths]
    names = [set(table.loc[table["status"] == "ok", "method"]) for table in tables]
    for path, known in zip(paths, names, strict=True):
        if ours not in known:
            raise SystemExit(f"{path} has no scores of {ours}.")
    table = read_table(pd.concat(tables, ignore_index=True)) if len(tables) > 1 else tables[0]
    compared = set.intersection(*names)
    compared -= {name for name in PRESETS if name not in (ours, *others)}
    return table[table["method"].isin(compared)].reset_index(drop=True)


def list_groups(table: pd.DataFrame, ours: str) -> Iterator[Group]:
    """All comparisons, in the order of the printed text."""
    kinds, parts = name_kinds(table), table["dataset"].map(part_of)
    signal = table["dataset"].isin(find_signal(table))
    large = table["n_train"] + table["n_test"] > LARGE
    chosen = {kind: kinds == kind for kind in ("numbers", "two classes", "more classes")}
    if chosen["two classes"].any() and chosen["more classes"].any():
        chosen["classes"] = kinds != "numbers"
    for kind, of_kind in chosen.items():
        for part in PARTS:
            flags = of_kind & ((parts == part) | (part == "all"))
            metrics = METRICS["regression" if kind == "numbers" else "classification"]
            for metric in metrics:
                choices = {"": flags}
                if metric == metrics[0] and not signal[flags].all():
                    choices["signal"] = flags & signal
                if metric == "ece" and not large[flags].all():
                    choices[f"above {LARGE:,} rows"] = flags & large
                for choice, these in choices.items():
                    records = table[these]
                    if metric == "ece":  # frequencies of classes are calibrated, and say nothing
                        records = records[records["method"] != "baseline"]
                    own = records[(records["method"] == ours) & (records["status"] == "ok")]
                    if own[metric].notna().any():
                        yield Group(kind, part, metric, choice, ours, records)


def format_won(row: pd.Series) -> str:
    """Such as "63.2 [54.0, 71.9]", in percent; empty for the method itself."""
    if pd.isna(row["won"]):
        return ""
    won, low, high = (100 * row[name] for name in ("won", "won_low", "won_high"))
    return f"{won:.1f} [{low:.1f}, {high:.1f}]"


def format_board(board: pd.DataFrame) -> str:
    """Columns to the right, methods to the left."""
    shown = pd.DataFrame(index=board.index)
    shown["rank"] = board["rank"].map("{:.2f}".format)
    shown["mean"] = board["mean"].map("{:.4f}".format)
    shown["median"] = board["median"].map("{:.4f}".format)
    shown["won, %"] = board.apply(format_won, axis=1)
    shown["data sets"], shown["splits"] = board["datasets"], board["splits"]
    shown["fit, s"] = board["fit_seconds"].map("{:.2f}".format)
    common, splits = board["common"].iloc[0], board["common_splits"].iloc[0]
    if splits == board["splits"].max():
        return write_aligned(shown)
    note = f"Rank, mean and median: {common} data sets, {splits} splits that all methods have."
    return f"{write_aligned(shown)}\n{note}"


def write_aligned(frame: pd.DataFrame) -> str:
    """Lines of text; the names of rows stand on the left under their heading."""
    frame = frame.reset_index()
    widths = [max(len(str(text)) for text in [name, *frame[name]]) for name in frame]
    rows = [list(frame), *frame.astype(str).to_numpy().tolist()]
    lines = []
    for row in rows:
        first, *others = [str(text) for text in row]
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def summarise(groups: list[Group], others: list[str]) -> pd.DataFrame:
    """One row per comparison: the method's place, and what it wins against each of the others."""
    rows = []
    for group in groups:
        board = group.board
        place = 1 + int((board["rank"] < board.loc[group.ours, "rank"]).sum())
        row = {
            "comparison": group.title,
            "data sets": board.loc[group.ours, "datasets"],
            "place by mean rank": f"{place} of {len(board)}",
        }
        for other in others:
            known = other in board.index
            row[f"won against {other}, %"] = format_won(board.loc[other]) if known else ""
        rows.append(row)
    return pd.DataFrame(rows).set_index("comparison")


def average_common(
    table: pd.DataFrame, metric: str, methods: list[str]
) -> tuple[pd.DataFrame, "pd.Series[int]"]:
    """Means of the methods on each data set, over the splits of all of them that have any there,
    and the number of these splits."""
    scores = pivot_scores(table, metric)[0][methods]
    known = scores.notna()
    takes_part = known.groupby(level="dataset").transform("any")
    common = scores[(known | ~takes_part).all(axis=1) & known.any(axis=1)]
    groups = common.groupby(level="dataset")
    return groups.mean(), groups.size()


def compare_by_dataset(
    table: pd.DataFrame, task: str, ours: str, others: list[str]
) -> pd.DataFrame:
    """Means of the main metric on common splits, and shares of splits that the method wins."""
    metric = METRICS[task][0]
    done = table[(table["task"] == task) & (table["status"] == "ok")]
    means, counts = average_common(done, metric, [ours, *others])
    shown = pd.DataFrame(index=means.index.rename("data set"))
    shown["part"] = shown.index.map(part_of)
    shown["splits"] = counts
    for method in [ours, *others]:
        shown[method] = means[method].map("{:.4f}".format)
    wins = wins_by_dataset(done, ours, metric)
    for other in others:
        shown[f"won against {other}, %"] = (100 * wins[other]).map("{:.0f}".format)
    return shown.replace("nan", "")


def summarise_tables(paths: list[Path], ours: str, others: list[str]) -> str:
    """The whole text."""
    table = read_tables(paths, ours, others)
    others = [name for name in others if name in set(table["method"])]
    failed = table[table["status"] != "ok"].groupby(["method", "dataset", "status"]).size()
    texts = [
        f"{method} on {dataset}: {count} {status}, left out"
        for (method, dataset, status), count in failed.items()
    ]
    groups = list(list_groups(table, ours))
    texts.append(f"\n{write_aligned(summarise(groups, others))}")
    texts += [f"\n{group.title}\n{format_board(group.board)}" for group in groups]
    for task in METRICS:
        if (table["task"] == task).any():
            by_dataset = write_aligned(compare_by_dataset(table, task, ours, others))
            texts.append(f"\n{task}, by data set: {METRICS[task][0]}\n{by_dataset}")
    return "\n".join(texts) + "\n"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tables", type=Path, nargs="+", help="written by `muddle benchmark export`")
    parser.add_argument("--method", default="muddle", help="the method that is compared")
    parser.add_argument("--others", nargs="+", default=["catboost", "catboost-5", "realmlp-5"])
    arguments = parser.parse_args(given)
    print(summarise_tables(arguments.tables, arguments.method, arguments.others), end="")


if __name__ == "__main__":
    main()
