"""What a command for models says besides its result: notes for people, on the standard error."""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from muddle.cli.output import count, make_console


@dataclass
class Notes:
    """Notes, each said once, when it comes."""

    quiet: bool = False
    said: list[str] = field(default_factory=list)
    _repeated: Counter[str] = field(default_factory=Counter)

    def say(self, text: str) -> None:
        text = " ".join(text.split())
        if text in self.said:
            return
        self.said.append(text)
        if not self.quiet:
            make_console(stderr=True).print(f"Note: {text}", soft_wrap=True)

    @contextmanager
    def take_warnings(self, *, of_chunk: bool = False) -> Iterator[None]:
        """Within, warnings of the package are notes. of_chunk: chunks of a file have warnings that
        differ in their numbers; the first is said, the others are counted."""

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            text = str(message)
            kind = text.partition(":")[0]
            if of_chunk and kind in self._repeated:
                self._repeated[kind] += 1
                return
            self._repeated[kind] = 0
            self.say(text)

        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = show  # `catch_warnings` brings the old one back
            yield

    def conclude(self) -> None:
        """Say what later chunks had in common with the first that was warned about."""
        for kind, n_chunks in self._repeated.items():
            if n_chunks:
                self.say(f"the same in {count(n_chunks, 'later chunk')} of rows: {kind}.")
        self._repeated.clear()
