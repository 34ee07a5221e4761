"""The first lines of the page, in plain words, and the last: how to use the model."""

import platform
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from muddle import __version__
from muddle.page.facts import Classes, Facts, Numbers
from muddle.page.finding import format_share, list_texts
from muddle.page.formats import count, format_number, format_seconds
from muddle.page.model import Fact
from muddle.page.tables import format_figure
from muddle.page.texts import clean

PACKAGES = ("numpy", "pandas", "scikit-learn", "scipy", "torch")
MOST_NAMED = 8
HARDLY = 0.01  # of the largest importance: not worth naming


def title_page(facts: Facts) -> str:
    name = facts.target_names[0] if len(facts.target_names) == 1 else ""
    return f"{facts.kind}: {clean(name)}" if name else f"{facts.kind}: report of a fit"


def say_subtitle(facts: Facts) -> str:
    return f"What was fitted, how good it is, and what to look at. A model of {_say_task(facts)}."


def list_facts(facts: Facts) -> list[Fact]:
    """The numbers a reader wants first."""
    found = []
    if facts.n_rows is not None:
        found.append(Fact("Rows", f"{facts.n_rows:,}"))
    n_used = len(facts.model.preprocessor_.plan_.used)
    detail = "" if n_used == len(facts.names) else f"{n_used:,} used"
    found.append(Fact("Columns", f"{len(facts.names):,}", detail))
    found += _list_scores(facts)
    if facts.seconds is not None:
        found.append(Fact("Fit", f"{format_seconds(facts.seconds)} s"))
    n_warnings = sum(finding.severity == "warning" for finding in facts.findings)
    n_notes = len(facts.findings) - n_warnings
    detail = f"and {count(n_notes, 'note')}" if n_notes else ""
    found.append(Fact("Warnings", str(n_warnings), detail))
    return found


def say_summary(facts: Facts) -> list[str]:
    texts = [_say_what(facts)]
    if facts.classes is not None:
        texts.append(_say_classes(facts.classes))
    elif facts.numbers:
        texts += [_say_numbers(one) for one in facts.numbers[:MOST_NAMED]]
    else:
        texts += [_say_nets(facts), facts.why_not]
    importances = facts.importances
    if importances is not None and importances.max() > 0:
        order = np.argsort(-importances, kind="stable")[:3]
        least = HARDLY * importances.max()
        names = [clean(facts.names[i]) for i in order if importances[i] > least]
        texts.append(f"The columns that matter most: {list_texts(names, 3)}.")
    return texts


def write_code(facts: Facts) -> str:
    """Python that loads the model and predicts."""
    used = [clean(name) for name in facts.model.preprocessor_.plan_.used]
    lines = [
        "import muddle",
        "",
        'model.save("model.muddle")  # here, where it was fitted',
        'model = muddle.load("model.muddle")  # anywhere; runtime="numpy" needs no torch',
        "model.predict(new_rows)",
    ]
    if facts.task == "classification":
        lines.append("model.predict_proba(new_rows)  # " + _list_classes(facts))
    elif facts.flagship:
        lines.append("model.predict_interval(new_rows, coverage=0.9)")
    needed = list_texts(used, MOST_NAMED)
    return "\n".join([*lines, "", f"# new_rows has the columns {needed}"])


def write_shell(facts: Facts) -> str:
    option = " --proba" if facts.task == "classification" else ""
    if facts.task == "regression" and facts.flagship:
        option = " --interval 0.9"
    return "\n".join(
        [
            "muddle info model.muddle",
            f"muddle predict model.muddle new_rows.csv -o predictions.csv{option}",
        ]
    )


