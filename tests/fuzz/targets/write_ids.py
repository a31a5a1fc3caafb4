"""Lists of valid write ids and transactions, as text and as the bits of a metastore."""

from __future__ import annotations

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds

ALLOWED = (AcidFormatError,)
TRACED = ("airflow_hive_federation.model.write_ids",)
INPUTS = 3000
SEEDS = [b"d.t:9:4:4,6:5,7", b"null:5:9223372036854775807::", b"d.t:9:9:9:", b"d.t:1:2", b":::"]
TOKENS = [b":", b",", b"9223372036854775807", b"-1", b"1", b"1,2,3", b" ", b"_"]


def run(data: bytes) -> None:
    """Parse a list, query it, and parse its written form."""
    text = data.decode("utf-8", "replace")
    ids = ValidWriteIds.parse(text)
    again = ValidWriteIds.parse(ids.text())
    assert (again.high_watermark, again.invalid_ids) == (ids.high_watermark, ids.invalid_ids)
    for write_id in (1, ids.high_watermark, *ids.invalid_ids[:3]):
        assert ids.is_valid(write_id) == again.is_valid(write_id)
        ids.range_state(write_id, write_id + 5)
    ValidTxns.parse(text.partition(":")[2])
    bits = ValidTxns.of(high_watermark=9, invalid_ids=list(data[:20]), aborted_bits=data[20:])
    assert not set(bits.open_ids) & set(bits.aborted_ids)
