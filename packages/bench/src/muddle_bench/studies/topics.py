"""What each study is about, and how its values are drawn; no torch."""

from dataclasses import dataclass
from typing import Literal

# How values are placed: along an axis, as steps with bags beside single nets, or as marks on a
# line for each data set.
Scale = Literal["linear", "log2", "log10", "steps", "rows"]


@dataclass(frozen=True)
class Topic:
    """How a study is presented: the axis of its values, and one sentence on what it is about."""

    name: str  # of its file
    title: str
    axis: str
    scale: Scale
    about: str

    @property
    def command(self) -> str:
        if self.name.startswith("ablation"):
            return "muddle study ablation"
        return f"muddle study dependence {self.name}"


TOPICS = {
    topic.name: topic
    for topic in (
        Topic(
            "ablation",
            "Ablation",
            "step",
            "steps",
            "What each ingredient adds to a plain feed-forward net of two hidden layers, for "
            "single nets and for bags of ten.",
        ),
        Topic(
            "ablation_more",
            "Ablation, continued",
            "variant",
            "steps",
            "Choices that the paper does not show: the loss of the text against that of the "
            "released code, noise, activation, the rows of the final ridge, and classification.",
        ),
        Topic(
            "structured_noise",
            "Structured noise",
            "standard deviation of the structured noise, σ",
            "linear",
            "Structured dithering adds noise to the target where the ridge fit explains little; "
            "σ is its size in standard deviations of the target.",
        ),
        Topic(
            "permutations",
            "Permutations",
            "number of permuted labels, T",
            "log2",
            "The permutation term compares the fit with fits of T permuted copies of the target; "
            "0 turns it off.",
        ),
        Topic(
            "ridge_init",
            "Initial ridge penalty",
            "ridge penalty before the first step, λ",
            "log10",
            "The ridge penalty is trained along with the weights; this is where it starts, from a "
            "fixed number or from the search along a grid that is the default (heuristic).",
        ),
        Topic(
            "label_noise",
            "Label noise",
            "standard deviation of the label noise",
            "log10",
            "Dithering adds independent noise to the labels at every step; the unit is a standard "
            "deviation of the target.",
        ),
        Topic(
            "width",
            "Width",
            "units per hidden layer",
            "log2",
            "How wide the hidden layers are; time and memory grow with the square.",
        ),
        Topic(
            "batch_size",
            "Batch size",
            "rows per batch",
            "log2",
            "How many rows take part in a step, and so in the ridge that the step goes through; "
            "n is all of them.",
        ),
        Topic(
            "depth",
            "Depth",
            "hidden layers",
            "rows",
            "How many hidden layers, each depth with its own learning rate and number of "
            "iterations as in the paper.",
        ),
    )
}
