"""Texts that mean a gap, in files that have no other way to write one."""

MISSING = (
    *("", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "nan", "NaN", "null", "NULL", "None"),
    # What spreadsheets write where a formula has no value.
    *("#DIV/0!", "#VALUE!", "#NUM!", "#REF!", "#NAME?", "#NULL!"),
)
