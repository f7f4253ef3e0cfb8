"""Published graphs: their raw layouts on disk, and downloading them."""

from __future__ import annotations

import gzip
import io
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from rudder_datasets import download, ogbn, saint, snap
from scipy.sparse import coo_matrix, csr_matrix, save_npz

from rudder.dataset import Graph
from rudder.errors import DatasetError, MissingPathError, UsageError
from rudder.registries import DATASETS

PUBLISHED = [
    *("ogbn-arxiv", "ogbn-products", "ogbn-papers100M", "reddit", "yelp", "flickr"),
    *("orkut", "friendster"),
]


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def gz(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


# --- OGB ---------------------------------------------------------------------------------------


def write_ogb(folder: Path) -> Path:
    """Five nodes, edges 0-1, 1-2, 2-3 in one direction; node 3 has the label NaN."""
    raw, split = folder / "raw", folder / "split" / "time"
    gz(raw / "edge.csv.gz", "0,1\n1,2\n2,3\n")
    gz(raw / "node-feat.csv.gz", "".join(f"{i}.5,{-i}\n" for i in range(5)))
    gz(raw / "node-label.csv.gz", "0\n1\n1\nnan\n2\n")
    gz(raw / "num-node-list.csv.gz", "5\n")
    gz(raw / "num-edge-list.csv.gz", "3\n")
    for name, nodes in (("train", "0\n1\n"), ("valid", "2\n3\n"), ("test", "4\n")):
        gz(split / f"{name}.csv.gz", nodes)
    (folder / "processed").mkdir()
    (folder / "processed" / "data_processed").write_bytes(b"never read")
    return folder


def check_small_ogb(graph: Graph) -> None:
    assert edges_of(graph) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    assert graph.features.tolist() == [[0.5, 0], [1.5, -1], [2.5, -2], [3.5, -3], [4.5, -4]]
    assert graph.labels.tolist() == [0, 1, 1, -1, 2]
    assert graph.classes == 3
    assert np.flatnonzero(graph.train).tolist() == [0, 1]
    assert np.flatnonzero(graph.val).tolist() == [2]  # node 3 has no label
    assert np.flatnonzero(graph.test).tolist() == [4]
    assert dict(graph.cleaning) == {
        "edges_read": 3, "self_loops_removed": 0, "duplicates_removed": 0,
        "reverse_edges_added": 3, "isolated_nodes": 1, "nan_labels": 1, "unlabelled": 1,
        "unlabelled_taken_out_of_splits": 1,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products", "ogbn-papers100M"])
def test_ogb_csv(tmp_path: Path, name: str) -> None:
    check_small_ogb(DATASETS.build(f"{name}:from={write_ogb(tmp_path / 'there')}"))


def test_ogb_csv_in_a_subfolder_of_that_name(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv")
    check_small_ogb(ogbn.arxiv(from_=str(tmp_path)))


def test_ogb_binary(tmp_path: Path) -> None:
    write_ogb(tmp_path)
    for path in (tmp_path / "raw").iterdir():
        path.unlink()
    features = np.array([[i + 0.5, -i] for i in range(5)], dtype=np.float16)
    np.savez(tmp_path / "raw" / "data.npz", edge_index=[[0, 1, 2], [1, 2, 3]], node_feat=features,
             num_nodes_list=[5], num_edges_list=[3], node_year=np.zeros((5, 1)))  # fmt: skip
    np.savez(tmp_path / "raw" / "node-label.npz",
             node_label=np.array([[0, 1, 1, np.nan, 2]], dtype=np.float32).T)  # fmt: skip
    check_small_ogb(ogbn.papers100m(from_=str(tmp_path)))


@pytest.mark.parametrize("pairs", [7, [1, 2], [[1, 2]], [[[1]], [[2]]]])
def test_ogb_binary_edges_of_another_shape(tmp_path: Path, pairs: object) -> None:
    write_ogb(tmp_path)
    np.savez(tmp_path / "raw" / "data.npz", edge_index=pairs, node_feat=np.zeros((5, 1)),
             num_nodes_list=[5], num_edges_list=[2])  # fmt: skip
    with pytest.raises(DatasetError, match=r"edge_index must be \[2, E\]"):
        ogbn.arxiv(from_=str(tmp_path))


def test_directed_ogb_on_request(tmp_path: Path) -> None:
    graph = ogbn.arxiv(from_=str(write_ogb(tmp_path / "a")), add_reverse=False)
    assert edges_of(graph) == {(0, 1), (1, 2), (2, 3)}
    assert "reverse_edges_added" not in graph.cleaning


def test_ogb_files_that_contradict_each_other(tmp_path: Path) -> None:
    def broken(name: str, text: str) -> str:
        folder = write_ogb(tmp_path / str(time.monotonic_ns()))
        gz(folder / name, text)
        return str(folder)

    for name, text, says in (
        ("raw/num-edge-list.csv.gz", "4\n", "holds 3 edges where num-edge-list says 4"),
        ("raw/num-node-list.csv.gz", "6\n", "5 rows of features for 6 nodes"),
        ("raw/num-node-list.csv.gz", "5\n6\n", "tells of 2 graphs"),
        ("raw/node-label.csv.gz", "1\n", "1 labels for 5 nodes"),
        ("raw/edge.csv.gz", "0,1\n1,2\n2,9\n", "destination outside 0..4"),
        ("raw/node-feat.csv.gz", "1,2\n3,4\n5,x\n7,8\n9,0\n", "line 3: '5,x'"),
        ("raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n9\n", "hold NaN or infinity"),
        ("split/time/test.csv.gz", "7\n", "test split must hold node numbers 0..4"),
        ("split/time/test.csv.gz", "0\n", "overlap"),
    ):
        with pytest.raises(DatasetError, match=says):
            ogbn.arxiv(from_=broken(name, text))
    folder = write_ogb(tmp_path / "cut")
    feat = folder / "raw" / "node-feat.csv.gz"
    feat.write_bytes(feat.read_bytes()[:-12])
    with pytest.raises(DatasetError, match=r"node-feat\.csv\.gz is truncated"):
        ogbn.arxiv(from_=str(folder))
    (folder / "raw" / "num-node-list.csv.gz").unlink()
    with pytest.raises(DatasetError, match=r"no such file: .*num-node-list"):
        ogbn.arxiv(from_=str(folder))


def test_several_splits_have_to_be_chosen_from(tmp_path: Path) -> None:
    folder = write_ogb(tmp_path / "a")
    for part, nodes in (("train", "4\n"), ("valid", "0\n"), ("test", "1\n")):
        gz(folder / "split" / "random" / f"{part}.csv.gz", nodes)
    with pytest.raises(UsageError, match=r"random, time.*split=NAME"):
        ogbn.arxiv(from_=str(folder))
    with pytest.raises(UsageError, match="no split 'day'"):
        ogbn.arxiv(from_=str(folder), split="day")
    assert np.flatnonzero(ogbn.arxiv(from_=str(folder), split="random").train).tolist() == [4]


def test_the_ogb_catalogue_knows_all_three_without_importing_ogb() -> None:
    for name in ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M"):
        (url,) = ogbn._urls(name)
        assert url.endswith(".zip")


# --- GraphSAINT and Reddit -----------------------------------------------------------------------


def write_saint(folder: Path, class_map: object = None) -> Path:
    """Four nodes in a path; classes 0, 1, 0 and none for node 3."""
    folder.mkdir(parents=True, exist_ok=True)
    path = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], dtype=bool)
    save_npz(folder / "adj_full.npz", csr_matrix(path))
    np.save(folder / "feats.npy", np.array([[0.0, 5], [2, 5], [4, 5], [9, 5]]))
    labels = {"0": 0, "1": 1, "2": 0} if class_map is None else class_map
    (folder / "class_map.json").write_text(json.dumps(labels))
    (folder / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [2], "te": [3]}))
    return folder


