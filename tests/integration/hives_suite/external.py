"""Scenarios of TestReplicationScenariosExternalTables and TestReplicationScenariosExclusiveReplica."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from tests.integration.hives_suite.scenario import Check, Scenario, Scene, Side, Step

COMMAS = "ROW FORMAT DELIMITED FIELDS TERMINATED BY ','"


def hive(*methods: str) -> tuple[str, ...]:
    return tuple(f"TestReplicationScenariosExternalTables.{method}" for method in methods)


def exclusive(*methods: str) -> tuple[str, ...]:
    return tuple(f"TestReplicationScenariosExclusiveReplica.{method}" for method in methods)


def files(**content: str) -> Any:
    """Write files of the scenario (``__`` is a slash), without a statement; empty text removes one."""

    def run(scene: Scene) -> None:
        for name, text in content.items():
            path = scene.files / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if text:
                path.write_text(text, encoding="utf-8")
            else:
                path.unlink()

    return run


def written(path: str, text: str) -> Any:
    """Write a file of the scenario, in a directory that Hive has made."""

    def run(scene: Scene) -> None:
        (scene.files / path).write_text(text, encoding="utf-8")

    return run


def below_the_base(*tables: str) -> Check:
    """``/x`` of the source lies at ``<external_base>/x`` of the target: tables and partitions."""

    def check(scene: Scene) -> None:
        base = local_path(scene.cycles.policy.external_base or "")
        for table in tables:
            here, there = (places(scene, side, table) for side in (scene.source, scene.target))
            assert there == {name: f"{base}{path}" for name, path in here.items()}

    return check


def places(scene: Scene, side: Side, name: str) -> dict[str, str]:
    table = scene.table(name, side)
    locations = {"": local_path(table.sd.location) or ""}
    if table.partitionKeys:
        with side.pool.client() as client:
            for wire in client.iter_partitions(side.database, table.tableName):
                partition: Any = wire
                locations["/".join(partition.values)] = local_path(partition.sd.location) or ""
    return locations


def still_has_files(scene: Scene) -> None:
    """Dropping a partition of an external table leaves its files where they are, on the target as well."""
    root = Path(local_path(scene.table("t1", scene.target).sd.location) or "")
    assert (root / "country=india").is_dir()


DEFAULT_PATHS = Scenario(
    name="default_paths",
    hive=hive(
        "externalTableReplicationWithDefaultPaths",
        "externalTableReplicationWithDefaultPathsLazyCopy",
        "externalTableWithPartitionsInBatch",
        "testTableAndPartitionExportServiceWithParallelism",
        "testDataCopyEndLogAtSource",
    ),
    steps=[
        Step(
            """CREATE EXTERNAL TABLE {t}t1 (id int);
            INSERT INTO {t}t1 VALUES (1), (2);
            CREATE EXTERNAL TABLE {t}t2 (place string) PARTITIONED BY (country string);
            INSERT INTO {t}t2 PARTITION (country)
             VALUES ('bangalore', 'india'), ('austin', 'us'), ('paris', 'france')""",
            {
                "SELECT id FROM {t}t1": "1 2",
                "SELECT place FROM {t}t2": "austin bangalore paris",
                "SHOW PARTITIONS {t}t2": "country=france country=india country=us",
            },
            checks=[below_the_base("t1", "t2")],
        ),
        Step(
            """CREATE EXTERNAL TABLE {t}t3 (id int);
            INSERT INTO {t}t3 VALUES (10);
            CREATE EXTERNAL TABLE {t}t4 AS SELECT id FROM {t}t3""",
            {"SELECT id FROM {t}t3": "10", "SELECT id FROM {t}t4": "10"},
            checks=[below_the_base("t3", "t4")],
        ),
        Step("DROP TABLE {t}t1", {"SELECT id FROM {t}t3": "10"}, absent=["t1"]),
    ],
)

CUSTOM_PATHS = Scenario(
    name="custom_paths",
    hive=hive("externalTableReplicationWithCustomPaths", "externalTableReplicationWithCustomPathsLazyCopy"),
    steps=[
        Step(
            f"CREATE EXTERNAL TABLE {{t}}a (i int, j int) {COMMAS} LOCATION 'file:{{files}}/a'",
            {"SELECT * FROM {t}a": ""},
            checks=[below_the_base("a")],
        ),
        Step(
            [files(a__file1="1,2\n13,21\n"), "CREATE TABLE {t}b (i int)"],
            {"SELECT i FROM {t}a": "1 13", "SELECT j FROM {t}a": "2 21"},
        ),
        Step(
            [
                lambda scene: (scene.files / "new_location/a").mkdir(parents=True),
                "ALTER TABLE {t}a SET LOCATION 'file:{files}/new_location/a'",
            ],
            {"SELECT i FROM {t}a": ""},
            checks=[below_the_base("a")],
        ),
    ],
)

PARTITIONS_ELSEWHERE = Scenario(
    name="elsewhere",
    hive=hive("externalTableWithPartitions"),
    steps=[
        Step(
            f"""CREATE EXTERNAL TABLE {{t}}t2 (place string) PARTITIONED BY (country string) {COMMAS}
             LOCATION 'file:{{files}}/t2';
            INSERT INTO {{t}}t2 PARTITION (country='india') VALUES ('bangalore')""",
            {"SELECT place FROM {t}t2": "bangalore"},
            checks=[below_the_base("t2")],
        ),
        Step(
            [
                written("t2/country=india/more", "pune\nmumbai\n"),
                files(partition_data__france="paris\n"),
                """INSERT INTO {t}t2 PARTITION (country='australia') VALUES ('sydney');
                ALTER TABLE {t}t2 ADD PARTITION (country='france') LOCATION 'file:{files}/partition_data'""",
            ],
            {
                "SELECT place FROM {t}t2 WHERE country='india'": "bangalore mumbai pune",
                "SELECT place FROM {t}t2 WHERE country='australia'": "sydney",
                "SELECT place FROM {t}t2 WHERE country='france'": "paris",
            },
            checks=[below_the_base("t2")],
        ),
        Step(
            [
                lambda scene: (scene.files / "other").mkdir(),
                "ALTER TABLE {t}t2 PARTITION (country='france') SET LOCATION 'file:{files}/other'",
            ],
            {"SELECT place FROM {t}t2 WHERE country='france'": "", "SELECT count(*) FROM {t}t2": "4"},
            checks=[below_the_base("t2")],
        ),
        Step(
            [
                lambda scene: (scene.files / "new_t2").mkdir(),
                """INSERT INTO {t}t2 PARTITION (country='france') VALUES ('lyon');
                ALTER TABLE {t}t2 SET LOCATION 'file:{files}/new_t2'""",
            ],
            {"SELECT place FROM {t}t2 WHERE country='france'": "lyon"},
            checks=[below_the_base("t2")],
        ),
    ],
)

SILENT = Scenario(
    name="silent",
    hive=hive("externalTableIncrementalReplication"),
    steps=[
        Step(),
        Step(
            f"""CREATE EXTERNAL TABLE {{t}}t1 (place string) PARTITIONED BY (country string) {COMMAS}
             LOCATION 'file:{{files}}/t1';
            ALTER TABLE {{t}}t1 ADD PARTITION (country='india');
            ALTER TABLE {{t}}t1 ADD PARTITION (country='us')""",
            {"SHOW PARTITIONS {t}t1": "country=india country=us", "SELECT place FROM {t}t1": ""},
        ),
        Step(
            [
                written("t1/country=india/file.txt", "pune\nmumbai\n"),
                written("t1/country=india/file1.txt", "bangalore\n"),
            ],
            {"SELECT place FROM {t}t1": "bangalore mumbai pune"},
        ),
        Step(
            [
                lambda scene: (scene.files / "t1/country=india/file.txt").unlink(),
                written("t1/country=india/file1.txt", "chennai\n"),
            ],
            {"SELECT place FROM {t}t1": "chennai"},
        ),
        Step(
            """ALTER TABLE {t}t1 DROP PARTITION (country='india');
            ALTER TABLE {t}t1 DROP PARTITION (country='us')""",
            {"SELECT place FROM {t}t1": "", "SHOW PARTITIONS {t}t1": ""},
            checks=[still_has_files],
        ),
    ],
)

NAMES = Scenario(
    name="names",
    hive=hive("replicationWithTableNameContainsKeywords", "externalTableIncrementalCheckpointing"),
    steps=[
        Step(
            """CREATE EXTERNAL TABLE {t}t1_functions (id int);
            INSERT INTO {t}t1_functions VALUES (1), (2);
            CREATE EXTERNAL TABLE {t}t2_constraints (place string) PARTITIONED BY (country string);
            INSERT INTO {t}t2_constraints PARTITION (country='india') VALUES ('bangalore')""",
            {"SELECT id FROM {t}t1_functions": "1 2", "SELECT place FROM {t}t2_constraints": "bangalore"},
        ),
        Step(
            """CREATE EXTERNAL TABLE {t}t3_bootstrap (id int);
            INSERT INTO {t}t3_bootstrap VALUES (10), (20);
            CREATE TABLE {t}t4_tables (id int);
            INSERT INTO {t}t4_tables VALUES (10), (20);
            DROP TABLE {t}t1_functions;
            INSERT INTO {t}t2_constraints PARTITION (country='india') VALUES ('delhi')""",
            {
                "SELECT id FROM {t}t3_bootstrap": "10 20",
                "SELECT id FROM {t}t4_tables": "10 20",
                "SELECT place FROM {t}t2_constraints": "bangalore delhi",
            },
            absent=["t1_functions"],
        ),
    ],
)

INSIDE_AND_OUT = Scenario(
    name="in_and_out",
    hive=hive(
        "testDatabaseLevelCopyLazy",
        "testDatabaseLevelCopyDisabled",
        "testDatabaseLevelCopyAtSource",
        "testSingleCopyTasksAtSource",
        "testSingleCopyTasksAtTarget",
        "testSingleCopyTasksConfigurationAtSource",
        "testSingleCopyTasksConfigurationAtTarget",
    ),
    steps=[
        Step(
            f"""CREATE EXTERNAL TABLE {{t}}a (i int, j int) {COMMAS} LOCATION 'file:{{files}}/a';
            INSERT INTO {{t}}a VALUES (1, 2);
            CREATE EXTERNAL TABLE {{t}}b (id int);
            INSERT INTO {{t}}b VALUES (5);
            CREATE EXTERNAL TABLE {{t}}c (place string) PARTITIONED BY (country string);
            INSERT INTO {{t}}c PARTITION (country='india') VALUES ('bangalore');
            ALTER TABLE {{t}}c ADD PARTITION (country='france') LOCATION 'file:{{files}}/part';
            INSERT INTO {{t}}c PARTITION (country='france') VALUES ('paris')""",
            {
                "SELECT i FROM {t}a WHERE j=2": "1",
                "SELECT id FROM {t}b": "5",
                "SELECT place FROM {t}c": "bangalore paris",
            },
            checks=[below_the_base("a", "b", "c")],
        ),
        Step(
            f"""INSERT INTO {{t}}a VALUES (3, 4);
            INSERT INTO {{t}}b VALUES (6);
            INSERT INTO {{t}}c PARTITION (country) VALUES ('delhi', 'india'), ('lyon', 'france');
            CREATE EXTERNAL TABLE {{t}}newin (id int);
            INSERT INTO {{t}}newin VALUES (1);
            CREATE EXTERNAL TABLE {{t}}newout (id int) {COMMAS} LOCATION 'file:{{files}}/newout';
            INSERT INTO {{t}}newout VALUES (2)""",
            {
                "SELECT i FROM {t}a WHERE j=4": "3",
                "SELECT id FROM {t}b": "5 6",
                "SELECT place FROM {t}c WHERE country='india'": "bangalore delhi",
                "SELECT place FROM {t}c WHERE country='france'": "lyon paris",
                "SELECT id FROM {t}newin": "1",
                "SELECT id FROM {t}newout": "2",
            },
            checks=[below_the_base("a", "b", "c", "newin", "newout")],
        ),
    ],
)

REPLACED = Scenario(
    name="replaced",
    hive=hive(
        "retryBootstrapExternalTablesFromDifferentDump", "bootstrapExternalTablesDuringIncrementalPhase"
    ),
    steps=[
        Step(
            """CREATE EXTERNAL TABLE {t}t2 (place string) PARTITIONED BY (country string);
            INSERT INTO {t}t2 PARTITION (country) VALUES ('bangalore', 'india'), ('austin', 'us');
            CREATE EXTERNAL TABLE {t}t4 (id int);
            INSERT INTO {t}t4 VALUES (10)""",
            {"SELECT country FROM {t}t2": "india us", "SELECT id FROM {t}t4": "10"},
        ),
        Step(
            """INSERT INTO {t}t2 PARTITION (country='india') VALUES ('chennai');
            DROP TABLE {t}t2;
            CREATE TABLE {t}t2 AS SELECT * FROM {t}t4;
            INSERT INTO {t}t4 VALUES (20)""",
            {"SELECT id FROM {t}t2": "10", "SELECT id FROM {t}t4": "10 20"},
        ),
    ],
)


def drop_the_replica(scene: Scene) -> None:
    """Files of an external table without ``external.table.purge`` survive its database, on both sides."""
    side = scene.target
    place = Path(local_path(scene.table("t1", side).sd.location) or "")
    assert list(place.iterdir())
    side.sql.execute(f"DROP DATABASE {side.database} CASCADE")
    assert list(place.iterdir())
    shutil.rmtree(place)


DROPPED_DATABASE = Scenario(
    name="dropdb",
    hive=exclusive("externalTableReplicationDropDatabase"),
    properties="",
    steps=[
        Step(
            "CREATE EXTERNAL TABLE {t}t1 (id int);\nINSERT INTO {t}t1 VALUES (500)",
            {"SELECT id FROM {t}t1": "500"},
        ),
        Step(
            "INSERT INTO {t}t1 VALUES (600)", {"SELECT id FROM {t}t1": "500 600"}, checks=[drop_the_replica]
        ),
    ],
    differs={"t1": "its replica was dropped"},
)


def at_the_targets_own_places(scene: Scene) -> None:
    """A replica's managed tables lie below the target database, wherever the source has its own."""
    side = scene.target
    with side.pool.client() as client:
        database = client.get_database(side.database)
    assert str(database.locationUri).endswith(f"/{side.database}.db")
    managed = str(scene.table("t1", side).sd.location)
    assert f"/warehouse/{side.database}.db/" in managed


