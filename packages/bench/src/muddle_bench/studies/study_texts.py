"""The numbers of a study in words: is the default good, what differs, what is published.

All numbers come from the table. A difference is "clear" if it is larger than two standard errors;
scores of one data set share their splits, so this is cautious. Needs no torch.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from muddle.page.html import count, format_number, format_seconds, format_signed
from muddle_bench.studies.points import Study
from muddle_bench.studies.study_tables import POOLED, SCORE_LABELS, to_number

CLEAR = 2.0  # standard errors
MOST_WARNINGS = 8
FEW = 6  # up to this number of steps, all are listed
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DEFAULT = "default"


def describe_study(table: pd.DataFrame, study: Study) -> list[str]:
    """Paragraphs below a figure: the question of the study, then its results."""
    measured = table[table["dataset"] != POOLED]
    texts = [study.about, describe_default(measured), *describe_means(measured)]
    if study.scale == "steps":
        texts += [describe_bags(measured), *describe_order(table)]
    texts += [describe_published(table), describe_seconds(measured)]
    return [text for text in texts if text]


# Defaults


def describe_default(table: pd.DataFrame) -> str:
    """Is a value clearly better than the default, and on which data sets?"""
    compared = compare_default(table)
    if compared.empty:
        return "The default was not measured, or there is nothing to compare it with."
    n_datasets = compared["dataset"].nunique()
    best = compared.loc[compared.groupby("dataset", sort=False)["difference"].idxmax()]
    n_best = int((best["difference"] <= 0).sum())
    better = best[best["clear"] & (best["difference"] > 0)].copy()
    n_near = n_datasets - n_best - len(better)
    text = (
        f"The default has the best score on {n_best} of {count(n_datasets, 'data set')}; on "
        f"{n_near} more, no value is better by more than two standard errors."
    )
    if compared["error"].isna().all():
        return text + " With one split there are no standard errors, so this is not evidence yet."
    if better.empty:
        return text + " Nothing speaks against the default."
    better[["score", "default"]] = better[["score", "default"]].map(format_number)
    shown = better.apply("{value} on {dataset} ({score} against {default})".format_map, axis=1)
    return f"{text} Clearly better: {list_some(shown.tolist())}. {describe_candidate(compared)}"


def describe_candidate(compared: pd.DataFrame) -> str:
    """The value that could replace the default, if there is one: it is better in the mean, and
    clearly worse on no data set."""
    clear = compared[compared["clear"]]
    gains = clear[clear["difference"] > 0].groupby("value")["dataset"].nunique()
    harmless = gains.drop(clear.loc[clear["difference"] < 0, "value"], errors="ignore")
    if harmless.empty:
        return (
            "Each of these values is clearly worse than the default on another data set, so there "
            "is no reason to change the default."
        )
    by_value = compared.groupby("value")
    means, n_datasets = by_value["difference"].mean(), by_value["dataset"].nunique()
    errors = by_value["error"].agg(lambda values: math.hypot(*values)) / n_datasets
    # With many data sets, a value is clearly better on one of them by chance.
    better = [name for name in harmless.index if means[name] > CLEAR * errors[name]]
    if not better:
        return (
            "None of these values is clearly better than the default in the mean over data sets "
            "without being clearly worse on one, so there is no reason to change the default."
        )
    value = max(better, key=lambda name: means[name])
    return (
        f"{value} is clearly better than the default on {harmless[value]} of "
        f"{count(n_datasets[value], 'data set')}, clearly worse on none, and better by "
        f"{format_number(means[value])} ± {format_number(errors[value])} in the mean: it is a "
        "candidate for the default."
    )


def compare_default(table: pd.DataFrame) -> pd.DataFrame:
    """Every other value compared with the default on its data set: dataset, value, score, default,
    difference, its standard error, and whether the difference is clear."""
    columns = ["dataset", "value", "score", "score_se"]
    scored = table[np.isfinite(table["score"])]
    is_default = scored["is_default"] == "yes"
    default = scored.loc[is_default, ["dataset", "score", "score_se"]]
    default = default.drop_duplicates("dataset", keep=False)
    both = scored.loc[~is_default, columns].merge(default, on="dataset", suffixes=("", "_default"))
    both["default"] = both["score_default"]
    both["difference"] = both["score"] - both["default"]
    both["error"] = np.hypot(both["score_se"], both["score_se_default"])
    both["clear"] = both["difference"].abs() > CLEAR * both["error"]  # never, if the error is NaN
    return both[["dataset", "value", "score", "default", "difference", "error", "clear"]]


# Means over data sets


def describe_means(table: pd.DataFrame) -> list[str]:
    """Per task: the mean score of each value, if there are several data sets."""
    texts = []
    for task, part in table.groupby("task", sort=False):
        means, n_datasets = average_values(part), part["dataset"].nunique()
        if n_datasets < 2 or len(means) < 2:
            continue
        pairs = (f"{format_value(name)}: {format_number(mean)}" for name, mean in means.items())
        texts.append(
            f"Mean test {SCORE_LABELS[task]} over {n_datasets} data sets, for values measured on "
            f"all of them: {'; '.join(pairs)}. The highest is {format_value(means.idxmax())}."
        )
    return texts


def average_values(table: pd.DataFrame) -> pd.Series:
    """Mean score over all data sets of each value that every data set has, in the order of the
    table; the default counts as one value even if it differs between data sets."""
    defaults = table.loc[table["is_default"] == "yes", "value"].unique()
    name = f"{DEFAULT} {defaults[0]}" if len(defaults) == 1 else DEFAULT
    named = table["value"].where(table["is_default"] == "no", name)
    wide = table.assign(value=named).pivot(index="value", columns="dataset", values="score")
    means = wide.loc[list(dict.fromkeys(named))].mean(axis=1, skipna=False)
    return means[np.isfinite(means)]


# Steps of an ablation


def describe_bags(table: pd.DataFrame) -> str:
    """The gain of a bag over its single nets per step; of many steps, the least and the most."""
    gains = (table["bag"] - table["score"]).groupby(table["value"], sort=False).mean().dropna()
    if gains.empty:
        return ""
    if len(gains) > FEW:
        gains = gains[[gains.idxmin(), gains.idxmax()]]
    shown = [f"{format_signed(gain)} ({value})" for value, gain in gains.items()]
    between = f"between {' and '.join(shown)}" if len(shown) == 2 else "; ".join(shown)
    return f"Gain of a bag over its single nets, mean over data sets: {between}."


def describe_order(table: pd.DataFrame) -> list[str]:
    """Are the steps in the published order? One sentence per data set and kind of score."""
    texts = []
    for dataset, part in table.groupby("dataset", sort=False):
        for kind, column in (("Single nets", "score"), ("Bags", "bag")):
            both = part.dropna(subset=[column, f"{column}_published"])
            if len(both) < 2:
                continue
            swapped = find_swapped(both, column)
            where = f"{kind}, {'mean over data sets' if dataset == POOLED else dataset}"
            verdict = (
                f"not the published one: {list_some(swapped)}" if swapped else "the published one"
            )
            texts.append(f"{where}: the order of the steps is {verdict}.")
    return texts


def find_swapped(part: pd.DataFrame, column: str) -> list[str]:
    """Pairs of steps whose difference has the opposite sign of the published one."""
    swapped = []
    for first, second in combinations(part.to_dict("records"), 2):
        here = second[column] - first[column]
        printed = second[f"{column}_published"] - first[f"{column}_published"]
        if here * printed < 0:
            error = math.hypot(first[f"{column}_se"], second[f"{column}_se"])
            doubt = "" if abs(here) > CLEAR * error else ", within two standard errors"
            swapped.append(
                f"{second['value']} minus {first['value']} is {format_signed(here)}{doubt}, "
                f"published {format_signed(printed)}"
            )
    return swapped


# Published numbers, time, conditions


def describe_published(table: pd.DataFrame) -> str:
    both = table.dropna(subset=["difference"])
    if both.empty:
        return "The paper has no numbers of this study."
    largest = both.loc[both["difference"].abs().idxmax()]
    score, published = map(format_number, largest[["score", "score_published"]])
    return (
        f"{len(both)} of {count(len(table), 'row')} have a published value. The median absolute "
        f"difference is {format_number(both['difference'].abs().median())}, the largest difference "
        f"{format_signed(largest['difference'])} ({largest['dataset']} at {largest['value']}: "
        f"{score}, published {published})."
    )


def describe_seconds(table: pd.DataFrame) -> str:
    known = table.dropna(subset=["seconds"])
    if known.empty or known["hardware"].nunique() > 1:
        return ""  # times of different machines cannot be compared
    ends = (known.loc[place] for place in (known["seconds"].idxmin(), known["seconds"].idxmax()))
    low, high = (
        f"{format_seconds(row['seconds'])} s ({row['dataset']} at {row['value']})" for row in ends
    )
    usual = known.loc[known["is_default"] == "yes", "seconds"]
    default = f", in the median {format_seconds(usual.median())} s with the default"
    return f"A split takes between {low} and {high}{default if len(usual) else ''}."


def describe_conditions(table: pd.DataFrame) -> str:
    """Splits, nets and machine, for the caption of a figure."""
    done = table[table["score"].notna() & (table["dataset"] != POOLED)]
    n_splits, n_nets = (describe_range(done[f"n_{noun}s"], noun) for noun in ("split", "net"))
    text = f"{n_splits} with {n_nets} in all for each point"
    for word, column in (("on", "hardware"), ("commit", "commit")):
        names = " and ".join(filter(None, done[column].unique()))
        text += f", {word} {names}" if names else ""
    n_empty = int(table["score"].isna().sum())
    return f"{text}." + (
        f" No score yet: {n_empty} of {count(len(table), 'row')}." if n_empty else ""
    )


def describe_off_scale(table: pd.DataFrame, floor: float) -> str:
    """Scores of the marks that a figure draws at its lower edge."""
    shown = [
        f"{row.dataset} at {row.value}: {kind} {format_number(value)}"
        for row in table.itertuples()
        for kind, value in (("here", row.score), ("published", row.score_published))
        if value < floor
    ]
    start = f"Below {format_number(floor, 1)}, drawn at the edge: "
    return f"{start}{'; '.join(shown)}." if shown else ""


def describe_warnings(table: pd.DataFrame) -> list[str]:
    rows = table[table["warning"] != ""]
    texts = [f"{row.dataset} at {row.value}: {row.warning}" for row in rows.itertuples()]
    more = len(texts) - MOST_WARNINGS
    return texts[:MOST_WARNINGS] + ([f"{more} more, in the table"] if more > 0 else [])


def describe_record(history: pd.DataFrame) -> list[str]:
    """The training record of one net in words; columns iteration, validation_score, penalty."""
    scored = history.dropna(subset=["validation_score"])
    about = (
        "The ridge penalty and the validation score of one net during training. The iteration "
        "with the best validation score predicts."
    )
    if scored.empty:
        return [about, "No iteration has a validation score."]
    best = scored.loc[scored["validation_score"].idxmax()]
    first, last = history.iloc[0], history.iloc[-1]
    score, start, end = (format_number(row["validation_score"]) for row in (best, first, last))
    return [
        about,
        f"The best validation score is {score} at iteration {best['iteration']:.0f} of "
        f"{last['iteration']:.0f}; the score starts at {start} and ends at {end}. The penalty "
        f"starts at {first['penalty']:.4g}, is {best['penalty']:.4g} at the best iteration and "
        f"ends at {last['penalty']:.4g}.",
    ]


# Numbers as words


def format_value(value: str) -> str:
    """A value as text; large and small powers of ten as 10³ or 10⁻³."""
    number = to_number(value)
    if not number > 0:
        return value
    power = math.log10(number)
    if abs(power) >= 3 and power == round(power):
        return f"10{f'{power:.0f}'.translate(SUPERSCRIPTS)}"
    return f"{number:g}" if number < 1e5 else f"{number:.0f}"


def describe_range(values: pd.Series, noun: str) -> str:
    if values.dropna().empty:
        return f"no {noun}"
    low, high = int(values.min()), int(values.max())
    return count(low, noun) if low == high else f"{low} to {high} {noun}s"


def list_some(texts: Sequence[str], most: int = 4) -> str:
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
