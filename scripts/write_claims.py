"""Writes what README and docs say about accuracy, from the tables in results/.

    python scripts/write_claims.py           # `make results`: writes blocks and summaries
    python scripts/write_claims.py --check   # `make results-check`: fails where they differ

A block is the text of a page between `<!-- results: NAME -->` and `<!-- end -->`, on lines of its
own or within a line. BLOCKS has the function that writes it, SUMMARIES the text files that are
written too, TABLES the files that all of it is made from. To add a block, write a function of
`Results`, put it into BLOCKS and its markers into a page. If its table does not exist yet, the
block says so; a block that has numbers needs its table.
"""

import argparse
import difflib
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ablate_muddling as muddling
import numpy as np
import pandas as pd
import published_coverage
from flagship_evidence import average_common, read_once, summarise_tables

from muddle_bench.data.catalogue import part_of
from muddle_bench.ranking import (
    METRICS,
    bradley_terry,
    compare_ranks,
    compare_with,
    find_signal,
    lead_by_dataset,
    leave_out_presets,
    name_kinds,
    paired_tests,
    rank_methods,
    win_rates_against,
    wins_by_dataset,
)

ROOT = Path(__file__).resolve().parents[1]
TABLES = {
    "paper": "benchmark_clean.csv.gz",  # the paper's 32 data sets, recipe clean
    "collection": "benchmark_collection.csv.gz",  # 117 tables from other sources
    "related": "benchmark_related.csv.gz",  # the systems of the paper's Table 1, recipe published
    "peers": "benchmark_peers.csv.gz",  # bagged boosting and others, recipe clean
    "muddling": "ablation_muddling.csv.gz",  # permutations, ridge head, noise, penalty
    "bodies": "ablation_bodies.csv.gz",  # the pool weighed again without each body
    "matrices": "benchmark_published.csv.gz",  # 49 methods, recipe published
    "intervals": "intervals.csv",
    "sets": "sets.csv",
    "groups": "groups.csv",
    "published": published_coverage.COVERAGE,  # ours beside the numbers of the paper's tables
}
STUDIES = ("structured_noise", "permutations", "ridge_init", "label_noise", "width", "batch_size")
# Points of the ablation with a part and without it.
STEPS_PAIRED = {
    "permutations": ("mlr-2", "n-permutations-0"),
    "structured dithering, beside permutations": ("mlr-2", "structured-noise-0"),
    "structured dithering, without them": (
        "n-permutations-0",
        "n-permutations-0-structured-noise-0",
    ),
}
BOTH = ("paper", "collection")
OURS, COMPACT, REALMLP, CATBOOST = "muddle", "muddle-compact", "realmlp-5", "catboost"
RIVALS = [REALMLP, CATBOOST]
PEERS = [CATBOOST, REALMLP]  # the order of the summaries
SUMMARIES: dict[str, tuple[tuple[str, ...], str, list[str]]] = {
    "flagship.txt": (("paper",), OURS, ["catboost", "catboost-5", "realmlp-5"]),
    "flagship_collection.txt": (BOTH, OURS, ["catboost", "catboost-5", "realmlp-5"]),
    "flagship_other_sources.txt": (("collection",), OURS, ["catboost", "catboost-5", "realmlp-5"]),
    "compact_collection.txt": (BOTH, COMPACT, [OURS, CATBOOST, REALMLP]),
}
TITLES = {
    OURS: "muddle",
    REALMLP: "RealMLP-TD, 5 folds",
    CATBOOST: "CatBoost",
    "ens-mlr-paper": "Ens-MLR",
    "tabm": "TabM-D",
    "extra-trees": "extra trees",
    "random-forest": "random forest",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "baseline": "a constant",
    "catboost-5": "CatBoost, 5 folds",
    "lightgbm-5": "LightGBM, 5 folds",
    "xgboost-5": "XGBoost, 5 folds",
    "modernnca": "ModernNCA",
    "ens-mlr-released": "Ens-MLR, released",
    "tabnet": "TabNet",
    "node": "NODE",
    "net-dnf": "Net-DNF",
    "tabnn": "TabNN",
    "snn": "SNN",
    "rln": "RLN",
    "dndt": "DNDT",
    "ntk-svm": "NTK, support vectors",
    "ntk-ridge": "NTK, ridge",
}
# The systems of the paper's table of related work, and those that they stand beside.
RELATED = ["tabnet", "node", "net-dnf", "tabnn", "snn", "rln", "dndt", "ntk-svm", "ntk-ridge"]
BESIDE = ["ens-mlr-released", REALMLP, CATBOOST, "lightgbm-5", "random-forest"]
KINDS = {
    "numbers": "Numbers to predict",
    "two classes": "Two classes",
    "more classes": "More classes",
}
LABELS = {name: metric.label for name, metric in METRICS.items()}
SCORES = {"regression": ["r2"], "classification": ["auc", "log_loss", "ece", "accuracy"]}
FEWEST = 5  # tables that a share of splits won is said of
LOST_BY = 0.02  # a table is lost if the mean is so far behind, or if no split is won
NOT_RUN = "Not run: there is no results/{} yet."
MARKS = re.compile(r"<!-- results: ([\w-]+) -->(.*?)<!-- end -->", re.DOTALL)
START = re.compile(r"<!-- results: ([\w-]+)")

Cells = list[str]


class MissingTableError(FileNotFoundError):
    """A table that a block is made from is not there."""


@dataclass(frozen=True)
class Results:
    """The tables of a folder."""

    folder: Path

    def read(self, *names: str) -> pd.DataFrame:
        """A table; of several tables of records, those of the methods that all of them have."""
        paths = [self.folder / TABLES[name] for name in names]
        for path in paths:
            if not path.is_file():
                raise MissingTableError(path.name)
        tables = [read_once(path) for path in paths]
        if len(tables) == 1:
            return tables[0]
        methods = set.intersection(*(set(table["method"]) for table in tables))
        table = pd.concat(tables, ignore_index=True)
        return table[table["method"].isin(methods)].reset_index(drop=True)

    def read_rows(self, name: str, as_text: bool = False) -> pd.DataFrame:
        """A table that is not of records; as_text: its cells as they are written."""
        path = self.folder / TABLES[name]
        if not path.is_file():
            raise MissingTableError(path.name)
        return pd.read_csv(path, dtype=str, keep_default_na=False) if as_text else pd.read_csv(path)

    def part(self, part: str, *names: str) -> pd.DataFrame:
        """The records of one part of the data sets."""
        table = self.read(*names)
        return table[table["dataset"].map(part_of) == part].reset_index(drop=True)


# How numbers are written. Rounded first, so that sums in another order print the same digit.


def number(value: float, digits: int = 3) -> str:
    return f"{round(value, 12):.{digits}f}".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    return f"{round(value, 12):+.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    return f"{round(100 * share, 10):.0f} %"


def won(row: pd.Series) -> str:
    """Such as "64 % [55, 73]"; empty for the reference itself."""
    if pd.isna(row["won"]):
        return ""
    low, high = (f"{round(100 * row[name], 10):.0f}" for name in ("won_low", "won_high"))
    return f"{percent(row['won'])} [{low}, {high}]"


