"""Sends calls to several metastores at once, each with its own deadline, and reports every missing part."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.federation.renaming import call_of, fault_text, result
from airflow_hive_federation.gateway.handler import Call, Cancellation, Status, refused
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

log = logging.getLogger(__name__)

#: Seconds behind a part's deadline until the gateway stops waiting: a DNS lookup may block past the deadline.
GRACE_S = 1.0
#: Queue of results: the name of a metastore, its return value, and the reason if it returned none.
Results = queue.SimpleQueue[tuple[str, Any, str | None]]


@dataclass(frozen=True)
class Question:
    """A call to one metastore, which contributes to the answer to a client's call.

    :param method: name of the method; it may differ from the client's method.
    :param arguments: the method's arguments by name.
    """

    method: str
    arguments: Mapping[str, Any]

    def call(self, call: Call) -> Call:
        """Return this question as a call, with the caller and deadline of a client's call."""
        values = message_types(self.method)[0](**self.arguments)
        message = call_of(self.method, read_head(call.message).sequence_id, values)
        return Call(self.method, message, call.caller, call.deadline, call.cancellation)


class Missing:
    """Counts the answers that lacked a metastore's part, per metastore."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[str, int] = {}

    def note(self, method: str, reasons: Mapping[str, str]) -> None:
        """Count and log an answer that lacks the parts of some metastores.

        :param reasons: name of each of these metastores → the reason.
        """
        with self._lock:
            for name in reasons:
                self.counts[name] = self.counts.get(name, 0) + 1
        for name, reason in reasons.items():
            log.warning("the answer to %s lacks the part of metastore %s: %s", method, name, reason)


def ask_all(
    call: Call, questions: Mapping[str, tuple[Member, Question]], part_timeout_s: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Send questions to several metastores at once, and collect their answers.

    :param questions: metastore and question, by name.
    :param part_timeout_s: seconds for each metastore except the primary, which has the call's whole time.
    :return: return values by name, and reasons by name for the questions without a return value.
    """
    results: Results = queue.SimpleQueue()
    cancellations = {name: Cancellation() for name in questions}

    def cancel() -> None:
        for cancellation in cancellations.values():
            cancellation.cancel()

    if call.cancellation is not None:
        call.cancellation.on_cancel(cancel)

    def ask(name: str, member: Member, question: Question) -> None:
        question_call = replace(question.call(call), cancellation=cancellations[name])
        try:
            answer = member.ask(question_call, part_timeout_s)
            success = result(question.method, answer)
            results.put((name, success, None if success is not None else fault_text(question.method, answer)))
        except (HiveFederationError, MalformedMessage, OSError, ValueError) as error:
            results.put((name, None, str(error)))

    for name, (member, question) in questions.items():
        threading.Thread(
            target=ask, args=(name, member, question), name=f"federation-{name}", daemon=True
        ).start()
    answers, reasons = _collected(call, results, questions, part_timeout_s)
    for name in questions.keys() - answers.keys() - reasons.keys():
        cancellations[name].cancel()
        reasons[name] = "no answer within its deadline"
    return answers, reasons


def _collected(
    call: Call, results: Results, questions: Mapping[str, tuple[Member, Question]], part_timeout_s: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Collect the parts until all have arrived or the last deadline has passed."""
    answers: dict[str, object] = {}
    reasons: dict[str, str] = {}
    waits = any(member.timeout_s is None for member, _ in questions.values())
    longest = call.deadline.seconds if waits else part_timeout_s
    with contextlib.suppress(queue.Empty, TimeoutError):
        until = call.deadline.sooner(longest + GRACE_S)
        while len(answers) + len(reasons) < len(questions):
            name, success, reason = results.get(timeout=until.remaining_s())
            if reason is None:
                answers[name] = success
            else:
                reasons[name] = reason
    return answers, reasons


def require(call: Call, reasons: Mapping[str, str], *, primary: str, partial: bool, missing: Missing) -> None:
    """Refuse an answer that lacks parts, or count and log the missing parts.

    :param primary: name of the metastore whose part is always required.
    :param partial: accept an answer with the parts that have arrived.
    :raises GatewayError: a part is missing, and it is required.
    """
    if not reasons:
        return
    if partial and primary not in reasons:
        missing.note(call.method, reasons)
        return
    details = "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items()))
    raise refused(
        Status.UNAVAILABLE,
        f"{call.method}: the part of metastore {', '.join(sorted(reasons))} is missing ({details}).",
        remedy="Look at that metastore; with on_missing = 'partial', the gap is only logged.",
    )
