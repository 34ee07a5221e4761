from __future__ import annotations

from tabarena.systems.muddle.hpo import gen_muddle_system
from tabarena.systems.muddle.info import muddle_system_info, muddle_system_method_metadata
from tabarena.systems.muddle.system import MuddleSystemModel

__all__ = [
    "MuddleSystemModel",
    "gen_muddle_system",
    "muddle_system_info",
    "muddle_system_method_metadata",
]
