"""A fence of copies: a file with a number, which only grows.

Whoever begins to change a target raises the fence to a number of its own. A copy job notes the number it was
started with, and publishes no file once the fence stands higher. So a job that outlives its cycle (its driver
was killed or suspended, its cluster goes on) changes nothing any more when another cycle has begun.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.errors import CycleLostError, DumpCorruptError, FileVanishedError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.storage.filesystem import join, reading, write_atomically
from airflow_hive_federation.waiting import boot_time_s

#: Name of the file beside a copy plan that says which fence the plan is carried out behind.
TICKET = "fence.json"
#: A look at the fence holds for so many seconds: one more or less does not matter beside a copy, and a store
#: is not asked for every file.
_LOOK_S = 1.0


def read_fence(uri: str, options: Mapping[str, Any] | None = None) -> int:
    """Return the number that the fence stands at; 0 if there is none yet.

    :raises DumpCorruptError: the file is no fence.
    :raises StorageError: the store cannot be read.
    """
    try:
        with reading(uri, options) as file:
            text = file.read().decode("utf-8", "replace").strip()
    except FileVanishedError:
        return 0
    if not text.isdecimal():
        raise DumpCorruptError(
            f"{uri} is no fence of copies: it does not hold a number.",
            remedy="Make sure that no copy job runs for this policy, and remove the file.",
            path=uri,
        )
    return int(text)


def raise_fence(uri: str, epoch: int, options: Mapping[str, Any] | None = None) -> None:
    """Set the fence to a number, which is higher than the present one.

    :raises StorageError: the store cannot be written.
    """
    write_atomically(uri, [f"{epoch}\n".encode()], options)


def write_ticket(directory: str, uri: str, epoch: int, options: Mapping[str, Any] | None = None) -> None:
    """Note beside a copy plan which fence it is carried out behind.

    :param directory: URI of the plan's directory.
    :param uri: the fence.
    :param epoch: its number now.
    :raises StorageError: the store cannot be written.
    """
    text = json.dumps({"fence": uri, "epoch": epoch}, sort_keys=True) + "\n"
    write_atomically(join(directory, TICKET), [text.encode()], options)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """What a copy is carried out behind; sent to the executors.

    :param uri: the fence; empty for copies that no cycle is responsible for.
    :param epoch: the number at which the copy may go on.
    :param options: storage options.
    """

    uri: str = ""
    epoch: int = 0
    options: Mapping[str, Any] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Make sure that no other cycle has begun since; to be called just before a file is published.

        :raises CycleLostError: another cycle has raised the fence, or the fence is gone.
        :raises StorageError: the fence cannot be read.
        """
        if not self.uri or _seen_lately(self.uri) == self.epoch:
            return
        found = read_fence(self.uri, self.options)
        if found != self.epoch:
            raise CycleLostError(
                f"This copy belongs to cycle {self.epoch} of its policy; the fence {self.uri} stands at "
                f"{found or 'nothing'}: another cycle has begun, and nothing more is copied.",
                remedy="Let the other cycle end. If there is none, run the cycle again.",
                policy="",
                holder="",
                reason="fenced",
            )
        with _LOOKS_LOCK:
            _LOOKS[self.uri] = (boot_time_s(), found)


def fence_of(plan_uri: str, options: Mapping[str, Any] | None = None) -> Fence:
    """Return the fence of a copy plan; one that lets everything pass where none is noted.

    :param plan_uri: URI of the plan.
    :raises DumpCorruptError: the note beside the plan cannot be read.
    :raises StorageError: the store cannot be read.
    """
    uri = join(plan_uri.rstrip("/").rpartition("/")[0], TICKET)
    try:
        with reading(uri, options) as file:
            text = file.read()
    except FileVanishedError:
        return Fence()
    try:
        ticket = bounded_json.loads(text)
        return Fence(uri=str(ticket["fence"]), epoch=int(ticket["epoch"]), options=options)
    except (ValueError, KeyError, TypeError) as error:
        raise DumpCorruptError(
            f"{uri} does not say which fence its copy plan is carried out behind: {error}",
            remedy="Load the dump again: the file is written anew.",
            path=uri,
        ) from error


#: Per process: fence → moment of the last look, and the number seen.
_LOOKS: dict[str, tuple[float, int]] = {}
_LOOKS_LOCK = threading.Lock()


def _seen_lately(uri: str) -> int | None:
    # A machine that was suspended has to look again: its clock has gone on.
    with _LOOKS_LOCK:
        moment_s, epoch = _LOOKS.get(uri, (float("-inf"), 0))
    return epoch if boot_time_s() - moment_s < _LOOK_S else None
