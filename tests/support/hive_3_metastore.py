"""A Hive 3.1 metastore with its notification listener and its compactor's threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded import jars
from airflow_hive_federation.embedded.lock import METASTORE, locked
from airflow_hive_federation.runtime.java import find_java
from tests.support.older_sql import HIVE_3, NOT_OF_SPARK
from tests.support.plain_metastore import fetched, older_settings, plain_metastore, sparks_jars

#: Beside hive-exec, which holds the metastore and the compactor, too.
_LISTENER = """
test org.apache.hive.hcatalog:hive-hcatalog-server-extensions:3.1.3@jar \
d4ea218078966887846a0b05bee6e6a15b41d35eb94ee53bc6b98e0aa3ce3b9c 78301
"""
#: Of the embedded metastore's own jars.
_SHARES = frozenset({"commons-collections", "jackson-core-asl", "jackson-mapper-asl"})
_LISTENER_CLASS = "org.apache.hive.hcatalog.listener.DbNotificationListener"


@contextmanager
def hive_3_metastore(home: Path) -> Iterator[str]:
    """Run the metastore, and yield its URI; MapReduce of its worker is local."""
    shared = jars.fetch(find_java(), [jar for jar in locked(METASTORE) if jar.name in _SHARES])
    sparks = [
        path for path in sorted(sparks_jars().parent.glob("*.jar")) if not path.name.startswith(NOT_OF_SPARK)
    ]
    class_path = [*fetched(HIVE_3 + _LISTENER), *shared, *sparks]
    with plain_metastore(home, class_path, _settings(home)) as uri:
        yield uri


def _settings(home: Path) -> dict[str, str]:
    return {
        **older_settings(home),
        # It then makes the tables of its transactions itself (TxnHandler.checkQFileTestHack).
        "hive.in.test": "true",
        # In a test it would ask for a test client.
        "metastore.client.capability.check": "false",
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.task.threads.remote": ",".join(
            f"org.apache.hadoop.hive.metastore.txn.{task}"
            for task in ("AcidHouseKeeperService", "AcidOpenTxnsCounterService")
        ),
        "metastore.transactional.event.listeners": _LISTENER_CLASS,
        "hive.metastore.transactional.event.listeners": _LISTENER_CLASS,
        "hive.metastore.event.db.notification.api.auth": "false",
        "hive.metastore.dml.events": "true",
        "hive.support.concurrency": "true",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.compactor.initiator.on": "true",
        "hive.compactor.worker.threads": "1",
        "hive.compactor.cleaner.run.interval": "500ms",
        "mapreduce.framework.name": "local",
        # The worker asks so often whether a compaction's job has ended; by default, every five seconds.
        "mapreduce.client.completion.pollinterval": "100",
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": f"{home}/hadoop",
    }
