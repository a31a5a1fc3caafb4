"""Keeps copy jobs of earlier cycles from publishing files, by a fence: a file with a growing number.

Each cycle that begins to change a target raises the fence to a number of its own. A copy job keeps the number
of its start, and publishes no file after the fence has been raised. So a job that outlives its cycle (its
driver was killed or suspended, its cluster goes on) changes nothing after another cycle has begun.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field

from airflow_hive_federation.errors import CycleLostError, DumpCorruptError, FileVanishedError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, whole
from airflow_hive_federation.storage.filesystem import join, reading
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import make_private, write_atomically
from airflow_hive_federation.waiting import boot_time_s

#: Name of the file beside a copy plan that has the URI and the number of the plan's fence.
TICKET = "fence.json"
#: Seconds for which a check of the fence is valid: a second more or less does not matter for a copy, and the
#: store need not answer a request per file.
_LOOK_S = 1.0


def read_fence(uri: str, options: StorageOptions | None = None) -> int:
    """Return the present number of the fence; 0 if the file does not exist yet.

    :raises DumpCorruptError: if the file is no fence.
    :raises StorageError: if the store cannot be read.
    """
    try:
        with reading(uri, options) as file:
            text = file.read().decode("utf-8", "replace").strip()
    except FileVanishedError:
        return 0
    if not text.isdecimal():
        raise DumpCorruptError(
            f"{uri} is not a fence of copies: it does not hold a number.",
            remedy="Make sure that no copy job runs for this policy, and remove the file.",
            path=uri,
        )
    return int(text)


def raise_fence(uri: str, epoch: int, options: StorageOptions | None = None) -> None:
    """Set the fence to a number that is higher than the present one; only its owner may enter its directory.

    :raises StorageError: if the store cannot be written.
    """
    make_private(uri.rpartition("/")[0], options)
    write_atomically(uri, [f"{epoch}\n".encode()], options, private=True)


def write_ticket(directory: str, uri: str, epoch: int, options: StorageOptions | None = None) -> None:
    """Write the fence of a copy plan into a file beside the plan.

    :param directory: URI of the plan's directory.
    :param uri: URI of the fence.
    :param epoch: its present number.
    :raises StorageError: if the store cannot be written.
    """
    text = json.dumps({"fence": uri, "epoch": epoch}, sort_keys=True) + "\n"
    write_atomically(join(directory, TICKET), [text.encode()], options, private=True)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """The fence of a copy, with the number at its start; the driver sends it to the executors.

    :param uri: URI of the fence; empty for copies without a cycle.
    :param epoch: the number at which the copy may continue.
    """

    uri: str = ""
    epoch: int = 0
    options: StorageOptions | None = field(default=None, repr=False)

    def check(self) -> None:
        """Check that no other cycle has begun since; call it immediately before publishing a file.

        :raises CycleLostError: if another cycle has raised the fence, or the fence is gone.
        :raises StorageError: if the fence cannot be read.
        """
        if not self.uri or _seen_lately(self.uri) == self.epoch:
            return
        present = read_fence(self.uri, self.options)
        if present != self.epoch:
            raise CycleLostError(
                f"This copy belongs to cycle {self.epoch} of its policy; the fence {self.uri} stands at "
                f"{present or 'nothing'}: another cycle has begun, and nothing more is copied.",
                remedy="Let the other cycle end. If there is none, run the cycle again.",
                policy="",
                holder="",
                reason="fenced",
            )
        with _LOOKS_LOCK:
            _LOOKS[self.uri] = (boot_time_s(), present)


def fence_of(plan_uri: str, options: StorageOptions | None = None) -> Fence:
    """Return the fence of a copy plan; without a file beside the plan, a fence that stops nothing.

    :raises DumpCorruptError: if the file beside the plan cannot be read.
    :raises StorageError: if the store cannot be read.
    """
    uri = join(plan_uri.rstrip("/").rpartition("/")[0], TICKET)
    try:
        with reading(uri, options) as file:
            text = file.read()
    except FileVanishedError:
        return Fence()
    try:
        ticket = Fields(bounded_json.loads(text))
        return Fence(uri=ticket.needed("fence", str), epoch=ticket.needed("epoch", whole), options=options)
    except ValueError as error:
        raise DumpCorruptError(
            f"{uri} does not name the fence of its copy plan: {error}",
            remedy="Load the dump again: the file is written anew.",
            path=uri,
        ) from error


#: Per process: URI of a fence → time of the last check, and the number then.
_LOOKS: dict[str, tuple[float, int]] = {}
_LOOKS_LOCK = threading.Lock()


def _seen_lately(uri: str) -> int | None:
    # This clock goes on while a machine is suspended, so that the machine checks the fence again afterwards.
    with _LOOKS_LOCK:
        moment_s, epoch = _LOOKS.get(uri, (float("-inf"), 0))
    return epoch if boot_time_s() - moment_s < _LOOK_S else None
