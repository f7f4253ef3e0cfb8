"""``mlp``: a multilayer perceptron."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from rudder.model import Rows, Trial

from .networks import Network
from .weighing import Values, one_thread, within


class Mlp(Network):
    """A multilayer perceptron with ReLU on standardised columns.

    Args:
        hidden: units per hidden layer. No more than 64: a row times a larger matrix is shared out
            among threads, which training has use for.
        layers: hidden layers.
        dropout: share of hidden units left out in fitting.

    Others: see :class:`Network`.

    Raises:
        ValueError: a value out of range.
    """

    files = ("mlp.safetensors",)
    name = "mlp"

    def __init__(
        self,
        hidden: int = 32,
        layers: int = 2,
        dropout: float = 0.1,
        rate: float = 3e-3,
        decay: float = 1e-3,
        batch: int = 256,
        epochs: int = 200,
        patience: int = 20,
        balance: bool = True,
        adapt_rate: float = 0.01,
    ) -> None:
        super().__init__(rate, decay, batch, epochs, patience, balance, adapt_rate)
        within(1, 64, hidden=hidden)
        within(1, 8, layers=layers)
        within(0.0, 0.9, dropout=dropout)
        self.hidden = hidden
        self.layers = layers
        self.dropout = dropout

    def architecture(self) -> dict[str, Any]:
        return {"hidden": self.hidden, "layers": self.layers}

    def build(self, columns: int) -> torch.nn.Module:
        widths = [columns, *[self.hidden] * self.layers]
        blocks: list[torch.nn.Module] = []
        for given, made in pairwise(widths):
            blocks += [
                torch.nn.Linear(given, made),
                torch.nn.ReLU(),
                torch.nn.Dropout(self.dropout),
            ]
        return torch.nn.Sequential(*blocks, torch.nn.Linear(widths[-1], 1))

    def forward(
        self, network: torch.nn.Module, inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return network(inputs)[:, 0], torch.zeros((), dtype=inputs.dtype)

    def predict(self, rows: Rows) -> Values:
        with one_thread(rows):
            values = (rows - self._mean) / self._scale
            for weight, bias in self._hidden:
                values = np.maximum(values @ weight + bias, 0.0)
            weight, bias = self._last
            p: Values = expit(values @ weight + bias)[:, 0]
        return p

    def _use(self, network: torch.nn.Module) -> None:
        super()._use(network)
        # Views: what `adapt` changes in the network changes here.
        *self._hidden, self._last = [
            (layer.weight.detach().numpy().T, layer.bias.detach().numpy())
            for layer in network.modules()
            if isinstance(layer, torch.nn.Linear)
        ]

    @classmethod
    def suggest(cls, trial: Trial) -> dict[str, Any]:
        return {
            "hidden": trial.suggest_int("hidden", 8, 64, log=True),
            "layers": trial.suggest_int("layers", 1, 3),
            "dropout": trial.suggest_float("dropout", 0.0, 0.4),
            "rate": trial.suggest_float("rate", 5e-4, 2e-2, log=True),
            "decay": trial.suggest_float("decay", 1e-5, 1e-1, log=True),
        }
