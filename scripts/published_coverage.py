"""Our number beside each published one, or the reason why there is none.

    python scripts/published_coverage.py ../shared/paper/published
    python scripts/published_coverage.py ../shared/paper/published --check

writes results/published_coverage.csv, one row per number of the published tables, from the tables
in results/; --check writes nothing and fails if the file would change. `make results` writes the
blocks of docs/published.md from it, with the functions below. --count-columns DATA writes the
columns num_rebuilt and cat_rebuilt of results/datasets.csv first.

Of several of our numbers the partner is the one with the fewest departures from the print, of
equally many the first in the order of `measure_tables`. A departure is a difference that we know:
other splits, other settings, another recipe of the data.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from muddle.page.html import format_number, format_signed
from muddle_bench.ranking import (
    PUBLISHED_NAMES,
    by_dataset,
    compare_published_classes,
    published_scores,
    rank_methods,
    read_table,
    wins_by_dataset,
)
from muddle_bench.ranking.families import LARGE_Z, ROUNDING, select_members
from muddle_bench.ranking.ranks import SHARES, draw_weights, interval_of_means
from muddle_bench.studies.study_tables import POOLED, read_study
from muddle_runtime.fitted import Task

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
COVERAGE = "published_coverage.csv"

MEASURED, DEPARTS = "measured", "measured with a departure"
FAULT, MISSING = "known fault of the print", "not measured"
STATUSES = (MEASURED, DEPARTS, FAULT, MISSING)
KEY = ["file", "dataset", "method", "metric", "statistic"]
COLUMNS = [*KEY, "printed", "printed_same_sets", "ours", "splits", "source", "difference"]
COLUMNS += ["standard_errors", "status", "remark"]

PUBLISHED = "benchmark_published.csv.gz"
LARGE = "benchmark_published_large.csv.gz"  # the same recipe above 2,000 rows
LOGISTIC = "benchmark_published_logistic.csv.gz"  # ensembles for classes, with another loss
CLEAN = "benchmark_clean.csv.gz"
RELATED = "benchmark_related.csv.gz"
SPLITS_100 = ("studies", "studies_100")  # folders of studies
N_SPLITS, N_STUDY_SPLITS = 10, 100  # in print
N_SETS = 16  # of each task, in print
METRICS: dict[str, tuple[Task, str]] = {
    "r2": ("regression", "r2"),
    "acc": ("classification", "accuracy"),
    "auc": ("classification", "auc"),
}  # name in print: ours
STATISTICS = {"friedman_rank_mean": "rank", "friedman_rank_std": "rank_std"}
STATISTICS |= {"score_mean": "mean", "score_std": "std_difference", "pma_mean": "pma"}

# Departures

SQUARED = "squared loss on 0/1 labels as in the released code, in print logistic by its scores"
ONE_NET, TEN_NETS = "one net per split, ten in print", "ten nets per split, one in print"
REDUCED = "products of hidden layers in TF32"
TEXT = "settings of the paper's text"
RAW = "raw columns instead of the authors' matrix"
OLD_XGBOOST = "XGBoost of today with the defaults of before 1.0"
SCALED = "standardised by training rows too, in print by all rows alone"
HALF_BUDGET = "one split, at most 400 training rows, 30 trials in 40 to 75 s"
# By task and our method.
METHOD_DEPARTURES: dict[tuple[Task, str], str] = {
    ("regression", "mars"): "R's earth instead of py-earth",
    ("regression", "xgboost"): "defaults of XGBoost of today",
    ("classification", "xgboost"): "defaults of XGBoost of today",
    **{("regression", name): SCALED for name in ("mlp", "kernel-ridge")},
    ("classification", "adaboost"): "SAMME, before scikit-learn 1.6 the default was SAMME.R",
    ("classification", "baseline"): "most frequent class, in print labels drawn at random",
    **{
        ("classification", name): SQUARED
        for name in PUBLISHED_NAMES["classification"]
        if "mlr" in name and name not in ("mlr-3-released", "mlr-4-released")  # no ensembles
    },
}

# Reasons of what was not measured

TIMES = "seconds on another machine; the print names no unit"
UNTOLD = "time limit: no preset has one"
COUNTED = "a count of the cited paper, not of an experiment here"
PROPERTY = "a property of the method, not a score"
NO_SPREAD = "one split has no spread"
NO_PACKAGE = "fastai and R's earth were not installed where the larger tables were run"
NO_NETS = "nets of MLR were not run with the released settings above 2,000 rows"
NOT_RUN = "no run of this method on this table"
NO_RELATED = "the system was not run: results/benchmark_related.csv.gz is not there"

# Faults of the print

NO_ACCURACY = "no accuracy: negative on three tables; probably R²"
THRESHOLD = "below the class frequencies with an AUC of 0.84; probably a wrong threshold"
EXPLODED = "about −1e7 to −1e9 on five tables: probably a column constant in training"
ABLATION = "cannot be a mean over the three named tables"
ITERATIONS = "values fit averages over 52 splits, the text says 100"
SEOUL = "the default is 0.814, 0.824, 0.825 and 0.855 in four tables, and 0.878 by depth"
TABLE_5 = "is not the mean of Tables 41 to 50"
ONE_ROW_MORE = "a row too many: the index or the header read as data"
NO_TARGET = "counts 2067 rows without a target, and the target as a feature"
MINUTES = "10 minutes in the table, 5 in the text"
TABNN = "the table says 5 tables of 14.8K to 7.3M rows, the text 6 of 15K to 7.9M"
NET_DNF = "no in the table, end-to-end in the text"


class Score(NamedTuple):
    """Our mean of one method on one data set."""

    mean: float
    std: float  # over splits
    n_splits: int
    source: str
    departures: tuple[str, ...]


@dataclass(frozen=True)
class Partner:
    """Our number beside a printed one."""

    value: float | str
    source: str
    departures: tuple[str, ...] = ()
    n_splits: int | None = None
    error: float | None = None  # standard error of the difference
    same_sets: float | None = None  # the printed mean over the data sets that we have
    remarks: tuple[str, ...] = ()  # that are no departures


@dataclass(frozen=True)
class Number:
    """A printed number, its partner or the reason why there is none, and its fault."""

    file: str
    dataset: str
    method: str
    metric: str
    statistic: str
    printed: str
    partner: Partner | None = None
    reason: str = ""
    fault: str = ""

    def to_row(self) -> dict[str, str]:
        row = dict.fromkeys(COLUMNS, "")
        row |= {name: getattr(self, name) for name in (*KEY, "printed")}
        ours = self.partner
        remarks = [self.fault]
        if ours is not None:
            row["ours"] = ours.value if isinstance(ours.value, str) else f"{ours.value:.6g}"
            row["source"] = ours.source
            row["splits"] = "" if ours.n_splits is None else str(ours.n_splits)
            beside = to_float(self.printed)
            if ours.same_sets is not None:
                row["printed_same_sets"], beside = f"{ours.same_sets:.6g}", ours.same_sets
            if beside is not None and isinstance(ours.value, float | int):
                difference = ours.value - beside
                row["difference"] = f"{difference:.4g}"
                if ours.error:
                    row["standard_errors"] = f"{difference / ours.error:.1f}"
            remarks += [*ours.departures, *ours.remarks]
        elif not self.fault:
            remarks.append(self.reason)
        row["status"] = self.status
        row["remark"] = "; ".join(filter(None, remarks))
        return row

    @property
    def status(self) -> str:
        if self.fault:
            return FAULT
        if self.partner is None:
            return MISSING
        return DEPARTS if self.partner.departures else MEASURED


def to_float(printed: str) -> float | None:
    """The number as printed: 0.70, -1.5e8, 14.8K; None for words."""
    try:
        return float(printed)
    except ValueError:
        return None


def name_splits(n_splits: int, printed: int = N_SPLITS) -> str:
    """The departure of another number of splits."""
    words = {1: "one split", 2: "two splits", 3: "three splits", 5: "five splits", 10: "ten splits"}
    in_print = {10: "ten", 100: "100"}[printed]
    if n_splits == printed:
        return ""
    return f"{words.get(n_splits, f'{n_splits} splits')}, {in_print} in print"


# Our scores, data set by data set


@dataclass
class Scores:
    """All of our scores that may be partners, and why other cells have none.

    Keys: data set, name of the method in print, name of the metric in print."""

    found: dict[tuple[str, str, str], list[Score]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, key: tuple[str, str, str], score: Score) -> None:
        if math.isfinite(score.mean):
            departures = (*score.departures, name_splits(score.n_splits))
            score = score._replace(departures=tuple(filter(None, departures)))
            self.found.setdefault(key, []).append(score)

    def best(self, dataset: str, method: str, metric: str) -> Score | None:
        scores = self.found.get((dataset, method, metric), [])
        return min(scores, key=lambda score: len(score.departures)) if scores else None


def measure_tables(results: Path) -> Scores:
    """The scores of our tables; of those with equally many departures the first counts."""
    scores = Scores()
    add_records(scores, results, "benchmark_old_defaults.csv")
    add_records(scores, results, PUBLISHED)
    add_ensembles(scores, results, "replication_ensembles_logistic.csv")
    add_three_depths(scores, results)
    add_depths(scores, results)
    add_ensembles(scores, results, "replication_ensembles.csv")
    for file in (LOGISTIC, LARGE):
        if (results / file).exists():
            add_records(scores, results, file)
    add_records(scores, results, CLEAN, (RAW,))
    return scores


def add_records(scores: Scores, results: Path, file: str, departures: tuple[str, ...] = ()) -> None:
    """Means over the finished splits of an exported table."""
    table = read_table(results / file)
    for printed_metric, (task, metric) in METRICS.items():
        names = PUBLISHED_NAMES[task]
        part = table[table["task"] == task]
        if part.empty:
            continue
        for row in by_dataset(part, metric).itertuples():
            method, more = row.method, [*departures]
            if method == "old-xgboost":
                name, more = names["xgboost"], [*more, OLD_XGBOOST]
            elif method == "ens-mlr-paper" and file == CLEAN:
                name, more = names["ens-mlr-released"], [*more, TEXT]
            elif method in names:
                name = names[method]
                more.append(METHOD_DEPARTURES.get((task, method), ""))
            elif method.endswith("-logistic"):  # of scripts/logistic_ensembles.py
                name = names[f"{method.removesuffix('-logistic')}-released"]
            else:
                continue
            more.append(ONE_NET if name in ("MLR1", "MLR2") else "")
            told = tuple(filter(None, more))
            key = (row.dataset, name, printed_metric)
            scores.add(key, Score(row.mean, row.std, int(row.n_splits), file, told))
        failed = part[(part["status"] != "ok") & part["method"].isin(names)]
        for (dataset, method), cells in failed.groupby(["dataset", "method"]):
            reason = re.sub(r"of class \d", "of a class", cells["reason"].iloc[0].split(". ")[0])
            told_reason = f"{cells['status'].iloc[0]}: {reason}"
            scores.reasons.setdefault((dataset, names[method]), told_reason)


def add_ensembles(scores: Scores, results: Path, file: str) -> None:
    """Ensembles and the means of their nets, with the released code's settings."""
    names = {"Ens-MLR": "Ensemble-MLR", "Best-MLR": "Best_MLR", "Top5-MLR": "Top5_MLR"}
    names |= {f"Bag-MLR{depth}": f"MLR{depth}_bagging" for depth in (1, 2)}
    for row in pd.read_csv(results / file).itertuples():
        squared = row.task == "classification" and row.criterion == "squared"
        key = (row.dataset_id, names.get(row.method, row.method), row.metric)
        departures = (SQUARED,) if squared else ()
        scores.add(key, Score(row.ours, row.ours_std, row.splits, file, departures))


