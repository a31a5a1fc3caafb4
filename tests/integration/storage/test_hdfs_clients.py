"""The contract of HDFS' clients, each in a process of its own, on one HDFS.

libhdfs is part of Hadoop's native libraries, and in no package: it is tested if HIVE_FEDERATION_TESTS_LIBHDFS
names the directory of ``libhdfs.so`` (``scripts/build_libhdfs.sh`` builds one).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.embedded.jars import hdfs_jars, metastore_jars
from airflow_hive_federation.runtime.java import find_java
from airflow_hive_federation.storage.libhdfs import DIRECTORY

pytestmark = pytest.mark.slow

LIBHDFS = os.environ.get("HIVE_FEDERATION_TESTS_LIBHDFS", "")
CLIENTS = ["hdfs-native", *(["libhdfs"] if LIBHDFS else [])]


@pytest.fixture(scope="module")
def hdfs() -> Iterator[EmbeddedHdfs]:
    # A DataNode reports a new block with delay, so that files are closed, and read, before that.
    with EmbeddedHdfs.start(settings={"dfs.blockreport.incremental.intervalMsec": "300"}) as started:
        yield started


def environment(client: str) -> dict[str, str]:
    if client != "libhdfs":
        return dict(os.environ)
    java = find_java()
    # Hadoop's shaded jars lack a class that libhdfs needs.
    extra = [jar for jar in metastore_jars(java) if jar.name.startswith("commons-lang3")]
    jars = ":".join(str(jar) for jar in [*hdfs_jars(java), *extra])
    return {**os.environ, DIRECTORY: LIBHDFS, "JAVA_HOME": str(java.home), "CLASSPATH": jars}


def administer(hdfs: EmbeddedHdfs, root: str, request: str) -> None:
    if request == "safe mode":
        hdfs.admin("-safemode", "enter")
        return
    hdfs.admin("-safemode", "leave")
    if request == "quota of names":
        hdfs.shell("-mkdir", f"{root}/quota")
        hdfs.admin("-setQuota", "1", f"{root}/quota")
    elif request == "quota of space":
        hdfs.admin("-clrQuota", f"{root}/quota")
        hdfs.admin("-setSpaceQuota", "1000", f"{root}/quota")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_keeps_the_contract(hdfs: EmbeddedHdfs, client: str, tmp_path: Path) -> None:
    root = f"/{client}-{uuid.uuid4().hex[:8]}"
    hdfs.shell("-mkdir", root)
    options = {
        "client": client,
        "dfs.namenode.http-address": hdfs.web_uri.rpartition("/")[2],
        # Java's client appends to no file of three replicas in an HDFS of two DataNodes.
        "dfs.replication": "2",
    }
    command = [
        sys.executable,
        "-m",
        "tests.support.hdfs_client_contract",
        f"{hdfs.uri}{root}",
        json.dumps(options),
    ]
    lines: list[str] = []
    with (
        (tmp_path / "stderr").open("w") as errors,
        subprocess.Popen(
            command,
            env=environment(client),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.strip())
                administer(hdfs, root, lines[-1])
                process.stdin.write("\n")
                process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended, see below.
        finally:
            hdfs.admin("-safemode", "leave")
    assert (process.returncode, lines[-1:]) == (0, ["kept"]), (tmp_path / "stderr").read_text()