def ahead(row: pd.Series) -> str:
    """Such as "+0.012 [−0.003, 0.030]"; empty for the reference itself."""
    if pd.isna(row["ahead"]):
        return ""
    return f"{signed(row['ahead'])} [{number(row['ahead_low'])}, {number(row['ahead_high'])}]"


def p_value(p: float) -> str:
    return "" if pd.isna(p) else "< 0.001" if p < 0.001 else number(p)


def tabulate(head: Cells, rows: list[Cells]) -> str:
    first, *lines = (f"| {' | '.join(line)} |" for line in [head, *rows])
    return "\n".join([first, "|---" * len(head) + "|", *lines])


def title(method: str) -> str:
    name = TITLES.get(method, method)
    return f"**{name}**" if method == OURS else name


# Boards: all methods of a table by one score


def list_board(
    table: pd.DataFrame, metric: str, reference: str = OURS
) -> Iterator[tuple[str, pd.Series]]:
    """Method and its row of `compare_with`, without our other presets in the field; `rank_with` is
    the rank with them, p that of Wilcoxon's test against the reference, corrected by Holm."""
    field = leave_out_presets(table, OURS) if reference == OURS else table
    board = compare_with(field, reference, metric).set_index("method")
    with_presets = compare_with(table, reference, metric, n_resamples=1).set_index("method")
    board["rank_with"] = with_presets["rank"]
    board["p"] = paired_tests(field, metric, reference=reference).set_index("other")["p_holm"]
    yield from board.iterrows()


BOARD = ["mean", "median", "muddle wins", "muddle is ahead by", "p"]


def describe_row(method: str, row: pd.Series) -> Cells:
    ranks = [number(row["rank"], 2), number(row["rank_with"], 2)]
    scores = [number(row["mean"]), number(row["median"])]
    return [title(method), *ranks, *scores, won(row), ahead(row), p_value(row["p"])]


def count_common(row: pd.Series) -> str:
    """Which splits ranks, means and medians are of."""
    return f"{row['common_splits']:.0f} splits of {row['common']:.0f} tables"


def write_boards(results: Results, part: str) -> str:
    """Both collections: a board for each kind of target, a row per score and method."""
    table = results.part(part, *BOTH)
    kinds, has_signal = name_kinds(table), table["dataset"].isin(find_signal(table))
    head = ["score", "method", "rank of 3", "of 4", *BOARD]
    texts = []
    for kind, heading in KINDS.items():
        records, with_signal = table[kinds == kind], table[(kinds == kind) & has_signal]
        metrics = SCORES["regression" if kind == "numbers" else "classification"]
        chosen = [(metric, records, LABELS[metric]) for metric in metrics]
        if with_signal["dataset"].nunique() < records["dataset"].nunique():
            chosen.insert(1, (metrics[0], with_signal, f"{LABELS[metrics[0]]}, with a signal"))
        rows, common = [], {}
        for metric, own, label in chosen:
            for place, (method, row) in enumerate(list_board(own, metric)):
                rows.append(["" if place else label, *describe_row(method, row)])
                common[label] = count_common(row)
        first, *others = chosen
        signal = [label for *_, label in others if label.endswith("signal")]
        n_tables = records["dataset"].nunique()
        counts = f"{n_tables} tables; all methods have {common[first[-1]]}"
        counts += "".join(f", with a signal {common[label]}" for label in signal)
        texts.append(f"{heading}: {counts}.\n\n{tabulate(head, rows)}")
    return "\n\n".join(texts)


def write_paper_boards(results: Results) -> str:
    """The paper's data sets: R² and AUC at length, the other scores side by side."""
    table = results.read("paper")
    texts = []
    for metric in ("r2", "auc"):
        elo = bradley_terry(leave_out_presets(table, OURS), metric).set_index("method")
        rows, common = [], ""
        for method, row in list_board(table, metric):
            own = elo.loc[method]
            low, high = number(own["elo_low"], 0), number(own["elo_high"], 0)
            shown = f"{number(own['elo'], 0)} [{low}, {high}]"
            cells = describe_row(method, row)
            rows.append([*cells[:3], "1000" if own["anchor"] else shown, *cells[3:]])
            common = count_common(row)
        head = [LABELS[metric], f"rank of {len(rows)}", f"of {len(rows) + 1}", "Elo", *BOARD]
        texts.append(
            f"Ranks, means and medians by {LABELS[metric]} are of the {common} that all have:"
        )
        texts.append(tabulate(head, rows))
    boards = {name: dict(list_board(table, name)) for name in ("log_loss", "ece", "accuracy")}
    rows = [
        [
            title(method),
            *(f"{number(own['mean'])}, {number(own['median'])}" for own in boards_of_method),
            *(won(own) for own in boards_of_method[:2]),
        ]
        for method in boards["log_loss"]
        for boards_of_method in [[board[method] for board in boards.values()]]
    ]
    head = ["mean, median", *(LABELS[name] for name in boards)]
    head += ["muddle wins in log-loss", "in calibration error"]
    return "\n\n".join([*texts, tabulate(head, rows)])


def write_paper_tables(results: Results, metric: str) -> str:
    """Each of the paper's data sets: means on common splits, the best of three in bold."""
    methods = [OURS, *PEERS]
    means, counts = average_common(results.read("paper"), metric, methods)
    shown = means.map(lambda value: "none" if pd.isna(value) else number(value, 4))
    best = means.round(4).eq(means.round(4).max(axis=1), axis=0)
    rows = [
        [
            dataset,
            "dev." if part_of(dataset) == "development" else "eval.",
            f"{counts[dataset]}",
            *(
                f"**{shown.loc[dataset, name]}**"
                if best.loc[dataset, name]
                else shown.loc[dataset, name]
                for name in methods
            ),
        ]
        for dataset in means.index
    ]
    return tabulate(["data set", "part", "splits", *(TITLES[name] for name in methods)], rows)


# Losses


def find_lost(table: pd.DataFrame) -> pd.DataFrame:
    """Tables on which muddle wins no split in the main score, or is behind by more than LOST_BY:
    metric, dataset, rival, own, theirs, lead, won; the worst first."""
    rows = []
    for metric in ("r2", "auc"):
        leads = lead_by_dataset(table, OURS, metric)
        wins = wins_by_dataset(table, OURS, metric)
        for rival in RIVALS:
            lost = (leads[rival] < -LOST_BY) | (wins[rival] == 0)
            means, _ = average_common(table, metric, [OURS, rival])
            for dataset in lost.index[lost]:
                scores = means.loc[dataset, OURS], means.loc[dataset, rival]
                lead, share = leads.loc[dataset, rival], wins.loc[dataset, rival]
                rows.append((metric, dataset, rival, *scores, lead, share))
    frame = pd.DataFrame(rows, columns=["metric", "dataset", "rival", *RULED])
    return frame.sort_values(["metric", "lead"], ascending=[False, True], ignore_index=True)


RULED = ["own", "theirs", "lead", "won"]


