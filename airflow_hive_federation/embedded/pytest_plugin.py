"""Provides a real Hive metastore, and a real HDFS, as pytest fixtures.

``hive_metastore`` is one metastore for the whole session; ``hive_metastore_factory`` starts more. A new
metastore has only the database ``default``. ``hive_hdfs`` is one HDFS, for metastores with tables on HDFS.
The fixtures start at their first use, and end with the session, even if it is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
    from airflow_hive_federation.embedded.metastore import EmbeddedMetastore


@pytest.fixture(scope="session")
def hive_metastore_factory() -> Iterator[Callable[..., EmbeddedMetastore]]:
    """Return a function like ``EmbeddedMetastore.start``, whose metastores stop at the end of the session."""
    # Imported here, so that the plugin costs nothing in sessions that do not use it.
    from airflow_hive_federation.embedded.metastore import EmbeddedMetastore

    with ExitStack() as started:

        def start(name: str = "test", **options: object) -> EmbeddedMetastore:
            metastore: EmbeddedMetastore = EmbeddedMetastore.start(name, **options)  # type: ignore[arg-type]
            return started.enter_context(metastore)

        yield start


@pytest.fixture(scope="session")
def hive_metastore(hive_metastore_factory: Callable[..., EmbeddedMetastore]) -> EmbeddedMetastore:
    """Return a running metastore that the session's tests share."""
    return hive_metastore_factory("test")


@pytest.fixture(scope="session")
def hive_hdfs_settings() -> dict[str, str]:
    """Return settings of Hadoop for ``hive_hdfs``; redefine this fixture in your tests to change them."""
    return {}


@pytest.fixture(scope="session")
def hive_hdfs(hive_hdfs_settings: dict[str, str]) -> Iterator[EmbeddedHdfs]:
    """Return a running HDFS that the session's tests share."""
    from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs

    with EmbeddedHdfs.start(settings=hive_hdfs_settings) as hdfs:
        yield hdfs
