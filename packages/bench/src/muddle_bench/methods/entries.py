"""What a method of the benchmark is, and what its builder is told."""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

Task = Literal["regression", "classification"]
Input = Literal["matrix", "table"]
BOTH: tuple[Task, ...] = ("regression", "classification")

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Request:
    """The cell that an estimator is built for."""

    task: Task
    seed: int  # the number of the split
    threads: int = 1  # as many as the method may use
    device: str = "cpu"  # "cpu" or "cuda": only methods that can use it look at it
    categorical: tuple[str, ...] = ()  # text columns, for methods that take the table itself


@dataclass(frozen=True)
class Method:
    """Everything about one method: adding one is a builder and an entry."""

    name: str  # in file names and tables, so it never changes
    family: str  # how rankings group it
    make: Callable[[Request], Any]  # an unfitted estimator
    _: KW_ONLY
    tasks: tuple[Task, ...] = BOTH
    title: str = ""
    packages: tuple[str, ...] = ()  # import names, or "R:earth" for a package of R
    install: str = ""  # what to do where they are missing
    input: Input = "matrix"  # "matrix": encoded before; "table": the frame with its text and gaps
    fit_name: str = ""  # methods that share it are answered by one fit; "": the name
    answer: Callable[[Any], Any] | None = None  # fitted model → what predicts; None: the model
    # what predicts, and the problem → JSON values that the record keeps besides the scores
    details: Callable[[Any, Any], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        for what in ("name", "fit_name"):
            value = getattr(self, what)
            if not _NAME.fullmatch(value) and (what == "name" or value):
                raise ValueError(
                    f"{what} of a method must be small letters and digits joined by '-', as in "
                    f"'random-forest', got {what}={value!r}."
                )
        if not self.tasks or set(self.tasks) - set(BOTH):
            raise ValueError(f"tasks of {self.name!r} must be some of {BOTH}, got {self.tasks!r}.")
        if not self.fit_name:
            object.__setattr__(self, "fit_name", self.name)
