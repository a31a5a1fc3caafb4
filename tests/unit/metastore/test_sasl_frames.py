"""SASL from a server that means harm: lengths, ends, statuses and texts; each a typed error, and soon."""

from __future__ import annotations

import random
import resource
import struct
import tracemalloc
from typing import NoReturn

import pytest

from airflow_hive_federation.errors import MetastoreAuthenticationError, MetastoreProtocolError
from airflow_hive_federation.metastore import (
    KerberosSettings,
    MetastoreClient,
    MetastoreSettings,
    PlainSettings,
    sasl,
)
from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol, NotSent
from airflow_hive_federation.metastore.sasl import SaslChannel
from airflow_hive_federation.metastore.sasl_kerberos import Kerberos
from airflow_hive_federation.metastore.settings import Endpoint
from tests.support.metastore_peers import Peer, Thrift
from tests.support.sasl_server import Server, message

ENDPOINT = Endpoint(scheme="thrift", host="127.0.0.1", port=1)
PASSWORD = "open-sesame"
BOUND = 1 << 16
#: What the negotiation may hold beside an answer.
SLACK = 1 << 20
COMPLETE = message(5)


def settings() -> MetastoreSettings:
    return MetastoreSettings(
        uris=("thrift://127.0.0.1",),
        authentication=PlainSettings(user="alice", password=PASSWORD),
        max_answer_bytes=BOUND,
    )


def channel(*answers: bytes) -> SaslChannel:
    return SaslChannel(Server(*answers), ENDPOINT, settings(), Deadline(60))  # type: ignore[arg-type]


def frame(body: bytes, length: int | None = None) -> bytes:
    return struct.pack("!I", len(body) if length is None else length) + body


def everything(made: SaslChannel) -> bytes:
    return b"".join(made.receive(1, Deadline(60)) for _ in range(10))


NEGOTIATIONS = {
    "a length of minus one": struct.pack("!BI", 5, 0xFFFFFFFF),
    "a length of the smallest number": struct.pack("!BI", 5, 1 << 31),
    "a length a byte beyond the bound": struct.pack("!BI", 2, SLACK + 1) + bytes(SLACK + 1),
    "a status that there is not": message(77),
    "the status 0": message(0),
    "the client's own beginning": struct.pack("!BI", 7, 5) + b"PLAIN",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "TLS": b"\x15\x03\x03\0\x02\x02\x46",
    "a Thrift error": b"\x80\x01\0\x03\0\0\0\x07set_ugi",
    "challenges without end": message(2, b"more") * 1000,
    "half a head": COMPLETE[:3],
    "half a text": message(2, b"half of it")[:8],
    "nothing": b"",
}


@pytest.mark.parametrize("case", NEGOTIATIONS)
def test_a_negotiation(case: str) -> None:
    with pytest.raises(ForeignProtocol) as caught:
        channel(NEGOTIATIONS[case])
    assert PASSWORD not in str(caught.value)


def test_a_server_that_ends_before_it_has_shown_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mutual:
        """A mechanism that waits for the server's proof, as Kerberos does."""

        name, complete = "MUTUAL", False

        def __init__(self, _: object) -> None: ...

        def step(self, challenge: bytes, deadline: Deadline) -> bytes:
            return challenge

    monkeypatch.setattr(sasl, "_Plain", Mutual)
    with pytest.raises(ForeignProtocol, match="before it had proved its identity"):
        channel(message(2, b"who are you"), COMPLETE)


@pytest.mark.parametrize(
    ("offer", "match"),
    [
        (b"", "not four bytes"),
        (b"\x01\0\0", "not four bytes"),
        (b"\x08\0\0\0", r"no protection that is known \(8\)"),
    ],
)
def test_an_offer_of_kerberos_that_is_none(offer: bytes, match: str) -> None:
    mechanism = Kerberos.__new__(Kerberos)
    with pytest.raises(ForeignProtocol, match=match):
        mechanism._agreed(offer)


def test_an_error_in_the_thread_of_kerberos_is_not_a_silent_kdc(monkeypatch: pytest.MonkeyPatch) -> None:
    """An implementation of GSSAPI that lacks a function raises an error of Python's, for instance."""

    def begin(_: Kerberos) -> NoReturn:
        raise NotImplementedError("no stores of credentials")

    monkeypatch.setattr(Kerberos, "_begin", begin)
    mechanism = Kerberos.__new__(Kerberos)
    mechanism._context, mechanism._errors = None, LookupError
    mechanism._settings, mechanism._endpoint = KerberosSettings(server_principal="hive/_HOST@A"), ENDPOINT
    with pytest.raises(NotImplementedError, match="no stores of credentials"):
        mechanism.step(b"", Deadline(60))


def test_sasl_is_for_those_who_have_something_to_show() -> None:
    nobody = MetastoreSettings(uris=("thrift://127.0.0.1",))
    with pytest.raises(ValueError, match="SASL needs an authentication"):
        SaslChannel(Server(), ENDPOINT, nobody, Deadline(60))  # type: ignore[arg-type]


