"""Text split into fields, and by which separator where nobody says."""

import csv
import io
from itertools import islice
from pathlib import Path

from muddle.errors import DataFormatError

SEPARATORS = (",", ";", "\t", "|", " ")  # tried in this order where one has to be guessed
BLANKS = " "  # as a separator: any run of blanks and tabs
# Lines looked at to guess a separator.
SAMPLE = 50

Rows = list[tuple[int, list[str]]]  # line number and fields


def guess_separator(text: str, path: Path) -> str:
    """The separator that gives the first lines the same number of fields, above one."""
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    fitting = fitting_separator(text, path)
    if fitting is not None:
        return fitting[0]
    first = next((line for line in text.splitlines() if line.strip()), "")
    # Lines that differ: the most frequent one, so that the error can name the odd line.
    return max(SEPARATORS[:-1], key=first.count)


def fitting_separator(text: str, path: Path) -> tuple[str, int] | None:
    """The first separator with which the first lines agree in a number of fields above one."""
    sample = "\n".join(islice((line for line in text.splitlines() if line.strip()), SAMPLE))
    for separator in SEPARATORS:
        widths = {len(fields) for _, fields in split(sample, separator, path, strip=True)}
        if len(widths) == 1 and (width := widths.pop()) > 1:
            return separator, width
    return None


def split(text: str, separator: str, path: Path, *, strip: bool, most: int | None = None) -> Rows:
    """The fields of each line that is not blank, with the number of its last line."""
    if separator == BLANKS:
        lines = ((i, line.split()) for i, line in enumerate(text.splitlines(), start=1))
        return list(islice(((i, fields) for i, fields in lines if fields), most))
    reader = csv.reader(
        io.StringIO(text, newline=None), delimiter=separator, skipinitialspace=strip
    )
    rows = ((reader.line_num, fields) for fields in reader)
    kept = ((i, fields) for i, fields in rows if len(fields) > 1 or "".join(fields).strip())
    if strip:
        kept = ((i, [field.strip() for field in fields]) for i, fields in kept)
    try:
        return list(islice(kept, most))
    except csv.Error as error:
        raise DataFormatError(
            f"{path} cannot be split into fields: {error} before line {reader.line_num + 1}. "
            "A quotation mark that is not closed is a common cause."
        ) from error
