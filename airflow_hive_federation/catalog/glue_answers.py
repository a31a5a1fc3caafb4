"""Types the client of AWS Glue and its answers: ``boto3`` makes both of them at run time, from Glue's API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Generic, Literal, NotRequired, Protocol, TypedDict, TypeVar, overload

V = TypeVar("V")
Page_co = TypeVar("Page_co", covariant=True)


class Column(TypedDict):
    Name: str
    Type: NotRequired[str]
    Comment: NotRequired[str]


class SortColumn(TypedDict):
    Column: str
    SortOrder: int


class Serde(TypedDict, total=False):
    Name: str
    SerializationLibrary: str
    Parameters: Mapping[str, str]


class StorageDescriptor(TypedDict, total=False):
    Columns: Sequence[Column]
    Location: str
    InputFormat: str
    OutputFormat: str
    Compressed: bool
    NumberOfBuckets: int
    SerdeInfo: Serde
    BucketColumns: Sequence[str]
    SortColumns: Sequence[SortColumn]
    Parameters: Mapping[str, str]


class Database(TypedDict):
    Name: str
    Description: NotRequired[str]
    LocationUri: NotRequired[str]
    Parameters: NotRequired[dict[str, str]]


class Table(TypedDict):
    Name: str
    Owner: NotRequired[str]
    CreateTime: NotRequired[datetime]
    Retention: NotRequired[int]
    StorageDescriptor: NotRequired[StorageDescriptor]
    PartitionKeys: NotRequired[Sequence[Column]]
    Parameters: NotRequired[Mapping[str, str]]
    ViewOriginalText: NotRequired[str]
    ViewExpandedText: NotRequired[str]
    TableType: NotRequired[str]


class Partition(TypedDict):
    Values: list[str]
    CreationTime: NotRequired[datetime]
    StorageDescriptor: NotRequired[StorageDescriptor]
    Parameters: NotRequired[Mapping[str, str]]


class PartitionKey(TypedDict):
    Values: list[str]


class Decimal(TypedDict):
    UnscaledValue: bytes
    Scale: int


class Booleans(TypedDict):
    NumberOfTrues: int
    NumberOfFalses: int
    NumberOfNulls: int


class Ordered(TypedDict, Generic[V]):
    MinimumValue: NotRequired[V]
    MaximumValue: NotRequired[V]
    NumberOfNulls: int
    NumberOfDistinctValues: int


class Binaries(TypedDict):
    MaximumLength: int
    AverageLength: float
    NumberOfNulls: int


class Strings(Binaries):
    NumberOfDistinctValues: int


class StatisticsData(TypedDict):
    """The statistics of a column, in the one of the keys that its type names."""

    Type: str
    BooleanColumnStatisticsData: NotRequired[Booleans]
    LongColumnStatisticsData: NotRequired[Ordered[int]]
    DoubleColumnStatisticsData: NotRequired[Ordered[float]]
    DecimalColumnStatisticsData: NotRequired[Ordered[Decimal]]
    DateColumnStatisticsData: NotRequired[Ordered[datetime]]
    StringColumnStatisticsData: NotRequired[Strings]
    BinaryColumnStatisticsData: NotRequired[Binaries]


class ColumnStatistics(TypedDict):
    ColumnName: str
    ColumnType: str
    StatisticsData: StatisticsData


class StatisticsAnswer(TypedDict, total=False):
    ColumnStatisticsList: Sequence[ColumnStatistics]


class BatchAnswer(TypedDict, total=False):
    Partitions: Sequence[Partition]
    UnprocessedKeys: list[PartitionKey]


class TablesPage(TypedDict):
    TableList: Sequence[Table]


class PartitionsPage(TypedDict):
    Partitions: Sequence[Partition]


class Paginator(Protocol[Page_co]):
    def paginate(self, **request: object) -> Iterable[Page_co]: ...


class StatisticsCall(Protocol):
    def __call__(self, **request: object) -> StatisticsAnswer: ...


class Client(Protocol):
    """The calls of Glue that the catalog makes."""

    get_column_statistics_for_table: StatisticsCall
    get_column_statistics_for_partition: StatisticsCall

    def get_database(self, **request: object) -> Mapping[Literal["Database"], Database]: ...
    def get_table(self, **request: object) -> Mapping[Literal["Table"], Table]: ...
    def batch_get_partition(self, **request: object) -> BatchAnswer: ...
    @overload
    def get_paginator(self, call: Literal["get_tables"]) -> Paginator[TablesPage]: ...
    @overload
    def get_paginator(self, call: Literal["get_partitions"]) -> Paginator[PartitionsPage]: ...
    def close(self) -> None: ...
