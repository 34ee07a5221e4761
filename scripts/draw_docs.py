"""The figures of docs/how_it_works.md and docs/explain.md, from real fits, and of README.md, from
records.

`python scripts/draw_docs.py` writes SVG files into docs/figures; the same versions of packages draw
the same files.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, make_friedman1

from muddle import MuddleRegressor
from muddle.page.plots import BLUE, GREY, ORANGE, SKY, VERMILLION
from muddle.training.config import DITHER, TrainConfig, cycle_ends, rate_factors
from muddle_bench.data.catalogue import part_of
from muddle_bench.ranking import lead_by_dataset, read_table
from muddle_bench.studies.study_nets import StudyNets

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
RECORDS = ROOT / "results" / "benchmark_collection.csv.gz"
N_FOLDS = 5
STEPS = 200
Floats = NDArray[np.float64]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIGURES)
    folder: Path = parser.parse_args(arguments).out
    figures: dict[str, Callable[[], Any]] = {
        "how_it_works/permuted": draw_permuted,
        "how_it_works/cycles": draw_cycles,
        "how_it_works/folds": draw_folds,
        "how_it_works/pool": draw_pool,
        "how_it_works/interval": draw_interval,
        "evaluation": draw_evaluation,
        "explain_beeswarm": partial(draw_explanation, "beeswarm"),
        "explain_waterfall": partial(draw_explanation, "waterfall", row=0),
    }
    # Text stays text, and ids do not change from run to run.
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "muddle", "font.size": 10}
    for name, draw in figures.items():
        with plt.rc_context(settings):
            figure = draw()
            for axis in figure.axes:
                axis.spines[["top", "right"]].set_visible(False)
            figure.tight_layout()
            path = folder / f"{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, metadata={"Date": None})
            plt.close(figure)


def load_friedman() -> tuple[Floats, Floats]:
    """Friedman's first test function: ten features, five of them matter, not linear."""
    X, y = make_friedman1(100, noise=1.0, random_state=0)
    return X, y


def draw_permuted() -> Any:
    """R² on the training rows by penalty: labels and permuted labels, before and after training."""
    X, y = load_friedman()
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
    penalties = np.logspace(-2, 4, 49)
    for axis, (title, max_iter) in zip(
        axes, [("at the start", 1), ("after 200 iterations", 200)], strict=True
    ):
        hidden, penalty = fit_net(X, y, max_iter)
        labels, permuted = fit_by_penalty(hidden, y, penalties)
        axis.semilogx(penalties, labels, color=BLUE, label="labels")
        axis.semilogx(penalties, permuted, color=VERMILLION, ls="--", label="permuted labels")
        axis.axvline(penalty, color=GREY, lw=1, ls=":")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("ridge penalty λ (dotted: the net's own)")
    axes[0].set_ylabel("R² on the training rows")
    axes[0].legend(frameon=False)
    return figure


def fit_net(X: Floats, y: Floats, max_iter: int) -> tuple[Floats, float]:
    """Hidden layer of the training rows and last penalty of one net, with the defaults of
    MLRRegressor but for the width."""
    config = TrainConfig(width=256, max_iter=max_iter, dither=DITHER)
    model = StudyNets(config, n_nets=1).fit(X, y)
    assert model.result_ is not None
    features = torch.as_tensor(np.asarray(model.preprocessor_.transform(X)), dtype=torch.float64)
    nets = model.result_.nets.map(torch.Tensor.double)
    return nets.hidden(features)[0].numpy(), float(model.history()["penalty"].iloc[-1])


def fit_by_penalty(hidden: Floats, y: Floats, penalties: Floats) -> tuple[Floats, Floats]:
    """R² of ridge fits on the hidden layer: of the labels, and of 16 permutations' mean."""
    generator = np.random.default_rng(0)
    labels = (y - y.mean()) / y.std()
    columns = np.stack([labels, *(generator.permutation(labels) for _ in range(16))], axis=1)
    gram = hidden @ hidden.T
    residuals = np.stack(
        [
            penalty * np.linalg.solve(gram + penalty * np.eye(len(gram)), columns)
            for penalty in penalties
        ]
    )
    scores = 1 - np.mean(residuals**2, axis=1)
    return scores[:, 0], scores[:, 1:].mean(axis=1)


def draw_cycles() -> Any:
    """The learning rate along the iterations, and where nets are copied."""
    figure, axis = plt.subplots(figsize=(8, 2.4))
    axis.plot(rate_factors("cycles", STEPS), color=BLUE)
    for end in cycle_ends(STEPS):
        axis.axvline(end, color=VERMILLION, lw=1, ls="--")
        axis.text(end - 1, 1.06, f"{end}", color=VERMILLION, ha="right", fontsize=9)
    axis.set_ylim(0, 1.2)
    axis.set_xlabel("iteration (dashed: the nets are copied)")
    axis.set_ylabel("learning rate\n(share of its largest)")
    return figure


