"""ModernNCA: predictions are means of training targets, weighted by distance in a learned space.

H.-J. Ye, H.-H. Yin, D.-C. Zhan and W.-L. Chao, Revisiting Nearest Neighbor for Tabular Data: A Deep
Tabular Baseline Two Decades Later, ICLR 2025. Written from the paper, with the defaults of its
code.

Shapes: N rows, D features, C outputs (classes, or 1), F frequencies, E coordinates of the space.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

NEVER_ZERO = 1e-7  # added to a probability before its logarithm


class ModernNCA(nn.Module):
    """Targets of the training rows, weighted by the softmax of minus their distances."""

    inputs: Tensor
    answers: Tensor
    neighbours: Tensor  # places of the batch, then of the other candidates

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        n_outputs: int,
        *,
        width: int = 128,
        n_frequencies: int = 77,
        frequency_scale: float = 0.04431360576139521,
        embedding: int = 34,
        temperature: float = 1.0,
        sample_rate: float = 0.5,  # of the rows outside a batch, the share that are its neighbours
    ) -> None:
        super().__init__()
        n_features = inputs.shape[1]
        of_classes = not targets.is_floating_point()
        answers = functional.one_hot(targets, n_outputs).to(inputs.dtype) if of_classes else targets
        self.register_buffer("inputs", inputs, persistent=False)
        self.register_buffer("answers", answers.reshape(len(inputs), -1), persistent=False)
        self.of_classes = of_classes
        self.temperature = temperature
        self.sample_rate = sample_rate
        self.frequencies = nn.Parameter(frequency_scale * torch.randn(n_features, n_frequencies))
        self.embed = nn.Sequential(nn.Linear(2 * n_frequencies, embedding), nn.ReLU())
        self.project = nn.Linear(n_features * embedding, width)

    def encode(self, inputs: Tensor) -> Tensor:
        """Rows in the learned space; periodic embeddings of each feature, projected.

        inputs (N, D) -> (N, E)
        """
        angles = 2 * math.pi * self.frequencies * inputs[..., None]
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)  # (N, D, 2F)
        encoded: Tensor = self.project(self.embed(waves).flatten(1))
        return encoded

    def before_step(self, rows: Tensor) -> None:
        """Take the places of the next batch among the training rows; draw its neighbours."""
        outside = torch.ones(len(self.inputs), dtype=torch.bool, device=rows.device)
        outside[rows] = False
        others = outside.nonzero()[:, 0]
        drawn = torch.randperm(len(others), device=rows.device)
        self.neighbours = torch.cat([rows, others[drawn[: int(self.sample_rate * len(others))]]])

    def forward(self, inputs: Tensor) -> Tensor:
        """Logarithms of probabilities, or numbers; inputs (N, D) -> (N, C)"""
        encoded = self.encode(inputs)
        if self.training:
            rest = self.inputs[self.neighbours[len(inputs) :]]
            distances = torch.cdist(encoded, torch.cat([encoded, self.encode(rest)]))
            # No row is its own neighbour.
            own = torch.eye(len(inputs), distances.shape[1], dtype=torch.bool, device=inputs.device)
            distances = distances.masked_fill(own, math.inf)
            answers = self.answers[self.neighbours]
        else:
            distances = torch.cdist(encoded, self.encode(self.inputs))
            answers = self.answers
        mean = (-distances / self.temperature).softmax(dim=1) @ answers
        return (mean + NEVER_ZERO).log() if self.of_classes else mean
