"""``custom``: files as users write them, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rudder_datasets.custom import custom

from rudder.dataset import Graph
from rudder.errors import DatasetError, MissingPathError, SpecError, UsageError
from rudder.partition import NODE_IDS_FILE, ensure_partition
from rudder.registries import DATASETS

Write = Callable[[str, "str | bytes"], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return put


def written_edges(graph: Graph) -> set[tuple[int, int]]:
    """Edges by the numbers in the file."""
    ids = np.arange(graph.nodes) if graph.node_ids is None else graph.node_ids
    return set(zip(ids[graph.src].tolist(), ids[graph.dst].tolist(), strict=True))


PAIRS = {(10, 20), (20, 30), (30, 10)}


@pytest.mark.parametrize(
    "text",
    [
        "10,20\n20,30\n30,10\n",
        "10 20\n20 30\n30 10",
        "10\t20\r\n20\t30\r\n30\t10\r\n",
        "# From To\r\n10 20\r\n\r\n20\t 30\r\n30 10\r\n",
        "% bipartite\n% 1\n10 20\n20 30\n30 10\n",
        "src,dst,weight\n10,20,0.5\n20,30,1\n# end\n30,10,2\n",
        "src;dst\n10;20\n20;30\n30;10\n",
        '"src", "dst"\n10, 20\n20, 30\n30, 10\n',
        "\ufeffsrc,dst\n10,20\n20,30\n30,10\n",
        "  10 20  \n\n\n 20 30\n30 10 # last\n",
    ],
)
def test_every_way_to_write_an_edge_list(write: Write, text: str) -> None:
    plain = custom(edges=str(write("g.txt", text)), add_reverse=False)
    zipped = custom(edges=str(write("h.txt", gzip.compress(text.encode()))), add_reverse=False)
    assert written_edges(plain) == written_edges(zipped) == PAIRS
    assert plain.node_ids is not None
    assert plain.node_ids.tolist() == [10, 20, 30]
    assert plain.cleaning["ids_remapped"] == 3


def test_cleaning_is_counted_and_can_be_switched_off(write: Write) -> None:
    path = str(write("g.csv", "0,1\n0,1\n1,0\n1,2\n2,2\n"))
    assert custom(edges=path).cleaning == {
        "edges_read": 5,
        "self_loops_removed": 1,
        "duplicates_removed": 1,
        "reverse_edges_added": 1,
        "isolated_nodes": 0,
    }
    kept = custom(edges=path, add_reverse=False, drop_self_loops=False, drop_duplicates=False)
    assert kept.src.tolist() == [0, 0, 1, 1, 2]
    assert kept.dst.tolist() == [1, 1, 0, 2, 2]
    assert kept.cleaning == {"edges_read": 5, "isolated_nodes": 0}
    doubled = custom(edges=path, drop_duplicates=False)
    assert doubled.edges == 5  # 0-1 twice, 1-0, 1-2 and its reverse; the loop is gone


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40),
    scale=st.sampled_from([1, 7, 10**9 + 7, 10**17]),
)
def test_the_map_brings_back_the_edges_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], scale: int
) -> None:
    path = tmp_path_factory.mktemp("edges") / "g.txt"
    path.write_text("".join(f"{u * scale} {v * scale}\n" for u, v in pairs))
    graph = custom(edges=str(path))
    scaled = {(u * scale, v * scale) for u, v in pairs if u != v}
    assert written_edges(graph) == scaled | {(v, u) for u, v in scaled}
    assert graph.nodes == len({end for pair in pairs for end in pair})


def test_numbers_that_fit_the_rows_are_rows_and_isolated_nodes_stay(
    write: Write, tmp_path: Path
) -> None:
    edges = write("g.csv", "0,1\n1,3\n")
    np.save(tmp_path / "x.npy", np.arange(10.0).reshape(5, 2))
    graph = custom(edges=str(edges), features=str(tmp_path / "x.npy"))
    assert (graph.nodes, graph.node_ids) == (5, None)
    assert graph.cleaning["isolated_nodes"] == 2
    assert graph.features.dtype == np.float32
    assert graph.features[3].tolist() == [6, 7]


def test_one_based_numbers_are_ranked_onto_the_rows(write: Write, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    graph = custom(edges=str(write("g.csv", "1,2\n2,3\n")), features=str(tmp_path / "x.npy"))
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [1, 2, 3]
    assert written_edges(graph) == {(1, 2), (2, 1), (2, 3), (3, 2)}


@pytest.mark.parametrize("form", ["npy", "npz", "order", "numbers", "header"])
def test_labels_in_every_form_and_nan_is_unlabelled(
    write: Write, tmp_path: Path, form: str
) -> None:
    values = np.array([2.0, np.nan, 0.0, -1.0])
    if form == "npy":
        np.save(tmp_path / "y.npy", values[:, None])
        labels = tmp_path / "y.npy"
    elif form == "npz":
        np.savez(tmp_path / "y.npz", labels=values)
        labels = tmp_path / "y.npz"
    else:
        labels = write(
            "y.csv",
            {
                "order": "2\nnan\n0\n-1\n",
                "numbers": "30,0\n10,2\n20,\n40,-1\n",
                "header": "node,age,class\n30,7,0\n10,7,2\n40,7,-1\n",
            }[form],
        )
    graph = custom(edges=str(write("g.csv", "10,20\n20,30\n30,40\n")), labels=str(labels))
    assert graph.labels.dtype == np.int64
    assert graph.labels.tolist() == [2, -1, 0, -1]
    assert graph.classes == 3
    assert graph.cleaning["unlabelled"] == 2
    assert not (graph.train | graph.val | graph.test)[[1, 3]].any()


def test_multilabel_rows_with_nan_are_in_no_split(write: Write, tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([[0, 1], [1, np.nan], [1, 1]]))
    graph = custom(edges=str(write("g.csv", "0,1\n1,2\n")), labels=str(tmp_path / "y.npy"), train=1,
                   val=0)  # fmt: skip
    assert graph.multilabel
    assert graph.labels.tolist() == [[0, 1], [0, 0], [1, 1]]
    assert graph.train.tolist() == [True, False, True]
    assert graph.cleaning["nan_labels"] == 1


@pytest.mark.parametrize("form", ["masks", "whole", "packed", "numbers", "table"])
def test_splits_in_every_form(write: Write, tmp_path: Path, form: str) -> None:
    train, val, test = np.eye(10, dtype=bool)[[0, 4, 9]]
    path = tmp_path / "s.npz"
    if form == "masks":
        np.savez(path, train_mask=train, valid_mask=val, test_mask=test.astype(np.uint8))
    elif form == "whole":  # not the nodes 0 and 1, over and over
        np.savez(path, train=train.astype(int), val_mask=val.astype(int), test=test.astype(int))
    elif form == "packed":
        np.savez(path, train_mask=np.packbits(train), val_mask=np.packbits(val),
                 test_mask=np.packbits(test))  # fmt: skip
    elif form == "numbers":
        np.savez(path, train=[0], val=[4], test=[9])
    else:
        path = write("s.csv", "node,split\n0,train\n4,valid\n9,test\n")
    ring = "".join(f"{i} {(i + 1) % 10}\n" for i in range(10))
    graph = custom(edges=str(write("g.txt", ring)), splits=str(path))
    assert (np.flatnonzero(graph.train), np.flatnonzero(graph.val)) == ([0], [4])
    assert np.flatnonzero(graph.test) == [9]


def test_another_seed_gives_other_derived_features(write: Write) -> None:
    path = str(write("g.csv", "0,1\n1,2\n"))
    assert (custom(edges=path, seed=1).features != custom(edges=path, seed=2).features).any()


def test_more_rows_of_features_than_nodes(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=[[0], [1]], num_nodes=3, features=np.zeros((4, 2)))
    with pytest.raises(DatasetError, match="4 rows of features for 3 nodes"):
        custom(npz=str(tmp_path / "g.npz"))


def test_random_splits_take_their_shares_and_the_seed(write: Write) -> None:
    ring = "".join(f"{i} {(i + 1) % 1000}\n" for i in range(1000))
    path = str(write("g.txt", ring))
    graph = custom(edges=path, train=0.5, val=0.3)
    assert (graph.train.sum(), graph.val.sum(), graph.test.sum()) == (500, 300, 200)
    assert (custom(edges=path, seed=1).train != custom(edges=path, seed=2).train).any()


def test_what_is_missing_is_derived_and_said(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        graph = custom(edges=str(write("star.csv", "0,1\n0,2\n0,3\n0,4\n")), feature_width=5,
                       degree_classes=2)  # fmt: skip
    assert graph.features.shape == (5, 5)
    assert graph.labels.tolist() == [1, 1, 1, 1, 1]  # ranks: the leaves share the fourth of five
    assert "in-degree" in graph.meta["labels"]
    assert "derived" in graph.meta["features"]
    assert "no labels" in caplog.text


def test_sparse_features_and_the_name(write: Write, tmp_path: Path) -> None:
    from scipy.sparse import csr_matrix, save_npz

    save_npz(tmp_path / "x.npz", csr_matrix(np.eye(3)))
    graph = custom(edges=str(write("my graph.v2.csv", "0,1\n1,2\n")),
                   features=str(tmp_path / "x.npz"))  # fmt: skip
    assert graph.features.tolist() == np.eye(3).tolist()
    assert graph.name == "my_graph"


def test_a_partition_keeps_the_map(write: Write, tmp_path: Path) -> None:
    ring = "".join(f"{i * 5} {(i + 1) % 60 * 5}\n" for i in range(60))
    spec = f"custom:edges={write('g.txt', ring)}"
    made = ensure_partition(spec, 2, "random", 0, tmp_path, lambda phase, share: None)
    assert np.load(made.folder / NODE_IDS_FILE).tolist() == list(range(0, 300, 5))


# --- wrong input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,2\n3,x\n", "line 2: '3,x'"),
        ("a,b\n1,2\n\n3\n", "line 4: '3'"),
        ("1,2\n3,4,5\n", "line 2: '3,4,5'"),
        ("1 2\n3 4.5\n", "line 2: '3 4.5'"),
        ("1 2\n3 -4\n", "negative"),
        ("1 2\n3 99999999999999999999\n", "g.txt"),
        ("a,b\n", "no edges"),
        ("# nothing\n\n", "no rows"),
        ("", "no rows"),
        ("1\n2\n", "one column"),
        ("# Nodes: 3 Edges: 9\n1 2\n2 3\n", "declares 9 edges and holds 2"),
    ],
)
def test_bad_edge_lists_name_file_and_place(write: Write, text: str, says: str) -> None:
    with pytest.raises(DatasetError, match=says) as caught:
        custom(edges=str(write("g.txt", text)))
    assert "g.txt" in str(caught.value)


def truncated(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return path


def test_truncated_files_are_named(write: Write, tmp_path: Path) -> None:
    edges = "".join(f"{i} {i * 7 % 500}\n" for i in range(500))
    good = str(write("good.txt", edges))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((500, 8)))
    np.savez(tmp_path / "x.npz", features=np.random.default_rng(0).random((500, 8)))
    np.savez_compressed(tmp_path / "g.npz", edge_index=np.random.default_rng(0).integers(
        0, 500, (2, 999)))  # fmt: skip
    cases: list[tuple[dict[str, str], Path]] = [
        ({}, truncated(write("cut.gz", gzip.compress(edges.encode())))),
        ({"edges": good}, truncated(tmp_path / "x.npy")),
        ({"edges": good}, truncated(tmp_path / "x.npz")),
        ({}, truncated(tmp_path / "g.npz")),
    ]
    for given_, path in cases:
        parameter = "features" if given_ else "npz" if path.suffix == ".npz" else "edges"
        with pytest.raises(DatasetError, match="truncated") as caught:
            custom(**given_, **{parameter: str(path)})  # type: ignore[arg-type]
        assert str(path) in str(caught.value)


def test_damage_inside_an_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=np.zeros((2, 999), dtype=np.int64))
    content = bytearray((tmp_path / "g.npz").read_bytes())
    content[5000] ^= 0xFF  # inside the array: only the checksum tells
    (tmp_path / "g.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"g\.npz is truncated or damaged"):
        custom(npz=str(tmp_path / "g.npz"))


class Bomb:
    """Its unpickling would leave a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("kind", ["npz", "features", "labels"])
