"""Compare methods on the same splits of the same tables."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muddle_bench.data import Dataset, fetch, list_datasets, load_dataset, load_table

__version__ = "0.1.0"

__all__ = ["Dataset", "fetch", "list_datasets", "load_dataset", "load_table"]


def __getattr__(name: str) -> Any:
    """Import the functions for data sets when they are first used: pandas takes half a second."""
    if name in __all__:
        from muddle_bench import data

        return getattr(data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
