"""A progress line with loss and validation score, for verbose=True."""

from torch import Tensor

from muddle.errors import MissingPackageError


class Progress:
    """A context that counts iterations: a tqdm bar when verbose, nothing otherwise."""

    def __init__(self, n_iterations: int, label: str, verbose: bool) -> None:
        self._bar = None
        if verbose:
            try:
                from tqdm.auto import tqdm
            except ImportError as error:
                raise MissingPackageError(
                    "verbose=True needs the package tqdm: pip install 'muddle[progress]'."
                ) from error
            self._bar = tqdm(total=n_iterations, desc=label, unit="it")

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, iteration: int, loss: Tensor, best_score: Tensor) -> None:
        if self._bar is not None:
            self._bar.set_postfix(
                loss=f"{float(loss.mean()):.3f}",
                validation=f"{float(best_score.mean()):.3f}",
                refresh=False,
            )
            self._bar.update()