def test_pickled_objects_are_refused_and_not_run(write: Write, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "ran"
    bomb = np.array([Bomb(mark)], dtype=object)
    edges = str(write("g.csv", "0,1\n"))
    if kind == "npz":
        np.savez(tmp_path / "bad.npz", edge_index=bomb)
        given_ = {"npz": str(tmp_path / "bad.npz")}
    elif kind == "features":
        np.save(tmp_path / "bad.npy", bomb)
        given_ = {"edges": edges, "features": str(tmp_path / "bad.npy")}
    else:
        np.savez(tmp_path / "bad.npz", labels=bomb)
        given_ = {"edges": edges, "labels": str(tmp_path / "bad.npz")}
    with pytest.raises(DatasetError, match="pickled Python objects, which are refused"):
        custom(**given_)  # type: ignore[arg-type]
    assert not mark.exists()


def test_a_bare_pickle_is_no_numpy_file(write: Write) -> None:
    import pickle

    path = write("g.npz", pickle.dumps({"edge_index": [[0], [1]]}))
    with pytest.raises(DatasetError, match="is no NumPy file"):
        custom(npz=str(path))


@pytest.mark.parametrize("parameter", ["edges", "npz", "features", "labels", "splits"])
def test_a_missing_file_is_wrong_use_and_names_the_path(
    write: Write, tmp_path: Path, parameter: str
) -> None:
    given_ = {parameter: str(tmp_path / "nowhere.x")}
    if parameter not in ("edges", "npz"):
        given_["edges"] = str(write("g.csv", "0,1\n"))
    with pytest.raises(MissingPathError, match=rf"{parameter}=.*no such file: .*nowhere\.x"):
        custom(**given_)  # type: ignore[arg-type]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MissingPathError, match="is no file"):
        custom(edges=str(tmp_path))


def test_parameters_that_do_not_go_together() -> None:
    for spec in ("custom", "custom:edges=a,npz=b"):
        with pytest.raises(UsageError, match="one of them"):
            DATASETS.build(spec)
    with pytest.raises(SpecError, match="did you mean 'edges'"):
        DATASETS.build("custom:edge=x.csv")


@pytest.mark.parametrize(
    "wrong", ["seed=-1", "classes=0", "feature_width=0", "degree_classes=1", "train=7", "val=-0.1"]
)
def test_parameters_out_of_range(write: Write, wrong: str) -> None:
    path = write("g.csv", "0,1\n")
    with pytest.raises(UsageError, match=wrong):
        DATASETS.build(f"custom:edges={path},{wrong}")


def test_a_column_that_is_not_there(write: Write) -> None:
    path = str(write("g.csv", "a,b\n0,1\n"))
    with pytest.raises(UsageError, match=r"no column 'c'.*a, b"):
        custom(edges=path, source="c")
    with pytest.raises(UsageError, match="no column 2"):
        custom(edges=path, target=2)
    assert custom(edges=path, source="b", target="a", add_reverse=False).src.tolist() == [1]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.zeros(5), "edge end 7 lies outside the 5 rows"),
        (np.array([0.5] * 8), "no whole numbers"),
        (np.full((8, 3), 2), "only 0 and 1"),
        (np.array(["a"] * 8), "must be numbers"),
    ],
)
def test_labels_that_do_not_fit(
    write: Write, tmp_path: Path, labels: np.ndarray, says: str
) -> None:
    np.save(tmp_path / "y.npy", labels)
    with pytest.raises(DatasetError, match=says):
        custom(edges=str(write("g.csv", "0,1\n1,7\n")), labels=str(tmp_path / "y.npy"))


