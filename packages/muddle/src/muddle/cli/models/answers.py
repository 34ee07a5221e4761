"""What a model says of rows, as the columns of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.cli.models.needs import Needs, check_model_path

if TYPE_CHECKING:
    from muddle.model_file.contents import Contents
    from muddle.model_file.loading import Runtime

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Loaded:
    """A model from a file."""

    path: Path
    contents: "Contents"
    model: Any
    needs: Needs

    @property
    def header(self) -> dict[str, Any]:
        return self.contents.header

    @property
    def task(self) -> str:
        return str(self.header["task"])

    @property
    def classes(self) -> NDArray[Any]:
        classes: NDArray[Any] = self.model.classes_
        return classes

    @property
    def has_intervals(self) -> bool:
        return hasattr(self.model, "predict_interval")


def load_model(path: Path, *, runtime: "Runtime", device: str) -> Loaded:
    """The model in a file, ready to predict."""
    check_model_path(path)
    from muddle.model_file.contents import read_contents
    from muddle.model_file.loading import start_model

    contents = read_contents(path)
    model = start_model(contents, runtime=runtime, device=device)
    return Loaded(path, contents, model, Needs.of(contents.header))


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked of each row."""

    proba: bool = False
    interval: float | None = None
    quantiles: tuple[float, ...] = ()


def check_wanted(wanted: Wanted, loaded: Loaded) -> None:
    """An error, before any work, for what this model cannot answer."""
    if wanted.proba and loaded.task != "classification":
        raise ValueError(
            "--proba is for classes, and this model predicts numbers. --interval and --quantile "
            "say how sure it is."
        )
    for option, asked in (("--interval", wanted.interval), ("--quantile", wanted.quantiles)):
        if asked is None or asked == ():
            continue
        if loaded.task != "regression":
            raise ValueError(
                f"{option} is for numbers, and this model predicts classes. --proba says how sure "
                "it is."
            )
        if not loaded.has_intervals:
            raise ValueError(
                f"{option} needs a MuddleRegressor, got a model of {loaded.header['estimator']}, "
                "which has no intervals."
            )
        for level in np.ravel(asked):
            if not 0 < level < 1:
                hint = f" Did you mean {level / 100:g}?" if 1 < level < 100 else ""
                raise ValueError(f"{option} must lie between 0 and 1, got {level:g}.{hint}")


def answer(loaded: Loaded, rows: Any, wanted: Wanted) -> pd.DataFrame:
    """Columns of the answer for some rows."""
    if loaded.task == "classification":
        probabilities = np.asarray(loaded.model.predict_proba(rows))
        columns = {"prediction": loaded.classes[probabilities.argmax(axis=1)]}
        if wanted.proba:
            columns |= {
                f"probability_{name}": probabilities[:, place]
                for place, name in enumerate(loaded.classes.tolist())
            }
        return pd.DataFrame(columns)
    columns = name_outputs("prediction", np.asarray(loaded.model.predict(rows)))
    if wanted.interval is not None:
        bounds = np.asarray(loaded.model.predict_interval(rows, coverage=wanted.interval))
        columns |= name_outputs("lower", bounds[..., 0])
        columns |= name_outputs("upper", bounds[..., 1])
    if wanted.quantiles:
        found = np.asarray(loaded.model.predict(rows, quantiles=list(wanted.quantiles)))
        for place, level in enumerate(wanted.quantiles):
            columns |= name_outputs(f"quantile_{level:g}", found[..., place])
    return pd.DataFrame(columns)


def name_outputs(name: str, values: Floats) -> dict[str, Floats]:
    """One column, or one for each output of a model with several."""
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{output}": values[:, output] for output in range(values.shape[1])}


def match_labels(labels: Sequence[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Position of each label among the classes, -1 where it is none; 1, 1.0 and "1" are one."""
    places = {write_label(name): place for place, name in enumerate(classes.tolist())}
    return np.array([places.get(write_label(label), -1) for label in labels], dtype=np.int64)


def write_label(label: Any) -> str:
    """A label as text, the same whether a file or a program wrote it."""
    if isinstance(label, (bool, np.bool_)):
        return str(bool(label))
    try:
        number = float(label)
    except (TypeError, ValueError):
        return str(label)
    # "007" is a code, and not the class 7.
    if isinstance(label, str) and label[:1] == "0" and label[1:2].isdigit():
        return label
    return str(int(number)) if number.is_integer() else repr(number)