def write_lost(results: Results) -> str:
    table = leave_out_presets(results.read(*BOTH), OURS)
    lost = find_lost(table)
    rows = [
        [
            row["dataset"],
            part[:4] + ".",
            LABELS[row["metric"]],
            TITLES[row["rival"]],
            *(number(row[name], 4) for name in ("own", "theirs")),
            signed(row["lead"], 4),
            percent(row["won"]),
        ]
        for part in ("evaluation", "development")
        for _, row in lost.iterrows()
        if part_of(row["dataset"]) == part
    ]
    rows = [[row[0], row[1].replace("deve.", "dev."), *row[2:]] for row in rows]
    head = ["data set", "part", "score", "to", "muddle", "the other", "ahead by", "splits won"]
    counts = [
        f"{count_lost(lost, metric, rival)} of {count_tables(table, metric)} to {TITLES[rival]}"
        for metric in ("r2", "auc")
        for rival in RIVALS
    ]
    return (
        f"In R² {counts[0]} and {counts[1]}, in AUC {counts[2]} and {counts[3]}:"
        f"\n\n{tabulate(head, rows)}"
    )


def count_lost(lost: pd.DataFrame, metric: str, rival: str) -> int:
    return int(((lost["metric"] == metric) & (lost["rival"] == rival)).sum())


def count_tables(table: pd.DataFrame, metric: str) -> int:
    return int(table.loc[table["task"] == METRICS[metric].task, "dataset"].nunique())


def describe_means(board: pd.DataFrame, rival: str) -> str:
    """Such as "behind RealMLP-TD in mean R² (0.459 against 0.476) and ahead in the median (…)"."""
    places = []
    for name in ("mean", "median"):
        own, other = board.loc[OURS, name], board.loc[rival, name]
        place = "ahead of" if own > other else "behind"
        places.append((place, f"({number(own)} against {number(other)})"))
    (first, mean), (second, median) = places
    again = "" if second == first else f"{second} it in the "
    name = TITLES[rival].partition(",")[0]
    return f"{first} {name} in mean R² {mean} and {again}median {median}"


def write_mean_gap(results: Results) -> str:
    """Means by R² of the evaluation part, with and without the two tables that are lost most."""
    table = leave_out_presets(results.part("evaluation", *BOTH), OURS)
    board = compare_with(table, OURS, "r2").set_index("method")
    lost = find_lost(table).query("metric == 'r2' and rival == @REALMLP").head(2)
    named = [
        f"{row['dataset']} ({number(row['own'], 2)} against {number(row['theirs'], 2)})"
        for _, row in lost.iterrows()
    ]
    others = table[~table["dataset"].isin(lost["dataset"])]
    without = compare_with(others, OURS, "r2").set_index("method")
    return (
        f"On the evaluation part muddle is {describe_means(board, REALMLP)}. The two tables that "
        f"are lost most are {' and '.join(named)}; without them it is "
        f"{describe_means(without, REALMLP)}."
    )


# README, and sentences of other pages


def write_readme(results: Results) -> str:
    table, all_tables = results.part("evaluation", "collection"), results.read("collection")
    sizes = all_tables["n_train"] + all_tables["n_test"]
    field = leave_out_presets(table, OURS)
    metrics = ("r2", "auc", "log_loss")
    boards = {name: compare_with(field, OURS, name).set_index("method") for name in metrics}
    with_ours = {name: compare_with(table, OURS, name).set_index("method") for name in metrics}
    counts = {name: board.loc[OURS, "datasets"] for name, board in boards.items()}
    leads = {name: lead_by_dataset(field, OURS, name) for name in metrics}
    wins = {
        rival: [f"{(leads[name][rival] > 0).sum()} of {counts[name]}" for name in metrics]
        for rival in RIVALS
    }
    lost = find_lost(field)
    missed = {
        rival: [f"{count_lost(lost, name, rival)}" for name in metrics[:2]] for rival in RIVALS
    }
    first = all(one["rank"].idxmin() == OURS for one in (*boards.values(), *with_ours.values()))
    ranks = [[number(one[n].loc[OURS, "rank"], 2) for n in metrics] for one in (boards, with_ours)]
    place = "the best mean rank" if first else "the mean ranks"
    ranked = [f"{one} ({other})" for one, other in zip(*ranks, strict=True)]
    rows = [["mean rank of 3 (of 4, with `compact`)", *ranked]]
    rows += [
        [f"wins against {TITLES[rival]}", *(won(boards[name].loc[rival]) for name in metrics)]
        for rival in RIVALS
    ]
    head = ["", f"R² ({counts['r2']} tables)", f"AUC ({counts['auc']})"]
    head += [f"log-loss ({counts['log_loss']})"]
    return f"""{all_tables["dataset"].nunique()} tables from other sources than the paper \
({sizes.min():.0f} to {round(sizes.max(), -3):,.0f} rows) are cut into two parts by a hash. \
Settings were chosen on one; the other, {field["dataset"].nunique()} tables, took no part in any \
choice. There `muddle` has {place} and wins this share of splits (90 % intervals over tables; \
default parameters):

{tabulate(head, rows)}

![How far muddle is ahead on each table (blue) or behind (orange): ahead on \
{wins[REALMLP][0]} in R², {wins[REALMLP][1]} in AUC, {wins[REALMLP][2]} in log-loss against \
RealMLP-TD; on {wins[CATBOOST][0]}, {wins[CATBOOST][1]}, {wins[CATBOOST][2]} against CatBoost]\
(docs/figures/evaluation.svg)

It is {describe_means(boards["r2"], REALMLP)}. It [loses](docs/results.md#lost-tables) \
(no split won, or {LOST_BY} behind) {" and ".join(missed[REALMLP])} tables in R² and \
AUC to RealMLP-TD, {" and ".join(missed[CATBOOST])} to CatBoost."""


def write_other_sources(results: Results) -> str:
    """The evaluation part without the paper's tables."""
    both = results.part("evaluation", *BOTH)["dataset"].nunique()
    table = leave_out_presets(results.part("evaluation", "collection"), OURS)
    others = table["dataset"].nunique()
    texts = []
    for rival in RIVALS:
        shares = [
            won(compare_with(table, OURS, metric).set_index("method").loc[rival])
            for metric in ("r2", "auc", "log_loss")
        ]
        name = TITLES[rival].partition(",")[0]
        texts.append(f"against {name} {shares[0]} in R², {shares[1]} in AUC, {shares[2]}")
    return (
        f"{both - others} of its {both} tables are the paper's, some of which earlier choices had "
        f"seen ([0016](decisions/0016-flagship-pool.md)). On the {others} others "
        "([flagship_other_sources.txt](../results/flagship_other_sources.txt)) muddle wins "
        f"{texts[0]} in log-loss; {texts[1]} in log-loss."
    )


def write_parts(results: Results) -> str:
    """Shares of splits won on both collections: development, evaluation, all."""
    rows = []
    tables = [results.part(part, *BOTH) for part in ("development", "evaluation")]
    tables = [leave_out_presets(one, OURS) for one in (*tables, results.read(*BOTH))]
    for metric in ("r2", "auc", "log_loss"):
        boards = [compare_with(one, OURS, metric).set_index("method") for one in tables]
        rows += [
            [f"{LABELS[metric]}: won against {TITLES[rival]}", *(won(b.loc[rival]) for b in boards)]
            for rival in RIVALS
        ]
    medians = []
    for one in tables:
        large = one[one["n_train"] + one["n_test"] > 1000]
        board = compare_with(large, OURS, "ece").set_index("method")
        medians.append(", ".join(number(board.loc[name, "median"]) for name in (OURS, *PEERS)))
    names = ", ".join(TITLES[name].partition(",")[0] for name in (OURS, *PEERS))
    rows.append([f"calibration error above 1,000 rows, median: {names}", *medians])
    return tabulate(["", "development", "evaluation", "all"], rows)


