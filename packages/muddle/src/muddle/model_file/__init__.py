"""Fitted models as files: safetensors with a header of plain JSON, documented in docs/format.md."""
