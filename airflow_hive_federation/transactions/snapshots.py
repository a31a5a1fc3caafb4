"""Takes snapshots of a metastore: the transactions and write ids that a reader may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot of one table: the write ids and transactions that a reader may see.

    :param write_ids: the table's valid write ids.
    :param txns: the transactions that were committed at that time.
    :param taken_at: time of the snapshot by this machine's clock; ``None`` if another process took it.
    """

    write_ids: ValidWriteIds
    txns: ValidTxns
    taken_at: datetime | None = field(default=None, compare=False)


def is_transactional(table: types.Table) -> bool:
    """Return whether a table is transactional (full ACID or insert-only): its readers need a snapshot."""
    return str((table.parameters or {}).get("transactional", "")).lower() == "true"


def take_snapshots(client: MetastoreClient, tables: Sequence[str]) -> dict[str, Snapshot]:
    """Take one consistent snapshot of several transactional tables.

    The function reads all write ids for the same list of transactions, so that a transaction over several
    tables is visible in all of them or in none.

    :param tables: ``database.table`` names.
    :return: snapshots by lower-case name.
    """
    taken_at = datetime.now(UTC)
    opened = client.get_open_txns()
    txns = ValidTxns.of(
        high_watermark=opened.txn_high_water_mark,
        invalid_ids=opened.open_txns,
        aborted_bits=opened.abortedBits or b"",
        min_open_id=opened.min_open_txn,
    )
    wires = dict(client.get_valid_write_ids(list(tables), valid_txn_list=txns.text()))
    return {
        name.lower(): Snapshot(
            txns=txns,
            taken_at=taken_at,
            write_ids=ValidWriteIds.of(
                name.lower(),
                high_watermark=wire.writeIdHighWaterMark,
                invalid_ids=wire.invalidWriteIds,
                aborted_bits=wire.abortedBits or b"",
                min_open_id=wire.minOpenWriteId,
            ),
        )
        for name, wire in wires.items()
    }