CUSTOM_WAREHOUSE = Scenario(
    name="places",
    hive=exclusive("testCustomWarehouseLocations", "testCustomWarehouseLocationsConf"),
    properties="LOCATION 'file:{root}/customExternalLoc' MANAGEDLOCATION 'file:{root}/customManagedLoc'",
    steps=[
        Step(
            """CREATE TABLE {t}t1 (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true');
            INSERT INTO {t}t1 VALUES (500);
            CREATE EXTERNAL TABLE {t}t2 (id int);
            INSERT INTO {t}t2 VALUES (1000);
            CREATE TABLE {t}tp1 (id int) PARTITIONED BY (p int) STORED AS ORC
             TBLPROPERTIES ('transactional'='true');
            INSERT INTO {t}tp1 PARTITION (p) VALUES (10, 1), (20, 2)""",
            {"SELECT id FROM {t}t1": "500", "SELECT id FROM {t}t2": "1000", "SELECT id FROM {t}tp1": "10 20"},
            checks=[at_the_targets_own_places, below_the_base("t2")],
        ),
        Step(
            """INSERT INTO {t}t1 VALUES (1000);
            INSERT INTO {t}t2 VALUES (2000);
            INSERT INTO {t}tp1 PARTITION (p) VALUES (30, 1), (40, 2);
            CREATE EXTERNAL TABLE {t}t4 (id int);
            INSERT INTO {t}t4 VALUES (4000)""",
            {
                "SELECT id FROM {t}t1": "1000 500",
                "SELECT id FROM {t}t2": "1000 2000",
                "SELECT id FROM {t}tp1": "10 20 30 40",
                "SELECT id FROM {t}t4": "4000",
            },
            checks=[at_the_targets_own_places, below_the_base("t2", "t4")],
        ),
    ],
)


