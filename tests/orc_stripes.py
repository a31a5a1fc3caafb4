"""ORC files of single stripes, for tests."""

from __future__ import annotations

import io

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.acid.orc.assembly import AssembledFile, Stripe
from airflow_hive_federation.acid.orc.tail import _all, _locate


def read_stripe(stripe: Stripe, rows: pa.Table, codec: str) -> pa.Table:
    """Read the file of one stripe by pyarrow.

    :param rows: a table of its columns.
    """
    types = pa.BufferOutputStream()
    orc.write_table(rows.slice(0, 0), types)
    _, _, footer = _locate(pa.BufferReader(types.getvalue()), "types")
    made = io.BytesIO()
    file = AssembledFile(made, _all(footer, 4), compression=codec, calendar=None)
    file.add(stripe)
    file.finish({})
    return orc.ORCFile(made).read()