@pytest.mark.parametrize("name", ["flickr", "yelp", "reddit"])
def test_graphsaint_layout(tmp_path: Path, name: str) -> None:
    graph = DATASETS.build(f"{name}:from={write_saint(tmp_path / 'g')},standardised=true")
    assert edges_of(graph) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    # Mean 1 and deviation 1 over the training nodes 0 and 1; the constant column becomes 0.
    assert graph.features.tolist() == [[-1, 0], [1, 0], [3, 0], [8, 0]]
    assert graph.labels.tolist() == [0, 1, 0, -1]
    assert not graph.test.any()  # its only node has no label
    assert graph.cleaning["unlabelled_taken_out_of_splits"] == 1
    raw = DATASETS.build(f"{name}:from={tmp_path / 'g'},standardised=false")
    assert raw.features[:, 0].tolist() == [0, 2, 4, 9]


def test_graphsaint_multilabel(tmp_path: Path) -> None:
    folder = write_saint(tmp_path, {"3": [1, 0], "0": [1, 1], "1": [0, 0], "2": [0, 1]})
    graph = saint.yelp(from_=str(folder))
    assert graph.multilabel
    assert graph.labels.tolist() == [[1, 1], [0, 0], [0, 1], [1, 0]]
    assert (graph.classes, int(graph.test.sum())) == (2, 1)


