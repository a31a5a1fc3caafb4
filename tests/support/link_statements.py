"""Statements by which an engine might write through a link, and the remote tables that they are tried on.

Each is tried on fresh links; what the remote has, files and definitions, is compared before and after.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import orc, parquet

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.storage.filesystem import local_path

FAR = "link_writes_far"
#: Text tables, the same with partitions, tables of formats that Spark has writers of its own for, one that
#: Spark made itself (``USING parquet``), and transactional ones.
PLAIN = ("text", "orc", "parquet", "sparks")
PARTED = ("text_p", "orc_p", "parquet_p")
ACID = ("acid", "acid_p")
KINDS = (*PLAIN, *PARTED, *ACID)
#: Columns of the table in the documentation.
GROUPS = {"plain": PLAIN, "partitioned": PARTED, "transactional": ACID}

_HIVE = "org.apache.hadoop.hive.ql.io"
_FORMATS = {
    "text": (
        "org.apache.hadoop.mapred.TextInputFormat",
        f"{_HIVE}.HiveIgnoreKeyTextOutputFormat",
        "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    ),
    "orc": (f"{_HIVE}.orc.OrcInputFormat", f"{_HIVE}.orc.OrcOutputFormat", f"{_HIVE}.orc.OrcSerde"),
    "parquet": (
        f"{_HIVE}.parquet.MapredParquetInputFormat",
        f"{_HIVE}.parquet.MapredParquetOutputFormat",
        f"{_HIVE}.parquet.serde.ParquetHiveSerDe",
    ),
}
_SPARKS_SCHEMA = {
    "spark.sql.sources.provider": "parquet",
    "spark.sql.create.version": "4.2.0",
    "spark.sql.sources.schema": json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
                {"name": "name", "type": "string", "nullable": True, "metadata": {}},
            ],
        }
    ),
}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A statement, or several of which the last may write.

    ``{t}`` is the link, ``{o}`` a local table of the same columns, ``{db}`` the link's database, ``{in}`` a
    file of a row, ``{dir}`` an empty directory. ``{p}`` is a PARTITION clause of the present partition, or
    nothing.

    :param name: as the documentation lists it.
    :param only: the groups of tables that it is for.
    """

    name: str
    sql: tuple[str, ...]
    only: tuple[str, ...] = tuple(GROUPS)

    def statements(self, kind: str, names: Mapping[str, str]) -> list[str]:
        parted = kind.endswith("_p")
        given = {**names, "p": " PARTITION (p = 'a')" if parted else ""}
        return [template.format(**given) for template in self.sql]