def add_three_depths(scores: Scores, results: Path) -> None:
    """One and two layers on three data sets, ten nets per split, products in float32."""
    file = "replication_depth.csv"
    for row in pd.read_csv(results / file).itertuples():
        if row.settings == "released":
            key = (row.dataset_id, f"MLR{row.depth}", "r2")
            scores.add(key, Score(row.r2, row.r2_std, row.splits, file, ()))


def add_depths(scores: Scores, results: Path) -> None:
    """Means of ten nets per split, and their bags, of one to four layers."""
    file = "studies/depth.csv"
    for row in read(results, "depth").itertuples():
        n_splits = int(row.n_splits)
        if not n_splits:
            continue
        spread = math.sqrt(n_splits)
        few = row.value in ("1", "2")
        reduced = (REDUCED,) if "reduced" in row.hardware else ()
        told = reduced if few else (TEN_NETS, *reduced)
        single = Score(row.score, row.score_se * spread, n_splits, file, told)
        scores.add((row.dataset, f"MLR{row.value}", "r2"), single)
        if few:
            bag = Score(row.bag, row.bag_se * spread, n_splits, file, reduced)
            scores.add((row.dataset, f"MLR{row.value}_bagging", "r2"), bag)


def read(results: Path, study: str, folders: Sequence[str] = ("studies",)) -> pd.DataFrame:
    """The points of a study with their source; of several folders those with the most splits."""
    tables = [
        table.assign(source=f"{folder}/{study}.csv")
        for folder in folders
        if (results / folder).is_dir()
        and (table := read_study(results / folder, study)) is not None
    ]
    whole = pd.concat(tables).sort_values("n_splits", ascending=False, kind="stable")
    return whole.drop_duplicates(["dataset", "value"])


