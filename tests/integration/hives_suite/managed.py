"""Scenarios of TestReplicationScenarios: plain tables of a metastore without Hive 4's translation."""

from __future__ import annotations

from typing import Any

from tests.integration.hives_suite.scenario import Scenario, Scene, Step

ONE, TWO = "thirteen fourteen fifteen", "fifteen sixteen seventeen"
CLASS = "TestReplicationScenarios"
#: The change manager keeps what is removed from such databases.
KEPT = "WITH DBPROPERTIES ('repl.source.for' = 'suite')"
TEXT = "(a string) STORED AS TEXTFILE"
PARTITIONED = "(a string) PARTITIONED BY (b int) STORED AS TEXTFILE"
FOUR_TABLES = f"""
CREATE TABLE {{t}}unptned {TEXT};
CREATE TABLE {{t}}ptned {PARTITIONED};
CREATE TABLE {{t}}unptned_empty {TEXT};
CREATE TABLE {{t}}ptned_empty {PARTITIONED}
"""
LOADED = f"""
LOAD ROWS (eleven twelve) OVERWRITE INTO {{t}}unptned;
LOAD ROWS ({ONE}) OVERWRITE INTO {{t}}ptned PARTITION (b=1);
LOAD ROWS ({TWO}) OVERWRITE INTO {{t}}ptned PARTITION (b=2)
"""
IN_ALL = {
    "SELECT * FROM {t}unptned": "eleven twelve",
    "SELECT a FROM {t}ptned WHERE b=1": ONE,
    "SELECT a FROM {t}ptned WHERE b=2": TWO,
}


def hive(*methods: str) -> tuple[str, ...]:
    return tuple(f"{CLASS}.{method}" for method in methods)


def parts(table: str, **values: str) -> dict[str, str]:
    """Rows of partitions of a table: ``b1="x y"`` is those of ``b=1``."""
    return {
        f"SELECT a FROM {{t}}{table} WHERE b={name.removeprefix('b')}": rows for name, rows in values.items()
    }


def set_partition_parameter(scene: Scene) -> None:
    """No statement of Hive does this."""
    side = scene.source
    with side.pool.client() as client:
        name = f"{scene.name}_ptned"
        partition: Any = next(
            partition
            for partition in client.iter_partitions(side.database, name)
            if partition.values == ["1"]
        )
        partition.parameters["blah"] = "foo"
        client.alter_partitions(side.database, name, [partition])


def parameters_follow(scene: Scene) -> None:
    for table in ("unptned2", "ptned"):
        assert scene.table(table, scene.target).parameters["blah"] == "foo"
    with scene.target.pool.client() as client:
        partitions = client.iter_partitions(scene.target.database, f"{scene.name}_ptned")
        (mark,) = (partition.parameters["blah"] for partition in partitions if partition.values == ["1"])  # type: ignore[index]
    assert mark == "foo"


BASIC = Scenario(
    name="basic",
    hive=hive("testBasic", "testBootstrapFailedDump", "testMoveOptimizationBootstrap"),
    steps=[
        Step(
            FOUR_TABLES.strip() + ";\n" + LOADED,
            {**IN_ALL, "SELECT a FROM {t}ptned_empty": "", "SELECT * FROM {t}unptned_empty": ""},
        )
    ],
)

ADDS = Scenario(
    name="adds",
    hive=hive(
        "testIncrementalAdds",
        "testIncrementalLogs",
        "testIncrementalLoad",
        "testIncrementalLoadLazyCopy",
        "testMultipleDbMetadataOnlyDump",
    ),
    steps=[
        Step(FOUR_TABLES, {"SELECT a FROM {t}ptned_empty": "", "SELECT * FROM {t}unptned_empty": ""}),
        Step(
            f"""{LOADED.strip()};
            CREATE TABLE {{t}}unptned_late AS SELECT * FROM {{t}}unptned;
            CREATE TABLE {{t}}ptned_late {PARTITIONED};
            LOAD ROWS ({ONE}) OVERWRITE INTO {{t}}ptned_late PARTITION (b=1);
            LOAD ROWS ({TWO}) OVERWRITE INTO {{t}}ptned_late PARTITION (b=2)""",
            {
                **IN_ALL,
                "SELECT * FROM {t}unptned_late": "eleven twelve",
                **parts("ptned_late", b1=ONE, b2=TWO),
                "SELECT a FROM {t}ptned_empty": "",
                "SELECT * FROM {t}unptned_empty": "",
            },
        ),
        Step(
            f"""ALTER TABLE {{t}}ptned_empty ADD PARTITION (b=1);
            LOAD ROWS ({ONE}) OVERWRITE INTO {{t}}ptned_empty PARTITION (b=1);
            CREATE TABLE {{t}}like_late LIKE {{t}}unptned;
            INSERT INTO {{t}}like_late SELECT * FROM {{t}}unptned;
            INSERT INTO {{t}}ptned_late PARTITION (b=3) SELECT a FROM {{t}}ptned WHERE b=1""",
            {
                **parts("ptned_empty", b1=ONE),
                **parts("ptned_late", b3=ONE),
                "SELECT * FROM {t}like_late": "eleven twelve",
            },
        ),
    ],
)

