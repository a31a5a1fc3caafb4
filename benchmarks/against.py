"""Compares writes and reads of ACID tables with those of another checkout, such as an earlier commit.

``python benchmarks/against.py CHECKOUT [--minutes 5]`` runs both in turn, each in a process of its own with
the interpreter of its checkout (``.venv/bin/python``), and prints the ratio of their processor time: that of
the process, its JVMs and its Python workers, which a busy machine changes less than the time on the clock.
``HIVE_FEDERATION_ROWS`` is the number of rows, 400,000 by default.
"""

# The parts are those of the other benchmarks, in whichever checkout.
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import importlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

_ROWS = int(os.environ.get("HIVE_FEDERATION_ROWS", "400000"))
_DELTAS, _READS_A_RUN = 10, 5
#: Modules that have ``read_table``, today's first.
_READERS = ("airflow_hive_federation.tables.read.reader", "airflow_hive_federation.acid.reader")


def serve() -> None:
    """Run the parts whose names arrive on standard input, in the checkout of the working directory."""
    sys.path.insert(0, str(Path.cwd()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    acid_write = importlib.import_module("benchmarks.acid_write")
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-") as directory,
        acid_write.metastores(Path(directory), "writing") as (metastore,),
        acid_write.spark_session() as (spark, _),
        acid_write.MetastoreClient(acid_write.MetastoreSettings(uris=(metastore.uri,))) as client,
    ):
        setting = acid_write.Setting(scale="small", runs=1, directory=Path(directory), say=print)
        parts = _parts(acid_write, setting, spark, client, metastore)
        print(*parts, file=answers, flush=True)
        for line in sys.stdin:
            before_s = _processor_s()
            parts[line.strip()]()
            print(_processor_s() - before_s, file=answers, flush=True)


def _parts(
    acid_write: Any, setting: Any, spark: Any, client: Any, metastore: Any
) -> Mapping[str, Callable[[], object]]:
    compaction = importlib.import_module("benchmarks.compaction")
    for name in (acid_write._DATABASE, compaction.DATABASE):
        client.create_database(acid_write.types.Database(name=name, ownerName="root"))
    arena = acid_write._Arena(setting, spark, client, metastore)
    rows = arena._made(_ROWS, "rows")
    parts: dict[str, Callable[[], object]] = {
        "append,zlib": lambda: arena._by_us(rows, "zlib"),
        "append,zstd": lambda: arena._by_us(rows, "zstd"),
        "append,int-buckets": lambda: arena._by_us(rows, "zlib", ["number1"]),
        "append,string-buckets": lambda: arena._by_us(rows, "zlib", ["name"]),
    }
    for part in ("acid-read", "acid-read-deletes"):
        table = compaction.make_table(
            client,
            metastore.warehouse,
            part.replace("-", "_"),
            _DELTAS,
            _ROWS // _DELTAS,
            deleted=part.endswith("deletes"),
        )
        parts[part] = partial(_read, spark, client, table)
    return parts


def _read(spark: Any, client: Any, table: str) -> None:
    read_table = _reader()
    for _ in range(_READS_A_RUN):
        rows = read_table(spark, client, table, columns=["id", "name"])
        rows.write.format("noop").mode("overwrite").save()


def _reader() -> Any:
    try:
        return importlib.import_module(_READERS[0]).read_table
    except ModuleNotFoundError:
        return importlib.import_module(_READERS[1]).read_table


def _processor_s() -> float:
    import psutil

    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def compare(other: Path, minutes: float) -> None:
    """Run the parts of both checkouts in turn, and print the ratio of each part."""
    here = Path(__file__).resolve().parents[1]
    servers = {name: _start(checkout) for name, checkout in (("other", other), ("this", here))}
    parts = {name: server.stdout.readline().split() for name, server in servers.items()}["this"]
    times: dict[tuple[str, str], list[float]] = {}
    end = time.monotonic() + minutes * 60
    number = -1  # The first round warms up.
    while number < 1 or time.monotonic() < end:
        for part in random.Random(number).sample(parts, len(parts)):
            for name in random.Random(f"{number} {part}").sample(sorted(servers), 2):
                took_s = _run(servers[name], part)
                if number >= 0:
                    times.setdefault((part, name), []).append(took_s)
        number += 1
    for part in parts:
        this, former = (median(times[part, name]) for name in ("this", "other"))
        print(f"{part:22} {former:6.2f} s, here {this:6.2f} s: {this / former:.3f} ({number} runs)")
    for server in servers.values():
        server.stdin.close()
        server.wait(120)


def _start(checkout: Path) -> Any:
    command = [str(checkout / ".venv/bin/python"), str(Path(__file__).resolve()), "--serve"]
    return subprocess.Popen(
        command,
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _run(server: Any, part: str) -> float:
    server.stdin.write(f"{part}\n")
    server.stdin.flush()
    return float(server.stdout.readline())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
    else:
        compare(args.checkout.resolve(), args.minutes)
