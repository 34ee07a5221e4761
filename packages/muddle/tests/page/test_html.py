"""Formats of numbers, durations and names, and cells of tables."""

import math
import subprocess
import sys

import pandas as pd
import pytest

from muddle.page.html import (
    Table,
    clean,
    count,
    format_duration,
    format_number,
    format_percent,
    format_seconds,
    format_share,
    format_value,
    list_names,
    number_column,
    shorten,
)


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (format_number, -0.0004, "0.000"),
        (format_number, -1.5, "−1.500"),
        (format_number, 123456.0, "1.2e5"),
        (format_number, -math.inf, "−∞"),
        (format_number, math.nan, "–"),
        (format_value, -0.0012345, "−0.001234"),
        (format_value, math.inf, "∞"),
        (format_value, None, "–"),
        (format_percent, 0.256, "26\N{NO-BREAK SPACE}%"),
        (format_seconds, 0.01234, "0.012"),
        (format_seconds, 1234.5, "1234"),
        (format_seconds, 1e-5, "<0.001"),
        (format_duration, 1.234, "1.2 s"),
        (format_duration, 45.2, "45 s"),
        (format_duration, 700, "12 min"),
        (format_duration, 7500, "2 h 05 min"),
        (format_share, 0, "0 %"),
        (format_share, 1e-5, "<0.1 %"),
        (format_share, 0.0123, "1.2 %"),
        (format_share, 0.5, "50 %"),
        (format_share, 0.955, "95.5 %"),
        (format_share, 0.99999, ">99.9 %"),
        (format_share, 1, "100 %"),
        (clean, "a\x00b\n", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        (shorten, "x" * 61, "x" * 59 + "…"),
    ],
)
def test_values_read_as_expected(write, value, text):
    assert write(value) == text


def test_names_are_listed_and_counted():
    assert list_names(["a", "b", "c"], 2) == "'a', 'b' and 1 more"
    assert [count(1, "row"), count(1200, "row")] == ["1 row", "1,200 rows"]


def test_numbers_are_sorted_by_their_exact_value():
    column = number_column("score", "Score")
    table = Table("t", "T", pd.DataFrame({"score": [0.12345, math.nan]}), (column,))
    (known,), (missing,) = table.rows()
    assert (known.text, known.value) == ("0.123", "0.12345")
    assert (missing.text, missing.classes) == ("–", "missing")


def test_commands_that_only_format_numbers_wait_for_neither_torch_nor_pandas():
    code = "import sys, muddle.page.html; print({'torch', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