def test_reddit_as_dgl_publishes_it(tmp_path: Path) -> None:
    save_npz(tmp_path / "reddit_graph.npz",
             coo_matrix((np.ones(4), ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(4, 4)))  # fmt: skip
    np.savez(tmp_path / "reddit_data.npz", feature=np.eye(4, dtype=np.float64), label=[3, 0, 1, 2],
             node_types=[1, 1, 2, 3], node_ids=[7, 8, 9, 10])  # fmt: skip
    graph = saint.reddit(from_=str(tmp_path))
    assert edges_of(graph) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert graph.features.tolist() == np.eye(4).tolist()
    assert graph.labels.tolist() == [3, 0, 1, 2]
    assert [np.flatnonzero(m).tolist() for m in (graph.train, graph.val, graph.test)] == [
        [0, 1],
        [2],
        [3],
    ]


def test_graphsaint_files_that_are_wrong(tmp_path: Path) -> None:
    def broken(change: Callable[[Path], object]) -> str:
        folder = write_saint(tmp_path / str(time.monotonic_ns()))
        change(folder)
        return str(folder)

    def cut(name: str) -> Callable[[Path], object]:
        return lambda f: (f / name).write_bytes((f / name).read_bytes()[:-30])

    def pickled(folder: Path) -> None:
        np.save(folder / "feats.npy", np.array([{}], dtype=object))

    def bad_indices(folder: Path) -> None:
        np.savez(folder / "adj_full.npz", format=b"csr", shape=[2, 2], data=[1], indices=[9],
                 indptr=[0, 1, 1])  # fmt: skip

    cases: list[tuple[Callable[[Path], object], str]] = [
        (cut("adj_full.npz"), r"adj_full\.npz is truncated"),
        (cut("feats.npy"), r"feats\.npy is truncated"),
        (cut("role.json"), r"role\.json is truncated or no JSON"),
        (pickled, "pickled Python objects, which are refused"),
        (bad_indices, r"adj_full\.npz is no sound sparse matrix"),
        (lambda f: (f / "role.json").write_text("[]"), "must hold a JSON object"),
        (lambda f: (f / "role.json").write_text('{"tr": [0]}'), "must hold tr, va and te"),
        (lambda f: (f / "role.json").write_text('{"tr": [9], "va": [], "te": []}'), "0..3"),
        (lambda f: (f / "role.json").write_text('{"tr": [1.5], "va": [], "te": []}'), "found 1.5"),
        (lambda f: (f / "role.json").write_text('{"tr": [true], "va": [], "te": []}'), "True"),
        (lambda f: (f / "role.json").write_text('{"tr": 1, "va": [], "te": []}'), "a list"),
        (lambda f: (f / "role.json").write_text(f'{{"tr": [{9**30}], "va": [], "te": []}}'), "tr "),
        (lambda f: (f / "class_map.json").write_text('{"9": 0}'), "labels node 9"),
        (lambda f: (f / "class_map.json").write_text('{"0": [0], "1": [0, 1]}'), "one length"),
        (lambda f: (f / "class_map.json").write_text('{"a": 0}'), "must map node numbers"),
        (lambda f: np.save(f / "feats.npy", np.zeros((3, 2))), "3 rows for 4 nodes"),
        (lambda f: (f / "feats.npy").unlink(), r"no such file: .*feats\.npy"),
    ]
    for change, says in cases:
        with pytest.raises(DatasetError, match=says):
            saint.flickr(from_=broken(change))


# --- SNAP ----------------------------------------------------------------------------------------


def write_snap(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    gz(folder / f"com-{name}.ungraph.txt.gz",
       "# Nodes: 5 Edges: 4\n# FromNodeId\tToNodeId\n1\t2\n2\t3\n3\t7\n7\t9\n")  # fmt: skip
    gz(folder / f"com-{name}.all.cmty.txt.gz", "9\n1\t2\t3\n2\t3\t7\n7\t9\n")
    gz(folder / f"com-{name}.top5000.cmty.txt.gz", "9\n")
    return folder


@pytest.mark.parametrize("name", ["orkut", "friendster"])
def test_snap_with_communities_as_labels(tmp_path: Path, name: str) -> None:
    folder = write_snap(tmp_path / "g", name)
    graph = DATASETS.build(f"{name}:from={folder},classes=3,feature_width=4")
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [1, 2, 3, 7, 9]
    assert edges_of(graph) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 4), (4, 3)}
    # Largest first, of equal sizes the first: {1,2,3}, {2,3,7}, {7,9}.
    assert graph.labels.tolist() == [0, 0, 0, 1, 2]
    assert graph.classes == 3
    assert graph.features.shape == (5, 4)
    many = DATASETS.build(f"{name}:from={folder},classes=2,multilabel=true")
    assert many.labels.tolist() == [[1, 0], [1, 1], [1, 1], [0, 1], [0, 0]]
    assert not (many.train | many.val | many.test)[4]  # in neither: unlabelled
    assert many.cleaning["unlabelled"] == 1