DROPS = Scenario(
    name="drops",
    hive=hive("testDrops", "testDropPartitionSingleEvent", "testAddPartition"),
    steps=[
        Step(
            f"""{FOUR_TABLES.strip()};
            CREATE TABLE {{t}}ptned2 (a string) PARTITIONED BY (b string) STORED AS TEXTFILE;
            CREATE TABLE {{t}}many {PARTITIONED};
            ALTER TABLE {{t}}many ADD PARTITION (b=0) PARTITION (b=1) PARTITION (b=2) PARTITION (b=3);
            {LOADED.strip()};
            LOAD ROWS ({ONE}) OVERWRITE INTO {{t}}ptned2 PARTITION (b='1')""",
            {**IN_ALL, "SELECT a FROM {t}ptned2 WHERE b='1'": ONE},
        ),
        Step(
            """DROP TABLE {t}unptned;
            ALTER TABLE {t}ptned DROP PARTITION (b=1);
            DROP TABLE {t}ptned2;
            ALTER TABLE {t}many DROP PARTITION (b<3)""",
            {
                "SELECT a FROM {t}ptned": TWO,
                "SHOW PARTITIONS {t}ptned": "b=2",
                "SHOW PARTITIONS {t}many": "b=3",
            },
            absent=["unptned", "ptned2"],
        ),
    ],
)

