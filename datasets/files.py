"""Reading files that others wrote: nothing is unpickled, and every error names the file."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from rudder.errors import DatasetError, MissingPathError

Array = npt.NDArray[Any]
NUMPY_MAGIC, ZIP_MAGIC, GZIP_MAGIC = b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b"


def user_path(given: str | Path, parameter: str, *, folder: bool = False) -> Path:
    """The absolute path that a user wrote for ``parameter``.

    Raises:
        MissingPathError: there is no such file (or folder).
    """
    path = Path(str(given)).expanduser().resolve()
    kind = "folder" if folder else "file"
    if not path.exists():
        raise MissingPathError(f"{parameter}={given}: no such {kind}: {path}")
    if path.is_dir() != folder:
        raise MissingPathError(f"{parameter}={given}: {path} is no {kind}")
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while ``path`` is read into a DatasetError that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DatasetError(f"no such file: {path}") from error
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise DatasetError(
            f"{path} is truncated or damaged ({error}); get or write it again"
        ) from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error


def read_npy(path: Path) -> Array:
    """One plain array, memory untouched by pickle.

    Raises:
        DatasetError: missing, truncated, no NumPy file, or pickled objects.
    """
    with reading(path), _numpy(path):
        found = np.load(path, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        found.close()
        raise DatasetError(f"{path} is an .npz archive where one .npy array is wanted")
    return found


def read_npz(path: Path, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
             ) -> dict[str, Array]:  # fmt: skip
    """Named arrays of an archive; with neither ``required`` nor ``optional`` all of them.

    Raises:
        DatasetError: missing file or array, truncated, no .npz, or pickled objects.
    """
    with reading(path), _numpy(path):
        archive = np.load(path, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise DatasetError(f"{path} is one .npy array where an .npz archive is wanted")
    with archive:
        missing = [name for name in required if name not in archive.files]
        if missing:
            raise DatasetError(
                f"{path} lacks {', '.join(missing)}; it holds {', '.join(archive.files)}"
            )
        wanted = [*required, *optional] if required or optional else archive.files
        found: dict[str, Array] = {}
        with reading(path), _numpy(path):
            found.update((name, archive[name]) for name in wanted if name in archive.files)
    strange = [name for name, array in found.items() if not isinstance(array, np.ndarray)]
    if strange:  # NumPy hands out any other file in the archive as bytes
        raise DatasetError(f"{path}: {strange[0]} is no array; save arrays with numpy.savez")
    return found


def read_sparse(path: Path) -> Any:
    """A scipy sparse matrix in COO form, from what ``scipy.sparse.save_npz`` wrote.

    Raises:
        DatasetError: missing, truncated, pickled, no such matrix, or indices out of its shape.
    """
    from scipy.sparse import coo_matrix, csc_matrix, csr_matrix

    parts = read_npz(path, required=("format", "shape", "data"),
                     optional=("row", "col", "indices", "indptr"))  # fmt: skip
    form = parts["format"].item()
    form = form.decode() if isinstance(form, bytes) else str(form)
    try:
        shape = tuple(int(side) for side in parts["shape"])
        if form == "coo":
            return coo_matrix((parts["data"], (parts["row"], parts["col"])), shape=shape)
        makers = {"csr": csr_matrix, "csc": csc_matrix}
        if form not in makers:
            raise DatasetError(f"{path} is a sparse matrix in {form} form; save it as csr or coo")
        matrix = makers[form]((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
        matrix.check_format(full_check=True)
        return matrix.tocoo()
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise DatasetError(f"{path} is no sound sparse matrix: {error}") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object.

    Raises:
        DatasetError: missing, truncated, or no JSON object.
    """
    with reading(path):
        text = path.read_bytes()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DatasetError(f"{path} is truncated or no JSON: {error}") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{path} must hold a JSON object, found {type(found).__name__}")
    return found


def open_bytes(path: Path) -> IO[bytes]:
    """A file for reading, decompressed if its first bytes say gzip, whatever its name."""
    with path.open("rb") as raw:
        magic = raw.read(2)
    if magic == GZIP_MAGIC:
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def open_text(path: Path) -> IO[str]:
    """The same as text; a byte order mark is dropped and CRLF read as LF."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="replace")


@contextmanager
def _numpy(path: Path) -> Iterator[None]:
    """Say what NumPy's ValueError means: pickled, foreign, or cut short."""
    with path.open("rb") as file:
        magic = file.read(6)
    if magic and not magic.startswith((NUMPY_MAGIC, ZIP_MAGIC)):
        raise DatasetError(
            f"{path} is no NumPy file (it starts with {magic!r}); pickles are never loaded: save "
            "plain arrays with numpy.save or numpy.savez"
        )
    try:
        yield
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise DatasetError(
                f"{path} holds pickled Python objects, which are refused because loading them "
                "runs code; save plain arrays with numpy.save or numpy.savez"
            ) from error
        raise DatasetError(f"{path} is truncated or damaged ({error}); get it again") from error
    except (SyntaxError, tokenize.TokenError) as error:  # NumPy parses headers as Python literals
        raise DatasetError(f"{path} has a damaged header ({error}); get it again") from error
    except MemoryError as error:  # a damaged header, or really that large
        raise DatasetError(
            f"{path} declares an array that does not fit in memory ({error}); if it is not that "
            "large, it is damaged: get it again"
        ) from error
    except (RuntimeError, lzma.LZMAError) as error:  # encrypted, or compressed in another way
        raise DatasetError(
            f"{path} cannot be unpacked ({error}); write it again with numpy.savez"
        ) from error