def squared_error(std: float | None, n_splits: int) -> float:
    return math.nan if std is None else std**2 / n_splits


def make_pair(
    score: Score, printed: Sequence[str], number: Number, departures: tuple[str, ...] | None = None
) -> Iterator[Number]:
    """A printed mean and standard deviation over ten splits, beside a score of ours."""
    told = score.departures if departures is None else departures
    spread = to_float(printed[1])
    variance = squared_error(score.std, score.n_splits) + squared_error(spread, N_SPLITS)
    error = math.sqrt(variance + ROUNDING**2 / 12)
    base = Partner(score.mean, score.source, told, score.n_splits)
    own_error = error if math.isfinite(error) else None
    yield replace(number, printed=printed[0], partner=replace(base, error=own_error))
    number = replace(number, statistic=number.statistic.replace("mean", "std"), printed=printed[1])
    if score.n_splits < 2:
        yield replace(number, reason=NO_SPREAD)
    else:
        yield replace(number, partner=replace(base, value=score.std))


# The published tables. Each function yields the numbers of one file.


@dataclass(frozen=True)
class Sources:
    """The published tables as texts, our scores, and the folder of our tables."""

    folder: Path
    results: Path
    scores: Scores

    def read(self, file: str) -> Iterator["pd.Series[str]"]:
        table = pd.read_csv(self.folder / file, dtype=str, keep_default_na=False)
        for _, row in table.iterrows():
            yield row


def cover_per_dataset(sources: Sources, task: Task) -> Iterator[Number]:
    file = f"per_dataset_{task}.csv"
    for row in sources.read(file):
        dataset, method, metric = row["dataset_id"], row["method"], row["metric"]
        number = Number(file, dataset, method, metric, "mean", row["mean"])
        if (method, metric) == ("LGBM", "acc"):
            number = replace(number, fault=NO_ACCURACY)
        elif (method, metric) == ("FASTAI", "acc"):
            number = replace(number, fault=THRESHOLD)
        elif method == "FASTAI" and float(row["mean"]) < -1e6:
            number = replace(number, fault=EXPLODED)
        score = sources.scores.best(dataset, method, metric)
        if score is not None:
            yield from make_pair(score, (row["mean"], row["std"]), number)
            continue
        reason = explain_missing(sources.scores, dataset, method)
        for statistic in ("mean", "std"):
            yield replace(number, statistic=statistic, printed=row[statistic], reason=reason)


def explain_missing(scores: Scores, dataset: str, method: str) -> str:
    if (dataset, method) in scores.reasons:
        return scores.reasons[dataset, method]
    if method in ("FASTAI", "MARS"):
        return NO_PACKAGE
    return NO_NETS if "MLR" in method else NOT_RUN


def cover_depth(sources: Sources) -> Iterator[Number]:
    file = "studies/depth.csv"
    ours = read(sources.results, "depth").set_index(["dataset", "value"])
    for row in sources.read("depth.csv"):
        own = ours.loc[(row["dataset_id"], row["depth"])]
        n_splits = int(own["n_splits"])
        std = own["score_se"] * math.sqrt(n_splits)
        reduced = REDUCED if "reduced" in own["hardware"] else ""
        told = tuple(filter(None, [name_splits(n_splits), reduced]))
        score = Score(own["score"], std, n_splits, file, told)
        number = Number("depth.csv", row["dataset_id"], f"MLR{row['depth']}", "r2", "mean", "")
        yield from make_pair(score, (row["r2_mean"], row["r2_std"]), number)


def average_scores(sources: Sources, method: str, metric: str) -> tuple[Partner, Partner]:
    """The mean over data sets of our scores of a method, as Tables 2 to 4 are made of Tables 9 to
    40, and the mean of their standard deviations."""
    task, name = METRICS[metric]
    printed = published_scores()
    printed = printed[(printed["metric"] == name) & (printed["printed"] == method)]
    pairs = [
        (score, row)
        for row in printed.itertuples()
        if (score := sources.scores.best(row.dataset, method, metric)) is not None
    ]
    n_departing = sum(bool(score.departures) for score, _ in pairs)
    told = [f"{len(pairs)} of {len(printed)} tables"] if len(pairs) < len(printed) else []
    if n_departing:
        told.append(f"{n_departing} of {len(pairs)} tables with a departure")
    variances = [
        score.std**2 / score.n_splits + row.std**2 / N_SPLITS + ROUNDING**2 / 12
        for score, row in pairs
    ]
    error = math.sqrt(sum(variances)) / len(pairs)
    source = f"rows of per_dataset_{task}.csv"
    whole = len(pairs) == len(printed)
    spreads = [pair for pair in pairs if math.isfinite(pair[0].std)]
    mean, std = (
        Partner(
            float(np.mean([getattr(score, name) for score, _ in found])),
            source,
            tuple(told),
            same_sets=None if whole else float(np.mean([getattr(row, name) for _, row in found])),
        )
        for name, found in (("mean", pairs), ("std", spreads))
    )
    return replace(mean, error=error if math.isfinite(error) else None), std


