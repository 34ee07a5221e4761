import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import format_interval, format_number, to_latex


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.7436, "0.744"),
        (np.float32(0.25), "0.250"),
        (12, "12"),
        (np.int64(160), "160"),
        (-147159839.46, "-1.47e+08"),
        (np.nan, ""),
        (None, ""),
        (np.inf, "inf"),
        ("ridge", "ridge"),
    ],
)
def test_numbers_are_short_and_gaps_empty(value, text):
    assert format_number(value) == text


def test_interval_reads_without_a_dash():
    assert format_interval(-0.5, 0.25, digits=2) == "-0.50 to 0.25"
    assert format_interval(np.nan, 0.25) == ""


def test_latex_has_rules_sides_and_digits():
    frame = pd.DataFrame(
        {"method": ["mlr_1", "a & b"], "n_pairs": [160, 20], "mean": [0.5, np.nan]}
    )
    assert to_latex(frame).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & n pairs & mean \\",
        r"\midrule",
        r"mlr\_1 & 160 & 0.500 \\",
        r"a \& b & 20 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_escapes_every_special_character():
    text = to_latex(pd.DataFrame({"x": [r"\ ~ ^ & % $ # _ { } < >"]})).splitlines()[4]
    assert text == (
        r"\textbackslash{} \textasciitilde{} \textasciicircum{} \& \% \$ \# \_ \{ \} "
        r"\textless{} \textgreater{} \\"
    )


def test_caption_and_label_make_it_a_table():
    lines = to_latex(pd.DataFrame({"x": [1]}), caption="R² of 5 %", label="tab:r2").splitlines()
    assert lines[:4] == [
        r"\begin{table}",
        r"\centering",
        r"\caption{R\textsuperscript{2} of 5 \%}",
        r"\label{tab:r2}",
    ]
    assert lines[-1] == r"\end{table}"


def test_ranking_needs_neither_torch_nor_scikit_learn():
    code = """
import sys

BLOCKED = {"torch", "sklearn", "jinja2", "matplotlib"}

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Block())
from muddle_bench.ranking import published_scores, to_latex
assert len(to_latex(published_scores())) > 10_000
assert not BLOCKED & set(sys.modules)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)
