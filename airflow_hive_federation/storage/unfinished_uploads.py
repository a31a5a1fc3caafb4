"""Uploads files to S3 under their final names, and finishes the uploads later, from another process.

A task uploads the parts of a file, which no reader sees, and leaves a record of the upload. The driver of the
job finishes the uploads of those attempts that count, and abandons the others: so a file appears whole under
its final name, without the copy that a rename is on S3. The bucket keeps, and charges for, the parts of an
upload whose task was killed before its record: a lifecycle rule should remove them
(``AbortIncompleteMultipartUpload``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import FileVanishedError, StorageError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import reader_of
from airflow_hive_federation.storage.filesystem import (
    open_filesystem,
    parse_location,
    reading,
    storage_errors,
)
from airflow_hive_federation.storage.listing import file_size, list_directory
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import remove_file, write_atomically
from airflow_hive_federation.storage.side_by_side import side_by_side

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


#: Ending of the names of records.
RECORD = ".upload"
_PART_BYTES = 16 << 20
_MOST_PARTS = 9_000
_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class Upload:
    """An upload with all its parts.

    :param target: URI of the file.
    :param upload_id: the store's id of the upload.
    :param etags: the store's digests of the parts, in their order.
    :param size_bytes: length of the file.
    """

    target: str
    upload_id: str
    etags: tuple[str, ...]
    size_bytes: int


_UPLOAD = reader_of(Upload)


def has_uploads(uri: str) -> bool:
    """Return whether a file of this URI can be uploaded by one process and finished by another."""
    return parse_location(uri).scheme == "s3"


def upload(path: Path, target: str, record: str, options: StorageOptions | None = None) -> None:
    """Upload a local file without finishing the upload, and write its record.

    :param target: URI that the file will have.
    :param record: URI of the record.
    :raises StorageError: if the store refuses the file; the upload is abandoned then.
    """
    filesystem, key = _opened(target, options)
    size = path.stat().st_size
    with storage_errors(target):
        answer = filesystem.call_s3("create_multipart_upload", filesystem.s3_additional_kwargs, **key)
    key["UploadId"] = answer["UploadId"]
    try:
        made = Upload(
            target=target,
            upload_id=key["UploadId"],
            etags=tuple(_parts(filesystem, key, path, size, target)),
            size_bytes=size,
        )
        write_atomically(record, [json.dumps(asdict(made)).encode()], options)
    except BaseException:
        _abort(filesystem, key, target)
        raise


def finish(record: str, options: StorageOptions | None = None) -> str:
    """Finish an upload, and remove its record; return the URI of the file.

    :param record: URI of the record.
    :raises FileVanishedError: if the record or the upload is gone.
    :raises StorageError: if the store refuses.
    """
    made = _read(record, options)
    filesystem, key = _opened(made.target, options)
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(made.etags, 1)]
    try:
        with storage_errors(made.target):
            filesystem.call_s3(
                "complete_multipart_upload",
                **key,
                UploadId=made.upload_id,
                MultipartUpload={"Parts": parts},
            )
    except FileVanishedError:
        # The driver repeats a request whose answer was lost; then the upload is finished already.
        if file_size(made.target, options=options) != made.size_bytes:
            raise
    filesystem.invalidate_cache(made.target)
    remove_file(record, options)
    return made.target


def abandon_all(directory: str, options: StorageOptions | None = None) -> None:
    """Abandon the uploads whose records are in a directory.

    :raises StorageError: if the store refuses.
    """
    records = [f"{directory}/{name}" for name in list_directory(directory, options=options)]
    side_by_side(lambda uri: _abandon(uri, options), [uri for uri in records if uri.endswith(RECORD)])


def _abandon(record: str, options: StorageOptions | None) -> None:
    try:
        made = _read(record, options)
    except FileVanishedError:
        # Another process sweeps, too.
        return
    filesystem, key = _opened(made.target, options)
    _abort(filesystem, {**key, "UploadId": made.upload_id}, made.target)


def _abort(filesystem: AbstractFileSystem, key: Mapping[str, Any], target: str) -> None:
    try:
        with storage_errors(target):
            filesystem.call_s3("abort_multipart_upload", **key)
    except FileVanishedError:
        return


def _parts(
    filesystem: AbstractFileSystem, key: Mapping[str, Any], path: Path, size: int, target: str
) -> list[str]:
    part_bytes = max(_PART_BYTES, -(-size // _MOST_PARTS))

    def put(number: int) -> str:
        with storage_errors(target):
            with path.open("rb") as file:
                file.seek((number - 1) * part_bytes)
                body = file.read(part_bytes)
            return str(filesystem.call_s3("upload_part", **key, PartNumber=number, Body=body)["ETag"])

    # An upload has one part at least.
    numbers = range(1, max(1, -(-size // part_bytes)) + 1)
    if len(numbers) == 1:
        return [put(1)]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="upload") as pool:
        return list(pool.map(put, numbers))


def _read(record: str, options: StorageOptions | None) -> Upload:
    with reading(record, options) as file:
        content = file.read()
    try:
        return _UPLOAD(bounded_json.loads(content))
    except ValueError as error:
        raise StorageError(
            f"{record} is no record of an upload: {error}.", remedy="Write the rows again.", path=record
        ) from error


def _opened(uri: str, options: StorageOptions | None) -> tuple[AbstractFileSystem, dict[str, str]]:
    filesystem, path = open_filesystem(uri, options)
    bucket, _, key = path.partition("/")
    return filesystem, {"Bucket": bucket, "Key": key}
