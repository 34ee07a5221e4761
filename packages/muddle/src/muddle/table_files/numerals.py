"""Numbers as people write them: 1,234.5 in some countries, 1.234,5 in others."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

POWER = r"([eE][+-]?\d+)?"
PLAIN = re.compile(rf"[+-]?(\d+\.?\d*|\.\d+){POWER}")
# By their decimal sign; the other sign may stand between thousands.
WRITTEN = {
    ".": re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?"),
    ",": re.compile(rf"[+-]?(\d{{1,3}}(\.\d{{3}})+(,\d+)?|\d*,\d+{POWER})"),
}
WHOLE_NUMBER = re.compile(r"[+-]?\d+")
# Days that are not written as 2024-01-31: which number is the month cannot be known.
DAY = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}\b.*|\d{1,2}[. -]+[A-Za-z]{3,9}[. -]+\d{2,4}\b.*")
SIGNED = re.compile(r"[$€£¥]\s?([+-]?[\d.,]+)|([+-]?[\d.,]+)\s?[%$€£¥]")


def guess_decimal(
    rows: Iterable[Sequence[str]], separator: str, missing: Collection[str]
) -> tuple[str, str] | None:
    """The decimal sign, and a number that shows it; None where Python would read all numbers."""
    columns = [
        [text for text in column if text not in missing] for column in zip(*rows, strict=False)
    ]
    # Where commas part the fields, one inside a number is more often a mark of thousands.
    for decimal in (".", ",") if separator == "," else (",", "."):
        example = _find_example(columns, decimal)
        if example is not None:
            return decimal, example
    return None


def _find_example(columns: list[list[str]], decimal: str) -> str | None:
    """A number of a column that has no words and no number of another kind."""
    written = WRITTEN[decimal]
    plain = PLAIN if decimal == "." else WHOLE_NUMBER
    example = None
    for column in columns:
        marked = [text for text in column if written.fullmatch(text)]
        if decimal == "," and any(
            PLAIN.fullmatch(text) and not WHOLE_NUMBER.fullmatch(text) and text not in marked
            for text in column
        ):
            return None  # 1.5 is not written so where commas are decimal
        if (
            example is None
            and any("," in text for text in marked)
            and all(plain.fullmatch(text) or written.fullmatch(text) for text in column)
        ):
            example = next(text for text in marked if "," in text)
    return example


def rewrite_numbers(texts: NDArray[Any], decimal: str) -> NDArray[Any]:
    """Numbers as Python reads them, other texts as they are: (N,)"""
    written = WRITTEN[decimal]
    return np.array(
        [rewrite_number(text, decimal) if written.fullmatch(text) else text for text in texts],
        dtype=object,
    )


def rewrite_number(text: str, decimal: str) -> str:
    thousands = "," if decimal == "." else "."
    return text.replace(thousands, "").replace(decimal, ".")


def hint_decimal(text: str) -> str:
    """Which option makes a number of a text, if one does."""
    for decimal, written in WRITTEN.items():
        if written.fullmatch(text):
            return f" If it is {rewrite_number(text, decimal)}, say --decimal '{decimal}'."
    return ""


def is_number(text: str) -> bool:
    """Whether Python reads it as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def find_signed(texts: Sequence[str]) -> str | None:
    """The first text, where all are numbers with a sign of money or a per cent sign."""
    return texts[0] if texts and all(SIGNED.fullmatch(text) for text in texts) else None


def find_days(texts: Sequence[str]) -> str | None:
    """The first text, where all are days that are not read as dates."""
    return texts[0] if texts and all(DAY.fullmatch(text) for text in texts) else None
