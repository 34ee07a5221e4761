from __future__ import annotations

from tabarena.systems.muddle.system import MuddleSystemModel
from tabarena.utils.config_utils import SystemConfigGenerator

# No search space: muddle has nothing to tune.
gen_muddle_system = SystemConfigGenerator(
    model_cls=MuddleSystemModel,
    name="Muddle-System",
    manual_configs=[{}, {"preset": "best"}],
)
