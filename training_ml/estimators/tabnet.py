"""``tabnet``: attention over columns, in steps (Arik and Pfister, 2021), by pytorch-tabnet.

Of that library only the network is used. Its own training loop prints, seeds the process and draws
rows in proportion to their weights; its own files are pickled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pytorch_tabnet.tab_network import TabNet as TabNetNetwork
from scipy.special import expit

from rudder.model import Rows, Trial

from .attention import Attention
from .networks import Network
from .weighing import Values, one_thread, within

MOMENTUM = 0.05
"""Of the running means that answers are normalised by. The library's 0.02 is still far from the
mean when a few thousand examples have been seen for some epochs."""


class TabNet(Network):
    """TabNet on standardised columns.

    Args:
        width: of the decision and of the attention part of a step, at most 32: a row times larger
            matrices is shared out among threads, which training has use for.
        steps: decision steps.
        gamma: from 1: how freely a step may use columns that an earlier one used.
        shared: feature blocks common to all steps.
        independent: feature blocks of each step's own.
        sparsity: weight of the penalty on attention that is spread out.

    Others: see :class:`Network`.

    Raises:
        ValueError: a value out of range.
    """

    files = ("tabnet.safetensors",)
    libraries = ("pytorch-tabnet", *Network.libraries)
    name = "tabnet"

    def __init__(
        self,
        width: int = 8,
        steps: int = 3,
        gamma: float = 1.5,
        shared: int = 1,
        independent: int = 1,
        sparsity: float = 1e-3,
        rate: float = 0.02,
        decay: float = 1e-4,
        batch: int = 256,
        epochs: int = 100,
        patience: int = 15,
        balance: bool = True,
        adapt_rate: float = 0.01,
    ) -> None:
        super().__init__(rate, decay, batch, epochs, patience, balance, adapt_rate)
        within(1, 32, width=width)
        within(1, 10, steps=steps)
        within(1.0, 10.0, gamma=gamma)
        within(1, 4, shared=shared)
        within(0, 4, independent=independent)
        within(0.0, 1.0, sparsity=sparsity)
        self.width = width
        self.steps = steps
        self.gamma = gamma
        self.shared = shared
        self.independent = independent
        self.sparsity = sparsity

    def architecture(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "steps": self.steps,
            "gamma": self.gamma,
            "shared": self.shared,
            "independent": self.independent,
        }

    def build(self, columns: int) -> torch.nn.Module:
        # Each column is a group of its own. The library keeps this matrix beside its parameters,
        # so it has to be a real one also while the rest is built on the meta device.
        groups = torch.eye(columns, dtype=torch.float64, device="cpu")
        network: torch.nn.Module = TabNetNetwork(
            columns,
            1,
            n_d=self.width,
            n_a=self.width,
            n_steps=self.steps,
            gamma=self.gamma,
            n_independent=self.independent,
            n_shared=self.shared,
            virtual_batch_size=min(128, self.batch),
            momentum=MOMENTUM,
            group_attention_matrix=groups,
        )
        return network

    def forward(
        self, network: torch.nn.Module, inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits, clarity = network(inputs)
        return logits[:, 0], -self.sparsity * clarity

    def predict(self, rows: Rows) -> Values:
        with one_thread(rows):
            p: Values = expit(self._attention((rows - self._mean) / self._scale))
        return p

    def adapt(self, rows: Rows, labels: npt.NDArray[np.int8]) -> None:
        super().adapt(rows, labels)
        self._attention = Attention(self._network)

    def _use(self, network: torch.nn.Module) -> None:
        super()._use(network)
        self._attention = Attention(network)

    @classmethod
    def suggest(cls, trial: Trial) -> dict[str, Any]:
        return {
            "width": trial.suggest_int("width", 4, 24, log=True),
            "steps": trial.suggest_int("steps", 2, 5),
            "gamma": trial.suggest_float("gamma", 1.0, 2.0),
            "sparsity": trial.suggest_float("sparsity", 1e-6, 1e-1, log=True),
            "rate": trial.suggest_float("rate", 5e-3, 5e-2, log=True),
        }