def cover_overall_regression(sources: Sources) -> Iterator[Number]:
    file = "overall_regression.csv"
    table = select_members(read_table(sources.results / PUBLISHED), "r2", "published")
    n_sets = table[table["task"] == "regression"]["dataset"].nunique()
    ranked = rank_methods(table, "r2").set_index("method")
    methods = {printed: ours for ours, printed in PUBLISHED_NAMES["regression"].items()}
    methods["Lasso"] = methods["LAS"]
    for row in sources.read(file):
        method = "LAS" if row["method"] == "Lasso" else row["method"]
        own = ranked.loc[methods[method]]
        partner, std = average_scores(sources, method, "r2")
        number = Number(file, "all", row["method"], "r2", "r2_mean", row["r2_mean"])
        fault = EXPLODED if method == "FASTAI" else ""
        yield replace(number, partner=partner, fault=fault)
        number = replace(number, statistic="r2_std", printed=row["r2_std"], fault=fault)
        yield replace(number, partner=std)
        departure = METHOD_DEPARTURES.get(("regression", methods[method]), "")
        told = tuple(filter(None, [f"{n_sets} of {N_SETS} tables", departure]))
        for name in ("friedman_rank_mean", "friedman_rank_std", "pma_mean", "pma_std", *SHARES):
            own_name = STATISTICS.get(name, name)
            found = Partner(float(own[own_name]), PUBLISHED, told, N_SPLITS)
            wrong = fault if name.startswith("pma") else ""
            yield replace(number, statistic=name, printed=row[name], partner=found, fault=wrong)


def cover_overall_classification(sources: Sources) -> Iterator[Number]:
    file = "overall_classification.csv"
    names = {"Lasso": "LAS"}
    for row in sources.read(file):
        method, metric = names.get(row["method"], row["method"]), row["metric"]
        fault = NO_ACCURACY if (method, metric) == ("LGBM", "acc") else ""
        fault = THRESHOLD if (method, metric) == ("FASTAI", "acc") else fault
        partner, std = average_scores(sources, method, metric)
        number = Number(file, "all", row["method"], metric, "mean", row["mean"], partner, "", fault)
        yield number
        yield replace(number, statistic="std", printed=row["std"], partner=std)


# In print: our family.
CLASS_NAMES = {"LM": "GLM", "Intercept": "Baseline", "Class prob.": "Baseline"}


def cover_classes(sources: Sources) -> Iterator[Number]:
    file = "class_performance.csv"
    compared = compare_published_classes(read_table(sources.results / PUBLISHED))
    ours = compared.set_index(["metric", "family", "statistic"]).to_dict("index")
    ends = ("mean", "std")
    names = [f"{start}_{end}" for start in ("friedman_rank", "score") for end in ends]
    names += [*SHARES, "pma_mean", "pma_std"]
    for row in sources.read(file):
        metric, family = METRICS[row["metric"]][1], CLASS_NAMES.get(row["class"], row["class"])
        for name in names:
            if not row[name]:
                continue
            own = ours[metric, family, STATISTICS.get(name, name)]
            told = (f"{own['n_datasets']} of {N_SETS} tables",)
            mean = ours[metric, family, "mean_same_datasets"]["published"]
            same = mean if name == "score_mean" else None
            partner = Partner(own["measured"], PUBLISHED, told, N_SPLITS, same_sets=same)
            number = Number(file, "all", row["class"], row["metric"], name, row[name], partner)
            wrong = (row["class"], row["metric"]) == ("NN", "acc")
            yield replace(number, fault=THRESHOLD if wrong else "")


def cover_ablation(sources: Sources) -> Iterator[Number]:
    ours = read(sources.results, "ablation", SPLITS_100).set_index(["dataset", "value"])
    small = ["concrete-slump-test-3", "qsar-aquatic-toxicity"]
    for row in sources.read("ablation.csv"):
        own = ours.loc[(POOLED, row["step"])]
        parts = ours.loc[[(dataset, row["step"]) for dataset in small]]
        n_splits = int(own["n_splits"])
        told = tuple(filter(None, [name_splits(n_splits, N_STUDY_SPLITS)]))
        for name, column in (("mean_r2", "score"), ("bagging_r2", "bag")):
            both, n_small = parts[column].mean(), int(parts["n_splits"].min())
            remark = f"without Seoul bike, {n_small} splits: {both:.3f}"
            partner = Partner(own[column], own["source"], told, n_splits, remarks=(remark,))
            number = Number("ablation.csv", "mean of three", row["step"], "r2", name, row[name])
            yield replace(number, partner=partner, fault=ABLATION)
            std = own[f"{column}_se"] * math.sqrt(n_splits)
            which = (*told, "over splits of the mean over tables, the print does not say of what")
            spread = Partner(std, own["source"], which, n_splits)
            number = replace(number, statistic=f"{name}_std", printed=row[f"{name}_std"])
            wrong = to_float(number.printed) == 0.0
            yield replace(number, partner=spread, fault="a spread of 0.000" if wrong else "")


STUDY_NAMES = {"structured_dithering": "structured_noise", "dither": "label_noise"}


