"""TabNet's answer in NumPy, layer by layer as pytorch-tabnet has it.

A row goes through some hundred operations, and torch needs ten times as long to start one as the
operation takes. What is the same for all rows is worked out beforehand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import expit

from rudder.model import Rows

from .weighing import Values

_HALVING = float(np.sqrt(np.float32(0.5)))
"""The library keeps this factor in single precision."""


class Attention:
    """The logits of a network in evaluation mode.

    Args:
        network: of the library, without embeddings, one output.
    """

    def __init__(self, network: Any) -> None:
        encoder = network.tabnet.encoder
        self._gamma = float(encoder.gamma)
        self._width = int(encoder.n_d)
        with torch.no_grad():
            self._scale, self._shift = _normalise(encoder.initial_bn)
            self._first = _Features(encoder.initial_splitter)
            self._steps = [
                (_Layer(attend.fc, attend.bn.bn), _Features(features))
                for attend, features in zip(
                    encoder.att_transformers, encoder.feat_transformers, strict=True
                )
            ]
            self._last = network.tabnet.final_mapping.weight.numpy().T

    def __call__(self, rows: Rows) -> Values:
        """Float64 (n,) of standardised rows (n, columns)."""
        values = rows * self._scale + self._shift
        features = self._first(values)
        left: Any = 1.0
        decided: Any = 0.0
        for attend, transform in self._steps:
            mask = _sparsemax(attend(features[:, self._width :]) * left)
            left = (self._gamma - mask) * left
            features = transform(mask * values)
            decided = decided + np.maximum(features[:, : self._width], 0.0)
        logits: Values = (decided @ self._last)[:, 0]
        return logits


class _Layer:
    """A linear layer and the normalisation after it, in one."""

    def __init__(self, linear: Any, norm: Any) -> None:
        scale, self._shift = _normalise(norm)
        self._weight = linear.weight.numpy().T * scale

    def __call__(self, values: Rows) -> Rows:
        result: Rows = values @ self._weight + self._shift
        return result


class _Features:
    """A feature transformer: gated layers, all but the first added to what they are given."""

    def __init__(self, transformer: Any) -> None:
        self._layers = [
            _Layer(gated.fc, gated.bn.bn)
            for block in (transformer.shared, transformer.specifics)
            for gated in getattr(block, "glu_layers", ())
        ]
        self._width = transformer.shared.glu_layers[0].output_dim

    def __call__(self, values: Rows) -> Rows:
        for number, layer in enumerate(self._layers):
            both = layer(values)
            gated = both[:, : self._width] * expit(both[:, self._width :])
            values = (values + gated) * _HALVING if number else gated
        return values


def _normalise(norm: Any) -> tuple[Values, Values]:
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return scale.numpy(), (norm.bias - norm.running_mean * scale).numpy()


def _sparsemax(values: Rows) -> Rows:
    """The nearest point, of each row, whose entries are not negative and sum to 1."""
    values = values - values.max(axis=1, keepdims=True)
    ordered = np.sort(values, axis=1)[:, ::-1]
    sums = np.cumsum(ordered, axis=1) - 1.0
    ranks = np.arange(1, values.shape[1] + 1)
    kept = (ranks * ordered > sums).sum(axis=1)
    threshold = sums[np.arange(len(values)), kept - 1] / kept
    result: Rows = np.maximum(values - threshold[:, None], 0.0)
    return result
