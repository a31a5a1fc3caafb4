"""Scenarios of TestReplicationScenariosAcidTables and TestReplicationScenariosIncrementalLoadAcidTables."""

from __future__ import annotations

from typing import Any

from tests.integration.hives_suite.scenario import Scenario, Scene, Step

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
INSERT_ONLY = "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only')"
BUCKETS = "CLUSTERED BY (key) INTO 3 BUCKETS"
DAYS = "(key int, value int) PARTITIONED BY (load_date date)"
FIVE = "1 2 3 4 5"


def acid_tables(*methods: str) -> tuple[str, ...]:
    return tuple(f"TestReplicationScenariosAcidTables.{method}" for method in methods)


def incremental(operation: str) -> tuple[str, ...]:
    """A part of the one long test of the class."""
    return (
        "TestReplicationScenariosIncrementalLoadAcidTables.testAcidTableIncrementalReplication: " + operation,
    )


def five_rows(kind: str, *names: str) -> str:
    """Statements that make partitioned tables with five rows, and beside each one without partitions."""
    return ";\n".join(
        f"""CREATE TABLE {{t}}{name} {DAYS} {kind};
        CREATE TABLE {{t}}{name}_nopart (key int, value int) {kind};
        ALTER TABLE {{t}}{name} ADD PARTITION (load_date='2016-03-03');
        INSERT INTO {{t}}{name} PARTITION (load_date='2016-03-01') VALUES (1, 1), (2, 2);
        INSERT INTO {{t}}{name} PARTITION (load_date) VALUES (3, 3, '2016-03-02'), (4, 4, '2016-03-03');
        INSERT INTO {{t}}{name} PARTITION (load_date='2016-03-02') VALUES (5, 5);
        INSERT INTO {{t}}{name}_nopart SELECT key, value FROM {{t}}{name}"""
        for name in names
    )


def keys(*names: str, rows: str = FIVE) -> dict[str, str]:
    return {f"SELECT key FROM {{t}}{name}": rows for name in names}


DML = Scenario(
    name="dml",
    hive=incremental("insert, delete, update, truncate, insert from select, insert overwrite, union"),
    steps=[
        Step(),
        Step(
            f"""{five_rows(f"{BUCKETS} {ACID}", "t")};
            {five_rows(ACID, "gone", "changed", "cut")};
            DELETE FROM {{t}}gone;
            UPDATE {{t}}changed SET value = 100 WHERE key >= 2;
            TRUNCATE TABLE {{t}}cut;
            TRUNCATE TABLE {{t}}cut_nopart;
            CREATE TABLE {{t}}selected {DAYS} {BUCKETS} {ACID};
            INSERT INTO {{t}}selected PARTITION (load_date) SELECT * FROM {{t}}t;
            CREATE TABLE {{t}}ow {DAYS} {ACID};
            INSERT INTO {{t}}ow PARTITION (load_date) VALUES (2, 2, '2016-03-01'), (11, 1, '2016-03-02');
            INSERT OVERWRITE TABLE {{t}}ow SELECT * FROM {{t}}t;
            CREATE TABLE {{t}}both (key int, value int) {ACID};
            INSERT INTO {{t}}both
             SELECT * FROM {{t}}t_nopart UNION ALL SELECT * FROM {{t}}t_nopart""",
            {
                **keys("t", "t_nopart", "selected", "ow"),
                "SELECT key FROM {t}gone": "",
                "SELECT value FROM {t}changed": "1 100 100 100 100",
                "SELECT count(*) FROM {t}cut": "0",
                "SELECT count(*) FROM {t}cut_nopart": "0",
                **keys("both", rows="1 1 2 2 3 3 4 4 5 5"),
            },
        ),
    ],
)