def test_snap_files_that_are_wrong(tmp_path: Path) -> None:
    folder = write_snap(tmp_path / "a", "orkut")
    gz(folder / "com-orkut.all.cmty.txt.gz", "1 2 x\n")
    with pytest.raises(DatasetError, match=r"all\.cmty\.txt\.gz, line 1"):
        snap.orkut(from_=str(folder))
    gz(folder / "com-orkut.all.cmty.txt.gz", "1 2 4\n")
    with pytest.raises(DatasetError, match=r"does not have .first: 4"):
        snap.orkut(from_=str(folder))
    (folder / "com-orkut.all.cmty.txt.gz").unlink()
    (folder / "com-orkut.top5000.cmty.txt.gz").unlink()
    with pytest.raises(DatasetError, match=r"one file \*\.cmty\.txt .or \.gz., found: none"):
        snap.orkut(from_=str(folder))
    with pytest.raises(UsageError, match="classes=0"):
        snap.orkut(from_=str(folder), classes=0)


# --- raw layouts of real graphs -----------------------------------------------------------------


def test_lastfm_in_the_ogb_layout_is_the_graph_of_the_archive(shared_data: Path) -> None:
    read = ogbn.arxiv(from_=str(shared_data / "raw" / "ogb_style_lastfm_asia"))
    archive = np.load(shared_data / "graphs" / "lastfm_asia.npz", allow_pickle=False)
    assert (read.nodes, read.edges, read.classes) == (7_624, 55_612, 18)
    assert edges_of(read) == set(map(tuple, archive["edge_index"].T.tolist()))
    assert (read.labels == archive["labels"]).all()
    assert np.allclose(read.features, archive["features"], atol=0.01)
    parts = np.stack([read.train, read.val, read.test])
    assert parts.sum(axis=1).tolist() == [4_575, 1_526, 1_523]  # lines of the split files
    assert read.cleaning["reverse_edges_added"] == 0  # the file holds both directions


