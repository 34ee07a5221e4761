from __future__ import annotations

from tabarena.models._method_metadata import MethodMetadata
from tabarena.systems._system_info import SystemInfo
from tabarena.systems.muddle.hpo import gen_muddle_system
from tabarena.systems.muddle.system import MuddleSystemModel

muddle_system_method_metadata = MethodMetadata.system(
    method="Muddle-System",
    name="Muddle (own folds)",
    compute="cpu",
    date_introduced="2021-06",
    reference_url="https://arxiv.org/abs/2106.04462",
    verified=False,
)


muddle_system_info = SystemInfo(
    system_cls=MuddleSystemModel,
    config_generator=gen_muddle_system,
    method_metadata=muddle_system_method_metadata,
    pip_extra=("muddle==0.1.0",),
)
