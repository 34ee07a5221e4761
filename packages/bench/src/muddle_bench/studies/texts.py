"""What the numbers of a study say about defaults, in words; no torch.

Sentences about numbers are made from the table. "Clear" is a difference of more than two standard
errors; scores of one data set share their splits, so that this errs on the careful side.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from muddle_bench.studies.reading import POOLED, SCORE_LABELS, to_number
from muddle_bench.studies.topics import Topic

CLEAR = 2.0  # standard errors
MOST_WARNINGS = 8
FEW = 6  # steps of which all are said
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DEFAULT = "default"


def say_study(table: pd.DataFrame, topic: Topic) -> list[str]:
    """Paragraphs below a figure: what the study is about, then what its numbers say."""
    measured = table[table["dataset"] != POOLED]
    texts = [topic.about, say_default(measured), *say_means(measured)]
    if topic.scale == "steps":
        texts += [say_bags(measured), *say_order(table)]
    return [text for text in (*texts, say_published(table), say_seconds(measured)) if text]


# Defaults


def say_default(table: pd.DataFrame) -> str:
    """Whether a value is clearly better than the default, and whether it is so everywhere."""
    compared = compare_default(table)
    if compared.empty:
        return "No default among the values measured, or nothing to compare it with."
    n_datasets = compared["dataset"].nunique()
    best = compared.loc[compared.groupby("dataset", sort=False)["difference"].idxmax()]
    n_best = int((best["difference"] <= 0).sum())
    better = best[best["clear"] & (best["difference"] > 0)]
    n_near = n_datasets - n_best - len(better)
    text = (
        f"The default has the best score on {n_best} of {count(n_datasets, 'data set')}, and on "
        f"{n_near} more none is better by more than two standard errors."
    )
    if compared["error"].isna().all():
        return text + " One split has no standard error: this is no evidence yet."
    if better.empty:
        return text + " Nothing here speaks against the default."
    shown = [
        f"{row.value} on {row.dataset} ({write(row.score)} against {write(row.default)})"
        for row in better.itertuples()
    ]
    return f"{text} Clearly better: {list_some(shown)}. {say_candidate(compared)}"


def say_candidate(compared: pd.DataFrame) -> str:
    """The value that would do no harm as a default and is better in the mean, if there is one."""
    clear = compared[compared["clear"]]
    gains = clear[clear["difference"] > 0].groupby("value")["dataset"].nunique()
    harms = clear[clear["difference"] < 0].groupby("value")["dataset"].nunique()
    harmless = gains[~gains.index.isin(harms.index)]
    if harmless.empty:
        return (
            "Each of these values is clearly worse than the default on another data set, so there "
            "is no reason here to change it."
        )
    by_value = compared.groupby("value")
    means, n_datasets = by_value["difference"].mean(), by_value["dataset"].nunique()
    errors = by_value["error"].agg(lambda values: math.hypot(*values)) / n_datasets
    # Of many data sets, one is clearly better by chance.
    better = [name for name in harmless.index if means[name] > CLEAR * errors[name]]
    if not better:
        return (
            "In the mean over data sets none of these is clearly better than the default without "
            "being clearly worse somewhere, so there is no reason here to change it."
        )
    value = max(better, key=lambda name: means[name])
    return (
        f"{value} is clearly better than the default on {harmless[value]} of "
        f"{count(n_datasets[value], 'data set')}, clearly worse on none, and better in the mean by "
        f"{write(means[value])} ± {write(errors[value])}: a candidate for the default."
    )


def compare_default(table: pd.DataFrame) -> pd.DataFrame:
    """Every other value against the default of its data set: dataset, value, score, default,
    difference, its standard error, and whether it is clear."""
    rows = []
    for dataset, part in table[np.isfinite(table["score"])].groupby("dataset", sort=False):
        chosen = part[part["is_default"] == "yes"]
        if len(chosen) != 1:
            continue
        default, default_se = chosen[["score", "score_se"]].iloc[0]
        for row in part[part["is_default"] == "no"].itertuples():
            error = math.hypot(row.score_se, default_se)
            difference = row.score - default
            clear = abs(difference) > CLEAR * error  # never, where there is no error
            rows.append((dataset, row.value, row.score, default, difference, error, clear))
    names = ["dataset", "value", "score", "default", "difference", "error", "clear"]
    return pd.DataFrame(rows, columns=names).astype({"clear": bool})


# Means over data sets


def say_means(table: pd.DataFrame) -> list[str]:
    """Per task: what each value has in the mean, where there is more than one data set."""
    texts = []
    for task, part in table.groupby("task", sort=False):
        means, n_datasets = average_values(part), part["dataset"].nunique()
        if n_datasets < 2 or len(means) < 2:
            continue
        shown = "; ".join(f"{write_value(value)}: {write(mean)}" for value, mean in means.items())
        texts.append(
            f"Mean test {SCORE_LABELS[task]} over {n_datasets} data sets, for values that all of "
            f"them have: {shown}. The highest is that of {write_value(means.idxmax())}."
        )
    return texts


def average_values(table: pd.DataFrame) -> pd.Series:
    """Mean score per value over all data sets, in the order of the table, of values that every
    data set has; the default counts as one value, whatever it is on each."""
    defaults = table.loc[table["is_default"] == "yes", "value"].unique()
    name = f"{DEFAULT} {defaults[0]}" if len(defaults) == 1 else DEFAULT
    named = table["value"].where(table["is_default"] == "no", name)
    wide = table.assign(value=named).pivot(index="value", columns="dataset", values="score")
    means = wide.loc[list(dict.fromkeys(named))].mean(axis=1, skipna=False)
    return means[np.isfinite(means)]


# Steps of an ablation


def say_bags(table: pd.DataFrame) -> str:
    """What bagging adds to each step; of many steps, the least and the most."""
    gains = (table["bag"] - table["score"]).groupby(table["value"], sort=False).mean().dropna()
    if gains.empty:
        return ""
    if len(gains) > FEW:
        gains = gains[[gains.idxmin(), gains.idxmax()]]
    shown = [f"{write_signed(gain)} ({value})" for value, gain in gains.items()]
    between = f"between {' and '.join(shown)}" if len(shown) == 2 else "; ".join(shown)
    return f"A bag gains over its single nets, mean over data sets: {between}."


def say_order(table: pd.DataFrame) -> list[str]:
    """Whether the steps come in the published order, per data set and kind of score."""
    texts = []
    kinds = {"Single nets": "score", "Bags": "bag"}
    for dataset, part in table.groupby("dataset", sort=False):
        for kind, column in kinds.items():
            both = part.dropna(subset=[column, f"{column}_published"])
            if len(both) < 2:
                continue
            swapped = find_swapped(both, column)
            where = f"{kind}, {'mean over data sets' if dataset == POOLED else dataset}"
            texts.append(
                f"{where}: the order of the steps is not the published one: {list_some(swapped)}."
                if swapped
                else f"{where}: the order of the steps is the published one."
            )
    return texts


def find_swapped(part: pd.DataFrame, column: str) -> list[str]:
    """Pairs of steps whose difference has another sign than the published one."""
    rows = part.to_dict("records")
    swapped = []
    for place, first in enumerate(rows):
        for second in rows[place + 1 :]:
            here = second[column] - first[column]
            printed = second[f"{column}_published"] - first[f"{column}_published"]
            if here * printed < 0:
                error = math.hypot(first[f"{column}_se"], second[f"{column}_se"])
                doubt = "" if abs(here) > CLEAR * error else ", within two standard errors"
                swapped.append(
                    f"{second['value']} less {first['value']} is {write_signed(here)}{doubt}, "
                    f"published {write_signed(printed)}"
                )
    return swapped


# Published numbers, time, conditions


def say_published(table: pd.DataFrame) -> str:
    both = table.dropna(subset=["difference"])
    if both.empty:
        return "The paper has no numbers for this."
    largest = both.loc[both["difference"].abs().idxmax()]
    return (
        f"{len(both)} of {count(len(table), 'row')} have a published partner. The median "
        f"difference is {write(both['difference'].abs().median())} in size, the largest "
        f"{write_signed(largest['difference'])} ({largest['dataset']} at {largest['value']}: "
        f"{write(largest['score'])}, published {write(largest['score_published'])})."
    )


def say_seconds(table: pd.DataFrame) -> str:
    known = table.dropna(subset=["seconds"])
    if known.empty or known["hardware"].nunique() > 1:
        return ""  # times of different machines do not compare
    low, high = known.loc[known["seconds"].idxmin()], known.loc[known["seconds"].idxmax()]
    usual = known.loc[known["is_default"] == "yes", "seconds"]
    text = (
        f"A split takes between {write_seconds(low['seconds'])} ({low['dataset']} at "
        f"{low['value']}) and {write_seconds(high['seconds'])} ({high['dataset']} at "
        f"{high['value']})"
    )
    default = f", in the median {write_seconds(usual.median())} with the default"
    return f"{text}{default if len(usual) else ''}."


def say_conditions(table: pd.DataFrame) -> str:
    """Splits, nets and machine, for the caption of a figure."""
    done = table[table["score"].notna() & (table["dataset"] != POOLED)]
    texts = [f"{say_range(done['n_splits'], 'split')} with {say_range(done['n_nets'], 'net')} in "
             "all for each point"]  # fmt: skip
    for word, column in (("on", "hardware"), ("commit", "commit")):
        names = [name for name in done[column].unique() if name]
        texts += [f"{word} {' and '.join(names)}"] if names else []
    n_empty = int(table["score"].isna().sum())
    missing = f" No score yet: {n_empty} of {count(len(table), 'row')}." if n_empty else ""
    return f"{', '.join(texts)}.{missing}"


def say_off_scale(table: pd.DataFrame, floor: float) -> str:
    """The numbers of the marks that a figure has at its lower edge."""
    shown = [
        f"{row.dataset} at {row.value}: {kind} {write(value)}"
        for row in table.itertuples()
        for kind, value in (("here", row.score), ("published", row.score_published))
        if value < floor
    ]
    return f"Below {write(floor, 1)}, drawn at the edge: {'; '.join(shown)}." if shown else ""


def say_warnings(table: pd.DataFrame) -> list[str]:
    rows = table[table["warning"] != ""]
    texts = [f"{row.dataset} at {row.value}: {row.warning}" for row in rows.itertuples()]
    more = len(texts) - MOST_WARNINGS
    return texts[:MOST_WARNINGS] + ([f"{more} more, in the table"] if more > 0 else [])


def say_record(history: pd.DataFrame) -> list[str]:
    """What the training record of one net shows: iteration, validation_score, penalty."""
    scored = history.dropna(subset=["validation_score"])
    about = (
        "The ridge penalty and the validation score of a single net along its training; the "
        "iteration with the best validation score is the one that predicts."
    )
    if scored.empty:
        return [about, "No iteration has a validation score."]
    best = scored.loc[scored["validation_score"].idxmax()]
    first, last = history.iloc[0], history.iloc[-1]
    return [
        about,
        f"The best validation score is {write(best['validation_score'])} at iteration "
        f"{best['iteration']:.0f} of {last['iteration']:.0f}; it starts at "
        f"{write(first['validation_score'])} and ends at {write(last['validation_score'])}. The "
        f"penalty goes from {first['penalty']:.4g} to {best['penalty']:.4g} there, and to "
        f"{last['penalty']:.4g} at the end.",
    ]


# Numbers as words


def write_value(value: str) -> str:
    """Powers of ten from 10³ on as such, so that they stay short."""
    number = to_number(value)
    if not number > 0:
        return value
    power = math.log10(number)
    if abs(power) >= 3 and power == round(power):
        return f"10{f'{power:.0f}'.translate(SUPERSCRIPTS)}"
    return f"{number:g}" if number < 1e5 else f"{number:.0f}"


def write(value: float, digits: int = 3) -> str:
    text = f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.1e}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def write_signed(value: float) -> str:
    text = write(value)
    return f"+{text}" if value > 0 and float(text) != 0 else text


def write_seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def say_range(values: pd.Series, noun: str) -> str:
    if values.dropna().empty:
        return f"no {noun}"
    low, high = int(values.min()), int(values.max())
    return count(low, noun) if low == high else f"{low} to {high} {noun}s"


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def list_some(texts: Sequence[str], most: int = 4) -> str:
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
