"""Scenarios of TestStatsReplicationScenarios: each kind of table, with statistics gathered and analysed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.replication.metadata.definitions import name_of
from tests.integration.hives_suite.scenario import Scenario, Scene, Side, Step

CLASS = "TestStatsReplicationScenarios"
FULL_ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
INSERT_ONLY = "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only')"

BOOTSTRAP = """
CREATE TABLE {t}stable (id int) KIND;
INSERT INTO {t}stable VALUES (1), (2);
CREATE TABLE {t}ptable (place string) PARTITIONED BY (country string) KIND;
INSERT INTO {t}ptable PARTITION (country)
 VALUES ('bangalore', 'india'), ('austin', 'us'), ('paris', 'france');
CREATE TABLE {t}ndtable (str string) KIND;
CREATE TABLE {t}ndptable (val string) PARTITIONED BY (pk int) KIND
"""
INCREMENTAL = """
INSERT INTO {t}stable VALUES (3), (4);
INSERT INTO {t}ndtable VALUES ('string1'), ('string2');
INSERT INTO {t}ptable PARTITION (country) VALUES ('pune', 'india'), ('chicago', 'us'), ('perth', 'australia');
CREATE TABLE {t}itable (config string, enabled boolean) KIND;
INSERT INTO {t}itable VALUES ('conf1', true);
INSERT INTO {t}itable VALUES ('conf2', false);
INSERT INTO {t}ndptable PARTITION (pk) VALUES ('one', 1), ('another one', 1), ('two', 2);
CREATE TABLE {t}iptable (val string) PARTITIONED BY (tvalue boolean) KIND;
INSERT INTO {t}iptable PARTITION (tvalue) VALUES ('true', true), ('false', false)
"""
DML = """
INSERT OVERWRITE TABLE {t}stable VALUES (5), (6), (7);
INSERT OVERWRITE TABLE {t}ptable PARTITION (country='india') VALUES ('bombay');
TRUNCATE TABLE {t}ndtable;
TRUNCATE TABLE {t}ndptable PARTITION (pk=1);
CREATE TABLE {t}ctas KIND AS SELECT * FROM {t}itable;
CREATE TABLE {t}ctasp KIND AS SELECT * FROM {t}ptable;
EXPORT TABLE {t}ptable TO '{files}/ptable';
IMPORT TABLE {t}eximp FROM '{files}/ptable';
EXPORT TABLE {t}itable TO '{files}/itable';
IMPORT TABLE {t}exim FROM '{files}/itable';
INSERT OVERWRITE LOCAL DIRECTORY '{files}/rows' STORED SELECT * FROM {t}stable;
CREATE TABLE {t}loadt (id int) KIND;
LOAD DATA LOCAL INPATH '{files}/rows/000000_0' OVERWRITE INTO TABLE {t}loadt;
CREATE TABLE {t}loadp (id int) PARTITIONED BY (key int) KIND;
LOAD DATA LOCAL INPATH '{files}/rows/000000_0' OVERWRITE INTO TABLE {t}loadp PARTITION (key=1)
"""
TRANSACTIONAL_DML = """
UPDATE {t}ptable SET place = 'mumbai' WHERE place = 'bombay';
DELETE FROM {t}ptable WHERE place = 'chicago';
MERGE INTO {t}eximp AS t USING {t}ptable AS u ON t.country = u.country
 WHEN MATCHED AND t.place != u.place THEN UPDATE SET place = u.place
 WHEN NOT MATCHED THEN INSERT VALUES (u.place, u.country);
