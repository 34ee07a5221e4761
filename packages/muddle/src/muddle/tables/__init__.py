"""From the rows that the user passes to the matrix that the nets train on. No torch here."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muddle.tables.preprocessor import TablePreprocessor
    from muddle.tables.stream import Stream

__all__ = ["Stream", "TablePreprocessor"]


def __getattr__(name: str) -> Any:
    """Import scikit-learn when it is needed: the command line reads tables without it."""
    if name == "Stream":
        from muddle.tables.stream import Stream

        return Stream
    if name != "TablePreprocessor":
        raise AttributeError(f"module 'muddle.tables' has no attribute {name!r}")
    from muddle.tables.preprocessor import TablePreprocessor

    return TablePreprocessor
