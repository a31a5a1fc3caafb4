"""Names the steps, activities and jobs that events of progress are about."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """The steps of loads, failovers and take-overs: each may be killed before it begins, and repeated."""

    RESERVE = "reserve"
    SURVEY = "survey"
    REPLACE = "replace"
    REPLACE_PARTITIONS = "replace partitions"
    COPY_PLAN = "copy_plan"
    COPY = "copy"
    PLACE = "place"
    OPEN_TRANSACTIONS = "open transactions"
    KEEP_SHAPE = "keep shape"
    ALLOCATE = "allocate"
    FUNCTIONS = "functions"
    SEED = "seed"
    SHAPE = "shape"
    TABLE = "table"
    CREATE = "create"
    PARTITIONS = "partitions"
    FOREIGN_KEYS = "foreign keys"
    END_TRANSACTION = "end"
    DROP_PARTITIONS = "drop partitions"
    DROP = "drop"
    CONSTRAIN = "constrain"
    REMOVE_FILES = "remove files"
    DESCRIBE = "describe"
    SWEEP = "sweep"
    DIGESTS = "digests"
    REQUEST_COMPACTIONS = "request compactions"
    PUBLISH = "publish"
    END_LEASE = "end_lease"
    CHECK = "check"
    BASELINE = "baseline"
    SOURCE_BECOMES_TARGET = "source becomes target"
    TARGET_BECOMES_SOURCE = "target becomes source"
    END_FAILOVER = "end failover"
    END_LOAD = "end load"
    ABORT = "abort"
    LET_GO = "let go"


class Activity(StrEnum):
    """Work on many partitions."""

    READ = "read"
    CREATED = "created"
    COMPARED = "compared"


class FileJob(StrEnum):
    """The Spark jobs that work on many files."""

    COPY = "copy-files"
    DIGEST = "digest-files"
