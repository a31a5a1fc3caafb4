"""Calls that ask every metastore: all at once, each with its own deadline, and no part missing unnoticed."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.dispatch import Call
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.federation.renaming import call_of, fault_text, result
from airflow_hive_federation.gateway.handler import Cancellation, Status, refused
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

log = logging.getLogger(__name__)

#: Seconds after a part's deadline when nobody waits for it any more: its name may be looked up in vain.
GRACE_S = 1.0
#: Name of a part, what it returned, and why it returned nothing.
Found = queue.SimpleQueue[tuple[str, Any, str | None]]


@dataclass(frozen=True)
class Question:
    """What one metastore is asked.

    :param method: the method; it need not be the one that was called.
    :param arguments: its arguments by name.
    """

    method: str
    arguments: Mapping[str, Any]

    def call(self, call: Call) -> Call:
        """Return the call that asks it, in the name of another one's caller."""
        values = message_types(self.method)[0](**self.arguments)
        message = call_of(self.method, read_head(call.message).sequence_id, values)
        return Call(self.method, message, call.caller, call.deadline, call.cancellation)


class Missing:
    """Counts answers that were given without a part, per metastore."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[str, int] = {}

    def note(self, method: str, reasons: Mapping[str, str]) -> None:
        """Note that an answer lacks the parts of some metastores."""
        with self._lock:
            for name in reasons:
                self.counts[name] = self.counts.get(name, 0) + 1
        for name, reason in reasons.items():
            log.warning("%s was answered without what metastore %s has: %s", method, name, reason)


def ask_all(
    call: Call, questions: Mapping[str, tuple[Member, Question]], part_timeout_s: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Ask several metastores at once.

    :param questions: what each is asked, by name.
    :param part_timeout_s: seconds for each but the primary metastore, which has the time of the call.
    :return: what they return, and why others did not, each by name.
    """
    found: Found = queue.SimpleQueue()
    cancellations = {name: Cancellation() for name in questions}

    def cancel() -> None:
        for one in cancellations.values():
            one.cancel()

    if call.cancellation is not None:
        call.cancellation.on_cancel(cancel)

    def ask(name: str, member: Member, question: Question) -> None:
        asked = replace(question.call(call), cancellation=cancellations[name])
        try:
            answer = member.ask(asked, part_timeout_s)
            success = result(question.method, answer)
            found.put((name, success, None if success is not None else fault_text(question.method, answer)))
        except (HiveFederationError, MalformedMessage, OSError, ValueError) as error:
            found.put((name, None, str(error)))

    for name, (member, question) in questions.items():
        threading.Thread(
            target=ask, args=(name, member, question), name=f"federation-{name}", daemon=True
        ).start()
    answers, reasons = _collected(call, found, questions, part_timeout_s)
    for name in questions.keys() - answers.keys() - reasons.keys():
        cancellations[name].cancel()
        reasons[name] = "no answer within its deadline"
    return answers, reasons


def _collected(
    call: Call, found: Found, questions: Mapping[str, tuple[Member, Question]], part_timeout_s: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Wait for all parts, or until the last deadline has passed."""
    answers: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    waits = any(one.timeout_s is None for one, _ in questions.values())
    longest = call.deadline.seconds if waits else part_timeout_s
    with contextlib.suppress(queue.Empty, TimeoutError):
        until = call.deadline.sooner(longest + GRACE_S)
        while len(answers) + len(reasons) < len(questions):
            name, success, reason = found.get(timeout=until.remaining_s())
            if reason is None:
                answers[name] = success
            else:
                reasons[name] = reason
    return answers, reasons


def require(call: Call, reasons: Mapping[str, str], *, primary: str, partial: bool, missing: Missing) -> None:
    """Refuse an answer that lacks parts, or note them.

    :param primary: the metastore without whose part there is no answer.
    :param partial: answer with what there is.
    :raises GatewayError: a part is missing.
    """
    if not reasons:
        return
    if partial and primary not in reasons:
        missing.note(call.method, reasons)
        return
    named = "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items()))
    raise refused(
        Status.UNAVAILABLE,
        f"{call.method}: the part of metastore {', '.join(sorted(reasons))} is missing ({named}).",
        remedy="Look at that metastore; with on_missing = 'partial', the gap is only logged.",
    )
