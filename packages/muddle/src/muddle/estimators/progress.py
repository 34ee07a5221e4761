"""A progress line with loss and validation score, for verbose=True."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from muddle.errors import MissingPackageError
from muddle.training.jobs import Reporter

Maker = Callable[[int, str], AbstractContextManager[Reporter]]

# A program around the fit, such as the command line, may have a progress bar of its own.
_MAKER: ContextVar[Maker | None] = ContextVar("maker", default=None)


class Progress:
    """A tqdm bar that counts iterations times nets; it is what `train_jobs` reports to."""

    def __init__(self, n_net_iterations: int, label: str) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise MissingPackageError(
                "verbose=True needs the package tqdm: pip install 'muddle[progress]'."
            ) from error
        self._bar = tqdm(total=n_net_iterations, desc=label, unit="it")

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        self._bar.set_postfix(loss=f"{loss:.3f}", validation=f"{score:.3f}", refresh=False)
        self._bar.update(n_net_iterations)

    def say(self, text: str) -> None:
        self._bar.write(text, file=sys.stderr)


def watch(
    n_net_iterations: int, label: str, verbose: bool
) -> AbstractContextManager[Reporter | None]:
    """A context with a bar when verbose or watched by a program, with nothing otherwise."""
    maker = _MAKER.get()
    if maker is not None:
        return maker(n_net_iterations, label)
    return Progress(n_net_iterations, label) if verbose else nullcontext()


@contextmanager
def watched_by(maker: Maker) -> Iterator[None]:
    """Within, fits report to what `maker` gives, whatever `verbose` says."""
    token = _MAKER.set(maker)
    try:
        yield
    finally:
        _MAKER.reset(token)
