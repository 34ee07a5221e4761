"""What is known of each data set: where it comes from, how its file reads, what was done to it."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from muddle.errors import DataFormatError
from muddle_bench.errors import UnknownDatasetError
from muddle_runtime.parameters import suggest

Task = Literal["regression", "classification"]
Transform = Literal["none", "log", "log1p"]
Header = bool | Literal["optional"]

BUILT_IN = Path(__file__).with_name("catalogue.toml")
OWN_CATALOGUE = "catalogue.toml"  # in the user's data folder


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One data set of a catalogue."""

    id: str
    file: str  # below raw/ in the data folder; it may also lie there gzipped
    target: str  # a column; where the file has no header, its position
    title: str = ""
    task: Task | None = None  # None: guessed from the target
    page: str = ""
    url: str | None = None  # None: has to be fetched by hand from the page
    sha256: tuple[str, ...] = ()  # of the data lines; empty: not checked
    licence: str = ""
    source: str = ""
    separator: str | None = ","  # " ": any run of blanks; None: guessed
    header: Header = True  # "optional": copies with and without one go round
    columns: tuple[str, ...] = ()  # names in place of those of the file, if it has any
    encoding: str = "utf-8-sig"
    missing: tuple[str, ...] = ()  # markers beyond the empty field
    transform: Transform = "none"  # of the target, in both recipes
    binary: str | None = None  # this class against all others, which become "not <class>"
    drop: Mapping[str, str] = field(default_factory=dict)  # by both recipes
    leaks: Mapping[str, str] = field(default_factory=dict)  # by the clean recipe
    omitted: Mapping[str, str] = field(default_factory=dict)  # by the published one
    quirks: tuple[str, ...] = ()  # of the published recipe, see published.QUIRKS
    note: str = ""  # what a user of the clean recipe should know
    n_published: int | None = None
    d_published: int | None = None
    mismatch: str = ""  # why the published recipe misses the published size


def read_catalogue(path: Path) -> dict[str, Entry]:
    """The entries of a TOML file with one table per data set."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataFormatError(f"{path} must be a TOML file in UTF-8: {error}.") from error
    return {name: _make_entry(name, table, path) for name, table in tables.items()}


@cache
def built_in() -> dict[str, Entry]:
    """The data sets of the paper."""
    return read_catalogue(BUILT_IN)


def read_all(home: Path) -> dict[str, Entry]:
    """The data sets of the paper and those of the user's own catalogue, if there is one."""
    own_path = home / OWN_CATALOGUE
    if not own_path.is_file():
        return dict(built_in())
    own = read_catalogue(own_path)
    taken = sorted(built_in().keys() & own.keys())
    if taken:
        raise DataFormatError(
            f"{own_path}: [{taken[0]}] is the name of a built-in data set. Choose another name."
        )
    return {**built_in(), **own}


def find_entry(name: str, home: Path) -> Entry:
    """The built-in data set of that name, or the one in the user's own catalogue."""
    entries = read_all(home)
    if name in entries:
        return entries[name]
    raise UnknownDatasetError(
        f"no data set named {name!r}.{suggest(name, entries)} "
        f"muddle_bench.data.list_datasets() lists all {len(entries)}; tables of your own are named "
        f"in {home / OWN_CATALOGUE}."
    )


def _make_entry(name: str, table: Any, path: Path) -> Entry:
    if not isinstance(table, dict):
        raise DataFormatError(
            f"{path}: {name!r} must be a table with one key per line, got {table!r}. "
            "Start it with a line [name-of-the-data-set]."
        )
    known = {f.name: f for f in fields(Entry) if f.name != "id"}
    for key, value in table.items():
        if key not in known:
            raise DataFormatError(
                f"{path}: [{name}] has an unknown key {key!r}.{suggest(key, known)}"
            )
        expected, accepts = _ACCEPTED[key]
        if not accepts(value):
            raise DataFormatError(f"{path}: [{name}] {key} must be {expected}, got {value!r}.")
    for key, known_field in known.items():
        required = known_field.default is MISSING and known_field.default_factory is MISSING
        if required and key not in table:
            raise DataFormatError(
                f"{path}: [{name}] must have the key {key!r}: {_ACCEPTED[key][0]}."
            )
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Entry(id=name, **values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_header(value: Any) -> bool:
    return isinstance(value, bool) or value == "optional"


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_reasons(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def is_separator(value: Any) -> bool:
    """Whether a file can be split at it."""
    return isinstance(value, str) and len(value) == 1 and value not in '"\r\n'


_TEXT = ("a text", _is_text)
_LIST = ("a list of texts", _is_list)
_SIZE = ("a whole number above 0", _is_size)
_REASONS = ('reasons by column, as { "No" = "row number" }', _is_reasons)

# Key of a table: what it must be, in words and as a test.
_ACCEPTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "file": ("the file's path below raw/, as a text", _is_text),
    "target": ("the target column's name, as a text", _is_text),
    "title": _TEXT,
    "task": ("'regression' or 'classification'", get_args(Task).__contains__),
    "page": _TEXT,
    "url": _TEXT,
    "sha256": _LIST,
    "licence": _TEXT,
    "source": _TEXT,
    "separator": ("one character, ' ' for any run of blanks", is_separator),
    "header": ("true, false or 'optional'", _is_header),
    "columns": _LIST,
    "encoding": _TEXT,
    "missing": _LIST,
    "transform": ("'none', 'log' or 'log1p'", get_args(Transform).__contains__),
    "binary": _TEXT,
    "drop": _REASONS,
    "leaks": _REASONS,
    "omitted": _REASONS,
    "quirks": _LIST,
    "note": _TEXT,
    "n_published": _SIZE,
    "d_published": _SIZE,
    "mismatch": _TEXT,
}
