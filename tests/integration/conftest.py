"""Fixtures of the tests between servers."""

from __future__ import annotations

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from tests.integration.small_source import DATABASE, make_small_source


@pytest.fixture(scope="session")
def small_source(source: EmbeddedMetastore) -> EmbeddedMetastore:
    """The source metastore with the database of :mod:`tests.integration.small_source` in it."""
    make_small_source(source, DATABASE)
    return source
