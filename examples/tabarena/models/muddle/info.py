from __future__ import annotations

from tabarena.models._method_metadata import MethodMetadata
from tabarena.models._model_info import ModelInfo
from tabarena.models.muddle.hpo import gen_muddle
from tabarena.models.muddle.model import MuddleModel

muddle_method_metadata = MethodMetadata.config(
    method="Muddle",
    ag_key="TA-MUDDLE",
    model_key="MUDDLE",
    config_default="TA-Muddle_c1_BAG_L1",
    compute="cpu",
    is_bag=True,
    date_introduced="2021-06",
    reference_url="https://arxiv.org/abs/2106.04462",
    display_name="Muddle",
    verified=False,
)


muddle_info = ModelInfo(
    model_cls=MuddleModel,
    search_space=gen_muddle,
    method_metadata=muddle_method_metadata,
    pip_extra=("muddle==0.1.0",),
)
