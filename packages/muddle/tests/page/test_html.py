"""Formats of numbers, durations and names, and cells of tables."""

import math
import subprocess
import sys

import pandas as pd
import pytest

from muddle.page import html
from muddle_runtime import findings

CASES = {
    html.format_number: {-0.0004: "0.000", -1.5: "−1.500", 1e5: "1.0e5", -math.inf: "−∞"},
    html.format_value: {-0.0012345: "−0.001234", math.inf: "∞", math.nan: "–"},
    html.format_percent: {0.256: "26\N{NO-BREAK SPACE}%", math.nan: "–"},
    html.format_seconds: {0.01234: "0.012", 1234.5: "1234", 1e-5: "<0.001"},
    html.format_duration: {1.234: "1.2 s", 45.2: "45 s", 700: "12 min", 7500: "2 h 05 min"},
    findings.format_share: {0: "0 %", 1e-5: "<0.1 %", 0.0123: "1.2 %", 0.5: "50 %",
                            0.955: "95.5 %", 0.99999: ">99.9 %", 1: "100 %"},
    html.clean: {"a\x00b": "a\N{REPLACEMENT CHARACTER}b"},
    html.shorten: {"x" * 60: "x" * 60, "x" * 61: "x" * 59 + "…"},
}  # fmt: skip


@pytest.mark.parametrize("write", CASES, ids=lambda write: write.__name__)
def test_values_read_as_expected(write):
    for value, text in CASES[write].items():
        assert write(value) == text


def test_names_are_listed_and_counted():
    assert findings.list_names(["a", "b", "c"], 2) == "'a', 'b' and 1 more"
    assert [html.count(1, "row"), html.count(1200, "row")] == ["1 row", "1,200 rows"]


def test_numbers_are_sorted_by_their_exact_value():
    column = html.number_column("score", "Score")
    table = html.Table("t", "T", pd.DataFrame({"score": [0.12345, math.nan]}), (column,))
    (known,), (missing,) = table.rows()
    assert (known.text, known.value) == ("0.123", "0.12345")
    assert (missing.text, missing.classes) == ("–", "missing")


def test_formats_and_drift_import_no_heavy_packages():
    code = (
        "import sys, muddle.page.html; assert not {'torch', 'pandas'} & set(sys.modules)\n"
        "import muddle_runtime.drift; assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
