from __future__ import annotations

import dgl
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

from rudder.distdgl.models import build_model, loss_of, metric_of, score_counts
from rudder.scenario import Scenario


def blocks(layers: int) -> list[dgl.DGLGraph]:
    g = dgl.rand_graph(60, 400)
    sampler = dgl.dataloading.NeighborSampler([3] * layers)
    found: list[dgl.DGLGraph] = sampler.sample(g, torch.arange(10))[2]
    return found


@pytest.mark.parametrize("model", ["sage", "gat"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_have_one_row_per_seed(model: str, layers: int) -> None:
    scenario = Scenario.make(model=model, layers=layers, fan_out=[3] * layers, hidden=8, heads=2)
    net = build_model(scenario, width=12, classes=5)
    sampled = blocks(layers)
    logits = net(sampled, torch.randn(sampled[0].num_src_nodes(), 12))
    assert logits.shape == (10, 5)


def test_unlabelled_seeds_add_nothing_to_the_loss() -> None:
    logits = torch.randn(6, 3, requires_grad=True)
    labels = torch.tensor([0, 2, -1, 1, -1, 0])
    known = labels >= 0
    alone = torch.nn.functional.cross_entropy(logits[known], labels[known])
    assert torch.isclose(loss_of(logits, labels), alone)


def test_a_minibatch_without_labels_gives_zero_gradients_not_nan() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = loss_of(logits, torch.full((4,), -1))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_accuracy_over_minibatches_equals_scikit_learns() -> None:
    logits, labels = torch.randn(90, 4), torch.randint(-1, 4, (90,))
    counts = sum(
        score_counts(a, b) for a, b in zip(logits.split(20), labels.split(20), strict=False)
    )
    known = labels >= 0
    expected = accuracy_score(labels[known], logits.argmax(1)[known])
    assert metric_of(counts, multilabel=False) == pytest.approx(expected)


def test_micro_f1_over_minibatches_equals_scikit_learns() -> None:
    logits, labels = torch.randn(90, 4), (torch.rand(90, 4) < 0.3).float()
    counts = sum(
        score_counts(a, b) for a, b in zip(logits.split(20), labels.split(20), strict=False)
    )
    expected = f1_score(labels.numpy(), (logits > 0).numpy(), average="micro")
    assert metric_of(counts, multilabel=True) == pytest.approx(expected)


@pytest.mark.parametrize("multilabel", [False, True])
def test_no_labels_no_metric(multilabel: bool) -> None:
    assert metric_of(torch.zeros(3), multilabel) is None
