"""Several metastores as one: each call goes to the metastore that owns what it names.

Databases of a federated metastore appear under a prefix. Nothing of them is kept here: every question is put
to their owner, so that a table is seen while it is there. What spans owners is either put together, each part
within a time of its own, or refused by name.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.answers import LISTINGS, elements, with_names
from airflow_hive_federation.gateway.dispatch import Call, Metastore
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import REPLY, Emit, head_bytes, read_fields, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.names import references, renamed
from airflow_hive_federation.gateway.rules import Patterns
from airflow_hive_federation.gateway.transaction_calls import (
    NOT_ACROSS,
    pattern_matches,
    refuse_foreign_transaction,
    widened,
    without_snapshot,
)
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.gateway.view_names import ViewText, with_view_names
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

log = logging.getLogger(__name__)

#: Calls that name no database, or a pattern, and are put to all owners.
FANNED_OUT = frozenset({"get_all_databases", "get_databases", "get_table_meta"})


@dataclass(frozen=True)
class Member:
    """A federated metastore.

    :param name: names it in errors, logs and metrics.
    :param prefix: in front of its databases, as clients know them.
    :param metastore: the way to it.
    :param databases: which of its databases are to be seen.
    :param access: classes of methods that go to it.
    """

    name: str
    prefix: str
    metastore: Metastore
    databases: Patterns
    access: frozenset[Access] = frozenset({Access.READ})

    def inside(self, name: str) -> str:
        """Its own name for a database."""
        return name.removeprefix(self.prefix)

    def outside(self, name: str) -> str:
        """The clients' name for a database of it."""
        return self.prefix + name


