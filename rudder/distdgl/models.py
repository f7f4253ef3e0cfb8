"""The GNNs that are trained: GraphSAGE and GAT from ``dgl.nn``, and how they are scored."""

from __future__ import annotations

from typing import Any

import torch
from dgl.nn import GATConv, SAGEConv
from torch import nn
from torch.nn import functional as F

from rudder.scenario import Scenario

UNLABELLED = -1


class GNN(nn.Module):
    """A stack of message-passing layers over blocks; the last layer gives class logits."""

    def __init__(self, layers: nn.ModuleList, dropout: float) -> None:
        super().__init__()
        self.layers = layers
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        """Logits ``[seeds, classes]`` from input features ``[input nodes, F]``."""
        last = len(self.layers) - 1
        for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, x)
            if x.dim() == 3:  # attention heads: joined between layers, averaged at the end
                x = x.flatten(1) if index < last else x.mean(1)
            if index < last:
                x = self.dropout(F.relu(x))
        return x


def build_model(scenario: Scenario, width: int, classes: int) -> GNN:
    """The scenario's GNN for features of ``width`` and ``classes`` outputs."""
    sizes = [scenario.hidden] * (scenario.layers - 1) + [classes]
    layers, inputs = nn.ModuleList(), width
    for size in sizes:
        if scenario.model == "gat":
            heads = scenario.heads
            layers.append(GATConv(inputs, size, heads, allow_zero_in_degree=True))
            inputs = size * heads
        else:
            layers.append(SAGEConv(inputs, size, "mean"))
            inputs = size
    return GNN(layers, scenario.dropout)


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy (labels int64 ``[n]``, -1 ignored) or binary cross entropy (``[n, C]``).

    A minibatch without a labelled seed gives 0, attached to the graph so that every rank still
    takes part in the gradient exchange.
    """
    if labels.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, labels.float())
    if not bool((labels != UNLABELLED).any()):
        return logits.sum() * 0.0
    return F.cross_entropy(logits, labels.long(), ignore_index=UNLABELLED)


def score_counts(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Counts that add up over minibatches and ranks, float64 ``[3]``.

    Single label: (right, labelled, 0). Multi-label: (true positives, false positives,
    false negatives).
    """
    if labels.dim() == 2:
        predicted, actual = logits > 0, labels > 0.5
        counts = [
            (predicted & actual).sum(), (predicted & ~actual).sum(), (~predicted & actual).sum()
        ]  # fmt: skip
    else:
        known = labels != UNLABELLED
        right = (logits.argmax(dim=1) == labels) & known
        counts = [right.sum(), known.sum(), torch.zeros(())]
    return torch.stack([c.double() for c in counts])


def metric_of(counts: torch.Tensor, multilabel: bool) -> float | None:
    """Accuracy, or micro-F1 for multi-label, from :func:`score_counts`; None without labels."""
    a, b, c = counts.tolist()
    if multilabel:
        return 2 * a / (2 * a + b + c) if a + b + c else None
    return a / b if b else None
