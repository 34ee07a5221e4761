import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from muddle.training.config import N_CYCLES, TrainConfig, cycle_ends, preset_config, rate_factors

CYCLES = {"keep": "cycles", "schedule": "cycles"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": 0}, "depth must be at least 1, got depth=0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"n_permutations": -1}, "n_permutations must be at least 0"),
        ({"n_permutations": 100_000}, "at most 4096, got n_permutations=100000"),
        ({"structured_noise": -1.0}, "structured_noise must be at least 0"),
        ({"dither": math.nan}, "dither must be finite"),
        ({"init_gain": 0}, "init_gain must be above 0"),
        ({"penalty": 0}, "penalty must be above 0, got penalty=0"),
        ({"penalty": 3.0, "head": "linear"}, "head='linear' has none, got penalty=3.0"),
        ({"activation": "relU"}, "Did you mean 'relu'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"time_limit": -1}, "time_limit must be above 0"),
        ({"schedule": "cycle"}, "Did you mean 'cycles'"),
        ({"keep": "all"}, "keep must be one of 'best', 'cycles'"),
        ({"keep": "cycles"}, "keep='cycles' needs schedule='cycles', got schedule='constant'"),
        (CYCLES | {"patience": 5}, "patience=None and head='all'"),
        (CYCLES | {"head": "batch"}, "got patience=None and head='batch'"),
        ({"scale_rate": -1.0}, "scale_rate must be at least 0, got scale_rate=-1.0"),
        ({"second_moment": 1.0}, r"second_moment must lie in \(0, 1\), got second_moment=1.0"),
        ({"patience": 0}, "patience must be at least 1"),
    ],
)
def test_bad_values_say_what_must_hold_and_what_came(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainConfig(**parameters)


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [("loss", "paper", "root_mean_square"), ("penalty", "released", "grid11")],
)
def test_old_names_are_replaced_with_a_warning_that_says_the_new_one(field, old, new):
    with pytest.warns(FutureWarning, match=f"{field}='{old}' is now called {field}='{new}'") as got:
        config = TrainConfig(**{field: old})
    assert got[0].filename == __file__
    assert config == TrainConfig(**{field: new})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(replace(config, depth=1), field) == new


def test_numbers_of_numpy_become_those_of_python():
    config = TrainConfig(width=np.int8(64), patience=np.uint16(3), dither=np.float32(0.5))
    assert [type(n) for n in (config.width, config.patience, config.dither)] == [int, int, float]
    assert config == TrainConfig(width=64, patience=3, dither=0.5)


def test_learning_rate_and_iterations_follow_depth():
    configs = [TrainConfig(depth=depth) for depth in (1, 2, 3, 4, 5)]
    rates = [config.rate for config in configs]
    assert rates == pytest.approx([1e-2, 1e-3, 10**-3.5, 1e-4, 1e-4])
    assert [config.steps for config in configs] == [200, 200, 400, 400, 400]
    chosen = TrainConfig(learning_rate=0.5, max_iter=7)
    assert (chosen.rate, chosen.steps) == (0.5, 7)


def test_presets_spell_out_paper_and_released_settings():
    paper = preset_config("mlr-3", "paper", "regression")
    assert (paper.depth, paper.width, paper.head) == (3, 1024, "train")
    assert (paper.loss, paper.penalty) == ("root_mean_square", "grid12")
    assert (paper.learning_rate, paper.max_iter) == (pytest.approx(10**-3.5), 400)
    assert (paper.dither, paper.structured_noise, paper.n_permutations) == (0.03, 1.0, 16)
    assert (paper.batch_size, paper.init_gain) == (1024, 1.0)
    released = preset_config("mlr-3", "released", "regression")
    assert (released.loss, released.penalty, released.head) == ("mean_square", "grid11", "batch")
    assert released.learning_rate == pytest.approx(1e-3 / 3)
    assert released.init_gain == pytest.approx(math.sqrt(2))
    assert (released.batch_size, released.max_loss, released.ties) == (4096, 1.0, "first")
    for settings in ("paper", "released"):
        config = preset_config("mlr-1", settings, "classification")
        assert (config.dither, config.max_loss) == (0.0, None)


def test_factors_of_a_short_training_by_hand():
    assert rate_factors("constant", 3) == [1.0, 1.0, 1.0]
    # 15 steps are cycles of 1, 2, 4 and 8; each factor is that of the middle of its step.
    expected = [math.sin(math.pi * math.log2(0.5 + step)) ** 2 for step in range(1, 16)]
    assert rate_factors("cycles", 15) == pytest.approx(expected)


