"""From what the user passes to what the nets take. No torch here."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muddle.tables.preprocessor import TablePreprocessor

__all__ = ["TablePreprocessor"]


# Imported when first used: muddle.runtime shares modules of this package, but not pandas.
def __getattr__(name: str) -> Any:
    if name != "TablePreprocessor":
        raise AttributeError(f"module 'muddle.tables' has no attribute {name!r}")
    from muddle.tables.preprocessor import TablePreprocessor

    return TablePreprocessor
