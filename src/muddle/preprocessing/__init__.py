"""From what the user passes to what the nets take. No torch here."""

from muddle.preprocessing.preprocessor import TablePreprocessor

__all__ = ["TablePreprocessor"]