def draw_folds() -> Any:
    """Five nets, five folds: the rows that each net learns from, and those that it predicts."""
    figure, axis = plt.subplots(figsize=(8, 2.4))
    for net in range(N_FOLDS):
        for fold in range(N_FOLDS):
            held_out = net == fold
            axis.barh(
                net,
                0.96,
                left=fold,
                color=ORANGE if held_out else SKY,
                hatch="//" if held_out else None,
                edgecolor="white",
            )
            text = "predicts" if held_out else "learns"
            axis.text(fold + 0.48, net, text, ha="center", va="center", fontsize=9)
    axis.set_yticks(range(N_FOLDS), [f"net {net + 1}" for net in range(N_FOLDS)])
    axis.set_xticks(np.arange(N_FOLDS) + 0.48, [f"fold {fold + 1}" for fold in range(N_FOLDS)])
    axis.invert_yaxis()
    axis.tick_params(length=0)
    return figure


def draw_pool() -> Any:
    """The flagship's out-of-fold score by configuration and cycle, and its weights."""
    X, y = load_friedman()
    model = MuddleRegressor(random_state=0).fit(X, y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=[1.4, 1])
    model.plot("learning", ax=left)
    left.set_title("")
    weights = model.leaderboard_.query("weight > 0").sort_values("weight")
    nets = weights["n_nets"] > 0
    names = weights["configuration"] + (", " + weights["iteration"].astype(str)).where(nets, "")
    right.barh(names, weights["weight"], color=BLUE)
    right.set_xlabel("weight")
    return figure


def draw_interval() -> Any:
    """One column, noise that grows: the prediction and its 90 % interval."""
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(0, 3, 200))
    y = np.sin(2 * x) + (0.05 + 0.2 * x) * generator.normal(size=200)
    model = MuddleRegressor(random_state=0).fit(x[:, None], y)
    grid = np.linspace(0, 3, 61)
    low, high = model.predict_interval(grid[:, None], coverage=0.9).T
    figure, axis = plt.subplots(figsize=(8, 3))
    axis.fill_between(grid, low, high, color=SKY, alpha=0.4, label="90 % interval")
    axis.plot(grid, model.predict(grid[:, None]), color=BLUE, label="prediction")
    axis.plot(grid, np.sin(2 * grid), color=GREY, ls="--", label="the truth")
    axis.plot(x, y, ".", color=VERMILLION, ms=4, label="training rows")
    axis.set_xlabel("x")
    axis.legend(frameon=False, ncols=2, loc="upper right")
    return figure


def draw_explanation(kind: Any, *, row: int | None = None) -> Any:
    """Shapley values of a fast flagship on new rows of scikit-learn's diabetes table."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = MuddleRegressor(preset="fast", random_state=0).fit(X[:300], y[:300])
    figure, axis = plt.subplots(figsize=(8, 3.8))
    model.explain(X[300:]).plot(kind, row=row, ax=axis)
    return figure


def draw_evaluation() -> Any:
    """How far muddle is ahead on each evaluation table from other sources than the paper's."""
    table = read_table(RECORDS)
    table = table[table["dataset"].map(part_of) == "evaluation"]
    rivals = {"realmlp-5": "RealMLP-TD", "catboost": "CatBoost"}
    metrics = {"r2": ("R²", 0.2), "auc": ("AUC", 0.1), "log_loss": ("log-loss", 0.2)}
    figure, axes = plt.subplots(len(rivals), len(metrics), figsize=(8, 3.6), sharey="col")
    for column, (metric, (name, most)) in enumerate(metrics.items()):
        leads = lead_by_dataset(table, "muddle", metric)
        for axis, (rival, title) in zip(axes[:, column], rivals.items(), strict=True):
            ahead = np.sort(leads[rival].dropna().to_numpy())[::-1]
            colors = np.where(ahead > 0, BLUE, ORANGE)
            axis.bar(range(len(ahead)), ahead, color=colors, width=0.8)
            axis.axhline(0, color="black", lw=0.8)
            axis.set_ylim(-most, most)
            axis.set_yticks([-most, 0, most], [f"−{most}", "0", f"+{most}"])
            axis.set_xticks([])
            won = f"ahead on {(ahead > 0).sum()} of {len(ahead)} tables"
            axis.text(0.03, 0.08, won, fontsize=8, transform=axis.transAxes)
            if column == 0:
                axis.set_ylabel(f"against\n{title}")
        axes[0, column].set_title(name, fontsize=10)
    return figure


if __name__ == "__main__":
    main()