def cover_dependence(sources: Sources) -> Iterator[Number]:
    columns = {"r2": "score", "best_iter": "best_iteration", "r2_val": "score_val"}
    columns |= {"ridge_init": "ridge_init"}
    tables = {}
    for row in sources.read("dependence.csv"):
        study = STUDY_NAMES.get(row["study"], row["study"])
        if study not in tables:
            tables[study] = read(sources.results, study, SPLITS_100)
        dataset, seoul = row["dataset_id"], row["dataset_id"].startswith("seoul")
        own = find_point(tables[study], dataset, row["value"], row["is_default"] == "yes")
        n_splits = int(own["n_splits"])
        told = [name_splits(n_splits, N_STUDY_SPLITS)]
        told += ["table made from the raw file, 32 columns"] if dataset == "beijing-pm25" else []
        method = f"{study} {own['value']}"
        for name in ("r2", "time_s", "best_iter", "r2_val", "ridge_init"):
            if not row[name]:
                continue
            number = Number("dependence.csv", dataset, method, name, "mean", row[name])
            if name == "time_s":
                yield replace(number, reason=TIMES)
                continue
            value = float(own[columns[name]])
            if not n_splits or not math.isfinite(value):
                yield replace(number, reason=NOT_RUN)
                continue
            fault = SEOUL if seoul and row["is_default"] == "yes" and name[:2] == "r2" else ""
            if (study, dataset, name) == ("batch_size", "concrete-slump-test-3", "best_iter"):
                fault = ITERATIONS
            known = tuple(filter(None, told))
            partner = Partner(value, own["source"], known, n_splits)
            yield replace(number, partner=partner, fault=fault)


def find_point(table: pd.DataFrame, dataset: str, value: str, is_default: bool) -> "pd.Series[str]":
    """The row of a value, by its number or as the default."""
    part = table[table["dataset"] == dataset]
    number = to_float(value)
    same = part["value"].map(to_float) == number if number is not None else part["value"] == value
    if not same.any() and is_default:
        same = part["is_default"] == "yes"
    assert same.sum() == 1, (dataset, value)
    return part[same].iloc[0]


MODELS = {"CatBoost": "catboost", "RF": "rf", "MLR": "mlr", "XgBoost": "xgboost"}


def cover_hpo(sources: Sources) -> Iterator[Number]:
    file, source = "hpo.csv", "tuning.csv"
    cells = pd.read_csv(sources.results / source)
    n_splits = int(cells["split"].nunique())
    whole = cells.groupby("dataset")["model"].nunique() == cells["model"].nunique()
    board = cells[cells["dataset"].map(whole)]
    rows = list(sources.read(file))
    printed = pd.DataFrame([row for row in rows if row["scope"] == "dataset"])
    means = printed["mean"].astype(float).groupby([printed["model"], printed["strategy"]]).mean()
    for row in rows:
        model, strategy, metric = row["model"], row["strategy"], row["metric"]
        dataset = row["dataset_id"] or f"Table {row['table']}"
        number = Number(file, dataset, f"{model} {strategy}", metric, "mean", row["mean"])
        frame = board.pivot_table(index=["dataset", "split"], columns="model", values=strategy)
        if row["scope"] == "dataset":
            own = cells[(cells["dataset"] == row["dataset_id"]) & (cells["model"] == model)]
            value, std, same, fault = own[strategy].mean(), own[strategy].std(), None, ""
        else:
            value, std = summarise_tuned(frame, metric)[model]
            same = float(means[model, strategy]) if metric == "r2" else None
            off = same is not None and abs(same - float(row["mean"])) > 0.002
            fault = TABLE_5 if off and row["table"] in ("5", "6", "7", "8") else ""
        partner = Partner(float(value), source, (HALF_BUDGET,), n_splits, same_sets=same)
        yield replace(number, partner=partner, fault=fault)
        if row["std"]:
            number = replace(number, statistic="std", printed=row["std"])
            if math.isfinite(std):
                spread = replace(partner, value=float(std), same_sets=None)
                yield replace(number, partner=spread)
            else:
                yield replace(number, reason=NO_SPREAD)


