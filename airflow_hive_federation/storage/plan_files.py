"""Reads and writes copy plans, outcomes and digests as JSON lines on shared storage.

A plan is one file (``copy_plan.jsonl``) or a directory of parts (``copy_plan/part-*.jsonl``); outcomes are a
directory of parts. A part is written completely or not at all, so that every visible part is complete.

A load adds the digest to the URI of the plan that it hands to another process:
``copy_plan.jsonl#sha256=<digest>`` is accepted only with the bytes that the load wrote. Without the digest, a
changed plan could write files anywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from typing import Any, TypeVar

from airflow_hive_federation.errors import ConfigurationError, DumpCorruptError, FileVanishedError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.model.json_values import reader_of
from airflow_hive_federation.storage.filesystem import join, parse_location, reading, storage_errors
from airflow_hive_federation.storage.listing import list_directory
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import write_atomically

#: Fields of records that are URIs, which may not have the names ``.`` and ``..``.
_URIS = frozenset({"source", "target", "kept", "moved_from", "uri"})

#: End of the URI of a plan with its digest.
_BOUND = re.compile(r"#sha256=([0-9a-f]{64})")

#: Lines per write to the file system.
_LINES_PER_WRITE = 1000

Record = TypeVar("Record")


def write_plan(uri: str, items: Iterable[CopyItem], *, options: StorageOptions | None = None) -> int:
    """Write a copy plan as one file while the items are produced; return their number.

    :param uri: URI of the file to create.
    :raises StorageError: if it cannot be written.
    """
    return write_records(uri, items, options=options)


def write_bound_plan(
    uri: str, items: Iterable[CopyItem], *, options: StorageOptions | None = None
) -> tuple[str, int]:
    """Write a copy plan as :func:`write_plan` does; return its URI with its digest, and the item count."""
    digest = hashlib.sha256()
    count = _write(uri, items, digest.update, options)
    return f"{uri}#sha256={digest.hexdigest()}", count


def read_plan(uri: str, *, options: StorageOptions | None = None) -> Iterator[CopyItem]:
    """Read a copy plan: a file, or a directory of ``part-*.jsonl`` in the order of their names.

    :param uri: URI with digest from :func:`write_bound_plan`, or the plain URI of a trusted plan.
    :raises FileVanishedError: if the plan does not exist.
    :raises DumpCorruptError: if a line is no copy item; or, at the end, if the plan has another digest.
    """
    if bound := _BOUND.search(uri):
        return _read_bound(uri[: bound.start()], bound[1], options)
    if uri.endswith(".jsonl"):
        return read_records(uri, CopyItem, options=options)
    return _read_parts(uri, CopyItem, "part-", options)


def read_outcomes(uri: str, *, options: StorageOptions | None = None) -> dict[str, CopyOutcome]:
    """Read a directory of outcomes into a mapping by target URI; it is empty without the directory.

    Parts are read in the order of their names, which begin with the id of their run, and run ids ascend with
    time: the outcome of the latest run replaces earlier ones.

    :raises DumpCorruptError: if a line is no outcome.
    """
    return {outcome.target: outcome for outcome in read_record_parts(uri, CopyOutcome, options=options)}


def write_records(uri: str, records: Iterable[object], *, options: StorageOptions | None = None) -> int:
    """Write dataclass instances, one JSON object per line; return their number.

    If the store has modes, only the owner may read the file, because it has names of other users' data.
    """
    return _write(uri, records, lambda _: None, options)


def read_records(
    uri: str,
    kind: type[Record],
    *,
    options: StorageOptions | None = None,
    see: Callable[[bytes], object] = lambda _: None,
) -> Iterator[Record]:
    """Read dataclass instances that :func:`write_records` wrote, one line at a time.

    :param see: receives each line before its record is returned.
    :raises FileVanishedError: if the file does not exist.
    :raises DumpCorruptError: if a line is not JSON, lacks fields of ``kind`` or has others, or has a URI with
        a name ``.`` or ``..``.
    """
    read = reader_of(kind, strictly=True)
    uris = [field.name for field in fields(kind) if field.name in _URIS]  # type: ignore[arg-type]
    with storage_errors(uri), reading(uri, options) as lines:
        for number, line in enumerate(lines, 1):
            see(line)
            try:
                record = read(bounded_json.loads(line))
                for name in uris:
                    if (place := getattr(record, name)) is not None:
                        parse_location(place)
            except (ValueError, ConfigurationError) as error:
                why = error.message if isinstance(error, ConfigurationError) else str(error)
                raise DumpCorruptError(
                    f"{uri}:{number} is no {kind.__name__}: {why}.",
                    remedy="It was truncated or changed after it was written: write the plan again, by "
                    "loading again. If it has names that lead elsewhere, find out who wrote it.",
                    path=uri,
                    line=number,
                ) from error
            yield record


def read_record_parts(
    uri: str, kind: type[Record], *, options: StorageOptions | None = None
) -> Iterator[Record]:
    """Read every ``*.jsonl`` of a directory, in the order of names; a missing directory has no records."""
    try:
        yield from _read_parts(uri, kind, "", options)
    except FileVanishedError as error:
        if error.facts.get("path") != uri:
            raise


def _write(
    uri: str,
    records: Iterable[Any],
    see: Callable[[bytes], object],
    options: StorageOptions | None,
) -> int:
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

    def seen() -> Iterator[bytes]:
        for chunk in chunks():
            see(chunk)
            yield chunk

    write_atomically(uri, seen(), options, private=True)
    return count


def _read_bound(uri: str, expected: str, options: StorageOptions | None) -> Iterator[CopyItem]:
    digest = hashlib.sha256()
    yield from read_records(uri, CopyItem, options=options, see=digest.update)
    if digest.hexdigest() != expected:
        raise DumpCorruptError(
            f"{uri} is not the copy plan that the load has written: its digest is another one.",
            remedy="Find out who else may write below dump_root, and load again, which writes the plan anew.",
            path=uri,
        )


def _read_parts(
    uri: str, kind: type[Record], prefix: str, options: StorageOptions | None
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


def _joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
