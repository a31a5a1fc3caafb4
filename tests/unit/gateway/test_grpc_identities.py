"""The gRPC front believes these tokens and names, and takes these keys."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from airflow_hive_federation.errors import ConfigurationError, GatewayError
from airflow_hive_federation.gateway.grpc.authentication import (
    Anybody,
    Asserted,
    CertificateSubject,
    Evidence,
    is_local,
)
from airflow_hive_federation.gateway.grpc.tokens import BearerTokens
from airflow_hive_federation.metastore.grpc_wire import USER_KEY
from tests.support.authorities import Authority

ACCOUNT, PROVIDER = "etl@example.iam", "https://idp"
RSA = rsa.generate_private_key(65537, 2048)
P256, P384 = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())


def pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def token(key: Any = RSA, algorithm: str = "RS256", **claims: Any) -> Evidence:
    made = {"iss": ACCOUNT, "sub": ACCOUNT, "aud": "hive-metastore", "exp": int(time.time()) + 600, **claims}
    return Evidence(metadata={"authorization": f"Bearer {jwt.encode(made, key, algorithm=algorithm)}"})


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    made = tmp_path / "accounts"
    made.mkdir()
    (made / f"{ACCOUNT}.pem").write_bytes(pem(RSA))
    return made


def jwks(path: Path, *keys: Any) -> str:
    listed = []
    for key in keys:
        is_rsa = isinstance(key, rsa.RSAPrivateKey)
        kind: Any = jwt.algorithms.RSAAlgorithm if is_rsa else jwt.algorithms.ECAlgorithm
        listed.append(kind.to_jwk(key.public_key(), as_dict=True))
    path.write_text(json.dumps({"keys": listed}))
    return str(path)


def test_a_service_account_is_itself_whatever_its_token_claims(accounts: Path, tmp_path: Path) -> None:
    """Its key signs what it likes; the claim that names users is an identity provider's alone."""
    provider = jwks(tmp_path / "idp.json", P256)
    verifier = BearerTokens(
        {"service.accounts": str(accounts), "jwks": provider, "issuer": PROVIDER, "user.claim": "email"}
    )
    assert verifier.authenticate(token(email="root@example.com")).user == ACCOUNT
    other = token(P256, "ES256", iss=PROVIDER, sub="7", email="ada@example.com")
    assert verifier.authenticate(other).user == "ada@example.com"


@pytest.mark.parametrize("name", ["", None, 7, ["root"]])
def test_a_user_is_a_text(tmp_path: Path, name: Any) -> None:
    provider = jwks(tmp_path / "idp.json", RSA)
    verifier = BearerTokens({"jwks": provider, "issuer": PROVIDER, "user.claim": "email"})
    with pytest.raises(GatewayError, match="the token names no user"):
        verifier.authenticate(token(iss=PROVIDER, sub="7", email=name))


def test_keys_of_other_curves_are_none(accounts: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no key of RSA or P-256"):
        BearerTokens({"jwks": jwks(tmp_path / "idp.json", P384), "issuer": PROVIDER})
    both = BearerTokens({"jwks": jwks(tmp_path / "idp.json", P384, P256, RSA), "issuer": PROVIDER})
    assert both.authenticate(token(P256, "ES256", iss=PROVIDER)).user == ACCOUNT
    assert both.authenticate(token(RSA, iss=PROVIDER)).user == ACCOUNT
    with pytest.raises(GatewayError, match="none of the known keys"):
        both.authenticate(token(P384, "ES384", iss=PROVIDER))
    (accounts / "other.pem").write_bytes(pem(P384))
    with pytest.raises(ConfigurationError, match="is no public key of RSA or P-256"):
        BearerTokens({"service.accounts": str(accounts)})


def test_a_certificate_holds_a_key(tmp_path: Path) -> None:
    made = tmp_path / "accounts"
    made.mkdir()
    authority = Authority(tmp_path)
    cert, key = authority.sign("account")
    Path(cert).replace(made / f"{ACCOUNT}.pem")
    own = Path(key).read_text(encoding="utf-8")
    assert BearerTokens({"service.accounts": str(made)}).authenticate(token(own, "ES256")).user == ACCOUNT


def test_only_files_of_keys_are_read(accounts: Path) -> None:
    (accounts / "README.txt").write_text("No key.")
    assert BearerTokens({"service.accounts": str(accounts)}).authenticate(token()).user == ACCOUNT


def test_a_directory_without_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="There are no public keys in"):
        BearerTokens({"service.accounts": str(tmp_path)})


def test_an_account_may_not_be_named_like_the_identity_provider(accounts: Path, tmp_path: Path) -> None:
    """Its key would sign for every user."""
    (accounts / "idp.pem").write_bytes(pem(P256))
    settings = {"service.accounts": str(accounts), "jwks": jwks(tmp_path / "k.json", RSA), "issuer": "idp"}
    with pytest.raises(ConfigurationError, match="is named like the identity provider 'idp'"):
        BearerTokens(settings)


def test_settings_that_a_class_does_not_know_are_refused() -> None:
    for kind in (Asserted, Anybody, CertificateSubject):
        with pytest.raises(ConfigurationError, match=r"knows no audience\. Remedy: Remove it"):
            kind({"audience": "x"})
    with pytest.raises(ConfigurationError, match=r"knows no audiences\. Remedy: Known are .*audience"):
        BearerTokens({"audiences": "x"})


@pytest.mark.parametrize(
    ("header", "expected"),
    [("Bearer abc", "abc"), ("bearer abc ", "abc"), ("Basic abc", None), ("Bearer ", None), ("abc", None)],
)
def test_a_bearer_token_is_one(header: str, expected: str | None) -> None:
    assert Evidence(metadata={"authorization": header}).bearer_token == expected


@pytest.mark.parametrize("kind", [Asserted, Anybody])
def test_a_name_that_is_given_is_asserted_and_none_is_none(kind: Any) -> None:
    named = Evidence(metadata={USER_KEY: "ann"}, peer="ipv4:127.0.0.1:5")
    ann = kind({}).authenticate(named)
    assert (ann.user, ann.authentication) == ("ann", "asserted")
    nobody = kind({}).authenticate(Evidence(peer="ipv4:127.0.0.1:5"))
    assert (nobody.user, nobody.authentication) == ("", "none")


def test_a_peer_of_an_unknown_kind_is_not_of_this_machine() -> None:
    assert not is_local("vsock:127.0.0.1:5")