_P = ("partitioned", "transactional")
#: Hive and Spark run them alike.
_DROPS = (
    Attempt(name="DROP TABLE", sql=("DROP TABLE {t}",)),
    Attempt(name="DROP TABLE PURGE", sql=("DROP TABLE {t} PURGE",)),
    Attempt(name="DROP DATABASE CASCADE", sql=("DROP DATABASE {db} CASCADE",)),
    Attempt(
        name="SET 'EXTERNAL' = 'FALSE', DROP TABLE",
        sql=("ALTER TABLE {t} SET TBLPROPERTIES ('EXTERNAL' = 'FALSE')", "DROP TABLE {t}"),
    ),
    Attempt(
        name="SET 'external.table.purge' = 'true', DROP TABLE",
        sql=("ALTER TABLE {t} SET TBLPROPERTIES ('external.table.purge' = 'true')", "DROP TABLE {t}"),
    ),
)
HIVE = (
    Attempt(name="INSERT INTO", sql=("INSERT INTO {t}{p} VALUES (9, 'new')",)),
    Attempt(name="INSERT OVERWRITE", sql=("INSERT OVERWRITE TABLE {t}{p} SELECT 9, 'new'",)),
    Attempt(
        name="INSERT OVERWRITE, dynamic partitions",
        sql=("INSERT OVERWRITE TABLE {t} SELECT 9, 'new', 'a'",),
        only=("partitioned",),
    ),
    Attempt(
        name="INSERT INTO a new partition",
        sql=("INSERT INTO {t} PARTITION (p = 'n') SELECT 9, 'new'",),
        only=("partitioned",),
    ),
    Attempt(name="UPDATE", sql=("UPDATE {t} SET name = 'x'",)),
    Attempt(name="DELETE", sql=("DELETE FROM {t}",)),
    Attempt(
        name="MERGE",
        sql=("MERGE INTO {t} t USING {o} o ON t.id = o.id WHEN MATCHED THEN DELETE",),
        only=("plain", "transactional"),
    ),
    Attempt(name="LOAD DATA", sql=("LOAD DATA LOCAL INPATH '{in}' INTO TABLE {t}{p}",)),
    Attempt(name="LOAD DATA OVERWRITE", sql=("LOAD DATA LOCAL INPATH '{in}' OVERWRITE INTO TABLE {t}{p}",)),
    Attempt(name="TRUNCATE TABLE", sql=("TRUNCATE TABLE {t}{p}",)),
    Attempt(
        name="EXPORT and IMPORT", sql=("EXPORT TABLE {o} TO '{dir}/x'", "IMPORT TABLE {t} FROM '{dir}/x'")
    ),
    Attempt(name="EXPORT", sql=("EXPORT TABLE {t} TO '{dir}/x'",)),
    Attempt(name="CREATE TABLE AS SELECT", sql=("CREATE TABLE {db}.made AS SELECT * FROM {t}",)),
    Attempt(
        name="CREATE TABLE LIKE, DROP of it",
        sql=("CREATE TABLE {db}.made LIKE {t}", "DROP TABLE {db}.made PURGE"),
    ),
    Attempt(
        name="CREATE TABLE LIKE, INSERT",
        sql=("CREATE TABLE {db}.made LIKE {t}", "INSERT INTO {db}.made{p} VALUES (9, 'new')"),
    ),
    Attempt(name="ANALYZE TABLE", sql=("ANALYZE TABLE {t}{p} COMPUTE STATISTICS",)),
    Attempt(name="ANALYZE TABLE FOR COLUMNS", sql=("ANALYZE TABLE {t}{p} COMPUTE STATISTICS FOR COLUMNS",)),
    Attempt(name="MSCK REPAIR", sql=("MSCK REPAIR TABLE {t} SYNC PARTITIONS",), only=_P),
    Attempt(name="ALTER TABLE RENAME", sql=("ALTER TABLE {t} RENAME TO {db}.renamed",)),
    Attempt(name="ALTER TABLE ADD COLUMNS", sql=("ALTER TABLE {t} ADD COLUMNS (extra INT)",)),
    Attempt(name="ALTER TABLE CHANGE COLUMN", sql=("ALTER TABLE {t} CHANGE COLUMN name title STRING",)),
    Attempt(name="ALTER TABLE SET TBLPROPERTIES", sql=("ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",)),
    Attempt(name="ALTER TABLE SET LOCATION", sql=("ALTER TABLE {t} SET LOCATION 'file:{dir}'",)),
    Attempt(name="ALTER TABLE SET OWNER", sql=("ALTER TABLE {t} SET OWNER USER somebody",)),
    Attempt(name="ALTER TABLE CONCATENATE", sql=("ALTER TABLE {t}{p} CONCATENATE",)),
    Attempt(name="ALTER TABLE COMPACT", sql=("ALTER TABLE {t}{p} COMPACT 'major'",)),
    Attempt(
        name="ALTER TABLE ARCHIVE PARTITION", sql=("ALTER TABLE {t} ARCHIVE PARTITION (p = 'a')",), only=_P
    ),
    Attempt(name="ALTER TABLE ADD PARTITION", sql=("ALTER TABLE {t} ADD PARTITION (p = 'n')",), only=_P),
    Attempt(name="ALTER TABLE DROP PARTITION", sql=("ALTER TABLE {t} DROP PARTITION (p = 'a')",), only=_P),
    Attempt(
        name="ALTER TABLE DROP PARTITION PURGE",
        sql=("ALTER TABLE {t} DROP PARTITION (p = 'a') PURGE",),
        only=_P,
    ),
    Attempt(
        name="ALTER TABLE RENAME PARTITION",
        sql=("ALTER TABLE {t} PARTITION (p = 'a') RENAME TO PARTITION (p = 'z')",),
        only=_P,
    ),
    Attempt(
        name="EXCHANGE PARTITION, from the link",
        sql=(
            "CREATE TABLE {db}.taker LIKE {o}",
            "ALTER TABLE {db}.taker EXCHANGE PARTITION (p = 'a') WITH TABLE {t}",
        ),
        only=_P,
    ),
    Attempt(
        name="EXCHANGE PARTITION, into the link",
        sql=("ALTER TABLE {t} EXCHANGE PARTITION (p = 'own') WITH TABLE {o}",),
        only=_P,
    ),
    *_DROPS,
    Attempt(
        name="SET 'external.table.purge' = 'true', TRUNCATE",
        sql=("ALTER TABLE {t} SET TBLPROPERTIES ('external.table.purge' = 'true')", "TRUNCATE TABLE {t}"),
    ),
    Attempt(
        name="SET FILEFORMAT and 'immutable' = 'false', INSERT INTO",
        sql=(
            "ALTER TABLE {t} SET FILEFORMAT ORC",
            "ALTER TABLE {t}{p} SET FILEFORMAT ORC",
            "ALTER TABLE {t} SET TBLPROPERTIES ('immutable' = 'false')",
            "INSERT INTO {t}{p} VALUES (9, 'new')",
        ),
    ),
    Attempt(
        name="NOT STORED AS DIRECTORIES, LOAD DATA",
        sql=("ALTER TABLE {t} NOT STORED AS DIRECTORIES", "LOAD DATA LOCAL INPATH '{in}' INTO TABLE {t}{p}"),
    ),
)

