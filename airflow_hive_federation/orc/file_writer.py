"""ORC files written stripe by stripe, from batches of rows that come one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from airflow_hive_federation.orc.assembly import PROLEPTIC, AssembledFile, Stripe, encode
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters

# Of rows as Arrow has them: Spark's workers then need some 130 MB for a file, whatever its length.
_STRIPE_BYTES = 32 * 1024 * 1024


class OrcFileWriter:
    """Writes a file; what it holds in memory is a stripe.

    :param path: the file, which is made.
    :param types: serialized ``Type`` messages.
    :param compression: of :data:`.compression.COMPRESSIONS`.
    :param filters: its Bloom filters.
    """

    def __init__(
        self, path: Path, types: Sequence[bytes], compression: str, filters: BloomFilters = NO_FILTERS
    ) -> None:
        self._compression, self._filters = compression, filters
        self._tables: list[pa.Table] = []
        self._size_bytes = 0
        self._stripe_rows: list[int] = []
        self._file = path.open("wb")
        self._made = AssembledFile(self._file, types, compression=compression, calendar=PROLEPTIC)

    def write(self, rows: pa.Table) -> None:
        """Add rows.

        :raises AcidFormatError: some timestamp cannot be stored.
        """
        self._tables.append(rows)
        self._size_bytes += rows.nbytes
        if self._size_bytes >= _STRIPE_BYTES:
            self._encode()

    def add(self, stripe: Stripe) -> None:
        """Add encoded rows; they come before those that wait to be encoded."""
        self._made.add(stripe)
        if stripe.rows:
            self._stripe_rows.append(stripe.rows)

    def finish(self, user_metadata: Callable[[Sequence[int]], Mapping[str, bytes]] = lambda _: {}) -> None:
        """Write the tail, and close the file.

        :param user_metadata: makes it, told how many rows each stripe has.
        :raises AcidFormatError: some timestamp cannot be stored.
        """
        with self._file:
            if self._tables:
                self._encode()
            self._made.finish(user_metadata(self._stripe_rows))

    def close(self) -> None:
        """Close the file; unless it is finished it is not a whole one."""
        self._file.close()

    def _encode(self) -> None:
        # Dictionaries would take a fifth of the time; the next compaction makes them.
        rows = pa.concat_tables(self._tables)
        for stripe in encode(rows, self._compression, dictionaries=False, filters=self._filters):
            self.add(stripe)
        self._tables, self._size_bytes = [], 0
