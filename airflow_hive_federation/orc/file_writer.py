"""Writes an ORC file stripe by stripe, from a sequence of batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from airflow_hive_federation.orc.assembly import PROLEPTIC, AssembledFile, Stripe, encode
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters

# Arrow bytes of the rows of a stripe: with these, a Spark worker needs some 130 MB per file of any length.
_STRIPE_BYTES = 32 * 1024 * 1024


class OrcFileWriter:
    """A writer of one ORC file that holds one stripe in memory.

    :param path: path of the new file.
    :param types: serialized ``Type`` messages.
    :param compression: a name of :data:`.compression.COMPRESSIONS`.
    :param filters: the file's Bloom filters.
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
        """Add rows to the file.

        :raises AcidFormatError: if a timestamp cannot be stored.
        """
        self._tables.append(rows)
        self._size_bytes += rows.nbytes
        if self._size_bytes >= _STRIPE_BYTES:
            self._encode()

    def add(self, stripe: Stripe) -> None:
        """Add a stripe of encoded rows; it precedes the rows that are not encoded yet."""
        self._made.add(stripe)
        if stripe.rows:
            self._stripe_rows.append(stripe.rows)

    def finish(self, user_metadata: Callable[[Sequence[int]], Mapping[str, bytes]] = lambda _: {}) -> None:
        """Write the tail and close the file.

        :param user_metadata: function that makes the user metadata from the number of rows of each stripe.
        :raises AcidFormatError: if a timestamp cannot be stored.
        """
        with self._file:
            if self._tables:
                self._encode()
            self._made.finish(user_metadata(self._stripe_rows))

    def close(self) -> None:
        """Close the file; it is incomplete unless :meth:`finish` was called."""
        self._file.close()

    def _encode(self) -> None:
        # Dictionaries would take a fifth of the time; the next compaction makes them.
        rows = pa.concat_tables(self._tables)
        for stripe in encode(rows, self._compression, dictionaries=False, filters=self._filters):
            self.add(stripe)
        self._tables, self._size_bytes = [], 0
