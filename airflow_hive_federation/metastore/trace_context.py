"""Carries W3C's trace context (``traceparent``, ``tracestate``) beside the calls of a client.

A gateway passes on the context of its caller; every other process sends that of OpenTelemetry's current span,
if it uses OpenTelemetry.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

PARENT, STATE = "traceparent", "tracestate"
#: The header or metadata of a context; empty without one.
Trace = tuple[tuple[str, str], ...]

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[!-~]([ -~]{0,510}[!-~])?")
_passed_on: ContextVar[Trace] = ContextVar("passed_on", default=())


def trace_of(headers: Mapping[str, str]) -> Trace:
    """Return the context of a message; empty if it has none, or one that W3C's definition does not allow."""
    parent, state = headers.get(PARENT, ""), headers.get(STATE, "")
    if not _PARENT.fullmatch(parent):
        return ()
    return ((PARENT, parent), (STATE, state)) if _STATE.fullmatch(state) else ((PARENT, parent),)


def trace_id(trace: Trace) -> str:
    """Return the id of the trace; empty without a context."""
    return trace[0][1].split("-")[1] if trace else ""


@contextmanager
def passing_on(trace: Trace) -> Iterator[None]:
    """Send this context with the calls of the block."""
    token = _passed_on.set(trace)
    try:
        yield
    finally:
        _passed_on.reset(token)


def current_trace() -> Trace:
    """Return the context that a call of this thread carries now."""
    # A process that has not imported OpenTelemetry has no span, and need not import it for this.
    api = sys.modules.get("opentelemetry.trace")
    if (passed_on := _passed_on.get()) or api is None:
        return passed_on
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return ()
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return trace_of({PARENT: parent, STATE: span.trace_state.to_header()})
