"""Write-id lists against the text forms and answers of Hive's own classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import AcidFormatError, ConfigurationError
from airflow_hive_federation.model.write_ids import UNBOUNDED, RangeState, ValidTxns, ValidWriteIds

NONE_OPEN = f"db.t:9:{UNBOUNDED}::2,5"


@pytest.mark.parametrize(
    "text", [NONE_OPEN, f"db.t:7:{UNBOUNDED}::", "db.t:10:4:4,7:2,9", f"null:{UNBOUNDED}:{UNBOUNDED}::"]
)
def test_text_survives_a_round(text: str) -> None:
    assert ValidWriteIds.parse(text).text() == text


def test_hive_leaves_empty_parts_out() -> None:
    assert ValidWriteIds.parse("db.t:10:4:4") == ValidWriteIds.parse("db.t:10:4:4:")
    assert ValidTxns.parse("10:4") == ValidTxns(high_watermark=10, min_open_id=4)


@pytest.mark.parametrize("text", ["", "db.t", "db.t:x:1::", "db.t:1:2:3:4:5", "db.t:1:1:a:"])
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(AcidFormatError, match="Not a list of valid ids"):
        ValidWriteIds.parse(text)


def test_what_the_metastore_sends() -> None:
    # Bit i, lowest bit of the first byte first, marks invalid id i as aborted.
    ids = ValidWriteIds.of(
        "db.t", high_watermark=20, invalid_ids=[2, 4, 6, 8, 10, 12, 14, 16, 18], aborted_bits=b"\x05\x01"
    )
    assert ids.aborted_ids == (2, 6, 18)
    assert ids.min_open_id == 4
    assert ids.text() == "db.t:20:4:4,8,10,12,14,16:2,6,18"


def test_visibility() -> None:
    ids = ValidWriteIds.parse("db.t:9:7:7:2,5")
    assert [write_id for write_id in range(1, 12) if ids.is_valid(write_id)] == [1, 3, 4, 6, 8, 9]
    assert ids.range_state(3, 4) is RangeState.ALL
    assert ids.range_state(4, 6) is RangeState.SOME
    assert ids.range_state(7, 7) is RangeState.NONE
    assert ids.range_state(8, 10) is RangeState.SOME
    assert ids.range_state(10, 12) is RangeState.NONE
    assert ids.range_aborted(5, 5) is RangeState.ALL
    assert not ids.is_valid_base(7)
    assert ids.is_valid_base(6)


def test_cut() -> None:
    ids = ValidWriteIds.parse("db.t:9:7:7:2,8")
    assert ids.cut(6).text() == f"db.t:6:{UNBOUNDED}::2"
    assert ids.cut(7).text() == "db.t:7:7:7:2"
    with pytest.raises(ConfigurationError, match="does not cover 10"):
        ids.cut(10)


def test_a_compactor_stops_below_the_lowest_open_id() -> None:
    ids = ValidWriteIds.parse("db.t:9:7:7:2,8").for_compactor()
    assert ids.text() == f"db.t:6:{UNBOUNDED}::2"
    assert ids.range_state(1, 6) is RangeState.ALL
    assert ids.range_state(1, 7) is RangeState.NONE


@given(
    st.integers(1, 30),
    st.sets(st.integers(1, 30)),
    st.sets(st.integers(1, 30)),
    st.integers(1, 30),
    st.integers(0, 30),
)
def test_ranges_agree_with_single_ids(
    top: int, open_ids: set[int], aborted: set[int], low: int, width: int
) -> None:
    open_ids = {open_id for open_id in open_ids - aborted if open_id <= top}
    ids = ValidWriteIds(
        high_watermark=top,
        open_ids=tuple(sorted(open_ids)),
        aborted_ids=tuple(sorted(aborted_id for aborted_id in aborted if aborted_id <= top)),
        min_open_id=min(open_ids, default=None),
        table="d.t",
    )
    assert ValidWriteIds.parse(ids.text()) == ids
    valid = [ids.is_valid(write_id) for write_id in range(low, low + width + 1)]
    expected = RangeState.ALL if all(valid) else RangeState.SOME if any(valid) else RangeState.NONE
    # Hive's shortcut: with the first exception above the range, what is above the watermark counts as valid.
    if not (low <= top and ids.invalid_ids and ids.invalid_ids[0] > low + width):
        assert ids.range_state(low, low + width) is expected


def test_lists_are_so_long_and_no_longer() -> None:
    with pytest.raises(AcidFormatError, match="characters") as caught:
        ValidWriteIds.parse("d.t:1:1:" + "1," * 10_000_000 + "1:")
    assert len(str(caught.value)) < 2000
