"""Where data files lie, whether they are the right ones, and how they get there."""

import gzip
import hashlib
import logging
import os
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from muddle.errors import DataFormatError, MissingDataError, MissingPackageError, MuddleError
from muddle.table_files.sources import GZIP_MAGIC
from muddle_bench.data.catalogue import Entry, find_entry, read_all
from muddle_bench.data.reading import has_header
from muddle_bench.errors import ChecksumError, DownloadError

RAW = "raw"  # the folder of the data files, in the data folder
# Seconds until a server must answer, and until the next byte must come.
TIMEOUT = (10.0, 30.0)
CHUNK = 1 << 16

State = Literal["present", "fetched", "by hand", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What fetching one data set came to."""

    entry: Entry
    state: State
    path: Path | None = None
    error: MuddleError | None = None


def data_home(path: str | Path | None = None) -> Path:
    """The data folder: `path`, else $MUDDLE_DATA, else muddle in the user's cache folder."""
    chosen = path or os.environ.get("MUDDLE_DATA")
    if not chosen:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        chosen = Path(cache) / "muddle"
    home = Path(chosen).expanduser().absolute()
    if home.exists() and not home.is_dir():
        raise ValueError(
            f"the data folder must be a folder, got the file {home}. "
            "Pass another data_home or set MUDDLE_DATA."
        )
    return home


_find_home = data_home  # `fetch` has an argument of that name


def locate(entry: Entry, home: Path) -> Path | None:
    """The data set's file, plain or gzipped, or None where there is none."""
    plain = target_path(entry, home)
    zipped = plain.with_name(plain.name + ".gz")
    return next((path for path in (plain, zipped) if path.is_file()), None)


def target_path(entry: Entry, home: Path) -> Path:
    """Where the data set's file has to lie."""
    return home / RAW / entry.file


def content_sha256(path: Path, *, header: bool, encoding: str = "utf-8-sig") -> str:
    """SHA-256 of the data lines: the same for copies with other line ends, header or blank lines.

    Counted are the lines after the header, without trailing blanks, that are not empty.
    """
    digest = hashlib.sha256()
    skip, separator = header, b""
    for line in _read_lines(path, encoding):
        line = line.lstrip("\ufeff").rstrip(" \t\n")
        if not line:
            continue
        if skip:
            skip = False
            continue
        digest.update(separator + line.encode())
        separator = b"\n"
    return digest.hexdigest()


def require(entry: Entry, home: Path, *, download: bool = True, progress: bool = False) -> Path:
    """The data set's file, downloaded if need be, with its checksum verified."""
    path = locate(entry, home)
    if path is None:
        if entry.url is None or not download:
            raise _explain_absence(entry, home)
        path = _download(entry, entry.url, home, progress)
    fault = _find_fault(entry, path)
    if fault:
        again = f"run `muddle datasets fetch {entry.id}`" if entry.url else _by_hand(entry, home)
        raise ChecksumError(
            f"{path} is not the file that {entry.id!r} was published with, or was changed since: "
            f"{fault}. Move it away, then {again}."
        )
    return path


def fetch(
    names: str | Iterable[str] | None = None,
    data_home: str | Path | None = None,
    progress: bool = True,
) -> list[Path]:
    """The verified files of the data sets named, or of all, downloaded where they are absent.

    A failure does not stop the others: all are reported at the end, in one DownloadError. Where a
    single data set was asked for, its own error is raised.
    """
    home = _find_home(data_home)
    outcomes = list(fetch_each(find_entries(names, home), home, progress))
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors and len(outcomes) == 1:
        raise errors[0]
    if errors:
        listed = "\n".join(f"- {error}" for error in errors)
        raise DownloadError(
            f"{len(errors)} of {len(outcomes)} data sets could not be fetched:\n{listed}"
        ) from ExceptionGroup("one error per data set", errors)
    return [outcome.path for outcome in outcomes if outcome.path is not None]


def find_entries(names: str | Iterable[str] | None, home: Path) -> list[Entry]:
    """The entries named, each once, or all; an unknown name is an error before any work."""
    if names is None:
        return list(read_all(home).values())
    names = [names] if isinstance(names, str) else names
    return [find_entry(name, home) for name in dict.fromkeys(names)]


def fetch_each(entries: Iterable[Entry], home: Path, progress: bool) -> Iterator[Outcome]:
    """Fetch one data set after the other, and say of each what came of it."""
    for entry in entries:
        state: State = "present" if locate(entry, home) else "fetched"
        try:
            path = require(entry, home, progress=progress)
        except MissingDataError as error:
            yield Outcome(entry, "by hand", error=error)
        except (DownloadError, ChecksumError) as error:
            yield Outcome(entry, "failed", error=error)
        else:
            yield Outcome(entry, state, path=path)


def _read_lines(path: Path, encoding: str) -> Iterator[str]:
    # By content, not by name: a file is checked before it has its name.
    with path.open("rb") as file:
        zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    # A damaged file shall have a checksum too, just not the right one.
    options: dict[str, Any] = {"mode": "rt", "encoding": encoding, "errors": "backslashreplace"}
    with gzip.open(path, **options) if zipped else path.open(**options) as lines:
        yield from lines


def _find_fault(entry: Entry, path: Path) -> str | None:
    """What is wrong with the file's content, or None."""
    if not entry.sha256:
        return None
    try:
        found = content_sha256(path, header=has_header(entry, path), encoding=entry.encoding)
    except LookupError as error:
        raise DataFormatError(
            f"[{entry.id}] encoding must be one that Python knows: {error}."
        ) from error
    except DataFormatError:
        return "it cannot be read as text"
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return f"it cannot be unzipped ({error})"
    if found in entry.sha256:
        return None
    return f"its data lines have the SHA-256 {found}, expected {' or '.join(entry.sha256)}"


def _explain_absence(entry: Entry, home: Path) -> MissingDataError:
    if entry.url is None:
        return MissingDataError(
            f"the file of {entry.id!r} is not there, and there is no address to download it from. "
            f"By hand: {_by_hand(entry, home)}."
        )
    return MissingDataError(
        f"the file of {entry.id!r} is not there. Run `muddle datasets fetch {entry.id}`, "
        f"or by hand: {_by_hand(entry, home)}."
    )


def _by_hand(entry: Entry, home: Path) -> str:
    target = target_path(entry, home)
    if not entry.page:
        return f"save the file as {target}"
    return f"open {entry.page}, download {target.name} and save it as {target}"


def _download(entry: Entry, url: str, home: Path, progress: bool) -> Path:
    pooch, requests = _import_pooch(entry)
    target = target_path(entry, home)
    by_hand = f"by hand: {_by_hand(entry, home)}."
    registry = pooch.create(
        home / RAW, base_url="", registry={entry.file: None}, urls={entry.file: url}
    )
    try:
        # Not left to pooch, which stumbles when another process makes the folder meanwhile.
        target.parent.mkdir(parents=True, exist_ok=True)
        with nullcontext() if progress else _only_warnings(pooch.get_logger()):
            registry.fetch(entry.file, downloader=_Downloader(entry, target, by_hand, progress))
    except requests.RequestException as error:
        kept = _partial(target).exists()
        again = "Try again (what came is kept, and continued from)" if kept else "Try again later"
        raise DownloadError(
            f"could not download {target.name} of {entry.id!r} from {url}: "
            f"{_explain_transfer(error)}. {again}, or {by_hand}"
        ) from error
    except MuddleError:
        raise
    except OSError as error:
        raise DownloadError(
            f"could not write {target}: {error.strerror or type(error).__name__}. "
            "Pass another data_home or set MUDDLE_DATA to a folder that can be written to."
        ) from error
    return target


def _import_pooch(entry: Entry) -> tuple[ModuleType, ModuleType]:
    """pooch and requests, which comes with it."""
    try:
        import pooch
        import requests
    except ImportError as error:
        raise MissingPackageError(
            f"downloading {entry.id!r} needs the package pooch: pip install 'muddle[datasets]'."
        ) from error
    return pooch, requests


@contextmanager
def _only_warnings(logger: logging.Logger) -> Iterator[None]:
    def is_warning(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    # Not by its level: pooch's logger remembers which levels were off.
    logger.addFilter(is_warning)
    try:
        yield
    finally:
        logger.removeFilter(is_warning)


def _explain_transfer(error: Any) -> str:
    """The reason of a requests error in words; the error itself stays attached as the cause."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "the server did not answer in time"
    if isinstance(error, (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        return "the connection failed or broke off"
    return str(error)


@dataclass(frozen=True)
class _Downloader:
    """A downloader for pooch that continues a broken transfer and lets only the right file pass."""

    entry: Entry
    target: Path
    by_hand: str
    progress: bool

    def __call__(self, url: str, output_file: Any, _: Any) -> None:
        """Write the verified content of `url` to `output_file`, which pooch then renames."""
        partial = _partial(self.target)
        # Another process may fetch the same file: each writes to a name of its own.
        owner = f"{os.getpid()}-{threading.get_ident()}"
        own = self.target.with_name(f"{self.target.name}.{owner}.partial")
        # Without a checksum nobody could tell whether two halves belong together.
        resumable = bool(self.entry.sha256)
        try:
            continued = resumable and _claim(partial, own)
            self._transfer(url, own, continued)
            fault = _find_fault(self.entry, own)
            if fault and continued:  # perhaps the beginning of an older version
                self._transfer(url, own, continued=False)
                fault = _find_fault(self.entry, own)
        except BaseException:  # Ctrl-C too leaves a beginning to continue from
            if resumable and own.is_file() and own.stat().st_size:
                os.replace(own, partial)
            own.unlink(missing_ok=True)
            raise
        if fault:
            own.unlink()
            raise ChecksumError(
                f"{url} must serve {self.target.name} as it was published, but {fault}. Nothing "
                f"was saved. The download was damaged or the file has changed: try again, or "
                f"{self.by_hand}"
            )
        os.replace(own, output_file)
        partial.unlink(missing_ok=True)

    def _transfer(self, url: str, path: Path, continued: bool) -> None:
        """Write what `url` serves to `path`, after what is there if the server can continue."""
        import requests

        start = path.stat().st_size if continued else 0
        # Unzipped on the way, a file would have other positions than the server's.
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if start and response.status_code == 416:  # nothing comes after what is there
                return self._transfer(url, path, continued=False)
            response.raise_for_status()
            if response.status_code != 206:  # the whole file, not the rest of it
                start = 0
            total = _total_size(response, start)
            with path.open("r+b" if start else "wb") as file, self._bar(start, total) as bar:
                file.seek(start)
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    if bar is not None:
                        bar.update(len(chunk))
                size = file.tell()
        if total is not None and size < total:
            raise requests.exceptions.ChunkedEncodingError(f"{size} of {total} bytes came")

    def _bar(self, start: int, total: int | None) -> Any:
        """A progress bar on a terminal, where tqdm is installed."""
        if self.progress:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return nullcontext()
            name = self.target.name
            return tqdm(
                desc=name, initial=start, total=total, unit="B", unit_scale=True, disable=None
            )
        return nullcontext()


def _partial(target: Path) -> Path:
    """Where the beginning of a broken transfer is kept."""
    return target.with_name(f"{target.name}.partial")


def _claim(partial: Path, own: Path) -> bool:
    """Take over the beginning a broken transfer left; only one process can."""
    try:
        os.replace(partial, own)
    except FileNotFoundError:
        return False
    return True


def _total_size(response: Any, start: int) -> int | None:
    """Bytes the whole file will have, where the server says so."""
    length = response.headers.get("Content-Length", "")
    if not length.isdigit() or "Content-Encoding" in response.headers:
        return None
    return start + int(length)
