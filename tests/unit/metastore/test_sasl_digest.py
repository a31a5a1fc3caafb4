"""Delegation tokens: their form, and DIGEST-MD5 with a server that knows one, or does not."""

from __future__ import annotations

import _hashlib
import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError, MetastoreAuthenticationError
from airflow_hive_federation.metastore import DelegationTokenSettings, MetastoreSettings
from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol
from airflow_hive_federation.metastore.delegation_token import read_delegation_token
from airflow_hive_federation.metastore.sasl import SaslChannel
from airflow_hive_federation.metastore.sasl_digest import Digest
from airflow_hive_federation.metastore.settings import Endpoint
from tests.support.delegation_tokens import IDENTIFIER, PASSWORD, TOKEN, DigestServer, encoded
from tests.support.sasl_server import Server, message

ENDPOINT = Endpoint(scheme="thrift", host="127.0.0.1", port=1)
ROOT = Path(__file__).parents[3]
WITHOUT_RC4 = """
from airflow_hive_federation.metastore.channel import Deadline
from tests.support.delegation_tokens import DigestServer
from tests.unit.metastore.test_sasl_digest import digest

digest().step(DigestServer("auth-conf").challenge(), Deadline(60))
"""


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


class Negotiating(Server):
    """A server of frames that asks for a token, and proves that it knows one, or sends another proof."""

    def __init__(self, proof: bytes | None = None) -> None:
        self.digest = DigestServer("auth-int")
        self.proof = proof
        super().__init__(message(2, self.digest.challenge()))

    def send(self, request: bytes, deadline: Deadline) -> None:
        super().send(request, deadline)
        if b"response=" in request:
            right = self.digest.accept(request[len(message(5)) :])
            self.answers += message(5, right if self.proof is None else self.proof)


def channel(server: Server) -> SaslChannel:
    settings = MetastoreSettings(
        uris=("thrift://h",), authentication=DelegationTokenSettings(token=TOKEN.decode())
    )
    return SaslChannel(server, ENDPOINT, settings, Deadline(60))  # type: ignore[arg-type]


def test_a_channel_wants_the_proof_of_the_server() -> None:
    server = Negotiating()
    made = channel(server)
    frame = server.digest.signed(b"answer", 0)
    server.answers = len(frame).to_bytes(4, "big") + frame
    assert made.receive(6, Deadline(60)) == b"answer"
    for proof in (b"", b"rspauth=" + b"0" * 32):
        with pytest.raises(MetastoreAuthenticationError, match="another server"):
            channel(Negotiating(proof))


def test_a_refused_token() -> None:
    with pytest.raises(MetastoreAuthenticationError, match="token expired") as caught:
        channel(Server(message(4, b"token expired")))
    assert "the delegation token is still valid" in caught.value.remedy


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


def test_python_in_fips_mode_signs_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """That Python refuses MD5 unless the caller marks it as no security, which needs TLS in any case."""
    md5 = hashlib.md5

    def marked(data: bytes = b"", *, usedforsecurity: bool = True) -> hashlib._Hash:
        if usedforsecurity:
            raise ValueError("[digital envelope routines] unsupported")
        return md5(data, usedforsecurity=False)

    def refused(*_: object, **__: object) -> None:
        raise ValueError("[digital envelope routines] unsupported")

    monkeypatch.setattr(hashlib, "md5", marked)
    monkeypatch.setattr(hashlib, "new", refused)
    monkeypatch.setattr(_hashlib, "hmac_new", refused)
    test_signed_messages()


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b'realm="default"',
        b'nonce="n",qop="auth-conf",cipher="des"',
        b'nonce="n",qop="better"',
        b'nonce="n",qop="auth-int",maxbuf=many',
        b'nonce="n",qop="auth-int",maxbuf=' + b"1" * 5000,
        b'nonce="n",qop="auth",' + b"a" * 2048,
    ],
)
def test_a_challenge_that_is_none(challenge: bytes) -> None:
    with pytest.raises(ForeignProtocol, match="DIGEST-MD5"):
        digest().step(challenge, Deadline(5))


def test_a_machine_without_rc4() -> None:
    """OpenSSL's older algorithms are chosen when a process loads it."""
    environment = {**os.environ, "CRYPTOGRAPHY_OPENSSL_NO_LEGACY": "1"}
    command = [sys.executable, "-W", "error", "-c", WITHOUT_RC4]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert "ConfigurationError: The metastore offers to encrypt" in done.stderr
    assert "CRYPTOGRAPHY_OPENSSL_NO_LEGACY" in done.stderr.rpartition("Remedy")[2]


def test_a_server_that_repeats_secrets() -> None:
    client = digest()
    secret = base64.b64encode(PASSWORD).decode()
    assert client.shown(f"wrong: {secret} {TOKEN.decode()}") == "wrong: *** ***"
