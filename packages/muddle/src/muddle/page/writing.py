"""The page of one fit: what was fitted, how good it is, what is odd, how to use it."""

from os import PathLike
from pathlib import Path
from typing import Any

from muddle.page.facts import gather_facts
from muddle.page.rendering import render_page
from muddle.page.sections import build_parts
from muddle.page.summary import (
    list_facts,
    list_versions,
    say_subtitle,
    say_summary,
    title_page,
    write_code,
    write_shell,
)
from muddle.page.texts import clean
from muddle_runtime.whole_file import check_place, write_whole

HERE = Path(__file__).parent


def write_fit_report(
    estimator: Any,
    path: str | PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
) -> Path:
    """Write the page to `path` and return it; an older page is replaced once the new one is whole.

    Parameters
    ----------
    estimator : estimator
        Fitted, or loaded from a file; then parts that need training rows say why they are missing.
    path : path
        The page, such as report.html, in a folder that exists.
    X, y : table and target, optional
        What was fitted, to look for leaks, repeated rows, tiny classes, gaps and outliers.
    title : str, optional
        Heading of the page.
    """
    out = Path(path)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page must be an HTML file, got {str(out)!r}. Call it report.html.")
    check_place(out)
    page = render_fit_report(estimator, X, y, title=title)
    with write_whole(out) as file:
        # A lone surrogate in a name is no reason to fail.
        file.write(page.encode("utf-8", errors="replace"))
    return out


def render_fit_report(estimator: Any, X: Any, y: Any, *, title: str | None) -> str:
    """The page as text."""
    facts = gather_facts(estimator, X, y)
    return render_page(
        HERE / "fit.html",
        styles=[HERE / "fit.css"],
        scripts=[HERE / "tables.js"],
        title=clean(title) if title else title_page(facts),
        subtitle=say_subtitle(facts),
        facts=list_facts(facts),
        summary=say_summary(facts),
        sections=build_parts(facts),
        code=write_code(facts),
        shell=write_shell(facts),
        parameters=repr(estimator),
        versions=list_versions(),
        footer=f"Made by muddle from a fitted {facts.kind}.",
    )