class Federation:
    """A primary metastore, and others beside it.

    :param primary: owns every database that is nobody else's.
    :param members: the others; of two prefixes that fit a name, the longer one decides.
    :param part_timeout_s: seconds that each metastore is given when all are asked.
    :param rewrite_view: writes the text of a view with other names of databases; ``None`` refuses views.
    """

    wants_names = True

    def __init__(
        self,
        primary: Metastore,
        members: Sequence[Member],
        *,
        part_timeout_s: float = 5.0,
        rewrite_view: ViewText | None = None,
    ) -> None:
        self._primary = primary
        self._members = sorted(members, key=lambda one: -len(one.prefix))
        self._part_timeout_s = part_timeout_s
        self._rewrite_view = rewrite_view
        self._lock = threading.Lock()
        #: How often a part was missing, by the name of its metastore.
        self.missing: Counter[str] = Counter()
        # A pool for each: those that wait for one metastore keep no place of another's.
        self._pools = {
            name: ThreadPoolExecutor(8, thread_name_prefix=f"gateway-{name}")
            for name in ("main", *(member.name for member in members))
        }

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams."""
        all_of_them = [self._primary, *(member.metastore for member in self._members)]
        return tuple(upstream for one in all_of_them for upstream in one.upstreams)

    def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._primary.close()
        for member in self._members:
            member.metastore.close()

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`.dispatch.Target.relay`.

        :raises GatewayError: the call names databases of several owners, or writes what may only be read.
        """
        if call.method in FANNED_OUT:
            emit(self._all(call))
            return
        owner = self._owner(call)
        if owner is None:
            self._primary.relay(call, emit)
            return
        emit(self._ask(owner, call))

    def _owner(self, call: Call) -> Member | None:
        owners: list[Member | None] = []
        for one in call.named:
            if one.database and (owner := self._member(one.database)) not in owners:
                owners.append(owner)
        if len(owners) > 1:
            named = ", ".join(sorted({one.database for one in call.named if one.database}))
            who = ", ".join("main" if one is None else one.name for one in owners)
            what = NOT_ACROSS.get(call.method, "One call cannot span metastores")
            raise refused(
                Status.DENIED,
                f"{call.method}: {named} belong to different metastores ({who}). {what}.",
                remedy="Name databases of one metastore only; copy or link the others first.",
            )
        return owners[0] if owners else None

    def _member(self, database: str) -> Member | None:
        for member in self._members:
            if database.startswith(member.prefix) and member.databases.match(member.inside(database)):
                return member
        return None

    def _ask(self, member: Member, call: Call) -> bytes:
        if (access := ACCESS[call.method]) not in member.access:
            raise refused(
                Status.DENIED,
                f"{call.method}: calls of the class {access} do not go to the metastore {member.name} from "
                "here.",
                remedy=f"Add {access} to the access of [[federated]] {member.name}, or call it there.",
            )
        refuse_foreign_transaction(call, member.name)
        message = without_snapshot(call.method, self._inside(member, call))
        parts: list[bytes] = []
        member.metastore.relay(replace(call, message=message), parts.append)
        answer = with_names(call.method, b"".join(parts), member.outside)
        return with_view_names(call.method, answer, member.outside, self._rewrite_view)

    def _inside(self, member: Member, call: Call) -> bytes:
        return renamed(call.message, call.named, member.inside)

    def _all(self, call: Call) -> bytes:
        """Ask all metastores at once; a part that does not come in time is left out, and named in the log."""
        asked: list[tuple[str, Member | None, Future[bytes]]] = []
        late = call.deadline.sooner(self._part_timeout_s)
        part = replace(call, message=widened(call.method, call.message), deadline=late, cancellation=None)
        for name, member in [("main", None), *((one.name, one) for one in self._members)]:
            asked.append((name, member, self._pools[name].submit(self._part, member, part)))
        found: list[bytes] = []
        first: bytes | None = None
        for name, member, future in asked:
            try:
                answer = future.result(timeout=_left(late))
                found += self._shown(call, member, answer)
            except (HiveFederationError, TimeoutError, MalformedMessage) as error:
                future.cancel()
                if member is None:
                    # Without its own metastore, the gateway has nothing to say.
                    raise _unavailable(call.method, name, error) from error
                self._miss(call.method, name, error)
            else:
                first = first or answer
        return _joined(call, first or b"", found)

    def _part(self, member: Member | None, call: Call) -> bytes:
        parts: list[bytes] = []
        (self._primary if member is None else member.metastore).relay(call, parts.append)
        answer = b"".join(parts)
        return answer if member is None else with_names(call.method, answer, member.outside)

    def _shown(self, call: Call, member: Member | None, answer: bytes) -> list[bytes]:
        """The elements of one metastore's list that are its own to show, and that the call asks for."""
        head, listing = read_head(answer), LISTINGS[call.method]
        field = next(iter(read_fields(answer, head.body)), None)
        if head.kind != REPLY or field is None or field.number:
            raise MalformedMessage("it is a fault")
        kept = []
        for start, end in elements(answer, field.start):
            if listing.element is None:
                name = answer[start + 4 : end].decode(errors="replace").lower()
            else:
                name = references(answer, start, listing.element)[0].database
            if self._member(name) is member and pattern_matches(call, name):
                kept.append(answer[start:end])
        return kept

    def _miss(self, method: str, name: str, error: Exception) -> None:
        with self._lock:
            self.missing[name] += 1
        log.warning("%s: the part of metastore %s is missing: %s", method, name, error)


def _left(deadline: Any) -> float:
    try:
        return float(deadline.remaining_s())
    except TimeoutError:
        return 0.0


def _joined(call: Call, answer: bytes, found: list[bytes]) -> bytes:
    head = read_head(call.message)
    field = next(iter(read_fields(answer, read_head(answer).body)))
    ttype = answer[field.start : field.start + 1]
    body = b"\x0f\0\0" + ttype + len(found).to_bytes(4, "big") + b"".join(found) + b"\0"
    return head_bytes(call.method, REPLY, head.sequence_id) + body


def _unavailable(method: str, name: str, error: Exception) -> HiveFederationError:
    if isinstance(error, HiveFederationError):
        return error
    return refused(
        Status.DEADLINE, f"{method}: metastore {name} did not answer in time.", remedy="Look at it."
    )
