from __future__ import annotations

from autogluon.common.space import Categorical, Int

from tabarena.models.muddle.model import MuddleModel
from tabarena.utils.config_utils import ConfigGenerator

# The first value of each is the default. What the pool holds is not searched, validation rows weigh it; how the table
# becomes numbers is: 6,840 configurations.
search_space = {
    "preset": Categorical("default", "fast"),
    "preprocessor__max_levels": Int(3, 40, default=12),
    "preprocessor__min_level_rows": Categorical(2, 1, 3, 5, 10),
    "preprocessor__few_values": Categorical("number", "levels", "both"),
    "preprocessor__missing_level": Categorical("own", "mode"),
    "preprocessor__scaling": Categorical("robust+clip", "standard", "none"),
}

gen_muddle = ConfigGenerator(
    model_cls=MuddleModel,
    manual_configs=[{}],
    search_space=search_space,
)
