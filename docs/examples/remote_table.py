"""A table of one metastore, read by Hive's SQL engine on another: two metastores on this machine."""

from __future__ import annotations

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.remotes.session import Remotes


def main() -> None:
    with EmbeddedMetastore.start("far") as far, EmbeddedMetastore.start("near") as near:
        with HiveSql(far) as sql:
            sql.execute("CREATE DATABASE orchard")
            sql.execute(
                "CREATE EXTERNAL TABLE orchard.trees (id INT, kind STRING) PARTITIONED BY (plot STRING)"
            )
            sql.execute("INSERT INTO orchard.trees VALUES (1, 'quince', 'north'), (2, 'medlar', 'south')")
        with Remotes(MetastoreSettings(uris=(near.uri,))) as remotes:
            (made,) = remotes.run(
                f"""CREATE REMOTE TABLE trees CONNECTED TO orchard.trees
                VIA 'thrift' 'hive.metastore.uris' = '{far.uri}'"""
            )
            print(made.rows[0][0])
            (described,) = remotes.run("DESCRIBE trees")
            for row in described.rows:
                print(*row)
        with HiveSql(near) as sql:
            for row in sql.execute("SELECT plot, kind FROM default.trees ORDER BY plot"):
                print(*row)


if __name__ == "__main__":
    main()
