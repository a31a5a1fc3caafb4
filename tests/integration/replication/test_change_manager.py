"""A source's change manager keeps removed files: the files of an event can be copied afterwards.

The source writes its events as texts, the other one of Hive's formats: ``test_event_types`` has the default.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.model.event_messages import JSON_FORMAT
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.load.load import load_into_target
from tests.support.incrementing import cycles, run_copy

pytestmark = pytest.mark.slow


def test_what_was_removed_after_the_dump_is_fetched_from_the_change_manager(
    target: EmbeddedMetastore,
    hive_sql_target: HiveSql,
    own_metastores: Callable[..., EmbeddedMetastore],
    tmp_path: Path,
) -> None:
    root = tmp_path / "cmroot"
    settings = {
        **dict.fromkeys(("metastore.repl.cm.enabled", "hive.repl.cm.enabled"), "true"),
        **dict.fromkeys(("metastore.repl.cmrootdir", "hive.repl.cmrootdir"), f"file://{root}"),
        "fs.file.checksums": "true",
        **dict.fromkeys(
            ("metastore.event.message.factory", "hive.metastore.event.message.factory"),
            "org.apache.hadoop.hive.metastore.messaging.json.JSONMessageEncoder",
        ),
    }
    source = own_metastores("keeping", settings=settings)
    with (
        HiveSql(source, settings=settings) as sql,
        cycles(source, target, (sql, hive_sql_target), tmp_path, source_database="keeping") as site,
    ):
        site.write(
            "CREATE DATABASE keeping WITH DBPROPERTIES ('repl.source.for' = 'keeping')",
            "CREATE TABLE keeping.t (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true')",
            "CREATE TABLE keeping.p (id int) PARTITIONED BY (d string) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true')",
            "INSERT INTO keeping.t VALUES (1)",
            "CREATE TABLE keeping.early (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true')",
            "INSERT INTO keeping.early VALUES (7)",
        )
        with site.source.client() as client:
            first = dump_bootstrap(site.source, site.policy, begin_drain(client, "keeping"))
        site.write("DROP TABLE keeping.early")
        load_into_target(site.source, site.target, site.policy, first.dump, run_copy=run_copy)
        assert hive_sql_target.execute("SELECT id FROM keeping_copy.early") == [("7",)]
        kept = len(list(root.iterdir()))
        site.write(
            "INSERT INTO keeping.t VALUES (2)",
            "INSERT INTO keeping.p PARTITION (d) VALUES (3, 'x'), (4, 'y')",
        )
        dumped = site.dump()
        assert not dumped.lost
        assert len(list(root.iterdir())) == kept
        site.write("DROP TABLE keeping.t", "ALTER TABLE keeping.p DROP PARTITION (d = 'x')")
        assert len(list(root.iterdir())) >= kept + 3
        site.load(dumped.dump)
        assert hive_sql_target.execute("SELECT id FROM keeping_copy.t ORDER BY id") == [("1",), ("2",)]
        assert hive_sql_target.execute("SELECT id FROM keeping_copy.p ORDER BY id") == [("3",), ("4",)]
        assert not site.cycle().lost
        assert site.tables() == (["p"], ["p"])
        site.assert_equal("SELECT ROW__ID, * FROM {db}.p")
        with site.source.client() as client:
            events: list[Any] = list(client.iter_notification_events(0))
        assert {event.messageFormat for event in events} == {JSON_FORMAT}
        with site.target.client() as client:
            client.drop_database("keeping_copy", delete_data=True, cascade=True)