def test_challenges_are_counted() -> None:
    with pytest.raises(ForeignProtocol, match="more than 32 messages"):
        channel(NEGOTIATIONS["challenges without end"])
    channel(message(2, b"more") * 31, COMPLETE)


@pytest.mark.parametrize("length", [0xFFFFFFFF, 1 << 31, BOUND + SLACK + 1])
def test_the_length_of_a_frame(length: int) -> None:
    made = channel(COMPLETE, frame(b"x" * 100, length))
    with pytest.raises(ForeignProtocol, match=f"a frame of {length} bytes"):
        made.receive(1, Deadline(60))


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0\0", frame(b"abc", 4), frame(b"", 1 << 10)],
    ids=["nothing", "half a length", "short", "none"],
)
def test_a_frame_that_ends_early(answer: bytes) -> None:
    made = channel(COMPLETE, answer)
    with pytest.raises(ConnectionError):
        everything(made)


def test_a_promised_frame_takes_no_memory_before_it_comes() -> None:
    made = channel(COMPLETE, frame(b"x", BOUND + SLACK))
    tracemalloc.start()
    try:
        with pytest.raises(ConnectionError):
            made.receive(1, Deadline(60))
        assert tracemalloc.get_traced_memory()[1] < BOUND
    finally:
        tracemalloc.stop()


def test_empty_frames_are_passed_over() -> None:
    made = channel(COMPLETE, frame(b"") * 1000, frame(b"a"))
    assert made.receive(1, Deadline(60)) == b"a"


@pytest.mark.parametrize("status", [3, 4])
def test_a_refusal_is_a_line_without_our_password(status: int) -> None:
    text = f"no\x1b[2J\n{PASSWORD} is wrong".encode() + b"\xff" + b"x" * 100_000
    with pytest.raises(MetastoreAuthenticationError) as caught:
        channel(message(status, text))
    shown = str(caught.value)
    assert "*** is wrong" in shown
    assert PASSWORD not in shown
    assert shown.isprintable()
    assert len(shown) < 1000


def test_random_bytes_are_typed_errors() -> None:
    seed = 20261125
    print(f"seed {seed}")
    chance = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3000):
        conversation = bytearray(message(2, b"challenge") + COMPLETE + frame(b"answer") + frame(b"more"))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(conversation))
            conversation[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(5))
        try:
            made = channel(bytes(conversation))
            for _ in range(20):
                made.receive(7, Deadline(60))
        except (ForeignProtocol, MetastoreAuthenticationError, ConnectionError):
            continue
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 100 << 10


@pytest.mark.parametrize(
    "answer",
    [frame(b"", 0xFFFFFFFF), frame(b"no Thrift at all"), frame(b"\x80\x01\0\x02\xff\xff\xff\xff")],
    ids=["a length", "text", "a negative name"],
)
def test_what_a_caller_sees(answer: bytes) -> None:
    def behave(connection: object) -> None:
        connection.sendall(COMPLETE + answer)  # type: ignore[attr-defined]
        while connection.recv(4096):  # type: ignore[attr-defined]
            pass

    peer = Peer(behave)
    own = MetastoreSettings(
        uris=(peer.uri,),
        authentication=PlainSettings(user="alice", password=PASSWORD),
        max_answer_bytes=BOUND,
    )
    try:
        with MetastoreClient(own) as client, pytest.raises(MetastoreProtocolError) as caught:
            client.list_databases()
        assert PASSWORD not in str(caught.value)
    finally:
        peer.close()


def test_an_answer_that_is_too_long_names_its_bound() -> None:
    peer = Peer(Thrift(lambda *_: ["x" * 5000]))
    try:
        with (
            MetastoreClient(MetastoreSettings(uris=(peer.uri,), max_answer_bytes=1000)) as client,
            pytest.raises(MetastoreProtocolError, match="max_answer_bytes"),
        ):
            client.list_databases()
        with MetastoreClient(MetastoreSettings(uris=(peer.uri,), max_answer_bytes=10_000)) as client:
            assert len(client.list_databases()[0]) == 5000
    finally:
        peer.close()


class _Expired:
    """A mechanism whose keys have expired after the negotiation."""

    name, complete = "EXPIRED", True

    def __init__(self, _: object) -> None: ...

    def step(self, challenge: bytes, deadline: Deadline) -> bytes:
        return b""

    def finish(self, payload: bytes) -> None: ...

    def wrap(self, data: bytes) -> list[bytes]:
        raise ValueError("the keys have expired")

    def unwrap(self, frame: bytes) -> bytes:
        raise ValueError("a message was changed")


def test_keys_that_have_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server has seen the call, so that the client repeats it on another connection."""
    monkeypatch.setattr(sasl, "_Plain", _Expired)
    with pytest.raises(NotSent, match="the keys have expired"):
        channel(COMPLETE).send(b"question", Deadline(60))
    with pytest.raises(ForeignProtocol, match="a message was changed"):
        channel(COMPLETE, frame(b"answer")).receive(1, Deadline(60))