INSERT_ONLY_DML = Scenario(
    name="mm",
    hive=incremental("the same of insert-only tables"),
    steps=[
        Step(),
        Step(
            f"""{five_rows(INSERT_ONLY, "t", "cut")};
            TRUNCATE TABLE {{t}}cut;
            TRUNCATE TABLE {{t}}cut_nopart;
            CREATE TABLE {{t}}ow {DAYS} {INSERT_ONLY};
            INSERT INTO {{t}}ow PARTITION (load_date) VALUES (2, 2, '2016-03-01'), (11, 1, '2016-03-02');
            INSERT OVERWRITE TABLE {{t}}ow SELECT * FROM {{t}}t;
            CREATE TABLE {{t}}both (key int, value int) {INSERT_ONLY};
            INSERT OVERWRITE TABLE {{t}}both
             SELECT * FROM {{t}}t_nopart UNION ALL SELECT * FROM {{t}}t_nopart""",
            {
                **keys("t", "t_nopart", "ow"),
                "SELECT count(*) FROM {t}cut": "0",
                **keys("both", rows="1 1 2 2 3 3 4 4 5 5"),
            },
        ),
    ],
)

MADE = Scenario(
    name="made",
    hive=incremental("create as select, import, load, alter table"),
    steps=[
        Step(f"{five_rows(ACID, 't')};\n{five_rows(INSERT_ONLY, 'm')}", keys("t", "m_nopart")),
        Step(
            f"""CREATE TABLE {{t}}ctas PARTITIONED BY (load_date) {ACID} AS SELECT * FROM {{t}}t;
            CREATE TABLE {{t}}ctas_mm {INSERT_ONLY} AS SELECT * FROM {{t}}m_nopart;
            EXPORT TABLE {{t}}t TO '{{files}}/t';
            IMPORT TABLE {{t}}imported FROM '{{files}}/t';
            EXPORT TABLE {{t}}m TO '{{files}}/m';
            IMPORT TABLE {{t}}imported_mm FROM '{{files}}/m';
            INSERT OVERWRITE LOCAL DIRECTORY '{{files}}/rows' STORED AS ORC SELECT key, value FROM {{t}}t;
            CREATE TABLE {{t}}loaded {DAYS} {ACID};
            LOAD DATA LOCAL INPATH '{{files}}/rows/000000_0' OVERWRITE INTO TABLE {{t}}loaded
             PARTITION (load_date='2008-08-15');
            ALTER TABLE {{t}}t CHANGE value value1 int;
            ALTER TABLE {{t}}m_nopart CHANGE value value1 int""",
            {
                **keys("ctas", "ctas_mm", "imported", "imported_mm", "loaded"),
                "SELECT value1 FROM {t}t": FIVE,
                "SELECT value1 FROM {t}m_nopart": FIVE,
            },
        ),
    ],
)

