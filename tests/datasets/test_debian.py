"""The bundled graph: its facts, that it can be learned, and the converter that made it."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rudder_datasets import debian as debian_module
from rudder_datasets.debian import FEATURES, INDEX_FILE, debian, graph_of
from rudder_datasets.debian_convert import (
    build_index,
    read_packages,
    read_sources,
    relation_groups,
)
from rudder_datasets.debian_format import PackageIndex, load_index, save_index

from rudder.dataset import Graph
from rudder.errors import DatasetError
from rudder.registries import DATASETS

PACKAGES = """\
Package: alpha
Architecture: amd64
Depends: beta (>= 1.0) | gamma, libvirtual, nowhere
Pre-Depends: gamma:any
Recommends: delta [i386], alpha
Section: games
Priority: optional
Size: 100
Installed-Size: 7
Tag: role::program, use::gameplaying,
 interface::graphical

Package: beta
Source: alpha (1:2-3)
Architecture: all
Recommends: absent | delta
Section: non-free/libs
Priority: required
Size: 200
Description: not a fact that we take

Package: delta
Architecture: amd64
Provides: libvirtual (= 2), other
Section: libs
Priority: optional
Multi-Arch: same
Size: 300

Package: gamma
Architecture: amd64
Section: libs
Priority: optional
Size: 400
"""
SOURCES = """\
Package: alpha
Section: games
Priority: source
Files:
 0123 10 alpha.dsc
 4567 20 alpha.tar.xz
Build-Depends: gamma, delta <!nocheck>, beta <cross>
Build-Depends-Indep: other