def summarise_tuned(frame: pd.DataFrame, metric: str) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over pairs of a statistic of Tables 5 to 8, per model."""
    if metric == "r2":
        spreads = frame.groupby(level="dataset").std().mean()
        return {name: (frame[name].mean(), spreads[name]) for name in frame}
    best = frame.max(axis=1)
    shares = frame.div(best.where(best > 0), axis=0)
    if metric == "friedman_rank":
        values = frame.rank(axis=1, ascending=False)
    else:
        values = shares if metric == "pma" else (shares > SHARES[metric]).astype(float)
    return {name: (values[name].mean(), values[name].std()) for name in values}


def cover_architectures(sources: Sources) -> Iterator[Number]:
    from muddle.training.config import preset_config

    file, source = "architectures.csv", "muddle.training.config.preset_config"
    for row in sources.read(file):
        name = f"mlr-{row['L']}"
        config = preset_config(name, "paper", "regression")
        classes = preset_config(name, "paper", "classification")
        settings: dict[str, float | str] = {
            "L": config.depth,
            "lr": config.rate,
            "log10_lr": math.log10(config.rate),
            "max_iter": config.steps,
            "J": config.width,
            "bs": f"min(n,{config.batch_size})",
            "T": config.n_permutations,
            "sigma_reg": config.dither,
            "sigma_clf": classes.dither,
        }
        for column in ("L", "lr", "log10_lr", "max_iter", "J", "bs", "T", "sigma_reg", "sigma_clf"):
            number = Number(file, "", row["architecture"], column, "setting", row[column])
            yield replace(number, partner=Partner(settings[column], source))
        for column in ("fixB_min_table", "fixB_min_text"):
            number = Number(file, "", row["architecture"], column, "setting", row[column])
            yield replace(number, reason=UNTOLD, fault=MINUTES)


def cover_datasets(sources: Sources) -> Iterator[Number]:
    file, source = "datasets.csv", "datasets.csv"
    ours = pd.read_csv(sources.results / source).set_index("dataset")
    for row in sources.read(file):
        own = ours.loc[row["dataset_id"]]
        for column in ("n", "d", "num", "cat"):
            if not row[column]:
                continue
            number = Number(file, row["dataset_id"], "", column, "count", row[column])
            fault = ""
            if row["dataset_id"] == "beijing-pm25":
                fault = NO_TARGET
            elif column == "n" and int(own["n_clean"]) == int(own["n_rebuilt"]) - 1:
                fault = ONE_ROW_MORE
            yield replace(
                number, partner=Partner(int(own[f"{column}_rebuilt"]), source), fault=fault
            )


# Names in the table of related work: our methods.
SYSTEMS: dict[str, tuple[str, ...]] = {
    "TabNN": ("tabnn",),
    "NODE": ("node",),
    "TabNet": ("tabnet",),
    "DNDT": ("dndt",),
    "NTK": ("ntk-svm", "ntk-ridge"),
    "SNN": ("snn",),
    "Net-DNF": ("net-dnf",),
    "RLN": ("rln",),
    "MLR (this work)": ("ens-mlr-released",),
}
RIVAL = {"works_without_hp_tuning": "baseline", "consistently_outperforms_gbdt": "catboost"}
RIVAL_NAMES = {"baseline": "a constant prediction", "catboost": "CatBoost"}


def cover_related(sources: Sources) -> Iterator[Number]:
    file = "related_work.csv"
    table = read_table(sources.results / PUBLISHED)
    where = dict.fromkeys(table["method"].unique(), PUBLISHED)
    if (sources.results / RELATED).exists():
        related = read_table(sources.results / RELATED)
        related = related[~related["method"].isin(where)]
        where |= dict.fromkeys(related["method"].unique(), RELATED)
        table = read_table(pd.concat([table, related]))
    sizes = pd.read_csv(sources.results / "datasets.csv")
    sizes = sizes[sizes["dataset"] != "beijing-pm25"]
    for row in sources.read(file):
        for column in ("end_to_end_differentiable", "works_without_hp_tuning", "task"):
            yield cover_cell(table, where, Number(file, "", row["method"], column, "", row[column]))
        for column in ("n_datasets", "range_n"):
            number = Number(file, "", row["method"], column, "count", row[column], reason=COUNTED)
            if row["method"].startswith("MLR"):
                ends = f"{sizes['n_rebuilt'].min()}-{sizes['n_rebuilt'].max() // 1000}K"
                value = len(sizes) if column == "n_datasets" else ends
                number = replace(number, partner=Partner(value, "datasets.csv"))
            yield replace(number, fault=TABNN if row["method"] == "TabNN" else "")
        column = "consistently_outperforms_gbdt"
        yield cover_cell(table, where, Number(file, "", row["method"], column, "", row[column]))


def cover_cell(table: pd.DataFrame, where: dict[str, str], number: Number) -> Number:
    """A word of the table of related work, beside the share of splits that the system wins."""
    number = replace(number, statistic="word")
    if number.metric not in RIVAL:
        wrong = (number.method, number.metric) == ("Net-DNF", "end_to_end_differentiable")
        return replace(number, reason=PROPERTY, fault=NET_DNF if wrong else "")
    method = next((name for name in SYSTEMS[number.method] if name in where), None)
    if method is None:
        return replace(number, reason=NO_RELATED)
    rival = RIVAL[number.metric]
    metrics = {"regression": "r2", "classification": "auc"}
    if number.printed.startswith("Reg"):
        metrics.pop("classification")
    wins = pd.concat(
        wins_by_dataset(part, method, metric)[rival].dropna()
        for task, metric in metrics.items()
        if method in set((part := table[table["task"] == task])[part["status"] == "ok"]["method"])
    )
    ends = interval_of_means(draw_weights(list(wins.index), 2000), wins.to_numpy()[:, None])
    low, high = (float(end[0]) for end in ends)
    by = " or ".join(LABELS[metric] for metric in metrics.values())
    share = (
        f"share of splits on which {method} at its defaults beats {RIVAL_NAMES[rival]}, by {by}: "
        f"mean of {len(wins)} tables, 95 % interval {low:.2f} to {high:.2f}"
    )
    told = ("our tables, not those of its paper",) if where[method] == RELATED else ()
    return replace(
        number, partner=Partner(float(wins.mean()), where[method], told, remarks=(share,))
    )


COVERS: dict[str, Callable[[Sources], Iterator[Number]]] = {
    "class_performance.csv": cover_classes,
    "overall_regression.csv": cover_overall_regression,
    "overall_classification.csv": cover_overall_classification,
    "per_dataset_regression.csv": partial(cover_per_dataset, task="regression"),
    "per_dataset_classification.csv": partial(cover_per_dataset, task="classification"),
    "ablation.csv": cover_ablation,
    "dependence.csv": cover_dependence,
    "depth.csv": cover_depth,
    "hpo.csv": cover_hpo,
    "architectures.csv": cover_architectures,
    "datasets.csv": cover_datasets,
    "related_work.csv": cover_related,
}


def cover(folder: Path, results: Path = RESULTS) -> pd.DataFrame:
    """One row per published number."""
    sources = Sources(folder, results, measure_tables(results))
    rows = [number.to_row() for build in COVERS.values() for number in build(sources)]
    return pd.DataFrame(rows, columns=COLUMNS)


# The page

QUANTITIES = {"mean": "", "r2_mean": "", "score_mean": "", "mean_r2": "", "bagging_r2": ", bags"}
LABELS = {"r2": "R²", "acc": "accuracy", "auc": "AUC", "pma": "PMA", "friedman_rank": "rank"}
LABELS |= {"r2_val": "R², validation", "best_iter": "iteration", "ridge_init": "first λ"}
LABELS |= {"p90": "P90", "p95": "P95", "p98": "P98"}
NEAR, LARGE_DIFFERENCE, N_SHOWN = 0.01, 0.05, 20
# What is known of large differences: file, data set and method, each a pattern.
KNOWN = [
    (
        "dependence",
        "qsar-aquatic-toxicity",
        "ridge_init 0",
        "λ near 0: nets that diverge decide the mean",
    ),
    (
        "dependence",
        "concrete-slump-test-3",
        "ridge_init 0",
        "λ near 0: nets that diverge decide the mean",
    ),
    ("dependence", "seoul", "ridge_init 0$", "theirs stopped at iteration 0, ours did not"),
    ("dependence", "seoul", "", "other target or splits in print: by depth it has 0.878, as here"),
    ("dependence", "beijing", "", "there is no matrix of the authors to compare with"),
    ("dependence", "concrete-slump-test-3", "", "their splits are not known; 21 test rows"),
    ("", "blr-real-estate-prices", "", "the raw columns tell more than the two of the matrix"),
    ("", "", "MARS", "R's earth prunes otherwise than py-earth"),
    ("", "", "Kernel", "scaled by all rows its mean is 0.651, as in print"),
    ("", "", "MLP", "probably scaling: kernel ridge differs alike, and agrees if scaled as theirs"),
    ("", "", "FASTAI", "few test rows; their version of fastai is not known"),
    ("", "", "Class prob", "theirs draws labels at random"),
    ("", "", "QDA", "collinear columns: the result is rounding noise"),
    ("", "post-operative-patient", "", "90 rows without a signal"),
    ("", "cervical-cancer|coimbra", "MLR", "the loss: logistic in print, by its scores"),
    ("", "concrete-slump-test", "MLR", "21 test rows"),
]


def explain(row: "pd.Series[str]") -> str:
    """What is known of a large difference."""
    for file, dataset, method, text in KNOWN:
        parts = ((file, row["file"]), (dataset, row["dataset"]), (method, row["method"]))
        if all(re.match(pattern, value) for pattern, value in parts):
            return text
    return ""


def summarise(table: pd.DataFrame) -> list[str]:
    """How many numbers have ours beside them, and how near ours are where nothing departs."""
    n, n_ours = len(table), (table["ours"] != "").sum()
    counts = table["status"].value_counts()
    lines = [
        f"Of {n:,} numbers {n_ours:,} have ours beside them ({100 * n_ours / n:.0f} %), "
        f"{counts[MEASURED]:,} of these without a departure, {counts[DEPARTS]:,} with one that is "
        f"named, {n_ours - counts[MEASURED] - counts[DEPARTS]:,} beside a fault of the print. "
        "Means per data set without a departure:",
        "",
    ]
    found = find_compared(table)
    found = found[found["file"].str.startswith("per_dataset") & (found["status"] == MEASURED)]
    for quantity, own in found.groupby("quantity", sort=False):
        sizes = own["difference"].abs()
        lines.append(
            f"- {quantity}: {len(own)} numbers, {100 * (sizes < NEAR).mean():.0f} % within {NEAR} "
            f"of print, {100 * (sizes < ROUNDING / 2).mean():.0f} % equal in three digits; median "
            f"difference {format_signed(own['difference'].median())}."
        )
    return lines


def to_markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def count_statuses(table: pd.DataFrame) -> list[str]:
    counts = table.groupby(["file", "status"], sort=False).size().unstack(fill_value=0)
    counts = counts.reindex(columns=STATUSES, fill_value=0)
    counts.loc["**all**"] = counts.sum()
    rows = [
        [f"{file}", *(f"{n:,}" for n in own), f"{own.sum():,}"] for file, own in counts.iterrows()
    ]
    return to_markdown(["published table", *STATUSES, "numbers"], rows)


def find_compared(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers with a difference, without faults of the print and without spreads."""
    found = table[table["status"].isin([MEASURED, DEPARTS]) & (table["difference"] != "")].copy()
    for column in ("difference", "standard_errors"):
        found[column] = pd.to_numeric(found[column])
    names = found["statistic"].str.removesuffix("_mean")
    known = found["statistic"].isin(QUANTITIES)
    found["quantity"] = names.where(~known, found["metric"]).map(lambda name: LABELS.get(name, ""))
    found["quantity"] += found["statistic"].map(QUANTITIES).fillna("")
    ranks = known | ~found["statistic"].str.contains("std|setting|count|word")
    return found[ranks]


