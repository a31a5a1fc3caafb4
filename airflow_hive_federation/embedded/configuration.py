"""Builds Hive's configuration for an embedded metastore, its SQL engine and an HDFS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from airflow_hive_federation.embedded.derby import USER as DERBYS_USER
from airflow_hive_federation.runtime.java import spark_java_home

_LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"
# Hive's default also lists Iceberg's optimizer, whose classes are not in hive-exec: without them, the thread
# that should start the compactor's threads ends.
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
# Without these capabilities the metastore turns managed tables into external ones and refuses ACID tables.
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
#: The user of our PostgreSQL and MariaDB servers.
SERVERS_USER = "hive"
#: Driver and user of a database, by the beginning of its URL.
_LOGINS = {
    "jdbc:derby://": ("org.apache.derby.jdbc.ClientDriver", DERBYS_USER),
    "jdbc:derby:": ("org.apache.derby.jdbc.EmbeddedDriver", DERBYS_USER),
    "jdbc:postgresql:": ("org.postgresql.Driver", SERVERS_USER),
    "jdbc:mariadb:": ("org.mariadb.jdbc.Driver", SERVERS_USER),
}
FILE_SYSTEM = {"fs.defaultFS": "file:///", "fs.file.impl": "ForklessFiles"}


def warehouse_settings(directory: Path) -> dict[str, str]:
    """Return the settings for the directories of tables, replication dumps and temporary files.

    All of them are below ``directory``. Hive reads some of these settings by the metastore's name and some by
    its own name, so that both are set.
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
    """Return the settings of a metastore, and of its SQL engine, with tables on HDFS.

    :param base: URI of a directory in HDFS, which Hive creates at its first use.
    """
    managed, external = f"{base}/warehouse", f"{base}/external"
    return {
        "fs.defaultFS": "/".join(base.split("/", 3)[:3]),
        "dfs.replication": "2",
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
    """Return the settings of a NameNode and its DataNodes with their files below ``directory``."""
    return {
        "dfs.replication": "2",
        "dfs.permissions.enabled": "true",
        "dfs.namenode.acls.enabled": "true",
        "dfs.namenode.http-address": "127.0.0.1:0",
        # Without it, a snapshot shows more of a file the more is written after it.
        "dfs.namenode.snapshot.capture.openfiles": "true",
        # A file can be closed before a DataNode has reported its last block, if the block has two replicas.
        # Otherwise clients ask again after 400 ms (Java) or 500 ms (hdfs-native), nearly always here.
        "dfs.namenode.file.close.num-committed-allowed": "1",
        # In minutes; without this setting, HDFS deletes files instead of moving them to the trash.
        "fs.trash.interval": "60",
        "hadoop.tmp.dir": f"{directory}/temporary",
        # Otherwise Hadoop warns that the user's home has no secret file for the web server.
        "hadoop.http.authentication.signature.secret.file": f"{directory}/conf/http-secret",
    }


def yarn_settings() -> dict[str, str]:
    """Return the settings of a ResourceManager and a NodeManager.

    :raises JavaNotFoundError: no Java that Spark runs on was found.
    """
    return {
        "yarn.nodemanager.resource.memory-mb": "4096",
        "yarn.scheduler.minimum-allocation-mb": "128",
        # Containers start, and are reported as ended, at heartbeats.
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "250",
        # Java reserves far more virtual memory than it uses.
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
        # The variable names the Java of the containers.
        "yarn.nodemanager.admin-env": f"JAVA_HOME={spark_java_home()}",
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    }


def yarn_client_settings(addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of YARN's clients, and of the application masters to which they hand them.

    :param addresses: the settings with the addresses of the ResourceManager.
    """
    return {
        **addresses,
        # An application ends soon after its ResourceManager, which may have been killed.
        "yarn.resourcemanager.connect.max-wait.ms": "20000",
        "yarn.resourcemanager.connect.retry-interval.ms": "1000",
    }


def shared_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of servers that their clients need, too: all but the servers' keytabs."""
    return {name: value for name, value in settings.items() if "keytab" not in name}


def transaction_settings() -> dict[str, str]:
    """Return the settings for ACID tables and events, which metastore and SQL engine both need."""
    return {
        "hive.support.concurrency": "true",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.metastore.dml.events": "true",
        "metastore.transactional.event.listeners": _LISTENER,
        "hive.metastore.transactional.event.listeners": _LISTENER,
        "hive.metastore.event.db.notification.api.auth": "false",
        # With Hive's defaults, the cleaner removes files that a reader still needs, and may take committed
        # deltas for aborted ones; it removes the files of many aborted transactions at once, without regard
        # to readers (see docs/compaction.md).
        **minimum_history(False),
        "metastore.compactor.clean.aborts.using.cleaner": "false",
        "hive.compactor.clean.aborts.using.cleaner": "false",
    }


def minimum_history(kept: bool) -> dict[str, str]:
    """Return the settings by which the cleaner uses a minimum history of write ids, or open transactions.

    Both the metastore and the SQL engine need them (``TxnHandler``, ``ReadyToCleanHandler``).

    :param kept: use the minimum history, which is Hive's default.
    """
    return dict.fromkeys(
        ("metastore.txn.use.minhistorywriteid", "hive.txn.use.minhistorywriteid"), str(kept).lower()
    )


def metastore_settings(
    directory: Path,
    overrides: Mapping[str, str] | None = None,
    *,
    jdbc_url: str | None = None,
    password: str | None = None,
) -> dict[str, str]:
    """Return the settings of a metastore in ``directory``; ``overrides`` take precedence.

    :param jdbc_url: its database; by default one of Derby, inside of the metastore's process.
    :param password: password of its database; ``None`` for a database without one.
    """
    url = jdbc_url or f"jdbc:derby:;databaseName={directory}/metastore_db"
    return {
        **FILE_SYSTEM,
        # Without a batch size, Derby's time grows with the square of the number of partitions in a call.
        "metastore.direct.sql.batch.size": "1000",
        "hive.metastore.direct.sql.batch.size": "1000",
        # Replication copies column statistics together with their bit vectors.
        "hive.stats.fetch.bitvector": "true",
        **warehouse_settings(directory),
        **transaction_settings(),
        **_database(url, password),
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
        # Because of the house keeper, Derby may roll back the commit of an update by a deadlock.
        # SqlRetryHandler does not recognize it as one, and the transaction would stay open for ever.
        "metastore.txn.retryable.sqlex.regex": "(?s).*due to a deadlock.*",
        "metastore.task.threads.remote": _REMOTE_TASKS,
        # The other method of election is a Hive lock, which a killed metastore would keep from its successor.
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
    """Return the settings of a SQL engine that runs Tez in its own JVM; ``overrides`` take precedence.

    :param jdbc_url: the metastore's database, in which ``ALTER TABLE … COMPACT`` enqueues compactions.
    :param password: password of that database; ``None`` for a database without one.
    """
    return {
        **FILE_SYSTEM,
        **warehouse_settings(directory),
        **transaction_settings(),
        "hive.metastore.uris": metastore_uri,
        "metastore.thrift.uris": metastore_uri,
        **_database(jdbc_url, password),
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
        # The engine runs one statement at a time on little data, so that sharing and scaling only take time.
        "hive.query.results.cache.enabled": "false",
        "hive.tez.auto.reducer.parallelism": "false",
        **(overrides or {}),
    }


def _database(url: str, password: str | None) -> dict[str, str]:
    driver, user = next(login for prefix, login in _LOGINS.items() if url.startswith(prefix))
    known = {} if password is None else {"javax.jdo.option.ConnectionPassword": password}
    return {
        "javax.jdo.option.ConnectionURL": url,
        "javax.jdo.option.ConnectionDriverName": driver,
        "javax.jdo.option.ConnectionUserName": user,
        **known,
    }


def core_site_xml(settings: Mapping[str, str]) -> str:
    """Return the text of ``core-site.xml``: those of the settings that concern all of Hadoop.

    Hadoop reads its authentication from no other file (``UserGroupInformation``).
    """
    return site_xml({name: value for name, value in settings.items() if name.startswith("hadoop.")})


def site_xml(settings: Mapping[str, str]) -> str:
    """Return the text of a Hadoop configuration file."""
    properties = (
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in sorted(settings.items())
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{"".join(properties)}</configuration>\n'
