"""Commands that fit a model and use it: fit, predict, evaluate, explain, info."""