def test_amazon_in_the_graphsaint_layout(shared_data: Path) -> None:
    folder = shared_data / "raw" / "graphsaint_style_amazon_multilabel"
    graph = saint.yelp(from_=str(folder))
    class_map = json.loads((folder / "class_map.json").read_text())
    role = json.loads((folder / "role.json").read_text())
    assert (graph.nodes, graph.edges, graph.classes) == (6_926, 35_786, 100)
    assert graph.multilabel
    assert graph.labels.tolist() == [class_map[str(node)] for node in range(graph.nodes)]
    for mask, key in ((graph.train, "tr"), (graph.val, "va"), (graph.test, "te")):
        assert np.flatnonzero(mask).tolist() == sorted(role[key])
    assert np.allclose(graph.features[graph.train].mean(axis=0), 0, atol=1e-5)
    assert np.allclose(graph.features[graph.train].std(axis=0), 1, atol=1e-4)


def test_amazon_from_snap_text_is_the_same_graph_with_the_same_communities(
    shared_data: Path,
) -> None:
    folder = shared_data / "raw" / "graphsaint_style_amazon_multilabel"
    saint_graph = saint.yelp(from_=str(folder))
    graph = snap.orkut(from_=str(shared_data / "raw" / "snap"), classes=100, multilabel=True)
    assert edges_of(graph) == edges_of(saint_graph)
    assert (graph.cleaning["edges_read"], graph.cleaning["reverse_edges_added"]) == (17_893, 17_893)
    in_any = saint_graph.labels.any(axis=1)
    assert (graph.labels.sum(axis=0) == saint_graph.labels.sum(axis=0)).all()
    assert graph.cleaning["unlabelled"] == graph.nodes - int(in_any.sum()) == 5_296
    lines = (shared_data / "raw" / "snap" / "amazon-1.90.cmty.txt").read_text().splitlines()
    largest = max(lines, key=lambda line: len(line.split()))
    assert np.flatnonzero(graph.labels[:, 0]).tolist() == sorted(map(int, largest.split()))


# --- wrong folders, and downloading -------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_folder_that_is_missing_or_holds_something_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingPathError, match=r"from=.*no such folder"):
        DATASETS.build(f"{name}:from={tmp_path / 'nowhere'}")
    (tmp_path / "data_processed").write_bytes(b"")
    with pytest.raises(DatasetError, match="are not read: they are pickles"):
        DATASETS.build(f"{name}:from={tmp_path}")


