"""Files that are written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PARTIAL = ".partial"


@contextmanager
def write_whole(path: Path, owner: str = "") -> Iterator[IO[bytes]]:
    """A file that is at its place once all of it is written, and not before.

    It is written beside its place first; owner: a word for the name of that file.
    """
    middle = f"{secrets.token_hex(4)}.{owner}" if owner else secrets.token_hex(4)
    partial = path.with_name(f"{path.name}.{middle}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
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
