"""Doubles of Google's and Azure's stores, whose files the same tests read and write.

Google's is gcp-storage-emulator, in this process. Azure's is Azurite, a program of Node that takes a minute
to install, so that it is used only if HIVE_FEDERATION_TESTS_AZURITE has the URL of one that runs.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gcp_storage_emulator.server import create_server

from airflow_hive_federation.storage.filesystem import open_filesystem

AZURITE = "HIVE_FEDERATION_TESTS_AZURITE"
STORES = ["gs", *(["abfs"] if os.environ.get(AZURITE) else [])]
_ACCOUNT = "devstoreaccount1"
#: Azurite's documented key.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """A store that runs.

    :param scheme: ``gs`` or ``abfs``.
    :param options: those of its driver.
    """

    scheme: str
    options: dict[str, Any] = field(repr=False)

    def bucket(self) -> str:
        """Make an empty bucket, and return its URI."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        uri = f"{self.scheme}://{name}"
        open_filesystem(uri, self.options)[0].mkdir(name)
        return uri


@contextmanager
def object_store(scheme: str) -> Iterator[ObjectStore]:
    """Run a store of a scheme, or use the one that runs."""
    if scheme == "abfs":
        text = (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
            f"BlobEndpoint={os.environ[AZURITE]}/{_ACCOUNT};"
        )
        yield ObjectStore(scheme=scheme, options={"connection_string": text})
        return
    server = create_server("127.0.0.1", 0, in_memory=True)
    server.start()
    try:
        port = server._api._httpd.server_address[1]
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon", "project": "p"}
        yield ObjectStore(scheme=scheme, options=options)
    finally:
        server.stop()