UPDATE {t}itable SET enabled = false WHERE config = 'conf1';
DELETE FROM {t}ndtable
"""
DDL = """
ALTER TABLE {t}stable ADD COLUMNS (val int);
ALTER TABLE {t}itable CHANGE config configuration string;
ALTER TABLE {t}ctas RENAME TO {t}rntable;
ALTER TABLE {t}ptable PARTITION (country='us') RENAME TO PARTITION (country='usa')
"""
FIRST = ("stable", "ptable", "ndtable", "ndptable")
MORE = (*FIRST, "itable", "iptable")
ALL = (*MORE, "ctas", "ctasp", "exim", "eximp", "loadt", "loadp")
GATHERED = "hive.stats.autogather", "hive.stats.column.autogather"


def statistics_follow(scene: Scene) -> None:
    """Parameters and column statistics of tables and partitions, as far as the source calls them accurate."""
    source, target = (dict(described(scene, side)) for side in (scene.source, scene.target))
    for name in sorted(source.keys() | target.keys()):
        ours, other = source.get(name), target.get(name)
        assert ours == other, f"{scene.name}_{name}: {ours} became {other}"


def counts_hold(scene: Scene) -> None:
    """``count(*)`` that Hive answers from statistics is the number of rows."""
    side = scene.target
    with side.pool.client() as client:
        names = [table for table in client.list_tables(side.database) if table.startswith(f"{scene.name}_")]
    for name in names:
        counted = len(side.sql.execute(f"SELECT * FROM {side.database}.{name}"))
        side.sql.set("hive.compute.query.using.stats", "true")
        try:
            ((answered,),) = side.sql.execute(f"SELECT count(*) FROM {side.database}.{name}")
        finally:
            side.sql.set("hive.compute.query.using.stats", "false")
        assert answered == str(counted), name


def described(scene: Scene, side: Side) -> Iterator[tuple[str, Any]]:
    with side.pool.client() as client:
        names = [table for table in client.list_tables(side.database) if table.startswith(f"{scene.name}_")]
        for table in client.get_tables(side.database, names):
            name = str(table.tableName)
            short = name.removeprefix(f"{scene.name}_")
            statistics = client.get_table_column_statistics(
                side.database, name, columns=accurate_columns(table)
            )
            yield short, (kept(table), [to_json(statistics) for statistics in statistics.tableStats or ()])
            if not table.partitionKeys:
                continue
            partitions: list[Any] = list(client.iter_partitions(side.database, name))
            by_name = {name_of(table, partition): partition for partition in partitions}
            described = client.get_partitions_column_statistics(side.database, name, list(by_name))
            for each, partition in by_name.items():
                wanted = set(accurate_columns(partition))
                columns = [to_json(column) for column in described.get(each, ()) if column.colName in wanted]
                yield f"{short} {each}", (kept(partition), columns)


def accurate_columns(described: Any) -> list[str]:
    text = (described.parameters or {}).get("COLUMN_STATS_ACCURATE") or "{}"
    return sorted(json.loads(text).get("COLUMN_STATS", {}))


def kept(described: Any) -> dict[str, str]:
    """Return the values of ``StatsSetupConst.SUPPORTED_STATS``, and their accuracy."""
    names = ("numFiles", "numRows", "totalSize", "rawDataSize", "COLUMN_STATS_ACCURATE")
    return {name: described.parameters[name] for name in names if name in (described.parameters or {})}


def analysed(*names: str) -> str:
    return ";\n".join(f"ANALYZE TABLE {{t}}{name} COMPUTE STATISTICS FOR COLUMNS" for name in names)


def statistics(name: str, kind: str, *, gathered: bool, test: str) -> Scenario:
    stored = "STORED AS ORC" if kind == FULL_ACID else ""
    switch = "\n".join(f"SET {setting}={str(gathered).lower()};" for setting in GATHERED)

    def step(text: str, *tables: str) -> Step:
        made = text.replace("KIND", kind).replace("STORED SELECT", f"{stored} SELECT").strip()
        parts = [switch.rstrip(";"), made]
        if not gathered:
            parts.append(analysed(*tables))
        # As other scenarios have it.
        parts.append("SET hive.stats.autogather=true;\nSET hive.stats.column.autogather=false")
        return Step(";\n".join(parts), checks=[statistics_follow])

    steps = [step(BOOTSTRAP, *FIRST), step(INCREMENTAL, *MORE), step(DML, *ALL)]
    if kind == FULL_ACID:
        steps.append(step(TRANSACTIONAL_DML, *ALL))
    last = step(DDL)
    steps.append(Step(last.run, checks=[statistics_follow, counts_hold]))
    methods = ("testNonParallelBootstrapLoad", "testForParallelBootstrapLoad", "testRetryFailure")
    return Scenario(name=name, hive=[f"{test}.{method}" for method in methods], steps=steps)


SCENARIOS = (
    statistics("plain", "", gathered=True, test=CLASS),
    statistics("analysed", "", gathered=False, test=f"{CLASS}NoAutogather"),
    statistics("acid", FULL_ACID, gathered=True, test=f"{CLASS}ACID"),
    statistics("acidanalysed", FULL_ACID, gathered=False, test=f"{CLASS}ACIDNoAutogather"),
    statistics("mm", INSERT_ONLY, gathered=True, test=f"{CLASS}MM"),
)