ALTERS = Scenario(
    name="alters",
    hive=hive("testTableAlters"),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}unptned {TEXT};
            CREATE TABLE {{t}}unptned2 {TEXT};
            CREATE TABLE {{t}}ptned {PARTITIONED};
            CREATE TABLE {{t}}ptned2 {PARTITIONED};
            {LOADED.strip()};
            LOAD ROWS (eleven twelve) OVERWRITE INTO {{t}}unptned2;
            LOAD ROWS ({ONE}) OVERWRITE INTO {{t}}ptned2 PARTITION (b=1);
            LOAD ROWS ({TWO}) OVERWRITE INTO {{t}}ptned2 PARTITION (b=2)""",
            {**IN_ALL, **parts("ptned2", b1=ONE, b2=TWO)},
        ),
        Step(
            [
                """ALTER TABLE {t}unptned RENAME TO {t}unptned_rn;
                ALTER TABLE {t}unptned2 SET TBLPROPERTIES ('blah' = 'foo');
                ALTER TABLE {t}ptned PARTITION (b=2) RENAME TO PARTITION (b=22);
                ALTER TABLE {t}ptned SET TBLPROPERTIES ('blah' = 'foo')""",
                set_partition_parameter,
                "ALTER TABLE {t}ptned2 RENAME TO {t}ptned2_rn",
            ],
            {
                "SELECT * FROM {t}unptned_rn": "eleven twelve",
                **parts("ptned", b1=ONE, b2="", b22=TWO),
                **parts("ptned2_rn", b1=ONE, b2=TWO),
            },
            absent=["unptned", "ptned2"],
            checks=[parameters_follow],
        ),
    ],
)

INSERTS = Scenario(
    name="inserts",
    hive=hive(
        "testIncrementalInserts", "testMoveOptimizationIncremental", "testIdempotentMoveTaskForInsertFiles"
    ),
    steps=[
        Step(f"CREATE TABLE {{t}}unptned {TEXT}", {"SELECT * FROM {t}unptned": ""}),
        Step(
            """INSERT INTO {t}unptned VALUES ('eleven');
            INSERT INTO {t}unptned VALUES ('twelve');
            CREATE TABLE {t}unptned_late LIKE {t}unptned;
            INSERT INTO {t}unptned_late SELECT * FROM {t}unptned""",
            {
                "SELECT * FROM {t}unptned": "eleven twelve",
                "SELECT * FROM {t}unptned_late": "eleven twelve",
            },
        ),
        Step(
            """INSERT INTO {t}unptned_late VALUES ('thirteen');
            INSERT OVERWRITE TABLE {t}unptned VALUES ('hundred')""",
            {
                "SELECT * FROM {t}unptned": "hundred",
                "SELECT * FROM {t}unptned_late": "eleven thirteen twelve",
                "SELECT count(*) FROM {t}unptned_late": "3",
            },
        ),
    ],
)

PARTITION_INSERTS = Scenario(
    name="part_inserts",
    hive=hive("testIncrementalInsertToPartition", "testEventTypesForDynamicAddPartitionByInsert"),
    steps=[
        Step(f"CREATE TABLE {{t}}ptned {PARTITIONED}"),
        Step(
            """INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fifteen');
            INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fourteen'), ('thirteen');
            ALTER TABLE {t}ptned ADD PARTITION (b=2);
            INSERT INTO {t}ptned PARTITION (b=2) VALUES ('fifteen'), ('seventeen'), ('sixteen')""",
            parts("ptned", b1=ONE, b2=TWO),
        ),
        Step(
            """INSERT OVERWRITE TABLE {t}ptned PARTITION (b=2) VALUES ('hundred');
            INSERT OVERWRITE TABLE {t}ptned PARTITION (b=3) VALUES ('hundred')""",
            parts("ptned", b1=ONE, b2="hundred", b3="hundred"),
        ),
    ],
)

KEYS = Scenario(
    name="keys",
    hive=hive("testInsertToMultiKeyPartition"),
    steps=[
        Step(
            """CREATE TABLE {t}namelist (name string) PARTITIONED BY (year int, month int, day int)
             STORED AS TEXTFILE;
            INSERT INTO {t}namelist PARTITION (year=1980, month=4, day=1) VALUES ('abraham');
            INSERT INTO {t}namelist PARTITION (year=1980, month=5, day=5) VALUES ('bob');
            INSERT INTO {t}namelist PARTITION (year=1984, month=4, day=1) VALUES ('carter')""",
            {
                "SELECT name FROM {t}namelist WHERE year=1980": "abraham bob",
                "SELECT name FROM {t}namelist WHERE day=1": "abraham carter",
                "SHOW PARTITIONS {t}namelist": (
                    "year=1980/month=4/day=1 year=1980/month=5/day=5 year=1984/month=4/day=1"
                ),
            },
        ),
        Step(
            """INSERT INTO {t}namelist PARTITION (year=1984, month=4, day=1) VALUES ('david');
            INSERT INTO {t}namelist PARTITION (year=1990, month=5, day=25) VALUES ('eugene')""",
            {
                "SELECT name FROM {t}namelist WHERE year=1984 AND month=4 AND day=1": "carter david",
                "SELECT name FROM {t}namelist": "abraham bob carter david eugene",
            },
        ),
        Step(
            "INSERT OVERWRITE TABLE {t}namelist PARTITION (year=1990, month=5, day=25) VALUES ('fisher')",
            {
                "SELECT name FROM {t}namelist WHERE year=1990": "fisher",
                "SELECT name FROM {t}namelist": "abraham bob carter david fisher",
            },
        ),
    ],
)

STRANGE_PARTITIONS = Scenario(
    name="strange",
    hive=hive("testDropPartitionEventWithPartitionOnTimestampColumn", "testWithStringPartitionSpecialChars"),
    steps=[
        Step(
            """CREATE TABLE {t}times (a string) PARTITIONED BY (b timestamp);
            INSERT INTO {t}times PARTITION (b="2017-10-01 01:00:10.1") VALUES ('fourteen');
            CREATE TABLE {t}texts (v string) PARTITIONED BY (p string);
            INSERT INTO {t}texts PARTITION (p="has a space, /, and \\t tab") VALUES ('fourteen')""",
            {
                "SELECT a FROM {t}times": "fourteen",
                "SELECT p FROM {t}texts": [("has a space, /, and \t tab",)],
            },
        ),
        Step(
            """INSERT INTO {t}times PARTITION (b="2017-10-24 00:00:00.0") VALUES ('fifteen');
            INSERT INTO {t}texts PARTITION (p="another set of '#@ chars") VALUES ('fifteen')""",
            {
                'SELECT a FROM {t}times WHERE b="2017-10-24 00:00:00.0"': "fifteen",
                "SELECT p FROM {t}texts": [("has a space, /, and \t tab",), ("another set of '#@ chars",)],
            },
        ),
        Step(
            """ALTER TABLE {t}times DROP PARTITION (b="2017-10-24 00:00:00.0");
            ALTER TABLE {t}texts DROP PARTITION (p="has a space, /, and \\t tab")""",
            {"SELECT a FROM {t}times": "fourteen", "SELECT p FROM {t}texts": [("another set of '#@ chars",)]},
        ),
    ],
)

RENAMED = Scenario(
    name="renamed",
    hive=hive("testRenameTableWithCM", "testRenamePartitionWithCM"),
    steps=[
        Step(f"CREATE TABLE {{t}}unptned {TEXT};\nCREATE TABLE {{t}}ptned {PARTITIONED}"),
        Step(
            """INSERT INTO {t}unptned VALUES ('ten'), ('twenty');
            INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fifteen'), ('fourteen');
            ALTER TABLE {t}ptned ADD PARTITION (b=2);
            INSERT INTO {t}ptned PARTITION (b=2) VALUES ('fifteen'), ('seventeen')""",
            parts("ptned", b1="fifteen fourteen", b2="fifteen seventeen"),
        ),
        Step(
            """ALTER TABLE {t}unptned RENAME TO {t}unptned_renamed;
            ALTER TABLE {t}ptned PARTITION (b=2) RENAME TO PARTITION (b=10);
            ALTER TABLE {t}ptned RENAME TO {t}ptned_renamed""",
            {
                "SELECT a FROM {t}unptned_renamed": "ten twenty",
                **parts("ptned_renamed", b1="fifteen fourteen", b2="", b10="fifteen seventeen"),
            },
            absent=["unptned", "ptned"],
        ),
    ],
)

EXCHANGE = Scenario(
    name="exchange",
    hive=hive("testExchangePartition"),
    steps=[
        Step(
            """CREATE TABLE {t}src (a string) PARTITIONED BY (b int, c int) STORED AS TEXTFILE;
            CREATE TABLE {t}dest (a string) PARTITIONED BY (b int, c int) STORED AS TEXTFILE;
            INSERT INTO {t}src PARTITION (b=1, c=1) VALUES ('fifteen'), ('fourteen');
            ALTER TABLE {t}src ADD PARTITION (b=2, c=2);
            INSERT INTO {t}src PARTITION (b=2, c=2) VALUES ('seventeen');
            INSERT INTO {t}src PARTITION (b=2, c=3) VALUES ('sixteen')""",
            {"SELECT a FROM {t}src": "fifteen fourteen seventeen sixteen", "SELECT a FROM {t}dest": ""},
        ),
        Step(
            "ALTER TABLE {t}dest EXCHANGE PARTITION (b=1, c=1) WITH TABLE {t}src",
            {
                "SELECT a FROM {t}src": "seventeen sixteen",
                "SELECT a FROM {t}dest": "fifteen fourteen",
                "SHOW PARTITIONS {t}src": "b=2/c=2 b=2/c=3",
                "SHOW PARTITIONS {t}dest": "b=1/c=1",
            },
        ),
        Step(
            "ALTER TABLE {t}dest EXCHANGE PARTITION (b=2) WITH TABLE {t}src",
            {
                "SELECT a FROM {t}src": "",
                "SELECT a FROM {t}dest WHERE b=2 AND c=2": "seventeen",
                "SELECT a FROM {t}dest WHERE b=2 AND c=3": "sixteen",
                "SELECT a FROM {t}dest WHERE b=1": "fifteen fourteen",
            },
        ),
    ],
)

TRUNCATE = Scenario(
    name="truncate",
    hive=hive(
        "testTruncateTable", "testTruncatePartitionedTable", "testIncrementalLoadWithVariableLengthEventId"
    ),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}unptned {TEXT};
            CREATE TABLE {{t}}ptned_1 {PARTITIONED};
            CREATE TABLE {{t}}ptned_2 {PARTITIONED};
            LOAD ROWS ({ONE}) INTO {{t}}ptned_1 PARTITION (b=1);
            LOAD ROWS ({TWO}) INTO {{t}}ptned_1 PARTITION (b=2);
            LOAD ROWS ({ONE}) INTO {{t}}ptned_2 PARTITION (b=10);
            LOAD ROWS ({TWO}) INTO {{t}}ptned_2 PARTITION (b=20);
            INSERT INTO {{t}}unptned VALUES ('eleven'), ('twelve')""",
            {"SELECT a FROM {t}unptned": "eleven twelve", **parts("ptned_2", b10=ONE, b20=TWO)},
        ),
        Step(
            """TRUNCATE TABLE {t}unptned;
            TRUNCATE TABLE {t}ptned_1 PARTITION (b=2);
            TRUNCATE TABLE {t}ptned_2""",
            {
                "SELECT a FROM {t}unptned": "",
                **parts("ptned_1", b1=ONE, b2=""),
                "SELECT a FROM {t}ptned_2": "",
                "SHOW PARTITIONS {t}ptned_2": "b=10 b=20",
            },
        ),
        Step(
            """INSERT INTO {t}unptned VALUES ('thirteen');
            TRUNCATE TABLE {t}ptned_1;
            INSERT INTO {t}ptned_1 PARTITION (b=1) VALUES ('eleven')""",
            {"SELECT a FROM {t}unptned": "thirteen", "SELECT a FROM {t}ptned_1": "eleven"},
        ),
    ],
)

