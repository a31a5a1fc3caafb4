"""Copy plans, outcomes and digests as JSON lines on shared storage.

A plan is one file (``copy_plan.jsonl``) or a directory of parts (``copy_plan/part-*.jsonl``); outcomes are a
directory of parts. A part is written whole or not at all, so a part that can be seen can be believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from airflow_hive_federation.errors import DumpCorruptError, FileVanishedError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.storage.filesystem import join, reading, storage_errors, write_atomically
from airflow_hive_federation.storage.listing import list_directory

#: Lines put together before they are handed to the file system.
_LINES_PER_WRITE = 1000

Record = TypeVar("Record")


def write_plan(uri: str, items: Iterable[CopyItem], *, options: Mapping[str, Any] | None = None) -> int:
    """Write a copy plan as one file, as the items come; return how many.

    :param uri: URI of the file to make.
    :raises StorageError: it cannot be written.
    """
    return write_records(uri, items, options=options)


def read_plan(uri: str, *, options: Mapping[str, Any] | None = None) -> Iterator[CopyItem]:
    """Read a copy plan: a file, or a directory of ``part-*.jsonl`` in the order of their names.

    :raises FileVanishedError: there is no plan.
    :raises DumpCorruptError: a line is no copy item.
    """
    if uri.endswith(".jsonl"):
        return read_records(uri, CopyItem, options=options)
    return _read_parts(uri, CopyItem, "part-", options)


def write_outcomes(
    uri: str, outcomes: Iterable[CopyOutcome], *, options: Mapping[str, Any] | None = None
) -> int:
    """Write outcomes as one file; return how many."""
    return write_records(uri, outcomes, options=options)


def read_outcomes(uri: str, *, options: Mapping[str, Any] | None = None) -> dict[str, CopyOutcome]:
    """Read a directory of outcomes into a mapping by target URI; empty if the directory is not there.

    Parts are read in the order of their names, which begin with the id of their run, and run ids ascend with
    time: what a later run did to a file is what holds.

    :raises DumpCorruptError: a line is no outcome.
    """
    return {outcome.target: outcome for outcome in read_record_parts(uri, CopyOutcome, options=options)}


def write_records(uri: str, records: Iterable[Any], *, options: Mapping[str, Any] | None = None) -> int:
    """Write dataclass instances, one JSON object a line; return how many.

    Where the store has such modes, only the owner may read them: they tell names of other people's data.
    """
    count = 0

    def chunks() -> Iterator[bytes]:
        nonlocal count
        lines: list[str] = []
        for record in records:
            count += 1
            lines.append(json.dumps(asdict(record), sort_keys=True, ensure_ascii=False))
            if len(lines) == _LINES_PER_WRITE:
                yield _joined(lines)
                lines = []
        yield _joined(lines)

    write_atomically(uri, chunks(), options, private=True)
    return count


def read_records(
    uri: str, kind: type[Record], *, options: Mapping[str, Any] | None = None
) -> Iterator[Record]:
    """Read dataclass instances that :func:`write_records` wrote, a line at a time.

    :raises FileVanishedError: the file does not exist.
    :raises DumpCorruptError: a line is not JSON, or has not the fields of ``kind``.
    """
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    with storage_errors(uri), reading(uri, options) as lines:
        for number, line in enumerate(lines, 1):
            yield _record(kind, names, line, f"{uri}:{number}")


def read_record_parts(
    uri: str, kind: type[Record], *, options: Mapping[str, Any] | None = None
) -> Iterator[Record]:
    """Read every ``*.jsonl`` of a directory, in the order of their names; nothing if it is not there."""
    try:
        yield from _read_parts(uri, kind, "", options)
    except FileVanishedError as error:
        if error.facts.get("path") != uri:
            raise


def _read_parts(
    uri: str, kind: type[Record], prefix: str, options: Mapping[str, Any] | None
) -> Iterator[Record]:
    names = sorted(
        name
        for name in list_directory(uri, options=options)
        if name.endswith(".jsonl") and name.startswith(prefix) and not name.startswith((".", "_"))
    )
    if not names:
        raise FileVanishedError(
            f"{uri} has no {prefix or ''}*.jsonl.",
            remedy="Write the plan before the job is started.",
            path=uri,
        )
    for name in names:
        yield from read_records(join(uri, name), kind, options=options)


def _record(kind: type[Record], names: set[str], line: bytes, where: str) -> Record:
    try:
        values = bounded_json.loads(line)
        unknown = values.keys() - names
        if unknown:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        return kind(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise DumpCorruptError(
            f"{where} is no {kind.__name__}: {error}.",
            remedy="It was truncated or changed after it was written: write the plan again.",
            path=where.rpartition(":")[0],
        ) from error


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
