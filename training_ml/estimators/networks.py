"""What the estimators made of torch networks share: training, weights on disk, going on learning.

Everything is in double precision: the networks are small, and a row then gives the same answer
alone and among others but for the last digits.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.nn.functional import binary_cross_entropy_with_logits

from rudder.errors import ModelError
from rudder.model import Estimator, Examples, Rows, Told

from .weighing import positive, weigh, within

_MEAN, _SCALE, _NETWORK = "mean", "scale", "network."
_ARCHITECTURE = "architecture"
_MOST_NORM = 1.0
"""Of a gradient; more is scaled down, so that no minibatch and no odd example throws it off."""


class Network(Estimator):
    """A network on standardised columns, fitted by AdamW on the weighted log loss.

    Stopping early keeps the weights of the epoch with the least loss on the validation part.
    Subclasses answer with NumPy: torch takes ten times as long to get a single row through.

    Args:
        rate: learning rate, above 0.
        decay: weight decay.
        batch: examples per step.
        epochs: at most.
        patience: epochs without a better loss after which it stops.
        balance: both classes weigh the same in sum.
        adapt_rate: learning rate of the one step of plain gradient descent that :meth:`adapt` does.

    Raises:
        ValueError: a value out of range.
    """

    libraries: ClassVar[tuple[str, ...]] = ("safetensors", "torch")
    adaptable = True
    name: ClassVar[str]
    """Of the estimator, for messages."""

    def __init__(
        self,
        rate: float,
        decay: float,
        batch: int,
        epochs: int,
        patience: int,
        balance: bool,
        adapt_rate: float,
    ) -> None:
        positive(rate=rate, adapt_rate=adapt_rate)
        within(0.0, 10.0, decay=decay)
        within(2, 65_536, batch=batch)
        within(1, 10_000, epochs=epochs, patience=patience)
        self.rate = rate
        self.decay = decay
        self.batch = batch
        self.epochs = epochs
        self.patience = patience
        self.balance = balance
        self.adapt_rate = adapt_rate

    @abstractmethod
    def architecture(self) -> dict[str, Any]:
        """Arguments of the constructor that decide what the weights mean, as JSON values."""

    @abstractmethod
    def build(self, columns: int) -> torch.nn.Module:
        """The network for so many columns, its weights drawn from torch's generator."""

    @abstractmethod
    def forward(
        self, network: torch.nn.Module, inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of *replace*, float64 (n,), of standardised rows (n, columns); and a penalty."""

    def fit(
        self, examples: Examples, validation: Examples, seed: int, progress: Told
    ) -> dict[str, Any]:
        # A trainer, which only answers, does without this library.
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(examples.rows)
        self._mean, self._scale = scaler.mean_, scaler.scale_
        rows, labels = self._inputs(examples.rows), _labels(examples.labels)
        weights = torch.from_numpy(weigh(examples, self.balance))
        held_out, truth = self._inputs(validation.rows), _labels(validation.labels)
        judged = torch.from_numpy(weigh(validation, self.balance))
        parts = math.ceil(len(examples) / self.batch)
        best, least, kept = 0, float("inf"), {}
        epoch = 0
        with _one_thread(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            network = self.build(rows.shape[1]).double()
            optimizer = torch.optim.AdamW(
                network.parameters(), lr=self.rate, weight_decay=self.decay
            )
            while epoch < self.epochs and epoch - best < self.patience:
                network.train()
                for chosen in torch.tensor_split(torch.randperm(len(examples)), parts):
                    logits, penalty = self.forward(network, rows[chosen])
                    self._step(
                        network,
                        optimizer,
                        _loss(logits, labels[chosen], weights[chosen]) + penalty,
                    )
                epoch += 1
                network.eval()
                with torch.no_grad():
                    loss = float(_loss(self.forward(network, held_out)[0], truth, judged))
                if loss < least:
                    best, least = epoch, loss
                    kept = {name: value.clone() for name, value in network.state_dict().items()}
                progress(f"epoch {epoch}: validation loss {loss:.4f}", epoch / self.epochs)
        if not kept:
            raise ModelError(
                f"{self.name}: no epoch gave a finite loss on the validation part; lower rate "
                f"(it is {self.rate})"
            )
        network.load_state_dict(kept)
        self._use(network)
        return {"epochs": epoch, "best_epoch": best, "validation_loss": least}

    def adapt(self, rows: Rows, labels: npt.NDArray[np.int8]) -> None:
        """One step of gradient descent on the examples' mean loss, as in answering (no dropout,
        and normalised by what was seen in fitting)."""
        optimizer = torch.optim.SGD(self._network.parameters(), lr=self.adapt_rate)
        logits, _ = self.forward(self._network, self._inputs(rows))
        self._step(
            self._network, optimizer, binary_cross_entropy_with_logits(logits, _labels(labels))
        )

    def save(self, folder: Path) -> None:
        tensors = {
            _MEAN: torch.from_numpy(self._mean),
            _SCALE: torch.from_numpy(self._scale),
            **{_NETWORK + name: value for name, value in _state(self._network).items()},
        }
        facts = {_ARCHITECTURE: json.dumps(self._told(), sort_keys=True)}
        save_file(tensors, folder / self.files[0], facts)

    def restore(self, folder: Path, columns: int) -> None:
        path = folder / self.files[0]
        try:
            with safe_open(path, "pt") as file:
                facts = json.loads((file.metadata() or {}).get(_ARCHITECTURE, "null"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, ValueError, SafetensorError) as error:
            raise ModelError(
                f"{path} is no file of weights ({type(error).__name__}: {error}); fit the model "
                "anew"
            ) from error
        if facts != self._told():
            raise ModelError(f"{path} holds weights of {facts}, not of {self._told()}; fit it anew")
        # On the meta device nothing is drawn: the random state of a training that runs in this
        # process stays as it is.
        with torch.device("meta"):
            network = self.build(columns).double()
        wanted = {
            _MEAN: torch.empty(columns, dtype=torch.float64, device="meta"),
            _SCALE: torch.empty(columns, dtype=torch.float64, device="meta"),
            **{_NETWORK + name: value for name, value in _state(network).items()},
        }
        _check(path, tensors, wanted)
        self._mean, self._scale = tensors.pop(_MEAN).numpy(), tensors.pop(_SCALE).numpy()
        state = {name.removeprefix(_NETWORK): value for name, value in tensors.items()}
        network.load_state_dict(state, strict=False, assign=True)
        self._use(network)

    def _told(self) -> dict[str, Any]:
        return {"estimator": self.name, **self.architecture()}

    def _use(self, network: torch.nn.Module) -> None:
        """Hook: take over a network that was fitted or restored."""
        self._network = network.eval()

    def _inputs(self, rows: Rows) -> torch.Tensor:
        return torch.from_numpy((rows - self._mean) / self._scale)

    def _step(
        self, network: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor
    ) -> None:
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), _MOST_NORM)
        optimizer.step()


def _labels(labels: npt.NDArray[np.int8]) -> torch.Tensor:
    return torch.from_numpy(labels.astype(np.float64))


def _loss(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return binary_cross_entropy_with_logits(logits, labels, weights)


def _state(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each once, however many layers share it."""
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def _check(
    path: Path, tensors: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]
) -> None:
    if set(tensors) != set(wanted):
        differ = ", ".join(sorted(set(tensors) ^ set(wanted)))
        raise ModelError(f"{path} misses or should not hold: {differ}; fit the model anew")
    for name, value in tensors.items():
        if value.shape != wanted[name].shape or value.dtype != wanted[name].dtype:
            raise ModelError(
                f"{path}: {name} should be {wanted[name].dtype} of shape "
                f"{tuple(wanted[name].shape)}, found {value.dtype} of {tuple(value.shape)}; fit "
                "the model anew"
            )
        if not torch.isfinite(value).all():
            raise ModelError(f"{path}: NaN or infinity in {name}; fit the model anew")
    if not (tensors[_SCALE] > 0).all():
        raise ModelError(f"{path}: {_SCALE} is not above 0; fit the model anew")


@contextmanager
def _one_thread() -> Iterator[None]:
    """torch's own limit: its linear algebra does not follow that of other libraries."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
