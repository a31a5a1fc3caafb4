"""Packs this package into a zip file for Spark's Python processes (``--py-files``).

Executors have Python, but not this package. The zip holds the subpackages that jobs use, and fsspec, which is
plain Python, too. If a job needs packages with compiled parts (pyarrow, s3fs's dependencies), they must be
installed on the executors; copying between local or mounted file systems needs none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from airflow_hive_federation.runtime.cache import cache_directory, write_atomically

#: Subpackages that jobs may import.
_PARTS = (
    "acid",
    "compaction",
    "metastore",
    "model",
    "orc",
    "progress",
    "replication/format",
    "runtime",
    "spark",
    "storage",
    "tables",
    "transactions",
)

#: Date of all zip entries, so that equal contents make equal zip files.
_DATE = (1980, 1, 1, 0, 0, 0)


def package_zip() -> Path:
    """Return the path of the zip; build it if the cache has no zip with this content.

    :raises OSError: the cache cannot be written.
    """
    entries = list(_entries())
    digest = hashlib.sha256()
    for name, path in entries:
        status = path.stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    stamp = cache_directory() / "py-files" / f"{digest.hexdigest()[:16]}.stamp"
    if stamp.is_file():
        built = stamp.parent / stamp.read_text(encoding="utf-8")
        if built.is_file():
            return built
    content = zip_bytes(entries)
    # The name begins with the package's name, since logs of executors show it.
    built = stamp.parent / f"airflow_hive_federation-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not built.is_file():
        write_atomically(built, content)
    write_atomically(stamp, built.name.encode())
    return built


def main_file() -> Path:
    """Return the path of the file that spark-submit runs."""
    return Path(__file__).with_name("main.py")


def zip_bytes(entries: Iterable[tuple[str, Path]]) -> bytes:
    """Zip files; the same names and contents give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, path in sorted(entries):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, path.read_bytes())
    return buffer.getvalue()


def _entries() -> Iterator[tuple[str, Path]]:
    package = Path(__file__).parent.parent
    # Python runs the zip, too: as the program of a driver that a standalone cluster starts.
    yield "__main__.py", package / "spark" / "driver_main.py"
    for path in sorted(package.glob("*.py")):
        yield f"{package.name}/{path.name}", path
    for part in _PARTS:
        for parent in list(Path(part).parents)[:-1]:
            path = package / parent / "__init__.py"
            yield path.relative_to(package.parent).as_posix(), path
        yield from _sources(package / part, package.parent)
    yield from _fsspec()


def _fsspec() -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec("fsspec")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        root = Path(folder)
        yield from ((name, path) for name, path in _sources(root, root.parent) if "/tests/" not in name)


def _sources(folder: Path, base: Path) -> Iterator[tuple[str, Path]]:
    for directory, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            if not name.endswith(".pyc"):
                path = Path(directory, name)
                yield path.relative_to(base).as_posix(), path
