"""Data files: where they lie, whether their content is the published one, and the download."""

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from muddle.errors import DataFormatError, MissingDataError, MuddleError
from muddle.tables.read import GZIP_MAGIC
from muddle_bench.data.catalogue import Entry, find_entries
from muddle_bench.data.text_files import has_header
from muddle_bench.errors import ChecksumError, DownloadError
from muddle_runtime.whole_file import write_whole

RAW = "raw"  # the folder of the data files, in the data folder
TIMEOUT = (10.0, 30.0)  # seconds until a server must answer, and until the next byte must come
CHUNK = 1 << 16

State = Literal["present", "fetched", "by hand", "failed"]


@dataclass(frozen=True)
class Outcome:
    """The result of fetching one data set."""

    entry: Entry
    state: State
    path: Path | None = None
    error: MuddleError | None = None


def find_data_home(path: str | Path | None = None) -> Path:
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


def locate(entry: Entry, home: Path) -> Path | None:
    """The data set's file, plain or gzipped; None if it is absent."""
    plain = home / RAW / entry.file
    zipped = plain.with_name(plain.name + ".gz")
    return next((path for path in (plain, zipped) if path.is_file()), None)


def content_sha256(path: Path, *, header: bool, encoding: str = "utf-8-sig") -> str:
    """SHA-256 of the lines after the header that are not blank, without trailing blanks."""
    # By content, not by name: a download is checked before it has its name.
    with path.open("rb") as file:
        zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    # Bytes that cannot be decoded must give a checksum too, though not the right one.
    options: dict[str, Any] = {"mode": "rt", "encoding": encoding, "errors": "backslashreplace"}
    with gzip.open(path, **options) if zipped else path.open(**options) as text:
        stripped = (line.lstrip("\ufeff").rstrip(" \t\n") for line in text)
        lines = islice(filter(None, stripped), int(header), None)
        digest = hashlib.sha256(next(lines, "").encode())
        for line in lines:
            digest.update(b"\n" + line.encode())
    return digest.hexdigest()


def require(entry: Entry, home: Path, *, progress: bool = False) -> Path:
    """Path of the data set's file, downloaded if it is absent; its checksum is verified."""
    path = locate(entry, home)
    if path is None and entry.url:
        return _download(entry, entry.url, home, progress)
    if path is None:
        raise MissingDataError(
            f"the file of {entry.id!r} is absent, and there is no address to download it from. "
            f"By hand: {_by_hand(entry, home)}."
        )
    fault = _find_fault(entry, path)
    if fault:
        again = f"run `muddle datasets fetch {entry.id}`" if entry.url else _by_hand(entry, home)
        raise ChecksumError(
            f"{path} must be the file that {entry.id!r} was published with, but {fault}. "
            f"Move it away, then {again}."
        )
    return path


def fetch(
    names: str | Iterable[str] | None = None,
    data_home: str | Path | None = None,
    progress: bool = True,
) -> list[Path]:
    """Paths of the verified files of the named data sets, or of all; absent ones are downloaded.

    A failure does not stop the others: one DownloadError at the end reports all of them. If a
    single data set was named, its own error is raised.
    """
    home = find_data_home(data_home)
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


def fetch_each(entries: Iterable[Entry], home: Path, progress: bool) -> Iterator[Outcome]:
    """Fetch one data set after the other and yield the outcome of each."""
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


def _find_fault(entry: Entry, path: Path) -> str | None:
    """How the file's content differs from the published one; None if it does not."""
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


def _by_hand(entry: Entry, home: Path) -> str:
    target = home / RAW / entry.file
    if not entry.page:
        return f"save the file as {target}"
    return f"open {entry.page}, download {target.name} and save it as {target}"


def _download(entry: Entry, url: str, home: Path, progress: bool) -> Path:
    """Download the file with pooch; it gets its name after its checksum was verified."""
    import pooch
    import requests

    target = home / RAW / entry.file
    by_hand = f"by hand: {_by_hand(entry, home)}."
    bar = progress and sys.stderr.isatty()  # pooch would draw it on files and pipes too
    transfer = pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK, timeout=TIMEOUT)
    broken = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(target) as file:
            transfer(url, file, None)
            fault = _find_fault(entry, Path(file.name))
            if fault:
                raise ChecksumError(
                    f"{url} must serve {target.name} as it was published, but {fault}. Nothing "
                    f"was saved. The download was damaged or the file has changed: try again, or "
                    f"{by_hand}"
                )
    except requests.RequestException as error:
        reason = str(error)
        if error.response is not None:
            error.response.close()
        if isinstance(error, requests.HTTPError) and error.response is not None:
            answer = error.response
            reason = f"the server answered {answer.status_code} {answer.reason}"
        elif isinstance(error, requests.Timeout):
            reason = "the server did not answer in time"
        elif isinstance(error, broken):
            reason = "the connection failed or broke off"
        raise DownloadError(
            f"could not download {target.name} of {entry.id!r} from {url}: {reason}. Try again "
            f"later, or {by_hand}"
        ) from error
    except MuddleError:
        raise
    except OSError as error:
        raise DownloadError(
            f"could not write {target}: {error.strerror or type(error).__name__}. "
            "Pass another data_home or set MUDDLE_DATA to a folder that can be written to."
        ) from error
    return target