def write_compact(results: Results) -> str:
    """The compact preset beside the default and the two peers."""
    rows = []
    for metric in ("r2", "auc", "log_loss", "ece", "accuracy"):
        for part in ("evaluation", "development"):
            board = compare_with(results.part(part, *BOTH), COMPACT, metric).set_index("method")
            scores = [
                number(board.loc[name, average], 4)
                for average in ("mean", "median")
                for name in (COMPACT, OURS)
            ]
            shares = [won(board.loc[name]) for name in (OURS, CATBOOST, REALMLP)]
            rows.append([LABELS[metric], part, *scores, *shares])
    head = ["", "part", "mean", "the default's", "median", "the default's"]
    return tabulate([*head, "won against default", "CatBoost", "RealMLP-TD, 5 folds"], rows)


def write_student(results: Results) -> str:
    """docs/flagship.md: the student's scores on the evaluation part."""
    table = results.part("evaluation", *BOTH)
    rows = []
    for metric in ("r2", "auc", "log_loss"):
        board = compare_with(table, OURS, metric).set_index("method")
        small = compare_with(table, COMPACT, metric).set_index("method")
        own, student = board.loc[OURS], board.loc[COMPACT]
        ahead_by = student["ahead"], student["ahead_median"]
        sign = -1 if METRICS[metric].higher_is_better else 1
        more = f"{signed(sign * ahead_by[0], 4)} ({signed(sign * ahead_by[1], 4)})"
        rows += [
            [
                f"mean {LABELS[metric]} of {own['common']:.0f} tables (median)",
                f"{number(own['mean'], 4)} ({number(own['median'], 4)})",
                f"{number(student['mean'], 4)} ({number(student['median'], 4)})",
            ],
            ["difference on a table: mean (median)", "", more],
            ["splits won against CatBoost", won(board.loc[CATBOOST]), won(small.loc[CATBOOST])],
        ]
    return tabulate(["evaluation tables", "default", "student"], rows)


def write_choosing_ranks(results: Results) -> str:
    """The paper's ensemble beside the flagship."""
    table = leave_out_presets(results.read("paper"), OURS)
    ours, theirs = ["`MuddleRegressor`, `MuddleClassifier`"], ["Ens-MLR"]
    for metric in ("r2", "auc"):
        board = compare_with(table, OURS, metric).set_index("method")
        n_methods = len(board)
        ours += [number(board.loc[OURS, "rank"], 2), ""]
        theirs += [number(board.loc["ens-mlr-paper", "rank"], 2), won(board.loc["ens-mlr-paper"])]
    head = ["", "R²: rank", "muddle wins", "AUC: rank", "muddle wins"]
    intro = (
        f"Mean ranks among {n_methods} methods (one of them a constant) on the paper's data sets, "
        "recipe clean (lower is better), with the share of splits on which the flagship is ahead:"
    )
    return f"{intro}\n\n{tabulate(head, [ours, theirs])}"


def write_choosing(results: Results) -> str:
    """docs/choosing.md: which tool for which table."""
    table = leave_out_presets(results.part("evaluation", *BOTH), OURS)
    shares = {}
    for metric in ("r2", "auc", "log_loss", "accuracy"):
        records = table[name_kinds(table) == "two classes"] if metric == "accuracy" else table
        board = compare_with(records, OURS, metric).set_index("method")
        for rival in RIVALS:
            shares[metric, rival] = won(board.loc[rival])
    everything = leave_out_presets(results.read(*BOTH), OURS)
    scores = {
        metric: average_common(everything, metric, [OURS, *RIVALS])[0] for metric in ("r2", "auc")
    }

    def show(metric: str, dataset: str, methods: list[str], digits: int = 3) -> str:
        means = scores[metric].loc[dataset, methods].sort_values(ascending=False)
        short = {name: TITLES[name].partition(",")[0] for name in methods}
        return ", ".join(f"{short[name]} {number(value, digits)}" for name, value in means.items())

    three, two = [OURS, *RIVALS], [OURS, REALMLP]
    intervals = describe_intervals(results)
    rows = [
        [
            "numbers to predict",
            f"on evaluation tables `MuddleRegressor` wins {shares['r2', CATBOOST]} of the splits "
            f"against CatBoost and {shares['r2', REALMLP]} against RealMLP-TD with five folds. "
            "On tables of 100 rows the difference can be large "
            f"(concrete slump, third target, R²: {show('r2', 'concrete-slump-test-3', three)})",
        ],
        [
            "classes, and probabilities matter",
            f"`MuddleClassifier` wins {shares['log_loss', CATBOOST]} in log-loss against CatBoost, "
            f"{shares['log_loss', REALMLP]} against RealMLP-TD",
        ],
        [
            "classes, and only their order matters (AUC)",
            f"it wins {shares['auc', CATBOOST]} and {shares['auc', REALMLP]}; in accuracy with two "
            f"classes {shares['accuracy', CATBOOST]} and {shares['accuracy', REALMLP]}",
        ],
        ["prediction intervals", intervals],
        [
            "tens of thousands of rows",
            f"measure. AUC on adult (32,561 rows): {show('auc', 'adult', three)}; on magic "
            f"(19,020): {show('auc', 'magic-gamma-telescope', three)}",
        ],
        [
            "a long tail and few rows",
            "compare with **RealMLP-TD**, R²: journal subscriptions "
            f"({show('r2', 'journal_subscriptions', two)}), lake trips "
            f"({show('r2', 'lake_trips', two)})",
        ],
        [
            "text columns of hundreds of levels",
            "**RealMLP-TD**, R²: real estate, with 1,294 and 2,688 levels in two columns "
            f"({show('r2', 'blr-real-estate-prices', two)}), year of a work of art "
            f"({show('r2', 'tate_year', two)})",
        ],
        [
            "a fit must take a second on a CPU",
            "**gradient boosting, forests**: CatBoost took 0.4 to 2.6 s on tables of ten numbers "
            'and 100 to 10,000 rows, `preset="fast"` 1 to 7 s '
            "([flagship_speed_cpu.csv](../results/flagship_speed_cpu.csv))",
        ],
        ["the model must not hold training rows", "`keep_rows=False`"],
        [
            "free text, images, time series that must be extrapolated",
            "none of these: predictions stay within the range of the training targets and a tenth "
            "of it beyond",
        ],
    ]
    return tabulate(["your table", "expect"], rows)


# Intervals and sets


