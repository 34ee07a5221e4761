"""From the rows that the user passes to the matrix that the nets train on. No torch here."""

from muddle.tables.preprocessor import TablePreprocessor

__all__ = ["TablePreprocessor"]