def test_more_labels_than_rows_of_features(write: Write, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    np.save(tmp_path / "y.npy", np.zeros(4))
    with pytest.raises(DatasetError, match="4 labels for 3 nodes"):
        custom(edges=str(write("g.csv", "0,1\n1,2\n")), features=str(tmp_path / "x.npy"),
               labels=str(tmp_path / "y.npy"))  # fmt: skip


def test_label_and_split_tables_that_do_not_fit(write: Write) -> None:
    edges = str(write("g.csv", "0,1\n1,2\n"))
    for text, says in (
        ("0,1\n9,1\n", "node that the graph does not have .first: 9"),
        ("0,1\n0,2\n", "more than once"),
        ("0,one\n", "line 1: '0,one'"),
    ):
        with pytest.raises(DatasetError, match=says):
            custom(edges=edges, labels=str(write("y.csv", text)))
    with pytest.raises(DatasetError, match="'dev' is no split"):
        custom(edges=edges, splits=str(write("s.csv", "0,train\n1,dev\n")))
    with pytest.raises(DatasetError, match="overlap"):
        custom(edges=edges, splits=str(write("s.csv", "0,train\n0,val\n")))


def test_features_with_nan_are_refused(write: Write, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1.0], [np.nan], [1e300]]))
    with pytest.raises(DatasetError, match=r"of 2 nodes hold NaN or infinity .first: 1"):
        custom(edges=str(write("g.csv", "0,1\n1,2\n")), features=str(tmp_path / "x.npy"))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"edges": [[0, 1]]}, "lacks edge_index; it holds edges"),
        ({"edge_index": [[0, 1, 2]]}, r"\[2, E\]"),
        ({"edge_index": [[0.0], [1.0]]}, "whole numbers"),
        ({"edge_index": [[0], [5]], "num_nodes": 3}, "edge end 5 lies outside its 3 nodes"),
        ({"edge_index": [[0], [-1]], "num_nodes": 3}, "negative"),
        ({"edge_index": [[0], [1]], "num_nodes": [3, 3]}, "num_nodes must be one whole number"),
        ({"edge_index": [[0], [1]], "num_nodes": 2.5}, r"num_nodes must .*found 2\.5"),
        ({"edge_index": [[0], [1]], "num_nodes": -1}, "num_nodes must .*found -1"),
        ({"edge_index": np.empty((2, 0), int), "num_nodes": 0}, "num_nodes must .*found 0"),
        ({"edge_index": np.empty((2, 0), int)}, "no nodes"),
        ({"edge_index": [[0], [1]], "train_mask": [True, False]}, "none for validation"),
        ({"edge_index": [[0], [1]], "meta": "no json"}, "meta must be"),
    ],
)
def test_archives_that_do_not_fit(tmp_path: Path, arrays: dict[str, object], says: str) -> None:
    np.savez(tmp_path / "g.npz", **{k: np.asarray(v) for k, v in arrays.items()})
    with pytest.raises(DatasetError, match=says):
        custom(npz=str(tmp_path / "g.npz"))