#: Those beginning with ``df.`` are methods of a DataFrame's writer, whose rows are like the table's.
SPARK = (
    Attempt(name="INSERT INTO", sql=("INSERT INTO {t}{p} VALUES (9, 'new')",)),
    Attempt(name="INSERT OVERWRITE", sql=("INSERT OVERWRITE TABLE {t}{p} SELECT 9, 'new'",)),
    Attempt(
        name="INSERT OVERWRITE, dynamic partitions",
        sql=("INSERT OVERWRITE TABLE {t} SELECT 9, 'new', 'a'",),
        only=("partitioned",),
    ),
    Attempt(
        name="INSERT INTO a new partition",
        sql=("INSERT INTO {t} PARTITION (p = 'n') SELECT 9, 'new'",),
        only=("partitioned",),
    ),
    Attempt(name="DataFrameWriter.insertInto", sql=("df.insertInto('{t}')",)),
    Attempt(name="DataFrameWriter.insertInto, overwrite", sql=("df.insertInto('{t}', overwrite=True)",)),
    Attempt(name="DataFrameWriter.saveAsTable, append", sql=("df.mode('append').saveAsTable('{t}')",)),
    Attempt(
        name="DataFrameWriter.saveAsTable, append, format hive",
        sql=("df.mode('append').format('hive').saveAsTable('{t}')",),
    ),
    Attempt(name="DataFrameWriter.saveAsTable, overwrite", sql=("df.mode('overwrite').saveAsTable('{t}')",)),
    Attempt(name="UPDATE", sql=("UPDATE {t} SET name = 'x'",)),
    Attempt(name="DELETE", sql=("DELETE FROM {t}",)),
    Attempt(
        name="MERGE",
        sql=("MERGE INTO {t} t USING {o} o ON t.id = o.id WHEN MATCHED THEN DELETE",),
        only=("plain", "transactional"),
    ),
    Attempt(name="LOAD DATA", sql=("LOAD DATA LOCAL INPATH '{in}' INTO TABLE {t}{p}",)),
    Attempt(name="LOAD DATA OVERWRITE", sql=("LOAD DATA LOCAL INPATH '{in}' OVERWRITE INTO TABLE {t}{p}",)),
    Attempt(name="TRUNCATE TABLE", sql=("TRUNCATE TABLE {t}{p}",)),
    Attempt(name="CREATE TABLE AS SELECT", sql=("CREATE TABLE {db}.made AS SELECT * FROM {t}",)),
    Attempt(
        name="CREATE TABLE LIKE, DROP of it",
        sql=("CREATE TABLE {db}.made LIKE {t}", "DROP TABLE {db}.made PURGE"),
    ),
    Attempt(
        name="CREATE TABLE LIKE, INSERT",
        sql=("CREATE TABLE {db}.made LIKE {t}", "INSERT INTO {db}.made{p} VALUES (9, 'new')"),
    ),
    Attempt(name="ANALYZE TABLE", sql=("ANALYZE TABLE {t}{p} COMPUTE STATISTICS",)),
    Attempt(name="ANALYZE TABLE FOR COLUMNS", sql=("ANALYZE TABLE {t} COMPUTE STATISTICS FOR ALL COLUMNS",)),
    Attempt(name="MSCK REPAIR", sql=("MSCK REPAIR TABLE {t} SYNC PARTITIONS",), only=_P),
    Attempt(name="ALTER TABLE RENAME", sql=("ALTER TABLE {t} RENAME TO {db}.renamed",)),
    Attempt(name="ALTER TABLE ADD COLUMNS", sql=("ALTER TABLE {t} ADD COLUMNS (extra INT)",)),
    Attempt(name="ALTER TABLE CHANGE COLUMN", sql=("ALTER TABLE {t} ALTER COLUMN name COMMENT 'x'",)),
    Attempt(name="ALTER TABLE SET TBLPROPERTIES", sql=("ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",)),
    Attempt(name="ALTER TABLE SET LOCATION", sql=("ALTER TABLE {t} SET LOCATION 'file:{dir}'",)),
    Attempt(name="ALTER TABLE ADD PARTITION", sql=("ALTER TABLE {t} ADD PARTITION (p = 'n')",), only=_P),
    Attempt(name="ALTER TABLE DROP PARTITION", sql=("ALTER TABLE {t} DROP PARTITION (p = 'a')",), only=_P),
    Attempt(
        name="ALTER TABLE DROP PARTITION PURGE",
        sql=("ALTER TABLE {t} DROP PARTITION (p = 'a') PURGE",),
        only=_P,
    ),
    Attempt(
        name="ALTER TABLE RENAME PARTITION",
        sql=("ALTER TABLE {t} PARTITION (p = 'a') RENAME TO PARTITION (p = 'z')",),
        only=_P,
    ),
    *_DROPS,
    Attempt(
        name="SET SERDEPROPERTIES ('partitionOverwriteMode' = 'static'), INSERT INTO",
        sql=(
            "ALTER TABLE {t} SET SERDEPROPERTIES ('partitionOverwriteMode' = 'static')",
            "INSERT INTO {t}{p} VALUES (9, 'new')",
        ),
    ),
)


