import math

import pytest

from muddle.training.config import TrainConfig, preset_config


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": 0}, "depth must be at least 1, got depth=0"),
        ({"depth": 1.5}, "depth must be a whole number, got depth=1.5"),
        ({"width": 0}, "width must be at least 1, got width=0"),
        ({"width": -3}, "width must be at least 1, got width=-3"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"n_permutations": -1}, "n_permutations must be at least 0"),
        ({"n_permutations": 100_000}, "at most 4096, got n_permutations=100000"),
        ({"structured_noise": -1.0}, "structured_noise must be at least 0"),
        ({"dither": math.nan}, "dither must be finite"),
        ({"init_gain": 0}, "init_gain must be above 0"),
        ({"penalty": 0}, "penalty must be above 0, got penalty=0"),
        ({"penalty": "relased"}, "Did you mean 'released'"),
        ({"loss": "rmse"}, "loss must be one of 'paper', 'released', got loss='rmse'"),
        ({"activation": "relU"}, "Did you mean 'relu'"),
        ({"head": "none"}, "head must be one of 'all', 'train', 'batch'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"time_limit": -1}, "time_limit must be above 0"),
        ({"time_limit": "10"}, "time_limit must be a number"),
        ({"validation_fraction": 20}, r"\(0, 1\), got validation_fraction=20. Did you mean 0.2"),
        ({"validation_fraction": 0}, r"must lie in \(0, 1\)"),
        ({"task": "classification", "dither": 0.1}, "dither must be 0 with the logistic loss"),
        ({"schedule": "cycle"}, "Did you mean 'cycles'"),
        ({"keep": "all"}, "keep must be one of 'best', 'cycles'"),
        ({"keep": "cycles"}, "keep='cycles' needs schedule='cycles', got schedule='constant'"),
        ({"keep": "cycles", "schedule": "cycles", "patience": 5}, "patience=None and head='all'"),
        (
            {"keep": "cycles", "schedule": "cycles", "head": "batch"},
            "got patience=None and head='b",
        ),
        ({"scale_rate": -1.0}, "scale_rate must be at least 0, got scale_rate=-1.0"),
        ({"scale_rate": math.inf}, "scale_rate must be finite"),
        ({"second_moment": 1.0}, r"second_moment must lie in \(0, 1\), got second_moment=1.0"),
        ({"patience": 0}, "patience must be at least 1"),
    ],
)
def test_bad_values_say_what_must_hold_and_what_came(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainConfig(**parameters)


def test_learning_rate_and_iterations_follow_depth():
    rates = [TrainConfig(depth=depth).rate for depth in (1, 2, 3, 4, 5)]
    assert rates == pytest.approx([1e-2, 1e-3, 10**-3.5, 1e-4, 1e-4])
    assert [TrainConfig(depth=depth).steps for depth in (1, 2, 3, 4, 5)] == [200, 200] + [400] * 3
    assert TrainConfig(learning_rate=0.5, max_iter=7).rate == 0.5
    assert TrainConfig(max_iter=7).steps == 7


def test_presets_spell_out_paper_and_released_settings():
    paper = preset_config("mlr-3", "paper", "regression")
    assert (paper.depth, paper.width, paper.loss, paper.penalty) == (3, 1024, "paper", "paper")
    assert (paper.learning_rate, paper.max_iter) == (pytest.approx(10**-3.5), 400)
    assert (paper.dither, paper.structured_noise, paper.n_permutations) == (0.03, 1.0, 16)
    assert (paper.batch_size, paper.head, paper.init_gain) == (1024, "train", 1.0)
    released = preset_config("mlr-3", "released", "regression")
    assert (released.loss, released.penalty, released.head) == ("released", "released", "batch")
    assert released.learning_rate == pytest.approx(1e-3 / 3)
    assert released.init_gain == pytest.approx(math.sqrt(2))
    assert (released.batch_size, released.max_loss, released.ties) == (4096, 1.0, "first")
    for settings in ("paper", "released"):
        config = preset_config("mlr-1", settings, "classification")
        assert (config.dither, config.max_loss) == (0.0, None)


def test_unknown_presets_are_named_with_a_suggestion():
    with pytest.raises(ValueError, match="Did you mean 'mlr-2'"):
        preset_config("mlr2", "paper", "regression")
    with pytest.raises(ValueError, match="settings must be one of 'paper', 'released'"):
        preset_config("mlr-2", "code", "regression")
