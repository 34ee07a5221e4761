"""The catalogue: where each data set comes from, how its file is read, how its target is defined,
and which part it belongs to: settings are chosen on the development part, and judged on the
evaluation part.

The data sets of the paper are in catalogue.toml; users may name tables of their own in a file of
the same form in their data folder.
"""

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from muddle.errors import DataFormatError
from muddle_bench.errors import UnknownDatasetError
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import suggest

Transform = Literal["none", "log", "log1p"]
Header = bool | Literal["optional"]
Part = Literal["development", "evaluation"]

BUILT_IN = Path(__file__).with_name("catalogue.toml")
OWN_CATALOGUE = "catalogue.toml"  # in the user's data folder


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One data set of a catalogue."""

    id: str
    file: str  # below raw/ in the data folder; a gzipped copy is found too
    target: str  # name of the column; its position if the file has no header
    title: str = ""
    task: Task | None = None  # None: guessed from the target
    page: str = ""
    url: str | None = None  # None: must be downloaded by hand from the page
    study: str = ""  # tables of one study are in one part; empty: the id
    sha256: tuple[str, ...] = ()  # of the data lines; empty: not checked
    licence: str = ""
    source: str = ""
    separator: str | None = ","  # " ": any run of blanks; None: guessed
    header: Header = True  # "optional": both kinds of copies exist
    columns: tuple[str, ...] = ()  # replace the names in the file
    encoding: str = "utf-8-sig"
    missing: tuple[str, ...] = ()  # texts that mark a gap, besides the empty field
    transform: Transform = "none"  # of the target, in both recipes
    binary: str | None = None  # this class against all others, which become "not <class>"
    drop: Mapping[str, str] = field(default_factory=dict)  # column: reason; by both recipes
    leaks: Mapping[str, str] = field(default_factory=dict)  # dropped by the clean recipe
    omitted: Mapping[str, str] = field(default_factory=dict)  # dropped by the published recipe
    quirks: tuple[str, ...] = ()  # of the published recipe, see published.QUIRKS
    note: str = ""  # for users of the clean recipe
    n_published: int | None = None
    d_published: int | None = None
    mismatch: str = ""  # why the published recipe misses the published size

    @property
    def part(self) -> Part:
        """A hash of the study decides, so that nobody chooses and new tables change nothing."""
        first = hashlib.sha256((self.study or self.id).encode()).digest()[0]
        return "evaluation" if first % 2 else "development"


def read_catalogue(path: Path) -> dict[str, Entry]:
    """Entries by name from a TOML file with a table for each."""
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
    """The data sets of the paper and those of the user's own catalogue."""
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


def part_of(dataset: str, home: Path | None = None) -> Part:
    """The part of a data set; `home` has the catalogue of tables whose entry names a study."""
    entries = built_in() if home is None else read_all(home)
    return entries.get(dataset, Entry(id=dataset, file="", target="")).part


def find_entry(name: str, home: Path) -> Entry:
    """The entry of that name, built-in or from the user's own catalogue."""
    return find_entries(name, home)[0]


def find_entries(names: str | Iterable[str] | None, home: Path) -> list[Entry]:
    """The named entries without repetitions, or all of them for None."""
    entries = read_all(home)
    if names is None:
        return list(entries.values())
    chosen = dict.fromkeys([names] if isinstance(names, str) else names)
    for name in chosen:
        if name not in entries:
            raise UnknownDatasetError(
                f"no data set named {name!r}.{suggest(name, entries)} "
                f"muddle_bench.list_datasets() lists all {len(entries)}; name tables of your own "
                f"in {home / OWN_CATALOGUE}."
            )
    return [entries[name] for name in chosen]


def is_separator(value: Any) -> bool:
    """Whether a text file can be split at this value."""
    return isinstance(value, str) and len(value) == 1 and value not in '"\r\n'


def _make_entry(name: str, table: Any, path: Path) -> Entry:
    if not isinstance(table, dict):
        raise DataFormatError(
            f"{path}: {name!r} must be a table with one key per line, got {table!r}. "
            "Start it with a line [name-of-the-data-set]."
        )
    known = {f.name: f.type for f in fields(Entry) if f.name != "id"}
    for key, value in table.items():
        if key not in known:
            raise DataFormatError(
                f"{path}: [{name}] has an unknown key {key!r}.{suggest(key, known)}"
            )
        expected, accepts = _CHECKS.get(key) or _CHECKS_BY_TYPE.get(known[key], _TEXT)
        if not accepts(value):
            raise DataFormatError(f"{path}: [{name}] {key} must be {expected}, got {value!r}.")
    for key in ("file", "target"):
        if key not in table:
            raise DataFormatError(f"{path}: [{name}] must have the key {key!r}: {_CHECKS[key][0]}.")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    return Entry(id=name, **values)


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


Check = tuple[str, Callable[[Any], bool]]  # the accepted values in words, and a test for them
_TEXT: Check = ("a text", lambda value: isinstance(value, str))
_CHECKS: dict[str, Check] = {
    "file": ("the file's path below raw/, as a text", _TEXT[1]),
    "target": ("the target column's name, as a text", _TEXT[1]),
    "task": ("'regression' or 'classification'", get_args(Task).__contains__),
    "separator": ("one character, ' ' for any run of blanks", is_separator),
    "header": ("true, false or 'optional'", lambda v: isinstance(v, bool) or v == "optional"),
    "transform": ("'none', 'log' or 'log1p'", get_args(Transform).__contains__),
}
_CHECKS_BY_TYPE: dict[Any, Check] = {
    tuple[str, ...]: ("a list of texts", lambda v: isinstance(v, list) and _are_texts(v)),
    Mapping[str, str]: (
        'reasons by column, as { "No" = "row number" }',
        lambda value: isinstance(value, dict) and _are_texts(value.values()),
    ),
    int | None: ("a whole number above 0", lambda value: type(value) is int and value > 0),
}