class Remote:
    """The remote database: its tables, their files, and both as they were at first.

    :param client: of the remote metastore.
    :param place: a directory for the files.
    """

    def __init__(self, client: MetastoreClient, place: Path) -> None:
        self._client = client
        self._files, self._pristine = place / "files", place / "pristine"
        self._places: dict[str, Path] = {}
        self._event, self._defined = -1, ""
        client.create_database(types.Database(name=FAR))
        for kind in KINDS:
            self._make(kind)
        for kind, where in self._places.items():
            shutil.copytree(where, self._pristine / kind)
        self._before = (self._listing(), self._definitions())

    def changed(self) -> bool:
        """Tell whether files or definitions have changed since the beginning."""
        return (self._listing(), self._definitions()) != self._before

    def mend(self) -> None:
        """Bring the files back."""
        for kind, where in self._places.items():
            shutil.rmtree(where, ignore_errors=True)
            shutil.copytree(self._pristine / kind, where)

    @contextmanager
    def not_writable(self) -> Iterator[None]:
        """Take the right to write from the directories of all tables."""
        places = [
            path for where in self._places.values() for path in (where, *where.rglob("*")) if path.is_dir()
        ]
        modes = {path: path.stat().st_mode for path in places}
        for path in places:
            path.chmod(0o555)
        yield
        for path, mode in modes.items():
            path.chmod(mode)

    def _listing(self) -> dict[str, bytes | None]:
        return {path: content for where in self._places.values() for path, content in contents(where).items()}

    def _definitions(self) -> str:
        # The metastore has an event for each change of a definition.
        event = self._client.get_current_notification_event_id()
        if event != self._event:
            self._event, self._defined = event, definitions(self._client, FAR)
        return self._defined

    def _make(self, kind: str) -> None:
        form = {"sparks": "parquet", "acid": "orc", "acid_p": "orc"}.get(kind, kind.removesuffix("_p"))
        parted, acid = kind.endswith("_p"), kind in ACID
        place = self._files / kind
        table = types.Table(
            dbName=FAR,
            tableName=kind,
            owner="root",
            sd=_storage(form, None if acid else place),
            partitionKeys=[types.FieldSchema(name="p", type="string")] if parted else [],
            parameters={"transactional": "true", "bucketing_version": "2"} if acid else {"EXTERNAL": "TRUE"},
            tableType="MANAGED_TABLE" if acid else "EXTERNAL_TABLE",
        )
        if kind == "sparks":
            table.parameters |= _SPARKS_SCHEMA
            table.sd.serdeInfo.parameters |= {"path": f"file:{place}"}
        self._client.create_table(table)
        if acid:
            table = self._client.get_table(FAR, kind)
            place = Path(str(local_path(str(table.sd.location))))
        self._places[kind] = place
        folder = place / "p=a" if parted else place
        if acid:
            folder /= "delta_0000001_0000001_0000"
        folder.mkdir(parents=True, exist_ok=True)
        _write_rows(form, folder / "bucket_00000_0" if acid else folder / "000000_0")
        if parted:
            part = types.Partition(
                dbName=FAR, tableName=kind, values=["a"], sd=_storage(form, place / "p=a"), parameters={}
            )
            self._client.add_partitions([part])