MERGE = Scenario(
    name="merged",
    hive=incremental("merge"),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}t (id int, v string, by_user string) PARTITIONED BY (d string)
             CLUSTERED BY (id) INTO 5 BUCKETS {ACID};
            CREATE TABLE {{t}}s (id int, v string, d string) {ACID}"""
        ),
        Step(
            """INSERT INTO {t}t PARTITION (d) VALUES
             (1, 'value_01', 'creation', '20170410'), (2, 'value_02', 'creation', '20170410'),
             (3, 'value_03', 'creation', '20170410'), (4, 'value_04', 'creation', '20170410'),
             (5, 'value_05', 'creation', '20170413'), (6, 'value_06', 'creation', '20170413'),
             (7, 'value_07', 'creation', '20170413'), (8, 'value_08', 'creation', '20170413'),
             (9, 'value_09', 'creation', '20170413'), (10, 'value_10', 'creation', '20170413');
            INSERT INTO {t}s VALUES (1, 'value_01', '20170410'), (4, NULL, '20170410'),
             (7, 'value_77777', '20170413'), (8, NULL, '20170413'), (8, 'value_08', '20170415'),
             (11, 'value_11', '20170415');
            MERGE INTO {t}t AS t USING {t}s AS s ON t.id = s.id AND t.d = s.d
             WHEN MATCHED AND (t.v != s.v AND s.v IS NOT NULL)
              THEN UPDATE SET v = s.v, by_user = 'merge_update'
             WHEN MATCHED AND s.v IS NULL THEN DELETE
             WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v, 'merge_insert', s.d)""",
            {
                "SELECT by_user FROM {t}t": "creation " * 7 + "merge_update merge_insert merge_insert",
                "SELECT id FROM {t}s": "1 4 7 8 8 11",
            },
        ),
    ],
)

THREE_CYCLES = Scenario(
    name="three",
    hive=acid_tables(
        "testAcidTablesBootstrap",
        "testAcidTablesCreateTableIncremental",
        "testOpenTxnEvent",
        "testManagedTableLazyCopy",
        "testBatchingOfIncrementalEvents",
        "testHdfsMaxDirItemsLimitDuringIncremental",
    ),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}t1 (id int) CLUSTERED BY (id) INTO 3 BUCKETS {ACID};
            INSERT INTO {{t}}t1 VALUES (1), (2);
            CREATE TABLE {{t}}t2 (place string) PARTITIONED BY (country string) {ACID};
            INSERT INTO {{t}}t2 PARTITION (country)
             VALUES ('bangalore', 'india'), ('austin', 'us'), ('paris', 'france');
            ALTER TABLE {{t}}t2 ADD PARTITION (country='italy');
            CREATE TABLE {{t}}t3 (rank int) {INSERT_ONLY};
            INSERT INTO {{t}}t3 VALUES (11), (22);
            CREATE TABLE {{t}}t4 (id int);
            INSERT INTO {{t}}t4 VALUES (111), (222)""",
            {
                "SELECT id FROM {t}t1": "1 2",
                "SELECT country FROM {t}t2": "france india us",
                "SHOW PARTITIONS {t}t2": "country=france country=india country=italy country=us",
                "SELECT rank FROM {t}t3": "11 22",
                "SELECT id FROM {t}t4": "111 222",
            },
        ),
        Step(
            f"""INSERT INTO {{t}}t4 VALUES (333);
            CREATE TABLE {{t}}t7 (str string);
            INSERT INTO {{t}}t7 VALUES ('aaa');
            CREATE TABLE {{t}}t6 {ACID} AS SELECT * FROM {{t}}t1;
            ALTER TABLE {{t}}t2 ADD COLUMNS (placetype string);
            UPDATE {{t}}t2 SET placetype = 'city'""",
            {
                "SELECT id FROM {t}t4": "111 222 333",
                "SELECT * FROM {t}t7": "aaa",
                "SELECT id FROM {t}t6": "1 2",
                "SELECT country FROM {t}t2": "france india us",
                "SELECT placetype FROM {t}t2": "city city city",
            },
        ),
        Step(
            """INSERT INTO {t}t4 VALUES (444);
            INSERT INTO {t}t7 VALUES ('bbb');
            INSERT INTO {t}t1 VALUES (3);
            INSERT INTO {t}t3 VALUES (33)""",
            {
                "SELECT id FROM {t}t1": "1 2 3",
                "SELECT id FROM {t}t4": "111 222 333 444",
                "SELECT * FROM {t}t7": "aaa bbb",
                "SELECT rank FROM {t}t3": "11 22 33",
            },
        ),
    ],
)

