"""Delegation tokens: their form, and DIGEST-MD5 with a server that knows one, or does not."""

from __future__ import annotations

import base64

import pytest

from airflow_hive_federation.errors import ConfigurationError, MetastoreAuthenticationError
from airflow_hive_federation.metastore import DelegationTokenSettings, MetastoreSettings
from airflow_hive_federation.metastore.delegation_token import read_delegation_token
from airflow_hive_federation.metastore.sasl_digest import Digest
from airflow_hive_federation.metastore.settings import Endpoint
from airflow_hive_federation.metastore.transport import Deadline, ForeignProtocol
from tests.support.delegation_tokens import IDENTIFIER, PASSWORD, TOKEN, DigestServer, encoded

ENDPOINT = Endpoint(scheme="thrift", host="127.0.0.1", port=1)


def digest() -> Digest:
    made = Digest(DelegationTokenSettings(token=TOKEN.decode()), ENDPOINT)
    assert made.step(b"", Deadline(5)) == b""
    return made


def test_the_parts_of_a_token() -> None:
    token = read_delegation_token(f" {TOKEN.decode()}\n")
    assert (token.identifier, token.password) == (IDENTIFIER, PASSWORD)
    assert (token.kind, token.service, token.owner) == ("HIVE_DELEGATION_TOKEN", "", "alice@HIVE.TEST")
    assert repr(PASSWORD) not in repr(token)
    long = base64.urlsafe_b64encode(b"\x8f\xc8" + bytes(200) + b"\x01p\x00\x00").decode()
    assert read_delegation_token(long).identifier == bytes(200)
    settings = MetastoreSettings(
        uris=("thrift://h",), authentication=DelegationTokenSettings(token=TOKEN.decode())
    )
    assert settings.effective_user() == "alice"
    assert TOKEN.decode() not in repr(settings)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no token!",
        "é",
        TOKEN.decode()[:-8],
        TOKEN.decode() + "AAAA",
        encoded(b"", PASSWORD, b"k", b"").decode(),
        encoded(IDENTIFIER, b"", b"k", b"").decode(),
        encoded(IDENTIFIER, PASSWORD, b"\xff", b"").decode(),
        base64.urlsafe_b64encode(b"\x87\xff").decode(),
        base64.urlsafe_b64encode(b"\x8c\x7f").decode(),
    ],
)
def test_a_text_that_is_no_token(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not in Hadoop's form") as caught:
        DelegationTokenSettings(token=text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("qop", ["auth", "auth-int", "auth-conf"])
def test_both_sides_prove_that_they_know_the_token(qop: str) -> None:
    server, client = DigestServer(qop), digest()
    client.finish(server.accept(client.step(server.challenge(), Deadline(5))))
    assert client.complete
    other = digest()
    server.accept(other.step(server.challenge(), Deadline(5)))
    with pytest.raises(MetastoreAuthenticationError, match="another server") as caught:
        other.finish(b"rspauth=" + b"0" * 32)
    assert base64.b64encode(PASSWORD).decode() not in str(caught.value)


def test_signed_messages() -> None:
    server, client = DigestServer("auth-int"), digest()
    client.finish(server.accept(client.step(server.challenge(), Deadline(5))))
    assert client.unwrap(server.signed(b"one", 0)) == b"one"
    for wrong in (
        server.signed(b"one", 0),
        server.signed(b"two", 7),
        server.signed(b"two", 1)[:-1],
        b"",
    ):
        with pytest.raises(ValueError, match="changed on its way"):
            client.unwrap(wrong)
    frames = client.wrap(bytes(200_000))
    assert [len(frame) <= 65536 for frame in frames] == [True] * 4


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b'realm="default"',
        b'nonce="n",qop="auth-conf",cipher="des"',
        b'nonce="n",qop="better"',
        b'nonce="n",qop="auth-int",maxbuf=many',
    ],
)
def test_a_challenge_that_is_none(challenge: bytes) -> None:
    with pytest.raises(ForeignProtocol, match="DIGEST-MD5"):
        digest().step(challenge, Deadline(5))


def test_a_server_that_repeats_secrets() -> None:
    client = digest()
    secret = base64.b64encode(PASSWORD).decode()
    assert client.shown(f"wrong: {secret} {TOKEN.decode()}") == "wrong: *** ***"
