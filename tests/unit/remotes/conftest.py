"""Fixtures with a local metastore in memory, and a remote catalog in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from airflow_hive_federation.catalog.factories import Factory
from airflow_hive_federation.catalog.open import FACTORIES, Catalogs
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from tests.support.catalog_contract import DATABASE, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore


@pytest.fixture
def near() -> MemoryMetastore:
    """The local metastore."""
    return MemoryMetastore()


@pytest.fixture
def far() -> MemoryCatalog:
    """The remote: a database ``contract`` with the tables ``plain`` and ``parted``."""
    catalog = MemoryCatalog("far-away")
    catalog.put_database(types.Database(name=DATABASE))
    for table, partitions in tables("file:/far").values():
        catalog.put_table(table, partitions)
    return catalog


@pytest.fixture
def remotes(near: MemoryMetastore, far: MemoryCatalog) -> Iterator[Remotes]:
    """The session of a user, in which ``VIA 'far'`` leads to the remote, ``VIA 'further'`` to another one."""
    factories = (
        Factory(name="far", class_names=(), properties={"note": "any"}, open=lambda _: far),
        Factory(name="further", class_names=(), properties={}, open=lambda _: copy.deepcopy(far)),
    )
    with (
        near.served(user="ada") as settings,
        Remotes(settings, catalogs=Catalogs(factories=(*FACTORIES, *factories))) as opened,
    ):
        yield opened
