"""Makes the metastore's calls for column statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import cast

from airflow_hive_federation.metastore.calls.base import ENGINE, batches
from airflow_hive_federation.metastore.calls.objects import ObjectCalls
from airflow_hive_federation.metastore.idl import types

PARTITIONS_PER_CALL = 500


class StatisticsCalls(ObjectCalls):
    """Calls for column statistics."""

    def get_table_column_statistics(
        self,
        database: str,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        valid_write_ids: str | None = None,
    ) -> types.TableStatsResult:
        """Read a table's column statistics; columns without statistics are left out.

        :param columns: names of the columns; ``None`` reads all but partition columns.
        :param valid_write_ids: the table's valid write ids in Hive's text form; for an ACID table the server
            sets ``isStatsCompliant`` if the statistics describe the rows that these ids show.
        """
        request = types.TableStatsRequest(
            dbName=database,
            tblName=table,
            colNames=self._columns(database, table, columns),
            catName=self._catalog(),
            validWriteIdList=valid_write_ids,
            engine=ENGINE,
        )
        return cast("types.TableStatsResult", self.call("get_table_statistics_req", request))

    def get_partitions_column_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        valid_write_ids: str | None = None,
        batch_size: int = PARTITIONS_PER_CALL,
    ) -> dict[str, list[types.ColumnStatisticsObj]]:
        """Read partitions' column statistics by partition name; partitions without them are left out."""
        column_names = self._columns(database, table, columns)
        statistics: dict[str, list[types.ColumnStatisticsObj]] = {}
        for names in batches(partition_names, batch_size):
            answer = self._partitions_statistics(database, table, names, column_names, valid_write_ids)
            statistics.update(answer.partStats or {})
        return statistics

    def set_column_statistics(
        self,
        statistics: Iterable[types.ColumnStatistics],
        *,
        write_id: int | None = None,
        valid_write_ids: str | None = None,
    ) -> None:
        """Write column statistics of tables or partitions, replacing those of the same columns.

        :param statistics: statistics of a table (``isTblLevel`` in ``statsDesc``) or of partitions.
        :param write_id: for an ACID table, the write id under which the statistics are valid.
        :param valid_write_ids: for an ACID table, its valid write ids in Hive's text form.
        """
        for _, group in groupby(statistics, _subject):
            for chunk in batches(group, PARTITIONS_PER_CALL):
                request = types.SetPartitionsStatsRequest(
                    colStats=chunk,
                    needMerge=False,
                    writeId=write_id,
                    validWriteIdList=valid_write_ids,
                    engine=ENGINE,
                )
                self.call("set_aggr_stats_for", request)

    def _partitions_statistics(
        self, database: str, table: str, names: list[str], columns: list[str], valid_write_ids: str | None
    ) -> types.PartitionsStatsResult:
        request = types.PartitionsStatsRequest(
            dbName=database,
            tblName=table,
            colNames=columns,
            partNames=names,
            catName=self._catalog(),
            validWriteIdList=valid_write_ids,
            engine=ENGINE,
        )
        return cast("types.PartitionsStatsResult", self.call("get_partitions_statistics_req", request))

    def _columns(self, database: str, table: str, columns: Sequence[str] | None) -> list[str]:
        if columns is not None:
            return list(columns)
        sd = self.get_table(database, table).sd
        return [column.name for column in (sd.cols if sd else None) or [] if column.name]


def _subject(statistics: types.ColumnStatistics) -> tuple[object, ...]:
    # A call takes the statistics of partitions of one table, or a table's own statistics alone.
    about = statistics.statsDesc
    if about is None:
        raise ValueError("column statistics without statsDesc")
    return (about.catName, about.dbName, about.tableName, about.isTblLevel)