@pytest.mark.parametrize("form", ["npz", "UTF-16"])
def test_a_file_that_is_no_text_is_no_edge_list(write: Write, tmp_path: Path, form: str) -> None:
    path = write("g.csv", "0,1\n1,2\n".encode("utf-16"))
    if form == "npz":
        np.savez(tmp_path / "g.npz", edge_index=[[0], [1]])
        path = tmp_path / "g.npz"
    with pytest.raises(DatasetError, match=r"is no text table in UTF-8.*custom:npz=FILE"):
        custom(edges=str(path))


def test_a_file_of_an_archive_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("edge_index", "0,1\n")
    with pytest.raises(DatasetError, match=r"g\.npz: edge_index is no array"):
        custom(npz=str(tmp_path / "g.npz"))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (b"(3, 2000000000000), }", "declares an array that does not fit in memory"),
        (b"(3, 2),              ", "has a damaged header"),
        (b"(3, 2}, )            ", "damaged"),
        (b"(3, 3), }            ", "truncated"),
    ],
)
def test_a_damaged_header_is_named(tmp_path: Path, shape: bytes, says: str) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    content = (tmp_path / "x.npy").read_bytes()
    start = content.index(b"(3, 2)")
    (tmp_path / "x.npy").write_bytes(content[:start] + shape + content[start + len(shape) :])
    np.savez(tmp_path / "g.npz", edge_index=[[0], [1]])
    with pytest.raises(DatasetError, match=rf"x\.npy .*{says}"):
        custom(npz=str(tmp_path / "g.npz"), features=str(tmp_path / "x.npy"))