def compare_interval_scores(
    rows: pd.DataFrame, ours: str, rival: str, digits: int = 2
) -> dict[str, str]:
    """Share of tables won and ratio of interval scores, on common splits, with intervals."""
    scores = rows.pivot(index=["dataset", "split"], columns="method", values="interval_score")
    gaps = np.log(scores[ours] / scores[rival]).dropna().groupby("dataset").mean().to_numpy()
    draws = np.random.default_rng(0).integers(len(gaps), size=(2000, len(gaps)))
    wins = (gaps < 0) + 0.5 * (gaps == 0)

    def ends(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.quantile(values[draws].mean(axis=1), [0.05, 0.95]))

    low, high = np.exp(ends(gaps))
    least, most = (f"{round(100 * end, 10):.0f}" for end in ends(wins))
    return {
        "tables": f"{len(gaps)}",
        "won": f"{percent(wins.mean())} [{least}, {most}]",
        "ratio": f"{number(np.exp(gaps.mean()), digits)} "
        f"[{number(low, digits)}, {number(high, digits)}]",
    }


def read_intervals(results: Results, part: str) -> pd.DataFrame:
    rows = results.read_rows("intervals")
    rows = rows[rows["dataset"].map(part_of) == part]
    known = rows[rows["method"] == CATBOOST]
    return rows.merge(known[["dataset", "split"]], on=["dataset", "split"])


def describe_intervals(results: Results) -> str:
    shares = compare_interval_scores(read_intervals(results, "evaluation"), OURS, CATBOOST)
    return (
        f"{write_held(results)}. Their interval score is better than that of CatBoost's conformal "
        f"quantiles on {shares['won']} of {shares['tables']} tables"
    )


def write_held(results: Results) -> str:
    """Coverage of all splits on the evaluation part, CatBoost's or not."""
    means = average_intervals(results, "evaluation").loc[OURS]
    low, high = means["coverage"].min(), means["coverage"].max()
    lowest = means.loc[means["n_test"] > 200, "coverage"].min()
    shares = [number(100 * one, 1) for one in (means["coverage"].mean(), low, high, lowest)]
    return (
        f"On {len(means)} evaluation tables 90 % intervals held {shares[0]} % of the test rows, "
        f"from {shares[1]} to {shares[2]} % by table (from {shares[3]} % with more than 200 test "
        "rows)"
    )


def average_intervals(results: Results, part: str) -> pd.DataFrame:
    """Means over splits: a row per method and data set."""
    rows = results.read_rows("intervals")
    rows = rows[rows["dataset"].map(part_of) == part]
    return rows.groupby(["method", "dataset"]).mean(numeric_only=True)


def write_held_compact(results: Results) -> str:
    means = average_intervals(results, "evaluation").loc[COMPACT]
    share = number(100 * means["coverage"].mean(), 1)
    return f"On {len(means)} evaluation tables its 90 % intervals held {share} % of the rows"


def write_compact_intervals(results: Results) -> str:
    """Interval scores of the compact preset beside the default's."""
    texts = []
    for part in ("evaluation", "development"):
        rows = results.read_rows("intervals")
        rows = rows[rows["dataset"].map(part_of) == part]
        duel = compare_interval_scores(rows, COMPACT, OURS, digits=3)
        texts.append(f"{duel['ratio']} of the default's on {duel['tables']} {part} tables")
    return f"Its interval score is {texts[0]} and {texts[1]} (geometric means)."


def write_missed_intervals(results: Results) -> str:
    """Interval scores of two tables that were set out for."""
    texts = []
    for dataset in ("squark-automotive-clv", "insurance"):
        rows = results.read_rows("intervals")
        scores = rows[rows["dataset"] == dataset].pivot(
            index="split", columns="method", values="interval_score"
        )
        common = scores[[OURS, CATBOOST]].dropna()
        means = " against ".join(number(common[name].mean(), 2) for name in (OURS, CATBOOST))
        verdict = "ahead" if common[OURS].mean() < common[CATBOOST].mean() else "behind"
        n_splits = "one split" if len(common) == 1 else f"{len(common)} splits"
        texts.append(f"{dataset}: {verdict} ({means}, {n_splits})")
    return "; ".join(texts)


def write_group_errors(results: Results) -> str:
    """Mean coverage of simulated groups with an effect, and its standard error over draws."""
    rows = results.read_rows("groups")
    rows = rows[(rows["data"] == "simulated") & (rows["strength"] > 0) & rows["passed"]]
    held = rows.groupby("groups")["coverage"]
    texts = [
        f"{groups} groups hold {number(mean)} ± {number(error)}"
        for groups, mean, error in zip(held.mean().index, held.mean(), held.sem(), strict=True)
    ]
    return f"{' and '.join(texts)} (standard error over draws)"


# Parts of the pool, and single numbers within sentences


def win_without(results: Results, body: str, part: str, kind: str, metric: str) -> pd.Series:
    """The pool against the pool without a body."""
    table = results.part(part, "bodies")
    records = table[name_kinds(table) == kind]
    return compare_with(records, "pool", metric).set_index("method").loc[f"without {body}"]


def write_without_rows(results: Results) -> str:
    """The pool without the kernel, which holds training rows."""
    shares = [
        percent(1 - win_without(results, "kernel", part, kind, metric)["won"])
        for part in ("evaluation", "development")
        for kind, metric in (("numbers", "r2"), ("two classes", "auc"))
    ]
    return (
        f"wins {shares[0]} of splits in R² and {shares[1]} in AUC with two classes on the "
        f"evaluation part ({shares[2]} and {shares[3]} on the development part"
    )


def write_boosting(results: Results) -> str:
    """The pool against the pool without boosting, two classes."""
    texts = [
        f"{won(win_without(results, 'boosting', part, 'two classes', 'auc'))} on the {part} part"
        for part in ("evaluation", "development")
    ]
    return f"the pool with it wins, in AUC with two classes, {texts[0]} and {texts[1]}"


def write_police(results: Results) -> str:
    leads = lead_by_dataset(results.read(*BOTH), OURS, "log_loss")
    return f"police injury: log-loss {number(leads.loc['police_injury', COMPACT], 2)} more"


def write_published_duel(results: Results) -> str:
    """All pairs of the published recipe."""
    table = results.read("matrices")
    shares = [win_pairs(table, metric, "ens-mlr-paper", CATBOOST) for metric in ("r2", "auc")]
    return (
        f"Ens-MLR wins {shares[0]} of the pairs in R² and {shares[1]} in AUC against CatBoost "
        "(95 % intervals over tables and splits)"
    )


def write_matrices(results: Results) -> str:
    """docs/benchmark.md: the paper's methods and others on its matrices, and duels of some."""
    table = results.read("matrices")
    shown = [REALMLP, "realmlp", CATBOOST, "lightgbm", "xgboost", "random-forest", "extra-trees"]
    shown += ["tabm", "ens-mlr-paper", "ens-mlr-released"]
    texts = []
    for metric in ("r2", "auc", "accuracy"):
        board = rank_methods(table, metric)
        own = board[board["method"].isin(shown)]
        rows = [
            [
                MATRIX_TITLES.get(row["method"], title(row["method"])),
                f"{number(row['rank'], 1)} [{number(row['rank_low'], 1)}, "
                f"{number(row['rank_high'], 1)}]",
                number(row["mean"]),
                number(row["median"]),
            ]
            for _, row in own.iterrows()
        ]
        pairs = f"{own['n_pairs'].iloc[0]} pairs of data set and split"
        head = [LABELS[metric], f"mean rank of {len(board)}", "mean", "median"]
        texts.append(f"{LABELS[metric]}, {pairs}:\n\n{tabulate(head, rows)}")
    rows = []
    for method in ("ens-mlr-paper", "ens-mlr-released", REALMLP):
        for rival in (CATBOOST, REALMLP):
            if method != rival:
                shares = [win_pairs(table, metric, method, rival) for metric in DUELS]
                rows.append([f"{MATRIX_TITLES[method]} against {MATRIX_TITLES[rival]}", *shares])
    head = ["pairs won, 95 % interval", *(LABELS[metric] for metric in DUELS)]
    return "\n\n".join([*texts, tabulate(head, rows)])


