"""Scenarios of TestReplicationScenarios: files that are removed, kept by the change manager, or missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from airflow_hive_federation.storage.filesystem import local_path
from tests.integration.hives_suite.managed import (
    FOUR_TABLES,
    IN_ALL,
    KEPT,
    LOADED,
    PARTITIONED,
    TEXT,
    TWO,
    hive,
    parts,
)
from tests.integration.hives_suite.scenario import Scenario, Scene, Step

SOON_GONE = Scenario(
    name="soon_gone",
    properties=KEPT,
    hive=hive(
        "testIncrementalInsertDropUnpartitionedTable",
        "testIncrementalInsertDropPartitionedTable",
        "testDropsWithCM",
    ),
    steps=[
        Step(f"CREATE TABLE {{t}}unptned {TEXT};\nCREATE TABLE {{t}}ptned {PARTITIONED}"),
        Step(
            """INSERT INTO {t}unptned VALUES ('eleven'), ('twelve');
            CREATE TABLE {t}unptned_tmp AS SELECT * FROM {t}unptned;
            ALTER TABLE {t}ptned ADD PARTITION (b=20);
            ALTER TABLE {t}ptned PARTITION (b=20) RENAME TO PARTITION (b=2);
            INSERT INTO {t}ptned PARTITION (b=2) VALUES ('fifteen'), ('seventeen');
            INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fourteen');
            CREATE TABLE {t}ptned_tmp AS SELECT * FROM {t}ptned""",
            {
                "SELECT * FROM {t}unptned_tmp": "eleven twelve",
                **parts("ptned", b1="fourteen", b2="fifteen seventeen"),
                **parts("ptned_tmp", b1="fourteen", b2="fifteen seventeen"),
            },
            meanwhile="""DROP TABLE {t}unptned;
            DROP TABLE {t}unptned_tmp;
            DROP TABLE {t}ptned_tmp;
            ALTER TABLE {t}ptned DROP PARTITION (b=1)""",
        ),
        Step(
            rows=parts("ptned", b1="", b2="fifteen seventeen"),
            absent=["unptned", "unptned_tmp", "ptned_tmp"],
        ),
    ],
)

OVERWRITTEN = Scenario(
    name="overwritten",
    properties=KEPT,
    hive=hive(
        "testInsertOverwriteOnUnpartitionedTableWithCM",
        "testInsertOverwriteOnPartitionedTableWithCM",
        "testTruncateWithCM",
    ),
    steps=[
        Step(f"CREATE TABLE {{t}}unptned {TEXT};\nCREATE TABLE {{t}}ptned {PARTITIONED}"),
        Step(
            """INSERT INTO {t}unptned VALUES ('thirteen');
            INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fourteen');
            INSERT INTO {t}ptned PARTITION (b=2) VALUES ('fifteen'), ('sixteen')""",
            {
                "SELECT a FROM {t}unptned": "thirteen",
                **parts("ptned", b1="fourteen", b2="fifteen sixteen"),
            },
            meanwhile="""INSERT OVERWRITE TABLE {t}unptned VALUES ('hundred');
            INSERT OVERWRITE TABLE {t}ptned PARTITION (b=2) VALUES ('hundred')""",
        ),
        Step(
            rows={
                "SELECT a FROM {t}unptned": "hundred",
                **parts("ptned", b1="fourteen", b2="hundred"),
            },
        ),
    ],
)

KEPT_AT_BOOTSTRAP = Scenario(
    name="boot_kept",
    hive=hive("testBasicWithCM", "testBasicWithCMLazyCopy", "testCMConflict"),
    properties=KEPT,
    steps=[
        Step(
            f"""{FOUR_TABLES.strip()};
            CREATE TABLE {{t}}twice {TEXT};
            INSERT INTO {{t}}twice VALUES ('ten');
            INSERT INTO {{t}}twice VALUES ('ten');
            {LOADED.strip()}""",
            {**IN_ALL, "SELECT a FROM {t}twice": "ten ten"},
            meanwhile="""DROP TABLE {t}unptned;
            ALTER TABLE {t}ptned DROP PARTITION (b=1);
            TRUNCATE TABLE {t}twice""",
        ),
        Step(rows={**parts("ptned", b1="", b2=TWO), "SELECT a FROM {t}twice": ""}, absent=["unptned"]),
    ],
)


def move(path: str, *, back: bool = False) -> Any:
    """Move a directory of the source away, or back, without Hive's knowledge."""

    def run(scene: Scene) -> None:
        table, _, inside = path.partition("/")
        place = Path(local_path(scene.table(table, scene.source).sd.location) or "") / inside
        away = scene.files / "away"
        shutil.move(*((away, place) if back else (place, away)))

    return run


def missing(name: str, table: str, path: str, method: str) -> Scenario:
    """A dump fails over a directory that is missing, and goes on when it is there again."""
    return Scenario(
        name=name,
        hive=hive(method),
        properties="",
        steps=[
            Step(
                [
                    f"CREATE TABLE {{t}}{table};\nINSERT INTO {{t}}normal VALUES ('1', 124)",
                    move(path),
                ],
                fails=path.rpartition("/")[2],
            ),
            Step(move(path, back=True), {"SELECT a FROM {t}normal": "1"}),
        ],
    )


NO_TABLE_DIRECTORY = missing(
    "no_table_dir", "normal (a string, part int)", "normal", "testDumpWithTableDirMissing"
)
NO_PARTITION_DIRECTORY = missing(
    "no_partition_dir",
    "normal (a string) PARTITIONED BY (part int)",
    "normal/part=124",
    "testDumpWithPartitionDirMissing",
)
MOVED_AWAY = Scenario(
    name="moved_away",
    hive=hive("testIncrementalLoadFailAndRetry"),
    properties="",
    steps=[
        Step(f"CREATE TABLE {{t}}ptned {PARTITIONED}"),
        Step(
            [
                """INSERT INTO {t}ptned PARTITION (b=1) VALUES ('fifteen');
                CREATE TABLE {t}ptned_tmp AS SELECT * FROM {t}ptned""",
                move("ptned/b=1"),
            ],
            {"SELECT a FROM {t}ptned": ""},
            fails="b=1",
        ),
        Step(
            move("ptned/b=1", back=True), {**parts("ptned", b1="fifteen"), **parts("ptned_tmp", b1="fifteen")}
        ),
    ],
)

SCENARIOS = (
    SOON_GONE,
    OVERWRITTEN,
    KEPT_AT_BOOTSTRAP,
    NO_TABLE_DIRECTORY,
    NO_PARTITION_DIRECTORY,
    MOVED_AWAY,
)