class Server(ThreadingHTTPServer):
    """Serves ``content`` under any path, announcing ``announce`` bytes; stalls after ``stall``."""

    daemon_threads = True
    content = b""
    announce: int | None = None
    stall: threading.Event | None = None
    asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        length = self.server.announce or len(self.server.content)
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(self.server.content)
        if self.server.stall is not None:
            self.server.stall.wait(10)

    def log_message(self, format: str, *args: object) -> None:
        del format, args  # keep the test's output clean


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A server on this machine that stands for the publisher of ogbn-arxiv."""
    monkeypatch.setenv("RUDDER_HOME", str(tmp_path / "home"))
    with Server(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{made.server_address[1]}/arxiv.zip"
        monkeypatch.setattr(ogbn, "_urls", lambda name: [url])
        yield made
        made.shutdown()


def zipped(folder: Path, inside: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in folder.rglob("*"):
            if path.is_file():
                archive.write(path, f"{inside}/{path.relative_to(folder)}")
    return buffer.getvalue()


def left_in(home: Path) -> list[str]:
    """Names under ``graphs/``, but for the lock that stays."""
    return sorted(p.name for p in (home / "graphs").iterdir() if p.suffix != ".lock")


def test_a_download_is_unpacked_read_and_made_once(server: Server, tmp_path: Path) -> None:
    server.content = zipped(write_ogb(tmp_path / "there"), "arxiv")
    check_small_ogb(DATASETS.build("ogbn-arxiv"))
    check_small_ogb(DATASETS.build("ogbn-arxiv"))
    assert server.asked == 1
    assert left_in(tmp_path / "home") == ["ogbn-arxiv"]


def test_what_a_killed_download_left_is_removed(server: Server, tmp_path: Path) -> None:
    part = tmp_path / "home" / "graphs" / ".ogbn-arxiv.part"
    part.mkdir(parents=True)
    (part / "arxiv.zip").write_bytes(b"half of it")
    server.content = zipped(write_ogb(tmp_path / "there"), "arxiv")
    check_small_ogb(DATASETS.build("ogbn-arxiv"))
    assert left_in(tmp_path / "home") == ["ogbn-arxiv"]


def test_two_downloads_at_once_are_one(server: Server, tmp_path: Path) -> None:
    server.content = zipped(write_ogb(tmp_path / "there"), "arxiv")
    server.stall = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(download.fetch, "ogbn-arxiv", ogbn._urls("x"), yes=False)
                for _ in range(2)]  # fmt: skip
        while not server.asked:
            time.sleep(0.01)
        time.sleep(0.5)
        server.stall.set()
        assert both[0].result() == both[1].result()
    assert server.asked == 1


def test_something_else_than_an_archive_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.content = b"<html>come back later</html>"
    with pytest.raises(DatasetError, match="truncated or no zip archive"):
        DATASETS.build("ogbn-arxiv")
    assert left_in(tmp_path / "home") == []
    server.content = zipped(write_ogb(tmp_path / "there"), "arxiv")
    check_small_ogb(DATASETS.build("ogbn-arxiv"))


def test_a_folder_that_takes_no_download_is_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.content = zipped(write_ogb(tmp_path / "there"), "arxiv")
    (tmp_path / "home" / "graphs" / ".ogbn-arxiv.lock").mkdir(parents=True)
    with pytest.raises(DatasetError, match="ogbn-arxiv cannot be made"):
        DATASETS.build("ogbn-arxiv")
    assert server.asked == 0


def test_a_large_download_wants_yes_and_asks_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.content = zipped(write_ogb(tmp_path / "there"), "arxiv")
    monkeypatch.setattr(download, "ASK_ABOVE", 100)
    with pytest.raises(UsageError, match=r"download of 0\.0 GB to .*ogbn-arxiv.*--yes"):
        DATASETS.build("ogbn-arxiv")
    assert left_in(tmp_path / "home") == []
    check_small_ogb(DATASETS.build("ogbn-arxiv:yes=true"))


def test_a_download_larger_than_the_disk_is_refused_with_numbers(
    server: Server, tmp_path: Path
) -> None:
    server.announce = 10**17
    with pytest.raises(DatasetError, match=r"needs 100000000\.0 GB and .* GB free"):
        DATASETS.build("ogbn-arxiv:yes=true")
    assert left_in(tmp_path / "home") == []


def test_a_download_cut_short_leaves_nothing(server: Server, tmp_path: Path) -> None:
    content = zipped(write_ogb(tmp_path / "there"), "arxiv")
    server.content, server.announce = content[:500], len(content)
    with pytest.raises(DatasetError, match=rf"ended after 500 of {len(content)} bytes"):
        DATASETS.build("ogbn-arxiv")
    assert left_in(tmp_path / "home") == []


def test_a_server_that_falls_silent_is_given_up(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.content, server.announce, server.stall = b"PK", 1000, threading.Event()
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with pytest.raises(DatasetError, match="timed out"):
        DATASETS.build("ogbn-arxiv")
    server.stall.set()
    assert left_in(tmp_path / "home") == []


def test_a_damaged_archive_is_named(server: Server, tmp_path: Path) -> None:
    content = bytearray(zipped(write_ogb(tmp_path / "there"), "arxiv"))
    content[60:90] = bytes(30)
    server.content = bytes(content)
    with pytest.raises(DatasetError, match=r"arxiv\.zip is truncated or damaged"):
        DATASETS.build("ogbn-arxiv")
    assert left_in(tmp_path / "home") == []


def test_without_a_network_the_error_tells_of_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUDDER_HOME", str(tmp_path / "home"))
    nobody = "http://127.0.0.1:9/x.zip"  # the discard port: nothing listens there
    for module in (ogbn, saint, snap):
        monkeypatch.setattr(module, "_urls", lambda name: [nobody])
    for name in PUBLISHED:
        with pytest.raises(DatasetError, match=rf"Without a network.*--from DIR.*{name}:from=DIR"):
            DATASETS.build(name)
