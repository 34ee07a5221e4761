"""The same columns as `reading` gives, read at once by pandas where a file is plain.

Field by field takes several times as long. But pandas fills short lines and cuts long ones without
a word, so whatever is not plain is left to `reading`, which says what is wrong.
"""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from muddle.table_files.columns import type_columns
from muddle.table_files.separators import BLANKS, guess_separator, split
from muddle_bench.data.catalogue import Entry
from muddle_bench.data.reading import (
    Fields,
    name_columns,
    read_fields,
    read_text,
    resolve_header,
)


def read_columns(path: Path, entry: Entry) -> Fields:
    """Columns of numbers and text, with the markers of the entry as gaps."""
    plain = _read_plain(path, entry)
    if plain is not None:
        return plain
    fields = read_fields(path, entry)
    return Fields(
        type_columns(fields.table, entry.missing),
        fields.separator,
        fields.has_names,
        fields.n_blank,
    )


def _read_plain(path: Path, entry: Entry) -> Fields | None:
    """None where lines differ in length, are blank records, or need a second look."""
    text = read_text(path, entry.encoding)
    separator = entry.separator or guess_separator(text, path)
    first = split(text, separator, path, strip=True, most=1)
    if separator == BLANKS or not first or len(first[0][1]) == 1:
        return None
    line, fields = first[0]
    has_names = resolve_header(entry, fields)
    names = name_columns(entry, fields if has_names else None, len(fields), path)
    options: dict[str, Any] = {
        "sep": separator,
        "header": None,
        "names": names,
        "index_col": False,
        "skiprows": line if has_names else 0,
        "skipinitialspace": True,
        "keep_default_na": False,
        "low_memory": False,
    }
    markers = ["", *entry.missing]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # lines that were cut
            table = pd.read_csv(io.StringIO(text), na_values=markers, **options)
            if table[names[-1]].isna().any():  # gaps, or lines that end early?
                widths = {len(row) for _, row in split(text, separator, path, strip=True)}
                if widths != {len(names)}:
                    return None
            flags = [name for name in names if table[name].dtype == bool]
            if flags:  # "yes or no" in other words than True and False would be lost
                table[flags] = _read_as_text(text, flags, options)
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError, ValueError):
        return None
    if table.empty or table.isna().all(axis=1).any() or _has_wide_numbers(table):
        return None
    return Fields(_strip_text(table, markers), separator, has_names, n_blank=0)


def _read_as_text(text: str, names: list[str], options: dict[str, Any]) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), usecols=names, dtype=str, **options)


def _has_wide_numbers(table: pd.DataFrame) -> bool:
    """Whether pandas made objects of integers that are too wide for a machine word."""
    objects = [table[name] for name in table if table[name].dtype == object]
    return any(pd.api.types.infer_dtype(column) == "integer" for column in objects)


def _strip_text(table: pd.DataFrame, markers: Sequence[str]) -> pd.DataFrame:
    """Blanks off the ends of text, which may turn it into numbers or gaps."""
    text = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    stripped = {name: table[name].astype(object).str.strip().fillna("") for name in text}
    typed = type_columns(pd.DataFrame(stripped, dtype=object), markers) if text else stripped
    return pd.DataFrame({name: typed[name] if name in text else table[name] for name in table})
