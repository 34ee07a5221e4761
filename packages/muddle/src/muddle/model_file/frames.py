"""Data frames of a fit as plain data: numbers in arrays, texts in the header."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.model_file.contents import Header


def describe_frame(frame: pd.DataFrame, place: str, arrays: dict[str, NDArray[Any]]) -> Header:
    """A frame of numbers and texts; its named index becomes columns."""
    index = [name for name in frame.index.names if name is not None]
    columns = frame.reset_index() if index else frame
    texts, dtypes = {}, {}
    for name, column in columns.items():
        if pd.api.types.is_numeric_dtype(column.dtype):
            dtypes[name] = str(column.dtype)
            arrays[f"{place}.{name}"] = _to_array(column)
        else:
            dtypes[name] = "text"
            texts[name] = [str(text) for text in column]
    return {"index": index, "dtypes": dtypes, "texts": texts}


def restore_frame(stored: Header, place: str, arrays: dict[str, NDArray[Any]]) -> pd.DataFrame:
    """What `describe_frame` described."""
    columns = {
        name: pd.Series(stored["texts"][name])
        if dtype == "text"
        else pd.Series(arrays[f"{place}.{name}"]).astype(dtype)
        for name, dtype in stored["dtypes"].items()
    }
    frame = pd.DataFrame(columns)
    if not stored["index"]:
        return frame
    frame = frame.set_index(stored["index"])
    if len(stored["index"]) == 1 and np.array_equal(frame.index, np.arange(len(frame))):
        frame.index = pd.RangeIndex(len(frame), name=stored["index"][0])
    return frame


def _to_array(column: pd.Series) -> NDArray[Any]:
    """Numbers in a type that files have; whole numbers with gaps become floats."""
    if column.dtype.kind == "i" and not column.hasnans:
        return np.asarray(column, dtype=np.int64)
    single = column.dtype == np.float32
    values: NDArray[Any] = column.to_numpy(np.float32 if single else np.float64, na_value=np.nan)
    return values