DUELS = ("r2", "auc", "accuracy")
MATRIX_TITLES = {
    **TITLES,
    "realmlp": "RealMLP-TD, one net",
    "ens-mlr-paper": "Ens-MLR, paper",
    "ens-mlr-released": "Ens-MLR, released",
}


def win_pairs(table: pd.DataFrame, metric: str, method: str, rival: str) -> str:
    """Such as "33 % [14, 51]", over pairs of data set and split."""
    row = win_rates_against(table, metric, method).set_index("method").loc[rival]
    low, high = (f"{round(100 * row[f'win_rate_{end}'], 10):.0f}" for end in ("low", "high"))
    return f"{percent(row['win_rate'])} [{low}, {high}]"


def write_matrix_difference(results: Results) -> str:
    """How far mean ranks must be apart."""
    texts = []
    for metric in ("r2", "auc"):
        compared = compare_ranks(results.read("matrices"), metric)
        first, second = compared.ranks["method"].iloc[:2]
        texts.append(
            f"With {len(compared.ranks)} methods and {compared.n_datasets} data sets, mean ranks "
            f"by {LABELS[metric]} must differ by {number(compared.critical_difference, 1)} to be "
            "told apart (Nemenyi); first and second have p = "
            f"{number(compared.p_values.loc[first, second], 2)}."
        )
    return " ".join(texts)


def write_first(results: Results) -> str:
    """Places by mean rank on the evaluation tables from other sources."""
    table = leave_out_presets(results.part("evaluation", "collection"), OURS)
    places = []
    for metric in ("r2", "auc", "log_loss"):
        board = compare_with(table, OURS, metric).set_index("method")
        place = 1 + int((board["rank"] < board.loc[OURS, "rank"]).sum())
        places.append(f"{place} of {len(board)} in {LABELS[metric]}")
    return f"on {table['dataset'].nunique()} tables from elsewhere its place is {', '.join(places)}"


def write_intervals(results: Results) -> str:
    """docs/results.md: intervals beside CatBoost's, split by split that both have."""
    rows = read_intervals(results, "evaluation")
    methods = [OURS, CATBOOST, COMPACT]
    duels = {name: compare_interval_scores(rows, name, CATBOOST) for name in (OURS, COMPACT)}
    means = rows.groupby(["method", "dataset"]).mean(numeric_only=True)
    thirds = ["narrow_third", "middle_third", "wide_third"]

    def describe_coverage(method: str) -> str:
        own = means.loc[method]
        lowest = own.loc[own["n_test"] > 200, "coverage"].min()
        return f"{number(own['coverage'].mean())} ({number(lowest)})"

    cover = [", ".join(number(v) for v in means.loc[name][thirds].median()) for name in methods]
    head = ["", f"muddle ({duels[OURS]['tables']} tables)", "CatBoost"]
    head += [f"`compact` ({duels[COMPACT]['tables']} tables)"]
    text = tabulate(
        head,
        [
            ["tables won against CatBoost", duels[OURS]["won"], "", duels[COMPACT]["won"]],
            [
                "interval score divided by CatBoost's, geometric mean",
                *(duels[OURS]["ratio"], "1", duels[COMPACT]["ratio"]),
            ],
            [
                "mean coverage (lowest with more than 200 test rows)",
                *map(describe_coverage, methods),
            ],
            ["coverage in thirds by width, narrow to wide, medians", *cover],
        ],
    )
    scores = rows.pivot_table(index="dataset", columns="method", values="interval_score")
    lost = scores[scores[OURS] >= scores[CATBOOST]]
    named = ", ".join(
        f"{name} ({number(row[OURS], 2)} against {number(row[CATBOOST], 2)})"
        for name, row in lost.iterrows()
    )
    development = compare_interval_scores(read_intervals(results, "development"), OURS, CATBOOST)
    return (
        f"{text}\n\nLost tables: {named}. On {development['tables']} development tables muddle "
        f"wins {development['won']}."
    )


def write_sets(results: Results) -> str:
    """docs/results.md: sets of classes, where the likeliest class alone is not enough."""
    rows = results.read_rows("sets")
    hard = rows[rows["accuracy"] < 0.9]
    scores = ["coverage", "size", "uncertain_half", "certain_half", "lowest_class"]
    means = hard.groupby(["sets", "dataset"])[scores].mean().groupby("sets").mean()
    kinds = [means.loc[name] for name in ("conformal", "by class", "plain")]
    halves = [f"{number(own['uncertain_half'])}, {number(own['certain_half'])}" for own in kinds]
    head = [f"means over {hard['dataset'].nunique()} tables", "`predict_set`", "`by_class=True`"]
    return tabulate(
        [*head, "plain"],
        [
            ["coverage", *(number(own["coverage"]) for own in kinds)],
            ["classes in a set", *(number(own["size"], 2) for own in kinds)],
            ["coverage of the uncertain half of the rows, and the certain one", *halves],
            [
                "lowest coverage of a class with 10 test rows or more",
                *(number(own["lowest_class"]) for own in kinds),
            ],
        ],
    )


def write_groups(results: Results) -> str:
    """docs/results.md: coverage on rows of new groups."""
    rows = results.read_rows("groups")
    by = ["task", "data", "strength", "groups"]
    averages = ["coverage", "size", "train_groups"]
    means = rows.groupby([*by, "passed"], dropna=False)[averages].mean()
    pairs = means.reset_index().assign(
        simulated=lambda one: one["data"] == "simulated",
        without=lambda one: one["coverage"].where(~one["passed"]),
    )
    pairs["without"] = pairs.groupby(by, dropna=False)["without"].transform("max")
    order = ["simulated", "task", "groups", "strength", "without", "data", "passed"]
    rows = pairs.sort_values(order, ascending=[True, False, True, True, True, True, True])
    lines = []
    for one, two in zip(
        rows.iloc[::2].to_dict("records"), rows.iloc[1::2].to_dict("records"), strict=True
    ):
        name = f"{one['data']}, {one['groups'] or one['train_groups']:.0f}"
        if one["simulated"]:
            name += f"; effect of the group: {percent(one['strength'])}"
        size = f"{number(one['size'], 2)} → {number(two['size'], 2)}"
        kind = "sets" if one["task"] == "classes" else "intervals"
        lines.append([name, kind, number(one["coverage"]), number(two["coverage"]), size])
    head = ["table, training groups", "", "coverage without", "with `groups`", "size"]
    return tabulate(head, lines)


