from __future__ import annotations

import json

from airflow_hive_federation.replication.verification.differences import OWNER, WRITE_IDS, Difference
from airflow_hive_federation.replication.verification.mends import Mend, mend_of


def difference(table: str, what: str, where: str = "") -> Difference:
    return Difference(table=table, what=what, where=where, expected="1", found="2")


def test_what_is_altered_and_what_is_made_anew() -> None:
    found = [
        difference("a", "storage.cols"),
        difference("b", "partition", "d=1"),
        difference("c", "file", "file:/t/c/delta_1_1/bucket_0"),
        difference("c", "rows"),
        difference("d", "rows"),
        difference("e", WRITE_IDS),
        difference("f", "partitionKeys"),
        difference("g", OWNER),
    ]
    mend = mend_of(found)
    assert mend.tables == set("abcdefg")
    assert mend.replaced == set("defg")
    assert mend.files == {"file:/t/c/delta_1_1/bucket_0"}


def test_what_differs_once_more_is_made_anew() -> None:
    assert mend_of([difference("a", "storage.cols")], again={"a"}).replaced == {"a"}


def test_nothing_to_mend() -> None:
    assert not mend_of([])
    assert not Mend.from_json(None)


def test_it_goes_through_the_manifest() -> None:
    mend = mend_of([difference("a", "file", "s3://b/x"), difference("d", "rows")])
    assert Mend.from_json(json.loads(json.dumps(mend.to_json()))) == mend


def test_what_differs_of_the_database_itself_needs_a_cycle_and_no_table() -> None:
    mend = mend_of([difference("", "parameters.team"), difference("", "function", "f")])
    assert mend
    assert (mend.tables, mend.replaced, mend.files, mend.database) == (set(), set(), set(), True)
    assert Mend.from_json(json.loads(json.dumps(mend.to_json()))) == mend
