"""Probes the metastores behind the gateway at an interval, in one thread per metastore."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from airflow_hive_federation.errors import ConfigurationError, HiveFederationError
from airflow_hive_federation.gateway.handler import Caller, Cancellation, Deadline, Status, status_of
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import encode_call

log = logging.getLogger(__name__)

#: Receives the name of an upstream, and true if it answers.
Tell = Callable[[str, bool], None]
_METHOD = "getStatus"
_QUESTION = encode_call(_METHOD, message_types(_METHOD)[0](), 1, oneway=False)


@dataclass(frozen=True, kw_only=True)
class HealthSection:
    """Settings of the metastores' probes (``[health]``).

    :param interval_s: seconds between two probes; 0 disables the probes.
    :param timeout_s: seconds in which a metastore has to answer.
    """

    interval_s: float = 10.0
    timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if self.interval_s < 0 or self.timeout_s <= 0:
            raise ConfigurationError(
                f"[health] has interval_s = {self.interval_s:g} and timeout_s = {self.timeout_s:g}.",
                remedy="Give a timeout_s above 0, and an interval_s of 0 or more.",
            )


def probe(upstream: Upstream, deadline: Deadline, cancellation: Cancellation | None = None) -> None:
    """Call fb303's ``getStatus`` at a metastore; any answer, even a refusal, counts as healthy.

    :raises HiveFederationError: the metastore does not answer, or all connections to it are in use.
    """
    upstream.exchange(_METHOD, _QUESTION, Caller(), deadline, cancellation=cancellation)


class Health:
    """Probes all metastores until :meth:`stop`.

    :param tell: is called after a metastore's first probe, and at each change between up and down.
    """

    def __init__(self, upstreams: Iterable[Upstream], section: HealthSection, tell: Tell) -> None:
        self._section = section
        self._tell = tell
        self._states: dict[str, bool] = {}
        self._stopping = threading.Event()
        self._cancellation = {upstream.name: Cancellation() for upstream in upstreams}
        self._threads = [
            threading.Thread(
                target=self._look_after, args=(upstream,), name=f"health-{upstream.name}", daemon=True
            )
            for upstream in upstreams
            if section.interval_s
        ]

    def start(self) -> Health:
        """Start the probes."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Stop the probes; cancel a probe that is running."""
        self._stopping.set()
        for cancellation in self._cancellation.values():
            cancellation.cancel()
        for thread in self._threads:
            thread.join(self._section.timeout_s)

    def states(self) -> dict[str, float]:
        """Return 1 for each metastore that answered its last probe, and 0 for each that did not."""
        return {name: float(up) for name, up in dict(self._states).items()}

    def _look_after(self, upstream: Upstream) -> None:
        while True:
            self._look(upstream)
            if self._stopping.wait(self._section.interval_s):
                return

    def _look(self, upstream: Upstream) -> None:
        reason = ""
        try:
            probe(upstream, Deadline(self._section.timeout_s), self._cancellation[upstream.name])
        except HiveFederationError as error:
            if status_of(error) in {Status.EXHAUSTED, Status.CANCELLED}:
                # Calls occupy all connections, or the gateway ends: the metastore itself may be healthy.
                return
            reason = str(error)
        up = not reason
        if self._states.get(upstream.name) is up:
            return
        self._states[upstream.name] = up
        if up:
            log.info("metastore %s answers", upstream.name)
        else:
            log.warning("metastore %s does not answer: %s", upstream.name, reason)
        self._tell(upstream.name, up)
