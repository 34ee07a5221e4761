"""Compare methods on the same splits of the same tables."""

__version__ = "0.1.0"