WRITTEN_MEANWHILE = Scenario(
    name="meanwhile",
    hive=acid_tables("testAcidTablesBootstrapWithConcurrentWrites"),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}t1 (id int) {ACID};
            INSERT INTO {{t}}t1 VALUES (1)""",
            {"SELECT id FROM {t}t1": "1"},
            meanwhile="INSERT INTO {t}t1 VALUES (2)",
        ),
        Step(rows={"SELECT id FROM {t}t1": "1 2"}),
    ],
)


def transactional(*names: str) -> Any:
    def check(scene: Scene) -> None:
        for name in names:
            table = scene.table(name, scene.target)
            assert table.tableType == "MANAGED_TABLE"
            assert table.parameters["transactional"] == "true"

    return check


SAME_NAME = Scenario(
    name="same_name",
    hive=acid_tables(
        "testTxnTblReplWithSameNameAsDroppedNonTxnTbl", "testTxnTblReplWithSameNameAsDroppedExtTbl"
    ),
    steps=[
        Step(
            """CREATE TABLE {t}plain (id int);
            CREATE EXTERNAL TABLE {t}outside (id int);
            INSERT INTO {t}plain VALUES (1);
            INSERT INTO {t}outside VALUES (1)""",
            {"SELECT id FROM {t}plain": "1", "SELECT id FROM {t}outside": "1"},
        ),
        Step(
            f"""DROP TABLE {{t}}plain;
            DROP TABLE {{t}}outside;
            CREATE TABLE {{t}}plain (id int) {ACID};
            CREATE TABLE {{t}}outside (id int) {ACID};
            INSERT INTO {{t}}plain VALUES (2);
            INSERT INTO {{t}}outside VALUES (2)""",
            {"SELECT id FROM {t}plain": "2", "SELECT id FROM {t}outside": "2"},
            checks=[transactional("plain", "outside")],
        ),
    ],
)

CONVERTED = Scenario(
    name="converted",
    hive=("TestReplicationWithTableMigration: a table that becomes transactional in place",),
    steps=[
        Step(
            """CREATE EXTERNAL TABLE {t}outside (id int) STORED AS ORC;
            INSERT INTO {t}outside VALUES (1), (2);
            CREATE TABLE {t}rows (id int) STORED AS ORC TBLPROPERTIES ('transactional'='true',
             'transactional_properties'='insert_only');
            INSERT INTO {t}rows VALUES (1), (2)""",
            {"SELECT id FROM {t}outside": "1 2", "SELECT id FROM {t}rows": "1 2"},
        ),
        Step(
            """ALTER TABLE {t}rows SET TBLPROPERTIES ('transactional_properties'='default');
            INSERT INTO {t}rows VALUES (3);
            DELETE FROM {t}rows WHERE id = 1""",
            {"SELECT id FROM {t}rows": "2 3"},
            checks=[transactional("rows")],
        ),
    ],
)

FORMATS = Scenario(
    name="formats",
    hive=acid_tables(
        "testORCTableRegularCopyWithCopyOnTarget",
        "testORCTableDistcpCopyWithCopyOnTarget",
        "testTableWithPartitionsInBatch",
    ),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}t1 (a int) {ACID};
            CREATE TABLE {{t}}t2 (a string) CLUSTERED BY (a) INTO 2 BUCKETS {ACID};
            CREATE TABLE {{t}}tpart1 (a int) PARTITIONED BY (name string) {ACID};
            CREATE TABLE {{t}}tpart2 (a int) PARTITIONED BY (name string)
             CLUSTERED BY (a) INTO 2 BUCKETS {ACID};
            CREATE TABLE {{t}}text1 (a string) STORED AS TEXTFILE;
            INSERT INTO {{t}}t1 VALUES (1), (11);
            INSERT INTO {{t}}t2 VALUES (2), (22);
            INSERT INTO {{t}}tpart1 PARTITION (name) VALUES (100, 'Tom'), (101, 'Jerry');
            INSERT INTO {{t}}tpart2 PARTITION (name) VALUES (200, 'Bob'), (201, 'Carl');
            INSERT INTO {{t}}text1 VALUES ('ricky')""",
            {
                "SELECT * FROM {t}t1": "1 11",
                "SELECT * FROM {t}t2": "2 22",
                "SELECT a FROM {t}tpart1": "100 101",
                "SHOW PARTITIONS {t}tpart2": "name=Bob name=Carl",
                "SELECT * FROM {t}text1": "ricky",
            },
        ),
        Step(
            f"""CREATE TABLE {{t}}t4 (a int) CLUSTERED BY (a) INTO 2 BUCKETS {ACID};
            CREATE TABLE {{t}}tpart3 (a int) PARTITIONED BY (name string) {ACID};
            INSERT INTO {{t}}t1 VALUES (111);
            INSERT INTO {{t}}t4 VALUES (4);
            INSERT INTO {{t}}tpart1 PARTITION (name) VALUES (102, 'Tom'), (103, 'Jerry');
            INSERT INTO {{t}}tpart3 PARTITION (name) VALUES (300, 'Tom3'), (301, 'Jerry3');
            INSERT INTO {{t}}text1 VALUES ('martin')""",
            {
                "SELECT * FROM {t}t1": "1 11 111",
                "SELECT * FROM {t}t4": "4",
                "SELECT a FROM {t}tpart1": "100 101 102 103",
                "SHOW PARTITIONS {t}tpart3": "name=Jerry3 name=Tom3",
                "SELECT * FROM {t}text1": "martin ricky",
            },
        ),
        Step(
            """INSERT INTO {t}t4 VALUES (44);
            INSERT INTO {t}t1 VALUES (1111);
            DROP TABLE {t}t1;
            INSERT INTO {t}tpart1 PARTITION (name)
             VALUES (104, 'Tom'), (1000, 'Tom_del'), (10001, 'Harry'), (105, 'Jerry');
            ALTER TABLE {t}tpart1 DROP PARTITION (name='Tom');
            DROP TABLE {t}tpart2""",
            {
                "SELECT * FROM {t}t4": "4 44",
                "SELECT a FROM {t}tpart1": "101 103 105 1000 10001",
                "SHOW PARTITIONS {t}tpart1": "name=Harry name=Jerry name=Tom_del",
            },
            absent=["t1", "tpart2"],
        ),
    ],
)