def namesake_in_another_catalog(name: str) -> Any:
    """A table of a database of the same name in a catalog of Spark's."""

    def run(scene: Scene) -> None:
        side = scene.source
        with side.pool.client() as client:
            if name == "first":
                place = f"file:{scene.files}/catalog"
                made = types.Catalog(name="spark", locationUri=place, description="not Hive's")
                client.call("create_catalog", types.CreateCatalogRequest(catalog=made))
                database = types.Database(name=side.database, catalogName="spark", locationUri=f"{place}/db")
                client.create_database(database)
            serde = types.SerDeInfo(
                serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
            )
            storage = types.StorageDescriptor(
                cols=[types.FieldSchema(name="place", type="string")],
                location=f"file:{scene.files}/catalog/db/{name}",
                inputFormat="org.apache.hadoop.mapred.TextInputFormat",
                outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
                serdeInfo=serde,
                parameters={},
            )
            client.create_table(
                types.Table(
                    catName="spark",
                    dbName=side.database,
                    tableName=f"{scene.name}_{name}",
                    owner="root",
                    sd=storage,
                    partitionKeys=[],
                    parameters={"EXTERNAL": "TRUE"},
                    tableType="EXTERNAL_TABLE",
                )
            )

    return run


def drop_namesakes(scene: Scene) -> None:
    """Its events name a database and a table as ours are named."""
    side = scene.source
    with side.pool.client() as client:
        for table in ("t1", "first"):
            client.call("drop_table", f"@spark#{side.database}", f"{scene.name}_{table}", False)
        client.call("drop_database", f"@spark#{side.database}", False, True)
        client.call("drop_catalog", types.DropCatalogRequest(name="spark"))