def test_each_cycle_is_twice_as_long_as_the_one_before():
    assert cycle_ends(150) == [10, 30, 70, 150]
    config = TrainConfig(max_iter=15, **CYCLES)
    assert config.snapshot_iterations == cycle_ends(15) == [1, 3, 7, 15]
    assert replace(config, keep="last").snapshot_iterations == [15]
    assert replace(config, keep="best").snapshot_iterations == []


@given(st.integers(1, 3000))
def test_every_step_has_a_factor_and_the_last_cycle_ends_with_the_training(n_steps):
    factors, ends = rate_factors("cycles", n_steps), cycle_ends(n_steps)
    assert len(factors) == n_steps
    assert all(0.0 < factor <= 1.0 for factor in factors)
    assert ends == sorted(set(ends))
    assert ends[0] >= 1
    assert ends[-1] == n_steps
    assert len(ends) == N_CYCLES or n_steps < 15


@pytest.mark.parametrize("n_steps", [1, 2, 3, 10, 200])
@pytest.mark.parametrize("schedule", ["cosine", "one_cycle"])
def test_schedules_are_those_of_torch(schedule, n_steps):
    factors = rate_factors(schedule, n_steps)
    assert len(factors) == n_steps
    assert all(0 <= factor <= 1 for factor in factors)
    if n_steps < 10:  # torch's OneCycleLR needs a few steps
        return
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = {
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps),
        "one_cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, n_steps),
    }[schedule]()
    seen = []
    for step in range(n_steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < n_steps - 1:
            theirs.step()
    assert factors == pytest.approx(seen)


class Forgetful(torch.optim.SGD):
    """An optimizer that knows no weight decay."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "cosin"}, "schedule must be .*'cosine'"),
        ({"schedule": "plateaus"}, "Did you mean 'plateau'"),
        ({"optimizer": "adamv"}, "'sgd' or a class of torch.optim, got .*'adamv'"),
        ({"optimizer": dict}, "got dict, which is no class of torch.optim"),
        ({"optimizer": torch.optim.LBFGS}, "steps along one gradient.*got LBFGS.*closure"),
        ({"optimizer": torch.optim.SparseAdam}, "got SparseAdam.*dense gradients"),
        ({"optimizer": Forgetful, "weight_decay": 0.1}, "lr and weight_decay.*got Forgetful"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"clip_norm": 0.0}, "clip_norm must be above 0"),
        ({"activation": "reluu"}, "or a function, got .*'relu'"),
        ({"normalization": "Batch"}, "Did you mean 'batch'"),
        ({"dropout": 10}, r"dropout must lie in \[0, 1\), got dropout=10. Did you mean 0.1"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"dropout": -0.1}, "dropout must be at least 0"),
        ({"embedding": -1}, "embedding must be at least 0"),
        ({"residual": True, "depth": 1}, "need depth of at least 2.*got depth=1"),
        ({"normalization": "batch", "batch_size": 1}, "needs batches of several rows"),
        ({"schedule": "plateau", "keep": "last"}, "needs scores"),
    ],
)
def test_schemes_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**options)


@pytest.mark.parametrize(
    "options",
    [
        *({"dropout": 0.1}, {"normalization": "layer"}, {"residual": True}, {"gated": True}),
        *({"embedding": 2}, {"activation": torch.sin}),
    ],
    ids=lambda options: "-".join(options),
)
def test_autograd_has_one_precision(options):
    assert TrainConfig(**options).needs_autograd
    with pytest.raises(ValueError, match="works for plain layers only"):
        TrainConfig(**options, precision="reduced")


@pytest.mark.parametrize("name", ["residual", "gated"])
@pytest.mark.parametrize("value", [1, "yes", None])
def test_switches_are_true_or_false(name, value):
    with pytest.raises(TypeError, match=f"{name} must be True or False"):
        TrainConfig(**{name: value})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (np.tanh, "raises RuntimeError"),
        (torch.nn.ReLU, r"is a class. Pass an object of it: activation=ReLU\(\)"),
        (torch.nn.PReLU(), "parameters of its own"),
        (torch.nn.Dropout(), "without chance"),
        (lambda layer: layer / layer.sum(1, keepdim=True), "each row alone"),
        (lambda layer: layer.mean(-1), r"makes \(2, 3\)"),
        (lambda layer: layer.float(), "from .* of torch.float64"),
        (lambda layer: layer.detach(), "has no gradient"),
        (lambda layer: layer.tolist(), "gives a list"),
    ],
)
def test_functions_that_are_no_activations_are_refused(function, message):
    with pytest.raises(ValueError, match=f"activation must be a function .*{message}"):
        TrainConfig(activation=function)


@pytest.mark.parametrize("function", [torch.sin, torch.nn.Softplus(), torch.relu_])
def test_functions_of_a_tensor_are_activations(function):
    assert TrainConfig(activation=function).needs_autograd
