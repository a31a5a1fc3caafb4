"""Scenarios of TestReplicationScenariosAcrossInstances, and of views, constraints and databases."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.storage.filesystem import local_path
from tests.integration.hives_suite.scenario import Scenario, Scene, Side, Step

UPPER = "org.apache.hadoop.hive.ql.udf.generic.GenericUDFUpper"


def hive(*methods: str) -> tuple[str, ...]:
    return tuple(f"TestReplicationScenariosAcrossInstances.{method}" for method in methods)


def plain(*methods: str) -> tuple[str, ...]:
    return tuple(f"TestReplicationScenarios.{method}" for method in methods)


DDL = Scenario(
    name="ddl",
    hive=hive(
        "testIncrementalMetadataReplication",
        "testReplLoadFromSourceUsingWithClause",
        "testNonReplDBMetadataReplication",
        "testMultipleStagesOfReplicationLoadTask",
        "testMultipleStagesOfReplicationLoadTaskWithPartitionBatching",
        "testParallelExecutionOfReplicationBootStrapLoad",
    ),
    steps=[
        Step(
            """CREATE TABLE {t}table1 (i int, j int);
            CREATE TABLE {t}table2 (id int) PARTITIONED BY (country string);
            CREATE TABLE {t}table3 (i int, j int);
            INSERT INTO {t}table1 VALUES (1, 2)""",
            {"SELECT * FROM {t}table1": [("1", "2")]},
        ),
        Step(
            """ALTER TABLE {t}table1 RENAME TO {t}renamed_table1;
            INSERT INTO {t}table2 PARTITION (country) VALUES (1, 'india'), (2, 'usa');
            CREATE TABLE {t}table4 (i int);
            INSERT INTO {t}table4 VALUES (10)""",
            {
                "SELECT * FROM {t}renamed_table1": [("1", "2")],
                "SELECT id FROM {t}table2": "1 2",
                "SELECT * FROM {t}table4": "10",
            },
            absent=["table1"],
        ),
        Step(
            """ALTER TABLE {t}table2 ADD COLUMNS (zipcode int);
            ALTER TABLE {t}table3 CHANGE i a string;
            ALTER TABLE {t}table3 SET TBLPROPERTIES ('custom.property'='custom.value');
            DROP TABLE {t}renamed_table1;
            ALTER TABLE {t}table2 DROP PARTITION (country='usa');
            TRUNCATE TABLE {t}table4""",
            {
                "SELECT id FROM {t}table2": "1",
                "SELECT * FROM {t}table4": "",
                "SHOW COLUMNS FROM {t}table2": "country id zipcode",
                "SHOW COLUMNS FROM {t}table3": "a j",
                "SHOW TBLPROPERTIES {t}table3('custom.property')": [("custom.property", "custom.value")],
            },
            absent=["renamed_table1"],
        ),
        Step(
            """ALTER TABLE {t}table3 SET SERDEPROPERTIES ('field.delim'=',');
            ALTER TABLE {t}table3 UNSET TBLPROPERTIES ('custom.property');
            ALTER TABLE {t}table2 PARTITION (country='india') SET SERDEPROPERTIES ('field.delim'=';');
            ALTER TABLE {t}table3 SET OWNER USER somebody;
            ALTER TABLE {t}table4 REPLACE COLUMNS (i int COMMENT 'a number', s string)""",
            {"SHOW COLUMNS FROM {t}table4": "i s"},
        ),
    ],
)

RECREATED = Scenario(
    name="recreated",
    hive=hive(
        "testIncrementalReplWithEventsBatchHavingDropCreateTable",
        "testIncrementalReplWithDropAndCreateTableDifferentPartitionTypeAndInsert",
        "testIncrementalDumpMultiIteration",
    ),
    steps=[
        Step(),
        Step(
            """CREATE TABLE {t}table1 (i int);
            CREATE TABLE {t}table2 (id int) PARTITIONED BY (country string);
            CREATE TABLE {t}same (id int) PARTITIONED BY (country string);
            CREATE TABLE {t}table3 (id int) PARTITIONED BY (country string);
            INSERT INTO {t}table1 VALUES (1);
            INSERT INTO {t}table2 PARTITION (country='india') VALUES (1);
            INSERT INTO {t}same PARTITION (country='india') VALUES (1);
            INSERT INTO {t}table3 PARTITION (country='india') VALUES (3)""",
            {
                "SELECT * FROM {t}table1": "1",
                "SELECT id FROM {t}table2": "1",
                "SELECT id FROM {t}table3": "3",
            },
        ),
        Step(
            """DROP TABLE {t}table1;
            DROP TABLE {t}table2;
            DROP TABLE {t}table3;
            DROP TABLE {t}same;
            CREATE TABLE {t}same (id int) PARTITIONED BY (country string);
            ALTER TABLE {t}same ADD PARTITION (country='india');
            ALTER TABLE {t}same DROP PARTITION (country='india');
            INSERT INTO {t}same PARTITION (country='us') VALUES (2);
            CREATE TABLE {t}table1 (id int) PARTITIONED BY (country string);
            INSERT INTO {t}table1 PARTITION (country='india') VALUES (20);
            CREATE TABLE {t}table2 (id int);
            INSERT INTO {t}table2 VALUES (10);
            CREATE TABLE {t}table3 (id int) PARTITIONED BY (name string, rank int);
            INSERT INTO {t}table3 PARTITION (name='adam', rank=100) VALUES (30)""",
            {
                "SELECT id FROM {t}same": "2",
                "SHOW PARTITIONS {t}same": "country=us",
                "SELECT id FROM {t}table1": "20",
                "SELECT * FROM {t}table2": "10",
                "SELECT id FROM {t}table3": "30",
            },
        ),
    ],
)

VIEWS = Scenario(
    name="views",
    hive=plain("testViewsReplication"),
    steps=[
        Step(
            """CREATE TABLE {t}unptned (a string);
            CREATE TABLE {t}ptned (a string) PARTITIONED BY (b int);
            LOAD ROWS (eleven twelve) INTO {t}unptned;
            LOAD ROWS (thirteen) INTO {t}ptned PARTITION (b=1);
            LOAD ROWS (fifteen) INTO {t}ptned PARTITION (b=2);
            CREATE VIEW {t}plain AS SELECT * FROM {t}unptned;
            CREATE VIEW {t}parts PARTITIONED ON (b) AS SELECT * FROM {t}ptned""",
            {"SELECT * FROM {t}plain": "eleven twelve", "SELECT a FROM {t}parts": "fifteen thirteen"},
        ),
        Step(
            """CREATE VIEW {t}second AS SELECT a FROM {t}ptned WHERE b=2;
            ALTER VIEW {t}plain RENAME TO {t}renamed;
            CREATE VIEW {t}parts2 PARTITIONED ON (b) AS SELECT * FROM {t}ptned""",
            {"SELECT * FROM {t}second": "fifteen", "SELECT * FROM {t}renamed": "eleven twelve"},
            absent=["plain"],
        ),
        Step(
            """ALTER VIEW {t}renamed AS SELECT a, concat(a, '_') AS a_ FROM {t}unptned;
            DROP VIEW {t}second""",
            {
                "SHOW COLUMNS FROM {t}renamed": "a a_",
                "SELECT a_ FROM {t}renamed": "eleven_ twelve_",
            },
            absent=["second"],
        ),
    ],
)


def constraints(scene: Scene, side: Side, table: str) -> dict[str, int]:
    """Number of columns that each kind of constraints of a table names."""
    with side.pool.client() as client:
        constraints = to_json(client.get_table_constraints(side.database, f"{scene.name}_{table}"))
    return {kind: len(differences) for kind, differences in constraints.items() if differences}


def constrained(**tables: dict[str, int]) -> Any:
    def check(scene: Scene) -> None:
        assert {name: constraints(scene, scene.target, name) for name in tables} == tables

    return check


def drop_all_constraints(scene: Scene) -> None:
    side = scene.source
    for table in ("tbl5", "tbl4", "tbl6", "tbl9", "tbl10"):
        with side.pool.client() as client:
            constraints = to_json(client.get_table_constraints(side.database, f"{scene.name}_{table}"))
        names = {
            value
            for differences in constraints.values()
            for constraint in differences
            for key, value in constraint.items()
            if key in {"pk_name", "fk_name", "uk_name", "nn_name", "dc_name"} and value
        }
        # A foreign key names the key that it refers to.
        names -= {key["pk_name"] for key in constraints.get("foreignKeys", ())}
        for name in sorted(names):
            side.sql.execute(f"ALTER TABLE {side.database}.{scene.name}_{table} DROP CONSTRAINT `{name}`")


MADE_WITH_KEYS = """
CREATE TABLE {t}TBL1 (a string, b string, PRIMARY KEY (a, b) DISABLE NOVALIDATE RELY);
CREATE TABLE {t}TBL2 (a string, b string, FOREIGN KEY (a, b) REFERENCES {t}TBL1(a, b) DISABLE NOVALIDATE);
CREATE TABLE {t}TBL3 (a string, b string NOT NULL DISABLE, UNIQUE (a) DISABLE);
CREATE TABLE {t}TBL7 (a string CHECK (a LIKE 'a%') DISABLE, price double CHECK (price > 0) DISABLE);
CREATE TABLE {t}TBL8 (a string, b int DEFAULT 0 DISABLE)
"""
LATER = {"TBL1": "tbl4", "TBL2": "tbl5", "TBL3": "tbl6", "TBL7": "tbl9", "TBL8": "tbl10"}


def with_keys(names: dict[str, str]) -> str:
    text = MADE_WITH_KEYS
    for old, new in names.items():
        text = text.replace(old, new)
    return text


CONSTRAINTS = Scenario(
    name="keys2",
    hive=(*plain("testConstraints"), *hive("testBootstrapReplLoadRetryAfterFailureForTablesAndConstraints")),
    steps=[
        Step(
            with_keys({name: name.lower() for name in LATER}),
            checks=[
                constrained(
                    tbl1={"primaryKeys": 2},
                    tbl2={"foreignKeys": 2},
                    tbl3={"uniqueConstraints": 1, "notNullConstraints": 1},
                    tbl7={"checkConstraints": 2},
                    tbl8={"defaultConstraints": 1},
                )
            ],
        ),
        Step(
            with_keys(LATER),
            checks=[
                constrained(
                    tbl4={"primaryKeys": 2},
                    tbl5={"foreignKeys": 2},
                    tbl6={"uniqueConstraints": 1, "notNullConstraints": 1},
                    tbl9={"checkConstraints": 2},
                    tbl10={"defaultConstraints": 1},
                )
            ],
        ),
        Step(
            """ALTER TABLE {t}tbl10 CHANGE COLUMN a a string CONSTRAINT {n}ck CHECK (a LIKE 'a%') DISABLE;
            ALTER TABLE {t}tbl10 CHANGE COLUMN b b int CONSTRAINT {n}dk DEFAULT 1 DISABLE""",
            checks=[constrained(tbl10={"defaultConstraints": 2, "checkConstraints": 1})],
        ),
        Step(drop_all_constraints, checks=[constrained(tbl4={}, tbl5={}, tbl6={}, tbl9={}, tbl10={})]),
    ],
)


def jar(scene: Scene) -> None:
    """A jar of a function; its class is one that Hive has."""
    for name in ("one", "two"):
        with zipfile.ZipFile(scene.files / f"{name}.jar", "w") as archive:
            archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nName: {name}\n")


def functions(**jars: str) -> Any:
    """The target's functions, each with its jar, which lies on the target's side."""

    def check(scene: Scene) -> None:
        side = scene.target
        with side.pool.client() as client:
            functions: Any = [
                function
                for function in client.get_functions(side.database)
                if str(function.functionName).startswith(scene.name)
            ]
        assert {function.functionName for function in functions} == {f"{scene.name}_{name}" for name in jars}
        for function in functions:
            expected = jars[function.functionName.removeprefix(f"{scene.name}_")]
            uris = [resource.uri for resource in function.resourceUris or ()]
            assert [uri.rpartition("/")[2] for uri in uris] == [expected]
            assert not any(str(scene.files) in uri for uri in uris)
            assert (scene.files / expected).read_bytes() == _bytes(uris[0])

    return check


def _bytes(uri: str) -> bytes:
    return Path(local_path(uri) or "").read_bytes()


FUNCTIONS = Scenario(
    name="udf",
    hive=hive(
        "testCreateFunctionIncrementalReplication",
        "testCreateFunctionOnHDFSIncrementalReplication",
        "testCreateFunctionOnHDFSIncrementalReplicationLazyCopy",
        "testBootstrapFunctionReplication",
        "testDropFunctionIncrementalReplication",
        "testCreateFunctionWithFunctionBinaryJarsOnHDFS",
        "testBootstrapFunctionOnHDFSLazyCopy",
        "testIncrementalCreateFunctionWithFunctionBinaryJarsOnHDFS",
        "testBootstrapReplLoadRetryAfterFailureForFunctions",
    ),
    steps=[
        Step(
            [jar, f"CREATE FUNCTION {{t}}one AS '{UPPER}' USING JAR 'file:{{files}}/one.jar'"],
            checks=[functions(one="one.jar")],
        ),
        Step(
            f"CREATE FUNCTION {{t}}two AS '{UPPER}' USING JAR 'file:{{files}}/two.jar'",
            checks=[functions(one="one.jar", two="two.jar")],
        ),
        Step("DROP FUNCTION {t}one", checks=[functions(two="two.jar")]),
    ],
)


def database_is(owner: str, kind: str, **parameters: str) -> Any:
    def check(scene: Scene) -> None:
        with scene.target.pool.client() as client:
            described: Any = client.get_database(scene.target.database)
        assert (described.ownerName, str(to_json(described)["ownerType"])) == (owner, kind)
        assert described.description == "what it is for"
        assert {name: described.parameters.get(name) for name in parameters} == parameters

    return check


USER, ROLE = "1", "2"

DATABASE = Scenario(
    name="database",
    hive=(*plain("testDatabaseAlters"), *hive("testIfReplTargetSetInIncremental")),
    properties="COMMENT 'what it is for'",
    steps=[
        Step(
            "ALTER DATABASE {db} SET OWNER USER test",
            checks=[database_is("test", USER)],
        ),
        Step(
            "ALTER DATABASE {db} SET DBPROPERTIES ('blah' = 'foo')",
            checks=[database_is("test", USER, blah="foo", **{"repl.target.for": "true"})],
        ),
        Step(
            """ALTER DATABASE {db} SET DBPROPERTIES ('blah' = 'newFoo');
            ALTER DATABASE {db} SET OWNER ROLE newTest""",
            checks=[database_is("newTest", ROLE, blah="newFoo", **{"repl.target.for": "true"})],
        ),
    ],
)


def is_kind(**tables: str) -> Any:
    def check(scene: Scene) -> None:
        assert {name: scene.table(name, scene.target).tableType for name in tables} == tables

    return check


KINDS = Scenario(
    name="kinds2",
    hive=("TestReplicationWithTableMigration: tables whose kind changes in place",),
    # Hive refuses it in a database that is marked as one that is replicated.
    properties="",
    steps=[
        Step(
            """CREATE TABLE {t}inside (id int) PARTITIONED BY (p int);
            INSERT INTO {t}inside PARTITION (p=1) VALUES (1);
            CREATE EXTERNAL TABLE {t}outside (id int) PARTITIONED BY (p int);
            INSERT INTO {t}outside PARTITION (p=1) VALUES (1);
            CREATE TABLE {t}rows (id int) STORED AS ORC;
            INSERT INTO {t}rows VALUES (1), (2)""",
            {
                "SELECT id FROM {t}inside": "1",
                "SELECT id FROM {t}outside": "1",
                "SELECT id FROM {t}rows": "1 2",
            },
            checks=[is_kind(inside="MANAGED_TABLE", outside="EXTERNAL_TABLE", rows="MANAGED_TABLE")],
        ),
        Step(
            """ALTER TABLE {t}inside SET TBLPROPERTIES ('EXTERNAL'='TRUE');
            INSERT INTO {t}inside PARTITION (p=2) VALUES (2);
            ALTER TABLE {t}outside SET TBLPROPERTIES ('EXTERNAL'='FALSE');
            INSERT INTO {t}outside PARTITION (p=2) VALUES (2);
            ALTER TABLE {t}rows SET TBLPROPERTIES ('transactional'='true');
            INSERT INTO {t}rows VALUES (3);
            DELETE FROM {t}rows WHERE id = 1""",
            {
                "SELECT id FROM {t}inside": "1 2",
                "SELECT id FROM {t}outside": "1 2",
                "SELECT id FROM {t}rows": "2 3",
            },
            checks=[is_kind(inside="EXTERNAL_TABLE", outside="MANAGED_TABLE", rows="MANAGED_TABLE")],
        ),
        Step(
            """ALTER TABLE {t}inside DROP PARTITION (p=1);
            ALTER TABLE {t}outside DROP PARTITION (p=1);
            UPDATE {t}rows SET id = 4 WHERE id = 2""",
            {
                "SELECT id FROM {t}inside": "2",
                "SELECT id FROM {t}outside": "2",
                "SELECT id FROM {t}rows": "3 4",
            },
        ),
    ],
)

LAYOUT = Scenario(
    name="layout",
    hive=hive("testIfCkptAndSourceOfReplPropsIgnoredByReplDump"),
    steps=[
        Step(
            """CREATE TABLE {t}MixedCase (Id int COMMENT 'a key', `select` string) COMMENT 'Of mixed case'
             PARTITIONED BY (P string COMMENT 'a day') STORED AS TEXTFILE;
            INSERT INTO {t}MixedCase PARTITION (p='A') VALUES (1, 'one')""",
            {"SELECT id, `select` FROM {t}mixedcase": [("1", "one")]},
        ),
        Step(
            """ALTER TABLE {t}mixedcase SET FILEFORMAT PARQUET;
            INSERT INTO {t}mixedcase PARTITION (p='a') VALUES (2, 'two');
            ALTER TABLE {t}mixedcase CHANGE id id int COMMENT 'another comment' CASCADE;
            ALTER TABLE {t}mixedcase ADD COLUMNS (extra string) CASCADE;
            INSERT INTO {t}mixedcase PARTITION (p='c') VALUES (3, 'three', 'more');
            ALTER TABLE {t}mixedcase SET TBLPROPERTIES ('comment' = 'In several formats')""",
            {
                "SELECT id, `select`, extra, p FROM {t}mixedcase": [
                    ("1", "one", None, "A"),
                    ("2", "two", None, "a"),
                    ("3", "three", "more", "c"),
                ]
            },
        ),
    ],
)

SCENARIOS = (DDL, RECREATED, VIEWS, CONSTRAINTS, FUNCTIONS, DATABASE, KINDS, LAYOUT)