def contents(where: Path) -> dict[str, bytes | None]:
    """Return the files of a directory with their bytes, and the directories below it."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in (where, *where.rglob("*"))
        if path.exists()
    }


def definitions(client: MetastoreClient, database: str) -> str:
    """Return the definitions of all tables and partitions of a database."""
    tables: list[Any] = sorted(client.get_tables(database, client.list_tables(database)), key=str)
    parts = [
        partition
        for table in tables
        if table.partitionKeys
        for partition in client.iter_partitions(database, table.tableName)
    ]
    return json.dumps([to_json(described) for described in (*tables, *sorted(parts, key=str))])


def _storage(form: str, place: Path | None) -> types.StorageDescriptor:
    reads, writes, serde = _FORMATS[form]
    separated = {"field.delim": ",", "serialization.format": ","} if form == "text" else {}
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name="id", type="int"), types.FieldSchema(name="name", type="string")],
        location=None if place is None else f"file:{place}",
        inputFormat=reads,
        outputFormat=writes,
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib=serde, parameters=separated),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def _write_rows(form: str, path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]})
    if form == "text":
        path.write_text("1,a\n2,b\n", encoding="utf-8")
    elif form == "orc":
        orc.write_table(rows, path)
    else:
        parquet.write_table(rows, path)


def local_table(client: MetastoreClient, database: str, kind: str, place: Path) -> None:
    """Make a local table ``own`` of the columns of a kind, with rows, in partition ``own``."""
    form = {"sparks": "parquet", "acid": "orc", "acid_p": "orc"}.get(kind, kind.removesuffix("_p"))
    parted = kind.endswith("_p")
    table: Any = types.Table(
        dbName=database,
        tableName="own",
        owner="root",
        sd=_storage(form, place),
        partitionKeys=[types.FieldSchema(name="p", type="string")] if parted else [],
        parameters={"EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE",
    )
    client.create_table(table)
    folder = place / "p=own" if parted else place
    folder.mkdir(parents=True, exist_ok=True)
    _write_rows(form, folder / "000000_0")
    if parted:
        client.add_partitions(
            [
                types.Partition(
                    dbName=database, tableName="own", values=["own"], sd=_storage(form, folder), parameters={}
                )
            ]
        )