MATERIALIZED = Scenario(
    name="mv",
    hive=(
        *acid_tables("testMaterializedViewOnAcidTableReplication"),
        "TestReplicationScenarios.testMaterializedViewsReplication",
    ),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}t1 (a string) {ACID};
            INSERT INTO {{t}}t1 VALUES ('1'), ('2');
            CREATE MATERIALIZED VIEW {{t}}view AS SELECT * FROM {{t}}t1;
            CREATE MATERIALIZED VIEW {{t}}plain DISABLE REWRITE STORED AS TEXTFILE
             AS SELECT a FROM {{t}}t1""",
            {"SELECT * FROM {t}t1": "1 2"},
            absent=[],
        ),
        Step(
            """INSERT INTO {t}t1 VALUES ('3');
            ALTER MATERIALIZED VIEW {t}view REBUILD;
            ALTER TABLE {t}plain RENAME TO {t}renamed""",
            {"SELECT * FROM {t}t1": "1 2 3"},
        ),
        # Under another name Hive finds no note of the view to forget (ObjectStore.dropCreationMetadata),
        # and the table could never be dropped.
        Step(
            """ALTER MATERIALIZED VIEW {t}view DISABLE REWRITE;
            ALTER TABLE {t}renamed RENAME TO {t}plain;
            CREATE MATERIALIZED VIEW {t}another DISABLE REWRITE AS SELECT a FROM {t}t1""",
            {"SELECT * FROM {t}t1": "1 2 3"},
            checks=[lambda scene: only_tables(scene, "t1")],
        ),
    ],
)


def only_tables(scene: Scene, *names: str) -> None:
    side = scene.target
    with side.pool.client() as client:
        there = {table for table in client.list_tables(side.database) if table.startswith(f"{scene.name}_")}
    assert there == {f"{scene.name}_{name}" for name in names}


SCENARIOS = (
    DML,
    INSERT_ONLY_DML,
    MADE,
    MERGE,
    THREE_CYCLES,
    WRITTEN_MEANWHILE,
    SAME_NAME,
    CONVERTED,
    FORMATS,
    MATERIALIZED,
)