def list_groups(table: pd.DataFrame) -> list[str]:
    """Sizes of the differences by published table, quantity and status."""
    rows = []
    compared = find_compared(table)
    for (file, quantity), whole in compared.groupby(["file", "quantity"], sort=False):
        for status in (MEASURED, DEPARTS):
            part = whole[whole["status"] == status]
            if part.empty:
                continue
            sizes, errors = part["difference"].abs(), part["standard_errors"].dropna().abs()
            beyond = f"{(errors > LARGE_Z).sum()} of {len(errors)}" if len(errors) else ""
            numbers = [sizes.median(), sizes.mean()]
            cells = [format_number(number) for number in numbers]
            told = "departs" if status == DEPARTS else "as printed"
            rows.append([file, quantity, told, f"{len(part)}", *cells, beyond])
    head = ["published table", "", "partner", "numbers", "median size", "mean size"]
    return to_markdown([*head, f"beyond {LARGE_Z:g} standard errors"], rows)


def list_largest(table: pd.DataFrame) -> list[str]:
    """The largest differences of scores, one line per data set and departure."""
    found = find_compared(table)
    found = found[found["metric"].isin(METRICS) & found["statistic"].isin(["mean", "bagging_r2"])]
    found = found[~found["file"].isin(["hpo.csv", "overall_classification.csv", "depth.csv"])]
    found = found[found["difference"].abs() > LARGE_DIFFERENCE]
    found["known"] = [explain(row) for _, row in found.iterrows()]
    sizes = found["difference"].abs()
    rows = []
    for _, part in found.groupby(["file", "dataset", "known"], sort=False):
        worst = part.loc[sizes[part.index].idxmax()]
        own = format_number(float(worst["ours"]))
        more = f" (and {len(part) - 1} more)" if len(part) > 1 else ""
        cells = [worst["dataset"], f"{worst['method']}, {LABELS[worst['metric']]}{more}"]
        cells += [worst["printed"], own, format_signed(worst["difference"])]
        rows.append((-abs(worst["difference"]), [*cells, worst["known"] or worst["remark"]]))
    rows.sort(key=lambda pair: pair[0])
    head = ["data set", "number", "printed", "ours", "difference", "known of it"]
    return to_markdown(head, [cells for _, cells in rows[:N_SHOWN]])