REPEATED = Scenario(
    name="repeated",
    hive=hive("testIncrementalRepeatEventOnExistingObject", "testIncrementalRepeatEventOnMissingObject"),
    steps=[
        Step(f"CREATE TABLE {{t}}unptned {TEXT};\nCREATE TABLE {{t}}ptned {PARTITIONED}"),
        Step(
            """INSERT INTO {t}unptned VALUES ('ten');
            INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fifteen');
            ALTER TABLE {t}ptned ADD PARTITION (b=2);
            INSERT INTO {t}ptned PARTITION (b=2) VALUES ('seventeen');
            TRUNCATE TABLE {t}ptned PARTITION (b=1);
            TRUNCATE TABLE {t}unptned;
            CREATE TABLE {t}unptned_tmp AS SELECT * FROM {t}ptned;
            ALTER TABLE {t}unptned_tmp ADD CONSTRAINT uk_existing UNIQUE (a) DISABLE""",
            {
                "SELECT a FROM {t}unptned": "",
                **parts("ptned", b1="", b2="seventeen"),
                **parts("unptned_tmp", b1="", b2="seventeen"),
            },
        ),
        Step(
            f"""CREATE TABLE {{t}}ptned_tmp {PARTITIONED};
            INSERT INTO {{t}}ptned_tmp PARTITION (b=10) VALUES ('fifteen');
            ALTER TABLE {{t}}ptned DROP PARTITION (b=1);
            ALTER TABLE {{t}}ptned PARTITION (b=2) RENAME TO PARTITION (b=20);
            ALTER TABLE {{t}}unptned RENAME TO {{t}}unptned_new;
            ALTER TABLE {{t}}ptned_tmp ADD CONSTRAINT uk_missing UNIQUE (a) DISABLE;
            DROP TABLE {{t}}ptned_tmp""",
            {"SHOW PARTITIONS {t}ptned": "b=20", "SELECT a FROM {t}unptned_new": ""},
            absent=["unptned", "ptned_tmp"],
        ),
    ],
)