def write_published(results: Results, block: str) -> str:
    """docs/published.md: ours beside the published numbers."""
    table = results.read_rows("published", as_text=True)
    return "\n".join(published_coverage.BLOCKS[block](table))


# Other methods


def write_related(results: Results) -> str:
    """The systems of the paper's table of related work, on the matrices of its small data sets."""
    table = pd.concat([results.read("matrices"), results.read("related")], ignore_index=True)
    table = table[table["method"].isin([*RELATED, *BESIDE])]
    texts = []
    for metric in ("r2", "auc", "accuracy"):
        ours = compare_with(table, "ens-mlr-released", metric).set_index("method")
        theirs = compare_with(table, CATBOOST, metric).set_index("method")
        p = paired_tests(table, metric, reference="ens-mlr-released").set_index("other")["p_holm"]
        rows = []
        for method, row in ours.iterrows():
            cells = [number(row["rank"], 1), number(row["mean"]), number(row["median"])]
            against = [won(row), p_value(p.get(method, np.nan)), won(theirs.loc[method])]
            rows.append([TITLES[str(method)], *cells, *against, number(row["fit_seconds"], 1)])
        first = ours.iloc[0]
        label = f"{LABELS[metric]}, {first['datasets']:.0f} data sets"
        head = [label, f"rank of {len(ours)}", "mean", "median", "Ens-MLR wins", "p"]
        texts.append(tabulate([*head, "CatBoost wins", "fit, s"], rows))
    return "\n\n".join(texts)


def write_peers(results: Results) -> str:
    """Shares of splits that muddle wins against further methods, on each part of all tables."""
    tables = [results.read(name) for name in (*BOTH, "peers")]
    table = pd.concat(tables, ignore_index=True)
    theirs = [name for name in TITLES if name in set(tables[-1]["method"])]
    table = table[table["method"].isin([OURS, CATBOOST, REALMLP, *theirs])]
    parts = table["dataset"].map(part_of)
    rows = []
    for method in [REALMLP, CATBOOST, *theirs]:
        cells = []
        for part in ("evaluation", "development"):
            own = table[(parts == part) & table["method"].isin([OURS, method])]
            for metric in ("r2", "auc", "log_loss"):
                board = compare_with(own, OURS, metric).set_index("method")
                row = board.loc[method]
                enough = row["datasets"] >= FEWEST
                cells.append(f"{won(row)} ({row['datasets']:.0f})" if enough else "too few tables")
        rows.append([TITLES[method], *cells])
    head = [
        f"{LABELS[m]}, {part}"
        for part in ("evaluation", "development")
        for m in ("r2", "auc", "log_loss")
    ]
    return tabulate(["muddle wins against", *head], rows)


# What the parts of the method are worth

WORTH_SCORES = {"numbers": ["r2"], "two classes": ["auc", "log_loss"], "more classes": ["log_loss"]}


@functools.cache
def summarise_worth(results: Results) -> pd.DataFrame:
    return muddling.summarise(results.read("muddling")).set_index(
        ["place", "kind", "part", "metric", "variant"]
    )


def gain(row: pd.Series) -> str:
    """Such as "+0.030 [0.011, 0.053]"."""
    digits = 4 if abs(row["gain"]) < 0.01 else 3
    low, high = number(row["gain_low"], digits), number(row["gain_high"], digits)
    return f"{signed(row['gain'], digits)} [{low}, {high}]"


def share_ahead(row: pd.Series) -> str:
    low, high = (f"{row[name]:.0f}" for name in ("won_low", "won_high"))
    return f"{row['won']:.0f} % [{low}, {high}]"


def write_worth(results: Results, place: str) -> str:
    table = summarise_worth(results)
    variants = muddling.PAPER_STEPS if place == "mlr-2" else muddling.VARIANTS
    head = [
        "target, score",
        "tables",
        "the whole against",
        "gain",
        "median",
        "ahead",
        "up to 200 rows",
    ]
    rows = []
    for kind, metrics in WORTH_SCORES.items():
        for metric in metrics:
            for variant in variants:
                if variant == muddling.WHOLE:
                    continue
                row = table.loc[(place, kind, "all", metric, variant)]
                small = table.loc[(place, kind, f"up to {muddling.SMALL} rows", metric, variant)]
                rows.append(
                    [
                        f"{kind}, {LABELS[metric]}",
                        f"{row['data_sets']:.0f}",
                        variant,
                        gain(row),
                        signed(row["median_gain"], 4),
                        share_ahead(row),
                        f"{gain(small)}, {small['data_sets']:.0f} tables",
                    ]
                )
    return tabulate(head, rows)


def write_worth_short(results: Results) -> str:
    """Permutations in the paper's net and in the flagship, in sentences."""
    table = summarise_worth(results)

    def say(place: str, kind: str, metric: str) -> str:
        row = table.loc[(place, kind, "all", metric, "no permutations")]
        median = signed(row["median_gain"], 4)
        return f"{kind}: gain in {LABELS[metric]} {gain(row)}, median {median}"

    paper = [("numbers", "r2"), ("two classes", "auc"), ("more classes", "log_loss")]
    alone = "; ".join(say("mlr-2", *pair) for pair in paper)
    inside = "; ".join(say("pool", *pair) for pair in paper)
    return (
        "**In the paper's own net permuted labels help where there are numbers or two classes** "
        f"({alone}): much on a few noisy tables, next to nothing on most. **Inside the flagship "
        f"they change little** ({inside})."
    )


def write_worth_readme(results: Results) -> str:
    table = summarise_worth(results)
    paper, pool = (
        gain(table.loc[(place, "numbers", "all", "r2", "no permutations")])
        for place in ("mlr-2", "pool")
    )
    return (
        f"[Muddled labels add](docs/worth.md) {paper} to the mean R² of the paper's net, "
        f"{pool} to the flagship's."
    )


def write_worth_tables(results: Results) -> str:
    """The tables at both ends, by the gain from permutations."""
    table = results.read("muddling")
    table = table[table["dataset"].isin(find_signal(table))]
    kinds = name_kinds(table)
    rows = []
    for place, words in (("mlr-2", "the paper's net"), ("pool", "the flagship")):
        for kind, metric in (("numbers", "r2"), ("two classes", "auc")):
            wide = table[kinds == kind].pivot(
                index=["dataset", "split"], columns="method", values=metric
            )
            gains = wide[f"{place}: {muddling.WHOLE}"] - wide[f"{place}: no permutations"]
            means = gains.dropna().groupby("dataset").mean().sort_values(kind="stable")
            texts = [f"{name} {signed(value)}" for name, value in means.items()]
            ends = ", ".join(texts[:-5:-1]), ", ".join(texts[:4])
            rows.append([words, f"{kind}, {LABELS[metric]}", *ends])
    return tabulate(["place", "target, score", "gain most", "lose most"], rows)


