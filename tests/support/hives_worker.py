"""Hive's own compactor on an embedded metastore, whose SQL engine has run before."""

from __future__ import annotations

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from tests.support.groovy_scripts import groovy_output


def hives_worker(source: EmbeddedMetastore) -> None:
    """Serve the queue by Hive's own worker until it is empty."""
    conf = source.directory / "sql-conf"
    groovy_output("hives_worker.groovy", "240", scratch=source.directory, conf=[conf], timeout_s=300)
