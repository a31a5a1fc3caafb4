"""Tokens of service accounts, good and bad, and the directory with the accounts' public keys."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

TOKENS = "airflow_hive_federation.gateway.grpc.tokens.BearerTokens"
ACCOUNT = "etl@project.iam.example.com"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def public(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    """The gateway's directory of accounts: one with an RSA key, one with an EC key."""
    directory = tmp_path / "accounts"
    directory.mkdir()
    (directory / f"{ACCOUNT}.pem").write_bytes(public(RSA))
    (directory / "small.pem").write_bytes(public(EC))
    return directory


def claims(**others: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {"iss": ACCOUNT, "sub": ACCOUNT, "aud": "hive-metastore", "iat": now, "exp": now + 600}
    return {name: value for name, value in {**made, **others}.items() if value is not None}


def unsigned() -> str:
    return jwt.encode(claims(), None, algorithm="none")


def confused() -> str:
    """Signed by HMAC with the public key, which everybody has."""
    import base64
    import hashlib
    import hmac

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    signed = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims())}"
    mac = hmac.new(public(RSA), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


#: Makes a token that a gateway refuses, and the reason that it gives.
BAD = {
    "none": (lambda: "", "no bearer token"),
    "no_jwt": (lambda: "abc", "no JSON web token"),
    "unsigned": (unsigned, "none of the known keys"),
    "expired": (lambda: sign(exp=int(time.time()) - 61), "has expired"),
    "endless": (lambda: sign(exp=None), "not valid"),
    "audience": (lambda: sign(aud="other"), "another audience"),
    "no_audience": (lambda: sign(aud=None), "not valid"),
    "future": (lambda: sign(nbf=int(time.time()) + 600), "not valid"),
    "issuer": (lambda: sign(iss="nobody"), "none of the known keys"),
    "another_issuers_key": (lambda: sign(iss="small", sub="small"), "none of the known keys"),
    "another_subject": (lambda: sign(sub="root"), "for another subject"),
    "key": (lambda: jwt.encode(claims(), OTHER_RSA, algorithm="RS256"), "none of the known keys"),
    "algorithm": (lambda: jwt.encode(claims(), RSA, algorithm="RS512"), "none of the known keys"),
    "public_key_as_secret": (confused, "none of the known keys"),
}


def sign(**others: Any) -> str:
    return jwt.encode(claims(**others), RSA, algorithm="RS256")