def list_versions() -> str:
    """Of what wrote the page."""
    found = [f"muddle {__version__}", f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a package without its papers, e.g. on a path
            continue
    return ", ".join(found)


def _say_task(facts: Facts) -> str:
    if facts.task == "classification":
        return f"{len(facts.model.classes_):,} classes"
    n_targets = len(facts.target_names)
    return "a number" if n_targets == 1 else f"{n_targets} numbers"


def _say_what(facts: Facts) -> str:
    text = f"{facts.kind} was fitted"
    if facts.n_rows is not None:
        text += f" to {count(facts.n_rows, 'row')} of {count(len(facts.names), 'column')}"
    names = [clean(name) for name in facts.target_names if name]
    if names:
        text += f" to predict {list_texts(names, MOST_NAMED)}"
    if facts.seconds is not None:
        text += f", in {format_seconds(facts.seconds)} seconds"
    return f"{text}."


def _say_numbers(one: Numbers) -> str:
    who = f" of {clean(one.name)!r}" if one.name else ""
    text = (
        f"On rows that the nets had not seen, predictions{who} explain "
        f"{format_share(max(one.r2, 0.0))} of the variance (R² {format_number(one.r2)}). The "
        f"typical error (RMSE) is {format_figure(one.rmse)}, where always saying the mean would "
        f"err by {format_figure(one.deviation)}; the mean size of the errors is "
        f"{format_figure(one.mae)}."
    )
    covered = one.judge_coverage(0.9)
    if not np.isnan(covered):
        text += f" 90 % intervals held {format_share(covered)} of the rows."
    return text


def _say_classes(classes: Classes) -> str:
    return (
        "On rows that the nets had not seen, the most probable class was right in "
        f"{format_share(classes.accuracy)} of the rows; always saying the most frequent one would "
        f"be right in {format_share(classes.most_frequent)}. The log-loss is "
        f"{format_number(classes.log_loss)}, against {format_number(classes.base_log_loss)} of the "
        "bare frequencies, and predicted probabilities are off by "
        f"{format_number(classes.calibration_error)} on average (expected calibration error)."
    )


def _say_nets(facts: Facts) -> str:
    """What can be said of a model without out-of-fold predictions."""
    board = facts.leaderboard
    if facts.flagship:
        assert board is not None
        best = format_number(board["score"].max())
        return f"The best member of its pool had an out-of-fold {facts.score_name} of {best}."
    if board is None:
        score = format_number(facts.model.validation_score_)
        name = facts.score_name
        return f"On its validation rows, which chose the iteration, its {name} was {score}."
    scores = board.loc[board["weight"] > 0, "validation_score"]
    low, high = format_number(scores.min()), format_number(scores.max())
    return (
        f"{count(len(scores), 'net')} answer{'s' if len(scores) == 1 else ''}. On validation rows, "
        f"which chose the iterations, {facts.score_name} was "
        f"{low if low == high else f'{low} to {high}'}; "
        "their mean is usually better than each."
    )


def _list_scores(facts: Facts) -> list[Fact]:
    where = "out of fold"
    if facts.classes is not None:
        areas = list(facts.classes.areas.values())
        return [
            Fact("Accuracy", format_number(facts.classes.accuracy), where),
            Fact("AUC", format_number(np.mean(areas) if areas else None), where),
            Fact("Log-loss", format_number(facts.classes.log_loss), where),
        ]
    if len(facts.numbers) == 1:
        (one,) = facts.numbers
        return [
            Fact("R²", format_number(one.r2), where),
            Fact("RMSE", format_figure(one.rmse), where),
        ]
    if facts.numbers:
        mean = float(np.mean([one.r2 for one in facts.numbers]))
        return [Fact("R²", format_number(mean), f"mean of {len(facts.numbers)}, {where}")]
    board = facts.leaderboard
    if facts.flagship:
        assert board is not None
        best = format_number(board["score"].max())
        return [Fact(facts.score_name, best, "best member, out of fold")]
    score = facts.model.validation_score_ if board is None else board["validation_score"].mean()
    detail = "validation rows" if board is None else f"mean of {len(board)} nets, validation rows"
    return [Fact(facts.score_name, format_number(score), detail)]


def _list_classes(facts: Facts) -> str:
    names = [clean(label) for label in facts.model.classes_.tolist()]
    return f"columns: {list_texts(names, 4)}"
