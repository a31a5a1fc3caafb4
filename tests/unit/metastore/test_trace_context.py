"""The trace context of a call: OpenTelemetry's, a gateway's caller's, or none."""

from __future__ import annotations

import sys

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from airflow_hive_federation.metastore.trace_context import current_trace, passing_on, trace_id, trace_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPAN = SpanContext(
    0x0AF7651916CD43DD8448EB211C80319C,
    0xB7AD6B7169203331,
    is_remote=False,
    trace_flags=TraceFlags(1),
    trace_state=TraceState([("vendor", "x")]),
)


def test_the_current_span_is_the_context() -> None:
    assert current_trace() == ()
    with trace.use_span(NonRecordingSpan(SPAN)):
        assert current_trace() == (("traceparent", PARENT), ("tracestate", "vendor=x"))


def test_a_callers_context_comes_before_the_current_span() -> None:
    other = trace_of({"traceparent": PARENT.replace("0af", "1af")})
    with trace.use_span(NonRecordingSpan(SPAN)):
        with passing_on(other):
            assert current_trace() == other
        assert current_trace() != other


def test_a_process_without_opentelemetry_has_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert current_trace() == ()


@pytest.mark.parametrize(
    "parent",
    [
        "",
        PARENT.upper(),
        PARENT + "\r\nX-Other: 1",
        PARENT.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    ],
)
def test_a_malformed_context_is_not_passed_on(parent: str) -> None:
    assert trace_of({"traceparent": parent, "tracestate": "a=1"}) == ()
    assert trace_id(()) == ""


@pytest.mark.parametrize("state", ["", "a=1\n", "é=1", "a" * 513, " a=1"])
def test_a_bad_state_is_left_out(state: str) -> None:
    found = trace_of({"traceparent": PARENT, "tracestate": state})
    assert found == (("traceparent", PARENT),)
    assert trace_id(found) == "0af7651916cd43dd8448eb211c80319c"
