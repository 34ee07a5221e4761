from __future__ import annotations

from tabarena.models.muddle.hpo import gen_muddle
from tabarena.models.muddle.info import muddle_info, muddle_method_metadata

__all__ = ["gen_muddle", "muddle_info", "muddle_method_metadata"]
