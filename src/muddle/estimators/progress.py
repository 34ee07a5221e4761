"""A progress line with loss and validation score, for verbose=True."""

import sys
from contextlib import AbstractContextManager, nullcontext

from muddle.errors import MissingPackageError


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
) -> AbstractContextManager[Progress | None]:
    """A context with a bar when verbose, with nothing otherwise."""
    return Progress(n_net_iterations, label) if verbose else nullcontext()