@pytest.mark.parametrize("parameter", ["features", "labels", "splits", "edges"])
def test_a_file_that_cannot_be_read(write: Write, parameter: str) -> None:
    given_ = {"edges": str(write("g.csv", "0,1\n")), parameter: "/proc/self/mem"}
    with pytest.raises(DatasetError, match=r"/proc/.*/mem cannot be read"):
        custom(**given_)  # type: ignore[arg-type]


# --- real graphs -----------------------------------------------------------------------------

# Nodes, edges, classes: the table in the README of the test data. Features: shapes in the files.
GRAPHS = {
    "tolokers": (11_758, 1_038_000, 2, 10),
    "debian_deps_build": (63_436, 542_912, 58, 100),
    "wordnet": (117_659, 361_638, 45, 64),
    "lastfm_asia": (7_624, 55_612, 18, 32),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_real_graphs_are_read_as_they_are(shared_data: Path, name: str) -> None:
    path = shared_data / "graphs" / f"{name}.npz"
    graph: Graph = DATASETS.build(f"custom:npz={path}")
    assert (graph.nodes, graph.edges, graph.classes, graph.features.shape[1]) == GRAPHS[name]
    assert graph.name == name
    raw = np.load(path, allow_pickle=False)
    order = np.lexsort(raw["edge_index"][::-1])
    assert (np.stack([graph.src, graph.dst]) == raw["edge_index"][:, order]).all()
    assert (graph.features == raw["features"].astype(np.float32)).all()
    assert (graph.labels == raw["labels"]).all()
    for split in ("train", "val", "test"):
        bits = np.unpackbits(raw[f"{split}_mask"])[: graph.nodes].astype(bool)
        assert (getattr(graph, split) == (bits & (raw["labels"] >= 0))).all()
    touched = np.union1d(raw["edge_index"][0], raw["edge_index"][1]).size
    assert graph.cleaning["isolated_nodes"] == graph.nodes - touched
    assert graph.cleaning["duplicates_removed"] == graph.cleaning["self_loops_removed"] == 0
    assert graph.meta["licence"] == json.loads(str(raw["meta"]))["licence"]


def test_enron_as_snap_publishes_it(shared_data: Path) -> None:
    path = shared_data / "raw" / "snap" / "email-Enron.txt.gz"
    graph = custom(edges=str(path))
    with gzip.open(path, "rt") as file:
        lines = {tuple(map(int, s.split())) for s in file if s[0] != "#"}
    assert set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)) == lines
    assert (graph.nodes, graph.edges) == (36_692, 367_662)  # as its comment line declares
    assert graph.cleaning["reverse_edges_added"] == 0
