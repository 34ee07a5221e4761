"""Files that are written whole or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PARTIAL = ".partial"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TRIAL = bytes(4096)  # a file system gives room in blocks of this size
WRITABLE = 0o222


@contextmanager
def write_whole(path: Path, owner: str = "") -> Iterator[IO[bytes]]:
    """A file that is at its place once all of it is written, and not before.

    It is written beside its place first; owner: a word for the name of that file.
    """
    partial = _name_partial(path, owner)
    try:
        with naming(path), partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        _remove(partial)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of a full disk name this file: the system tells the name of none."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            error.filename = str(path)
        raise


def check_place(path: Path) -> None:
    """An error, before any work, where a file cannot be put at this path."""
    if path.is_dir():
        raise IsADirectoryError(f"the path must name a file, got the folder {path}.")
    if path.exists() and not path.is_file():  # which a file would replace: a device, a pipe
        raise FileExistsError(f"the path must name an ordinary file or none, got {path}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"the folder of {path.name} must exist, got {path.parent}. Create it first."
        )
    if path.exists() and not path.stat().st_mode & WRITABLE:
        raise PermissionError(
            f"a file that is replaced must not be read-only, got {path}. Choose another name."
        )
    # Only a trial finds them all: folders and disks that are read-only or full, names too long.
    trial = _name_partial(path)
    try:
        trial.write_bytes(TRIAL)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        _remove(trial)


def _remove(path: Path) -> None:
    """Remove a file if there is one; an error would hide the one that matters."""
    with suppress(OSError):
        path.unlink()


def _name_partial(path: Path, owner: str = "") -> Path:
    middle = f"{secrets.token_hex(4)}.{owner}" if owner else secrets.token_hex(4)
    return path.with_name(f"{path.name}.{middle}{PARTIAL}")