def write_studies_100(results: Results) -> str:
    """The ablation's means over the two data sets, and how far the dependences are from print."""
    folder = results.folder / "studies_100"
    table = pd.read_csv(folder / "ablation.csv")
    printed = table[table["dataset"] == "mean"].set_index("value")
    own = table[table["n_splits"] > 0].groupby("value", sort=False)
    rows = []
    for value, part in own:
        cells = [f"{number(part[name].mean())}" for name in ("score", "bag")]
        error = np.hypot(*part["score_se"]) / 2
        first, second = (printed.loc[value, f"{name}_published"] for name in ("score", "bag"))
        each = [
            f"{number(x)} ± {number(e)}"
            for x, e in zip(part["score"], part["score_se"], strict=True)
        ]
        rows.append(
            [value, *each, f"{cells[0]} ± {number(error)}", number(first), cells[1], number(second)]
        )
    head = ["step", "slump-3", "aquatic toxicity", "mean", "printed", "bag of ten", "printed"]
    text = tabulate(head, rows)
    # Nets of a split are compared with those of the same split.
    records = pd.read_csv(folder / "records.csv.gz")
    records["net"] = [json.loads(details)["net_score"] for details in records["details"]]
    wide = records.pivot(index=["dataset", "split"], columns="method", values="net")
    paired = []
    for name, (with_it, without) in STEPS_PAIRED.items():
        gains = (wide[f"study-{with_it}"] - wide[f"study-{without}"]).dropna().groupby("dataset")
        told = zip(gains.mean(), gains.sem(), strict=True)
        paired.append([name, *(f"{signed(mean, 4)} ± {number(e, 4)}" for mean, e in told)])
    gained = tabulate(["gain on the same splits", "slump-3", "aquatic toxicity"], paired)
    more = []
    for study in STUDIES:
        parts = [
            pd.read_csv(results.folder / one / f"{study}.csv") for one in ("studies_100", "studies")
        ]
        both = parts[0].merge(parts[1], on=["dataset", "value"], suffixes=("", "_10"))
        both = both[(both["n_splits"] > 0) & both["score_published"].notna()]
        if study == "ridge_init":  # below 0.1 nets diverge, here and in print
            both = both[both["score"] > 0.2]
        sizes = [(both[c] - both["score_published"]).abs().median() for c in ("score", "score_10")]
        errors = [both[c].median() for c in ("score_se", "score_se_10")]
        more.append([study.replace("_", " "), f"{len(both)}", *map(number, [*sizes, *errors])])
    head = [
        "study",
        "points",
        "median distance from print, 100 splits",
        "10 splits",
        "median standard error, 100 splits",
        "10 splits",
    ]
    return f"{text}\n\n{gained}\n\n{tabulate(head, more)}"


BLOCKS: dict[str, Callable[[Results], str]] = {
    "readme": write_readme,
    "evaluation": lambda results: write_boards(results, "evaluation"),
    "development": lambda results: write_boards(results, "development"),
    "other-sources": write_other_sources,
    "mean-gap": write_mean_gap,
    "lost": write_lost,
    "compact": write_compact,
    "paper": write_paper_boards,
    "paper-r2": lambda results: write_paper_tables(results, "r2"),
    "paper-auc": lambda results: write_paper_tables(results, "auc"),
    "parts": write_parts,
    "choosing-ranks": write_choosing_ranks,
    "choosing": write_choosing,
    "student": write_student,
    "intervals": write_intervals,
    "sets": write_sets,
    "groups": write_groups,
    **{name: partial(write_published, block=name) for name in published_coverage.BLOCKS},
    "held": write_held,
    "held-compact": write_held_compact,
    "compact-intervals": write_compact_intervals,
    "missed-intervals": write_missed_intervals,
    "group-errors": write_group_errors,
    "without-rows": write_without_rows,
    "boosting": write_boosting,
    "police": write_police,
    "published-duel": write_published_duel,
    "first": write_first,
    "matrices": write_matrices,
    "matrices-difference": write_matrix_difference,
    "related": write_related,
    "peers": write_peers,
    "worth-short": write_worth_short,
    "worth-mlr-2": lambda results: write_worth(results, "mlr-2"),
    "worth-nets": lambda results: write_worth(results, "nets"),
    "worth-pool": lambda results: write_worth(results, "pool"),
    "worth-readme": write_worth_readme,
    "worth-tables": write_worth_tables,
    "studies-100": write_studies_100,
}


# Pages


def write_block(name: str, present: str, results: Results, place: str) -> str:
    """The text between the markers, with the line ends of the text that is there."""
    if name not in BLOCKS:
        raise SystemExit(f"{place}: no block is called {name!r}; there are {', '.join(BLOCKS)}.")
    try:
        text = BLOCKS[name](results)
    except MissingTableError as missing:
        text = NOT_RUN.format(missing)
        if present.strip() not in ("", text):
            raise SystemExit(
                f"{place}, block {name}: it has numbers, and results/{missing} is not there."
            ) from None
    return f"\n\n{text}\n\n" if "\n" in present else text


def rewrite(page: Path, results: Results) -> tuple[str, str]:
    """The text of a page, and as it should be."""
    old = page.read_text(encoding="utf-8")
    for name in START.findall(old):
        if name not in [found for found, _ in MARKS.findall(old)]:
            raise SystemExit(f"{page}: block {name} must end with <!-- end -->.")
    new = MARKS.sub(
        lambda found: (
            f"<!-- results: {found[1]} -->"
            f"{write_block(found[1], found[2], results, page.name)}<!-- end -->"
        ),
        old,
    )
    return old, new


def compare(old: str, new: str) -> str:
    """The lines that differ, of both texts."""
    before, after = old.strip().splitlines(), new.strip().splitlines()
    return "\n".join(difflib.unified_diff(before, after, "written", "tables", lineterm="", n=0))


def explain(page: Path, old: str, new: str) -> str:
    """Which block differs, and both texts."""
    lines = [f"{page}:"]
    for (name, before), (_, after) in zip(MARKS.findall(old), MARKS.findall(new), strict=True):
        if before != after:
            lines += [f"block {name} is not what the tables say.", compare(before, after)]
    return "\n".join(lines)


Drift = tuple[Path, str, str]  # a file, its text by the tables, and where it differs


def compare_pages(root: Path) -> Iterator[Drift]:
    results, used = Results(root / "results"), set()
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        old, new = rewrite(page, results)
        used |= {name for name, _ in MARKS.findall(old)}
        if old != new:
            yield page, new, explain(page.relative_to(root), old, new)
    if unused := sorted(set(BLOCKS) - used):
        raise SystemExit(f"no page has the markers of {', '.join(unused)}.")


def compare_summaries(root: Path) -> Iterator[Drift]:
    for name, (tables, ours, others) in SUMMARIES.items():
        path = root / "results" / name
        new = summarise_tables([root / "results" / TABLES[one] for one in tables], ours, others)
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if old != new:
            yield path, new, f"results/{name} is not what the tables say.\n{compare(old, new)}"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if texts differ")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README, docs, results")
    arguments = parser.parse_args(given)
    root: Path = arguments.root
    drifted = [*compare_pages(root), *compare_summaries(root)]
    for path, new, message in drifted:
        if arguments.check:
            print(message, file=sys.stderr)
        else:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.relative_to(root)}")
    if drifted and arguments.check:
        raise SystemExit(
            f"{len(drifted)} file(s) are not what results/ says. `make results` writes them."
        )


if __name__ == "__main__":
    main()