CATALOGS = Scenario(
    name="catalogs",
    hive=hive("differentCatalogIncrementalReplication"),
    properties="",
    steps=[
        Step(
            [
                """CREATE EXTERNAL TABLE {t}t1 (place string);
                INSERT INTO {t}t1 VALUES ('pune')""",
                namesake_in_another_catalog("first"),
            ],
            {"SELECT place FROM {t}t1": "pune"},
            absent=["first"],
        ),
        Step(namesake_in_another_catalog("t1"), {"SELECT place FROM {t}t1": "pune"}, absent=["first"]),
        Step(drop_namesakes, {"SELECT place FROM {t}t1": "pune"}, absent=["first"]),
        Step("INSERT INTO {t}t1 VALUES ('mumbai')", {"SELECT place FROM {t}t1": "mumbai pune"}),
    ],
)


def no_staging(scene: Scene) -> None:
    root = Path(local_path(scene.table("a", scene.target).sd.location) or "")
    assert sorted(path.name for path in root.rglob("*") if not path.name.endswith(".crc")) == ["file1"]


STAGING = Scenario(
    name="staging",
    hive=("TestReplicationScenarios.testDeleteStagingDir",),
    steps=[
        Step(
            [
                files(**{"a__file1": "1\n", "a__.hive-staging_hive_1__-ext-10000__000000_0": "2\n"}),
                files(**{"a___tmp.-ext-10000__000000_0": "3\n"}),
                "CREATE EXTERNAL TABLE {t}a (i int) LOCATION 'file:{files}/a'",
            ],
            {"SELECT i FROM {t}a": "1"},
            checks=[no_staging],
        )
    ],
)

SCENARIOS = (
    STAGING,
    DEFAULT_PATHS,
    CUSTOM_PATHS,
    PARTITIONS_ELSEWHERE,
    SILENT,
    NAMES,
    INSIDE_AND_OUT,
    REPLACED,
    DROPPED_DATABASE,
    CUSTOM_WAREHOUSE,
    CATALOGS,
)
