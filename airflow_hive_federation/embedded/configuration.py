"""Hive's configuration of an embedded metastore, and of a SQL engine that uses it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from airflow_hive_federation.embedded.derby import USER

_LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"
# The defaults also name Iceberg's, whose classes hive-exec does not carry: their absence stops the thread
# that is to start the compactor's.
_TABLE_OPTIMIZERS = "org.apache.hadoop.hive.ql.txn.compactor.AcidTableOptimizer"
_REMOTE_TASKS = ",".join(
    f"org.apache.hadoop.hive.metastore.{name}"
    for name in (
        "txn.service.AcidHouseKeeperService",
        "txn.service.CompactionHouseKeeperService",
        "txn.service.AcidTxnCleanerService",
        "txn.service.AcidOpenTxnsCounterService",
        "MaterializationsRebuildLockCleanerTask",
        "PartitionManagementTask",
    )
)
_AUTHORIZER = "org.apache.hadoop.hive.ql.security.authorization.plugin.sqlstd.SQLStdConfOnlyAuthorizerFactory"
# Without them the metastore makes managed tables external and refuses ACID ones.
_CAPABILITIES = ",".join(
    (
        "EXTWRITE",
        "EXTREAD",
        "HIVEBUCKET2",
        "HIVEFULLACIDREAD",
        "HIVEFULLACIDWRITE",
        "HIVECACHEINVALIDATE",
        "HIVEMANAGESTATS",
        "HIVEMANAGEDINSERTWRITE",
        "HIVEMANAGEDINSERTREAD",
        "HIVESQL",
        "HIVEMQT",
        "HIVEONLYMQTWRITE",
    )
)
FILE_SYSTEM = {"fs.defaultFS": "file:///", "fs.file.impl": "ForklessFiles"}


def warehouse_settings(directory: Path) -> dict[str, str]:
    """Return where tables, replication dumps and temporary files go: all below ``directory``.

    Hive reads some of these under the metastore's name and some under its own, so both are given.
    """
    managed, external = f"file://{directory}/warehouse", f"file://{directory}/external"
    return {
        "metastore.warehouse.dir": managed,
        "hive.metastore.warehouse.dir": managed,
        "metastore.warehouse.external.dir": external,
        "hive.metastore.warehouse.external.dir": external,
        "hive.exec.scratchdir": f"file://{directory}/scratch",
        "hive.exec.local.scratchdir": f"{directory}/scratch/local",
        "hive.downloaded.resources.dir": f"{directory}/scratch/resources",
        "hive.repl.rootdir": f"file://{directory}/repl",
        "hive.repl.cmrootdir": f"file://{directory}/cmroot",
        "hadoop.tmp.dir": f"{directory}/scratch/hadoop",
    }


def settings_on_hdfs(base: str) -> dict[str, str]:
    """Return the settings of a metastore, and of its SQL engine, whose tables lie on HDFS.

    :param base: URI of a directory of an HDFS, which is made when first used.
    """
    managed, external = f"{base}/warehouse", f"{base}/external"
    return {
        "fs.defaultFS": "/".join(base.split("/", 3)[:3]),
        "dfs.replication": "1",
        "metastore.warehouse.dir": managed,
        "hive.metastore.warehouse.dir": managed,
        "metastore.warehouse.external.dir": external,
        "hive.metastore.warehouse.external.dir": external,
        "hive.exec.scratchdir": f"{base}/scratch",
        "hive.repl.rootdir": f"{base}/repl",
        "hive.repl.cmrootdir": f"{base}/cmroot",
        "tez.staging-dir": f"{base}/scratch/tez",
    }


def hdfs_settings(directory: Path) -> dict[str, str]:
    """Return the settings of a NameNode and a DataNode whose files lie below ``directory``."""
    return {
        "dfs.replication": "1",
        "dfs.permissions.enabled": "true",
        "dfs.namenode.acls.enabled": "true",
        "dfs.namenode.http-address": "127.0.0.1:0",
        # Minutes; without it, nothing goes to the trash.
        "fs.trash.interval": "60",
        "hadoop.tmp.dir": f"{directory}/temporary",
        # Else a warning says that a secret of the web server's is not in the user's home.
        "hadoop.http.authentication.signature.secret.file": f"{directory}/conf/http-secret",
    }


def transaction_settings() -> dict[str, str]:
    """Return what both sides need for ACID tables and for events."""
    return {
        "hive.support.concurrency": "true",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.metastore.dml.events": "true",
        "metastore.transactional.event.listeners": _LISTENER,
        "hive.metastore.transactional.event.listeners": _LISTENER,
        "hive.metastore.event.db.notification.api.auth": "false",
        # By Hive's defaults, its cleaner removes what a reader still needs, and may take committed deltas for
        # aborted ones; what many transactions that aborted have left, it removes at once, without regard to
        # readers (see docs/compaction.md).
        **minimum_history(False),
        "metastore.compactor.clean.aborts.using.cleaner": "false",
        "hive.compactor.clean.aborts.using.cleaner": "false",
    }


def minimum_history(kept: bool) -> dict[str, str]:
    """Return what has the cleaner go by a minimum history of write ids (Hive's default) or by transactions.

    It is for the metastore and the SQL engine (``TxnHandler``, ``ReadyToCleanHandler``).
    """
    return dict.fromkeys(
        ("metastore.txn.use.minhistorywriteid", "hive.txn.use.minhistorywriteid"), str(kept).lower()
    )


def metastore_settings(
    directory: Path, overrides: Mapping[str, str] | None = None, *, password: str | None = None
) -> dict[str, str]:
    """Return the settings of a metastore in ``directory``; ``overrides`` win.

    :param password: of its database; ``None`` for one that asks for none.
    """
    return {
        **FILE_SYSTEM,
        # Without a batch size, Derby's time grows with the square of the number of partitions asked for.
        "metastore.direct.sql.batch.size": "1000",
        "hive.metastore.direct.sql.batch.size": "1000",
        # Column statistics are replicated whole.
        "hive.stats.fetch.bitvector": "true",
        **warehouse_settings(directory),
        **transaction_settings(),
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore_db",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        **_login(password),
        "metastore.thrift.bind.host": "127.0.0.1",
        "metastore.server.min.threads": "4",
        "hive.metastore.schema.verification": "true",
        "datanucleus.schema.autoCreateAll": "false",
        "metastore.compactor.initiator.on": "true",
        "metastore.compactor.cleaner.on": "true",
        "metastore.compactor.worker.threads": "0",
        "hive.compactor.check.interval": "2s",
        "hive.compactor.cleaner.run.interval": "1000ms",
        "hive.compactor.table.optimizers": _TABLE_OPTIMIZERS,
        "compactor.table.optimizers": _TABLE_OPTIMIZERS,
        "metastore.compactor.table.optimizers": _TABLE_OPTIMIZERS,
        "metastore.housekeeping.threads.on": "true",
        # Beside the house keeper, Derby may give up a commit of an update. SqlRetryHandler does not take that
        # for a deadlock, and a transaction would stay open that nobody ends.
        "metastore.txn.retryable.sqlex.regex": "(?s).*due to a deadlock.*",
        "metastore.task.threads.remote": _REMOTE_TASKS,
        # The other way of election is a Hive lock, which a killed metastore would hold against its successor.
        "metastore.housekeeping.leader.election": "host",
        **(overrides or {}),
    }


def sql_settings(
    directory: Path,
    metastore_uri: str,
    jdbc_url: str,
    overrides: Mapping[str, str] | None = None,
    *,
    password: str | None = None,
) -> dict[str, str]:
    """Return the settings of a SQL engine that runs Tez in its own JVM; ``overrides`` win.

    :param jdbc_url: the metastore's database, where ``ALTER TABLE … COMPACT`` enqueues.
    :param password: of that database; ``None`` if it asks for none.
    """
    return {
        **FILE_SYSTEM,
        **warehouse_settings(directory),
        **transaction_settings(),
        "hive.metastore.uris": metastore_uri,
        "metastore.thrift.uris": metastore_uri,
        "javax.jdo.option.ConnectionURL": jdbc_url,
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.ClientDriver",
        **_login(password),
        "hive.metastore.client.capabilities": _CAPABILITIES,
        "metastore.client.capabilities": _CAPABILITIES,
        "hive.exec.dynamic.partition.mode": "nonstrict",
        "hive.security.authorization.manager": _AUTHORIZER,
        "hive.execution.engine": "tez",
        "hive.tez.container.size": "512",
        "tez.local.mode": "true",
        "tez.local.mode.without.network": "true",
        "tez.ignore.lib.uris": "true",
        "tez.staging-dir": f"{directory}/scratch/tez",
        "tez.runtime.io.sort.mb": "32",
        "tez.runtime.optimize.local.fetch": "true",
        "mapreduce.framework.name": "local",
        "hive.query.history.enabled": "false",
        "hive.server2.materializedviews.registry.impl": "DUMMY",
        # One statement at a time on little data: what is for sharing and for size only costs time.
        "hive.query.results.cache.enabled": "false",
        "hive.tez.auto.reducer.parallelism": "false",
        **(overrides or {}),
    }


def _login(password: str | None) -> dict[str, str]:
    known = {} if password is None else {"javax.jdo.option.ConnectionPassword": password}
    return {"javax.jdo.option.ConnectionUserName": USER, **known}


def site_xml(settings: Mapping[str, str]) -> str:
    """Return a Hadoop configuration file."""
    properties = (
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in sorted(settings.items())
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{"".join(properties)}</configuration>\n'