def list_beyond(table: pd.DataFrame) -> list[str]:
    """Numbers measured as printed that are apart by more than three standard errors."""
    found = find_compared(table)
    found = found[(found["status"] == MEASURED) & (found["standard_errors"].abs() > LARGE_Z)]
    rows = [
        [
            *(row["dataset"], f"{row['method']}, {row['quantity']}", row["printed"]),
            *(format_number(float(row["ours"])), format_signed(row["difference"])),
            *(format_signed(row["standard_errors"], 1), row["file"].removesuffix(".csv")),
        ]
        for _, row in found.iterrows()
    ]
    head = ["data set", "number", "printed", "ours", "difference", "standard errors", "in"]
    return to_markdown(head, rows)


def count_remarks(table: pd.DataFrame, status: str) -> list[str]:
    """How often each departure or reason occurs, the most frequent first."""
    part = table[table["status"] == status]
    remarks = part["remark"].map(lambda text: text.split("; ") if status == DEPARTS else [text])
    remarks = remarks.explode()
    remarks = remarks[~remarks.str.contains("without Seoul bike|share of splits|interval")]
    remarks = remarks.str.replace(r"^\d+ of (\d+) tables", r"some of \1 tables", regex=True)
    counts = (
        remarks.value_counts(sort=False).sort_index().sort_values(ascending=False, kind="stable")
    )
    files = remarks.groupby(remarks).agg(lambda own: list_files(part.loc[own.index, "file"]))
    head = ["departure" if status == DEPARTS else "reason", "numbers", "in"]
    return to_markdown(head, [[text, f"{n:,}", files[text]] for text, n in counts.items()])


def count_faults(table: pd.DataFrame) -> list[str]:
    part = table[table["status"] == FAULT]
    texts = part["remark"].map(lambda remark: remark.split("; ")[0])
    texts = texts.where(~part["remark"].str.startswith(NO_ACCURACY), NO_ACCURACY)
    texts = texts.where(~part["remark"].str.startswith(THRESHOLD), THRESHOLD)
    rows = []
    for text, own in part.groupby(texts, sort=False):
        which = own["method"].where(own["method"] != "", own["dataset"]).drop_duplicates()
        more = f" and {len(which) - 3} more" if len(which) > 4 else ""
        shown = ", ".join(which if len(which) <= 4 else which[:3]) + more
        rows.append([f"{text}", shown, f"{len(own)}", list_files(own["file"])])
    return to_markdown(["fault", "of", "numbers", "in"], rows)


def list_related(table: pd.DataFrame) -> list[str]:
    """The words of the table of related work that can be measured, beside shares of wins."""
    part = table[table["metric"].isin(RIVAL)]
    rows = []
    for system, own in part.groupby("method", sort=False):
        cells = [str(system)]
        for metric in RIVAL:
            row = own[own["metric"] == metric].iloc[0]
            ends = re.search(r"interval ([\d.]+) to ([\d.]+)", row["remark"])
            shown = row["status"] if row["ours"] == "" else f"{100 * float(row['ours']):.0f} %"
            if ends:
                shown += f" [{100 * float(ends[1]):.0f}, {100 * float(ends[2]):.0f}]"
            cells += [row["printed"], shown]
        rows.append(cells)
    head = ["system", "works without tuning", "wins against a constant"]
    return to_markdown([*head, "consistently outperforms GBDT", "wins against CatBoost"], rows)


def list_files(files: "pd.Series[str]") -> str:
    return ", ".join(files.drop_duplicates().str.removesuffix(".csv"))


# The blocks of docs/published.md, which scripts/write_claims.py writes, as lines of Markdown.
BLOCKS: dict[str, Callable[[pd.DataFrame], list[str]]] = {
    "published-summary": summarise,
    "published-coverage": count_statuses,
    "published-differences": list_groups,
    "published-largest": list_largest,
    "published-beyond": list_beyond,
    "published-departures": partial(count_remarks, status=DEPARTS),
    "published-faults": count_faults,
    "published-related": list_related,
    "published-reasons": partial(count_remarks, status=MISSING),
}


def count_columns(results: Path, home: Path) -> None:
    """Numbers of columns of numbers and of levels of the authors' matrices, into datasets.csv."""
    from muddle_bench.data.datasets import load_dataset

    path = results / "datasets.csv"
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    names = [list(load_dataset(one, "published", home).X) for one in table["dataset"]]
    # A flag is named after its column and level: motor=A.
    levels = [len({name.split("=")[0] for name in own if "=" in name}) for own in names]
    numbers = [sum("=" not in name for name in own) for own in names]
    table = table.drop(columns=["num_rebuilt", "cat_rebuilt"], errors="ignore")
    place = list(table).index("d_rebuilt") + 1
    table.insert(place, "num_rebuilt", list(map(str, numbers)))
    table.insert(place + 1, "cat_rebuilt", list(map(str, levels)))
    table.to_csv(path, index=False, lineterminator="\n")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("published", type=Path, help="folder of the published tables")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    parser.add_argument("--count-columns", type=Path, metavar="DATA", help="the data folder")
    arguments = parser.parse_args(given)
    if arguments.count_columns is not None:
        count_columns(RESULTS, arguments.count_columns)
    path = RESULTS / COVERAGE
    text = cover(arguments.published).to_csv(index=False, lineterminator="\n")
    if not arguments.check:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{COVERAGE} is not what the tables say: run {Path(__file__).name}, and `make results`.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