CONCATENATE = Scenario(
    name="concatenate",
    hive=hive("testConcatenateTable", "testConcatenatePartitionedTable"),
    steps=[
        Step(
            """CREATE TABLE {t}unptned (a string) STORED AS ORC;
            CREATE TABLE {t}ptned (a string) PARTITIONED BY (b int) STORED AS ORC;
            INSERT INTO {t}unptned VALUES ('eleven');
            INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fifteen');
            INSERT INTO {t}ptned PARTITION (b=2) VALUES ('fifteen')""",
            {"SELECT * FROM {t}unptned": "eleven"},
        ),
        Step(
            """INSERT INTO {t}unptned VALUES ('twelve');
            ALTER TABLE {t}unptned CONCATENATE;
            INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fourteen'), ('thirteen');
            INSERT INTO {t}ptned PARTITION (b=2) VALUES ('seventeen');
            ALTER TABLE {t}ptned PARTITION (b=2) CONCATENATE""",
            {
                "SELECT a FROM {t}unptned": "eleven twelve",
                **parts("ptned", b1=ONE, b2="fifteen seventeen"),
            },
        ),
    ],
)

SCENARIOS = (
    BASIC,
    ADDS,
    DROPS,
    ALTERS,
    INSERTS,
    PARTITION_INSERTS,
    KEYS,
    STRANGE_PARTITIONS,
    RENAMED,
    EXCHANGE,
    TRUNCATE,
    REPEATED,
    CONCATENATE,
)
