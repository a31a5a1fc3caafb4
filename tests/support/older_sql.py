"""SQL engines of Hive 2.3 and Hive 3.1: their own ``hive-exec``, MapReduce within one JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded import jars
from airflow_hive_federation.embedded.configuration import site_xml
from airflow_hive_federation.embedded.jvm import java_command
from airflow_hive_federation.embedded.lock import METASTORE, locked
from airflow_hive_federation.runtime.java import find_java
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.line_servers import LineServer, line_server
from tests.support.plain_metastore import fetched, sparks_jars

HIVE_2 = """
test org.apache.hive:hive-exec:2.3.10@jar \
dfee92fe36317d303286ed5df1ce1fb8cdf32ffc55f1df4fc7eb88713baab223 46315906
test net.hydromatic:eigenbase-properties:1.1.5@jar \
9394a752411d9729a083cf578ed9666ec9a7f59c18c9ca889127480a44c7285c 18482
"""
HIVE_3 = """
test org.apache.hive:hive-exec:3.1.3@jar \
de86f70a73d05070c01f902ed1293b5dfbc4c0fb4d2232d9e218dc7d13ff8d6a 41873154
test org.apache.calcite:calcite-core:1.16.0@jar \
64dc364ac496620d8857634dc994638a037d14b203b1fc240e96a3dfad05bdc0 4764281
test org.apache.calcite:calcite-druid:1.16.0@jar \
67dd464f984555843095e12661b712eea2ce349d74b74c9c0d3adfc42f183058 170621
test org.apache.calcite:calcite-linq4j:1.16.0@jar \
2dded020b2727933138026624f1ea91843f5db5904be51321f4c3db5201bfa21 493616
test org.apache.calcite.avatica:avatica:1.11.0@jar \
d6658e75250ea18df62d4665058342b2315085dbdd106b90594a36df067d7ac5 6013840
test net.hydromatic:eigenbase-properties:1.1.5@jar \
9394a752411d9729a083cf578ed9666ec9a7f59c18c9ca889127480a44c7285c 18482
"""
#: Of the embedded metastore's own jars.
_SHARED = frozenset({"commons-collections", "jackson-core-asl", "jackson-mapper-asl", "groovy-all"})
#: Of pyspark's, which have Hadoop, what is Hive's and would be another version of what hive-exec holds.
NOT_OF_SPARK = ("hive-", "spark", "orc-", "parquet-", "scala", "kryo", "netty", "kubernetes", "log4j-slf4j")
_SCRIPT = Path(__file__).with_name("older_sql.groovy")
_SUB_LISTS = Path(__file__).with_name("older_sub_lists.groovy")
_ANSWER_S = 180


class OlderSqlError(Exception):
    """Hive refused or failed a statement."""


class OlderSql:
    """Runs statements, one after the other."""

    def __init__(self, server: LineServer) -> None:
        self._server = server

    def execute(self, sql: str) -> list[tuple[str, ...]]:
        """Run one statement; return its rows, whose values are as Hive prints them."""
        answer = self._server.ask({"sql": sql})
        if "error" in answer:
            raise OlderSqlError(f"{sql}: {answer['error']}")
        return [tuple(row.split("\t")) for row in answer["rows"]]

    def set(self, name: str, value: str) -> None:
        """Change one of Hive's settings for the following statements."""
        self._server.ask({"set": {name: value}})

    def fails(self, sql: str, text: str) -> None:
        """Run a statement that fails and perhaps does not end; wait for a text in the engine's log."""
        assert text not in self._server.log
        self._server.send({"sql": sql})
        policy = PollPolicy(first_s=0.2, factor=1, timeout_s=_ANSWER_S)
        assert wait_until(lambda: text in self._server.log, policy), sql


@contextmanager
def older_sql(
    version: int, uri: str, home: Path, *, settings: Mapping[str, str] | None = None
) -> Iterator[OlderSql]:
    """Start the engine of Hive 2.3 or 3.1 on a metastore, and end it with the block.

    :param version: 2 or 3.
    :param settings: Hive settings besides ours.
    """
    java = find_java()
    shared = jars.fetch(java, [jar for jar in locked(METASTORE) if jar.name in _SHARED])
    groovy = next(jar for jar in shared if jar.name.startswith("groovy-all-"))
    ours, classes = home / "conf", home / "classes"
    ours.mkdir(parents=True)
    (ours / "hive-site.xml").write_text(
        site_xml({**_settings(uri, home), **(settings or {})}), encoding="utf-8"
    )
    sparks = [
        path for path in sorted(sparks_jars().parent.glob("*.jar")) if not path.name.startswith(NOT_OF_SPARK)
    ]
    wanted = fetched(HIVE_2 if version == 2 else HIVE_3)
    # URLClassLoader takes for a directory what ends with a slash.
    entries = [f"{ours}/", f"{classes}/", *map(str, [*wanted, *shared, *sparks])]
    (home / "class-path").write_text("\n".join(entries), encoding="utf-8")
    mending = [str(_SUB_LISTS), str(classes)] if version == 3 else []
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(_SCRIPT), str(home / "class-path"), *mending],
        class_path=[groovy],
        argument_file=home / "java.args",
        heap="1g",
    )
    # A statement that failed may go on for ever.
    with line_server(command, home, stop_s=0) as server:
        yield OlderSql(server)


def _settings(uri: str, home: Path) -> dict[str, str]:
    return {
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": f"{home}/hadoop",
        "mapreduce.framework.name": "local",
        "hive.metastore.uris": uri,
        # The engine, and no metastore, chooses the directory of a database that it creates.
        "hive.metastore.warehouse.dir": f"file://{home}/warehouse",
        "hive.exec.scratchdir": f"file://{home}/scratch",
        "hive.exec.local.scratchdir": f"{home}/local",
        "hive.downloaded.resources.dir": f"{home}/resources",
        "hive.querylog.location": f"{home}/queries",
        # By default, Hive 3 keeps results in /tmp/hive for later statements, and leaves the directory there.
        "hive.query.results.cache.enabled": "false",
        "hive.execution.engine": "mr",
        # In milliseconds: Hive looks that often whether its job has ended, by default each second.
        "hive.exec.counters.pull.interval": "50",
        "hive.exec.submitviachild": "false",
        "hive.exec.submit.local.task.via.child": "false",
        "hive.exec.dynamic.partition.mode": "nonstrict",
        "hive.support.concurrency": "true",
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.async.log.enabled": "false",
        "hive.security.authorization.manager": "org.apache.hadoop.hive.ql.security.authorization.plugin."
        "sqlstd.SQLStdConfOnlyAuthorizerFactory",
    }
