"""Numbers and tables as text: short numbers, and LaTeX with booktabs rules."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

DIGITS = 3
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "²": r"\textsuperscript{2}",
}


def format_number(value: Any, digits: int = DIGITS) -> str:
    """Such as 0.744, 12, -1.5e+08; nothing for a gap."""
    if value is None or pd.isna(value):
        return ""
    if not isinstance(value, float | np.floating):
        return str(value)
    value = float(value)
    if math.isfinite(value) and abs(value) >= 1e5:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{digits}f}"


def format_interval(low: float, high: float, digits: int = DIGITS) -> str:
    """Such as "0.71 to 0.76"; a dash would read as a minus."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"{format_number(low, digits)} to {format_number(high, digits)}"


def escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def build_tabular(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Lines of a tabular with booktabs rules, from escaped texts; the first row is the head."""
    head, *body = [" & ".join(row) + r" \\" for row in rows]
    return [
        rf"\begin{{tabular}}{{{''.join('r' if flag else 'l' for flag in right)}}}",
        *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
        r"\end{tabular}",
    ]


def to_latex(
    frame: pd.DataFrame, *, caption: str = "", label: str = "", digits: int = DIGITS
) -> str:
    """A LaTeX table with booktabs rules: numbers to the right, text to the left, all escaped."""
    numeric = [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
    head = [str(column).replace("_", " ") for column in frame]
    body = [
        [format_number(value, digits) for value in row] for row in frame.itertuples(index=False)
    ]
    tabular = build_tabular([list(map(escape_latex, row)) for row in [head, *body]], numeric)
    if not caption and not label:
        return "\n".join(tabular) + "\n"
    about = [rf"\caption{{{escape_latex(caption)}}}"] if caption else []
    about += [rf"\label{{{label}}}"] if label else []
    return "\n".join([r"\begin{table}", r"\centering", *about, *tabular, r"\end{table}"]) + "\n"