Package: delta
Extra-Source-Only: yes
Build-Depends: alpha
"""


@pytest.fixture(scope="module")
def bundled() -> Graph:
    return debian().validated()


@pytest.fixture
def tiny(tmp_path: Path) -> PackageIndex:
    return build_index(*_read(tmp_path, PACKAGES, SOURCES))


def _read(folder: Path, packages: str, sources: str) -> tuple[Any, Any]:
    (folder / "Packages").write_text(packages)
    (folder / "Sources").write_text(sources)
    return read_packages(folder / "Packages"), read_sources(folder / "Sources")


def _edges(index: PackageIndex, relation: str) -> set[tuple[str, str]]:
    return {(index.names[a], index.names[b]) for a, b in index.relations[relation]}


def test_bundled_graph_is_what_its_spec_and_readme_say(bundled: Graph) -> None:
    facts = DATASETS.entry("debian").fields
    assert bundled.nodes == facts["nodes"] == 63_436
    assert bundled.edges == facts["edges"]
    assert bundled.features.shape[1] == facts["features"] == FEATURES == 128
    assert bundled.classes == facts["classes"] == 58
    assert len(bundled.meta["class_names"]) == 58
    sizes = np.bincount(bundled.labels)
    assert sizes.min() == 15
    assert bundled.train.sum() == 19_031  # 30 % of the nodes, rounded up
    assert np.isin(np.arange(58), bundled.labels[bundled.train]).all()
    files = list(INDEX_FILE.parent.iterdir())
    assert sum(file.stat().st_size for file in files) < 3_000_000


def test_bundled_graph_holds_both_directions_once_and_no_loops(bundled: Graph) -> None:
    forth = bundled.src * bundled.nodes + bundled.dst
    back = bundled.dst * bundled.nodes + bundled.src
    assert np.unique(forth).size == bundled.edges
    assert np.array_equal(np.sort(back), np.sort(forth))
    assert not (bundled.src == bundled.dst).any()
    counts = bundled.cleaning
    assert bundled.edges == (
        counts["edges_read"]
        - counts["self_loops_removed"]
        - counts["duplicates_removed"]
        + counts["reverse_edges_added"]
    )
    assert np.bincount(bundled.src).max() > 30_000  # debhelper builds nearly everything


def test_loading_is_deterministic(bundled: Graph) -> None:
    assert debian().digest() == bundled.digest()


def test_features_and_splits_ignore_the_section() -> None:
    index = load_index(INDEX_FILE)
    shuffled = np.random.default_rng(0).permutation(index.section)
    changed = graph_of(PackageIndex(**{**vars(index), "section": shuffled}))
    graph = graph_of(index)
    assert np.array_equal(changed.features, graph.features)
    assert np.array_equal(changed.train, graph.train)
    assert not np.array_equal(changed.labels, graph.labels)


def _single_feature_accuracies(graph: Graph, bins: int = 64) -> np.ndarray:
    """Test accuracy of the most frequent training label in each quantile bin, per feature."""
    found = []
    for column in graph.features.T:
        inner = np.linspace(0, 1, bins + 1)[1:-1]
        cuts = np.unique(np.quantile(column[graph.train], inner))
        bin_of = np.searchsorted(cuts, column, side="right")
        counts = np.zeros((cuts.size + 1, graph.classes))
        np.add.at(counts, (bin_of[graph.train], graph.labels[graph.train]), 1)
        guess = counts.argmax(axis=1)[bin_of]
        found.append(float((guess == graph.labels)[graph.test].mean()))
    return np.array(found)


def _two_hop_accuracy(graph: Graph) -> float:
    """Test accuracy of a linear model on features averaged over no, one and two hops: what a
    two-layer GraphSAGE (mean) sees, without its non-linearity, in a fraction of the time."""
    import scipy.sparse
    import torch

    ones = np.ones(graph.edges, np.float32)
    adjacency = scipy.sparse.csr_matrix((ones, (graph.dst, graph.src)), [graph.nodes] * 2)
    degree = np.maximum(np.bincount(graph.dst, minlength=graph.nodes), 1)[:, None]
    hops = [graph.features]
    for _ in range(2):
        hops.append((adjacency @ hops[-1] / degree).astype(np.float32))
    inputs = torch.from_numpy(np.hstack(hops))
    inputs = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-6)
    train = torch.from_numpy(graph.train)
    seen, labels = inputs[train], torch.from_numpy(graph.labels)[train]
    torch.manual_seed(0)
    model = torch.nn.Linear(inputs.shape[1], graph.classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model(seen), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    guess = model(inputs[torch.from_numpy(graph.test)]).argmax(dim=1).numpy()
    return float((guess == graph.labels[graph.test]).mean())


def test_the_graph_tells_more_than_any_single_feature(
    bundled: Graph, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    single = _single_feature_accuracies(bundled)
    majority = np.bincount(bundled.labels[bundled.train]).argmax()
    always = float((bundled.labels[bundled.test] == majority).mean())
    trained = _two_hop_accuracy(bundled)
    with capsys.disabled():
        print(
            f"\ndebian: best single feature is {single.argmax()} with accuracy {single.max():.3f}; "
            f"majority {always:.3f}, two hops {trained:.3f}"
        )
    record_property("best_single_feature_accuracy", float(single.max()))
    record_property("two_hop_accuracy", trained)
    assert always < single.max() < 0.4
    assert trained > single.max() + 0.25


def test_relations_follow_first_alternatives_and_providers(tiny: PackageIndex) -> None:
    assert tiny.names == ("alpha", "beta", "delta", "gamma", "alpha")
    assert tiny.binaries == 4
    assert _edges(tiny, "depends") == {("alpha", "beta"), ("alpha", "delta"), ("alpha", "gamma")}
    assert _edges(tiny, "recommends") == {("alpha", "alpha"), ("beta", "delta")}
    assert _edges(tiny, "build-depends") == {("alpha", "gamma"), ("alpha", "delta")}
    assert _edges(tiny, "built-from") == {("alpha", "alpha"), ("beta", "alpha")}
    assert tiny.relations["build-depends"][:, 0].tolist() == [4, 4]
    assert [tiny.section_names[s] for s in tiny.section] == [
        "games", "libs", "libs", "libs", "games"
    ]  # fmt: skip
    assert tiny.size.tolist() == [100, 200, 300, 400, 30]
    assert tiny.tag_names == ("interface::graphical", "role::program", "use::gameplaying")
    assert tiny.tag_counts.tolist() == [3, 0, 0, 0, 0]


def test_tiny_graph_lifts_build_relations_to_every_package_of_a_source(tiny: PackageIndex) -> None:
    graph = graph_of(tiny).validated()
    found = {
        (tiny.names[a], tiny.names[b]) for a, b in zip(graph.src, graph.dst, strict=True) if a < b
    }
    # alpha and beta come from the source alpha, which is built with gamma and delta.
    assert found == {
        ("alpha", "beta"), ("alpha", "delta"), ("alpha", "gamma"), ("beta", "delta"),
        ("beta", "gamma"),
    }  # fmt: skip
    assert graph.edges == 10
    # 3 depends, 2 recommends (a loop among them), 2 packages built with 2 others; the 8 pairs that
    # are no loops join 5 distinct ones in one direction.
    assert graph.cleaning == {
        "edges_read": 9, "self_loops_removed": 1, "duplicates_removed": 3,
        "reverse_edges_added": 5, "isolated_nodes": 0,
    }  # fmt: skip
    assert graph.classes == 2
    assert graph.features.shape == (4, FEATURES)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", []),
        ("a (>= 1), b | c:any", [["a"], ["b", "c"]]),
        ("a [!amd64], b [amd64 arm64], c [!hurd-any]", [["b"], ["c"]]),
        ("a [linux-any] <!nocheck>, b <pkg.x>, c <!x !y> <z>", [["a"], ["c"]]),
        ("dpkg-dev (>= 1.22.5) [i386] | g++, lib2.0+x-dev", [["g++"], ["lib2.0+x-dev"]]),
        ("${misc:Depends}, Bad_Name", []),
    ],
)
def test_relation_fields(text: str, groups: list[list[str]]) -> None:
    assert list(relation_groups(text)) == groups


def test_file_round_trips_and_is_deterministic(tiny: PackageIndex, tmp_path: Path) -> None:
    one, two = tmp_path / "one.npz.xz", tmp_path / "two.npz.xz"
    save_index(tiny, one)
    again = load_index(one)
    for name, value in vars(tiny).items():
        if name == "relations":
            for relation, pairs in value.items():
                assert np.array_equal(again.relations[relation], pairs)
        else:
            assert np.array_equal(getattr(again, name), value)
    save_index(again, two)
    assert one.read_bytes() == two.read_bytes()
    save_index(load_index(INDEX_FILE), two)
    # Not the compressed bytes: those depend on the version of liblzma.
    assert lzma.decompress(two.read_bytes()) == lzma.decompress(INDEX_FILE.read_bytes())


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = tmp_path / "cut.npz.xz"
    monkeypatch.setattr(debian_module, "INDEX_FILE", cut)
    with pytest.raises(DatasetError, match=r"cut\.npz\.xz is missing or damaged"):
        debian()
    cut.write_bytes(INDEX_FILE.read_bytes()[:100_000])
    with pytest.raises(DatasetError, match=r"cut\.npz\.xz is missing or damaged"):
        debian()
    cut.write_bytes(lzma.compress(b"no archive"))
    with pytest.raises(DatasetError, match=r"cut\.npz\.xz is missing or damaged"):
        debian()


def test_command_converts_compressed_indices(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "Packages.gz").write_bytes(gzip.compress(PACKAGES.encode()))
    (tmp_path / "Sources.xz").write_bytes(lzma.compress(SOURCES.encode()))
    out = tmp_path / "made.npz.xz"
    arguments = ["convert-debian", "--packages", "Packages.gz", "--sources", "Sources.xz"]
    done = cli(*arguments, "--out", out, "--json")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(done.out)
    assert (facts["nodes"], facts["edges"], facts["sources"]) == (4, 10, 1)
    assert load_index(out).names[:4] == ("alpha", "beta", "delta", "gamma")
    assert b"not a fact" not in lzma.decompress(out.read_bytes())
    done = cli(*arguments, "--out", tmp_path / "made.zip")
    assert done.code == 2
    assert "must end in .npz.xz" in done.err


@pytest.mark.parametrize("field", ["Size: 100", "Installed-Size: 7"])
def test_a_size_that_is_no_number_is_named(tmp_path: Path, field: str) -> None:
    name = field.partition(":")[0]
    (tmp_path / "Packages").write_text(PACKAGES.replace(field, f"{name}: large"))
    with pytest.raises(DatasetError, match=rf"alpha: {name} must hold .*'large'"):
        build_index(read_packages(tmp_path / "Packages"), [])


def test_a_place_that_cannot_be_written_is_named(tiny: PackageIndex, tmp_path: Path) -> None:
    taken = tmp_path / "out" / "taken.npz.xz"
    taken.mkdir(parents=True)
    with pytest.raises(DatasetError, match=r"taken\.npz\.xz cannot be written"):
        save_index(tiny, taken)
    assert list(taken.parent.iterdir()) == [taken]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing", None, "cannot be read"),
        ("cut.gz", gzip.compress(PACKAGES.encode() * 50)[:-20], "cannot be read"),
        ("cut.xz", lzma.compress(PACKAGES.encode())[:-20], "cannot be read"),
        ("packed.lz4", b"1234", "unpack it first"),
        ("empty", b"", "holds no packages"),
        ("text", b"not an index", "no 'Field: value' line"),
        ("odd", b" continued", "a continuation without a field"),
        ("status", b"Package: a\nSize: 3\n", "has no field Section"),
        ("binary", b"Package: \xff\xfe\n", "cannot be read"),
    ],
)
def test_bad_indices_are_named(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DatasetError, match=says) as caught:
        read_packages(path)
    assert str(path) in str(caught.value)
