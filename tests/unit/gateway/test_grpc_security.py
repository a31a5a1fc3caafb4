"""Access by gRPC needs TLS, certificates or bearer tokens."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from airflow_hive_federation.errors import (
    ConfigurationError,
    GatewayError,
    MetastoreAuthenticationError,
    MetastoreError,
    MetastoreUnreachableError,
)
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.grpc import calls, tokens
from airflow_hive_federation.gateway.grpc.authentication import (
    Anybody,
    Asserted,
    CertificateSubject,
    Evidence,
    make_authenticator,
)
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings, TlsSettings
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.grpc_tokens import EARLY_S, LIFETIME_S, ServiceAccount
from airflow_hive_federation.metastore.grpc_wire import USER_KEY
from tests.support.authorities import Authority
from tests.support.gateways import Clients, Peers
from tests.support.grpc_fronts import Fronts, ask, fronted, refused
from tests.support.metastore_peers import Thrift
from tests.support.signed_tokens import (
    ACCOUNT,
    BAD,
    EC,
    OTHER_RSA,
    RSA,
    TOKENS,
    accounts,
    claims,
    public,
    sign,
)

__all__ = ["accounts", "fronted"]


def names(_method: str, _args: Any) -> Any:
    return ["a"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


def server_tls(authority: Authority, *, mutual: bool = False, host: str = "127.0.0.1") -> ServerTls:
    cert_file, key_file = authority.sign("gateway", host)
    return ServerTls(
        cert_file=cert_file, key_file=key_file, client_ca_file=authority.ca_file if mutual else None
    )


# -- TLS ----------------------------------------------------------------------------------------------------


def test_tls(authority: Authority, peer: Peers, fronted: Fronts, client: Clients, tmp_path: Path) -> None:
    run = fronted(peer(Thrift(names)).uri, tls=server_tls(authority))
    hms = client(run.uri, tls=TlsSettings(ca_file=authority.ca_file))
    assert hms.call("get_all_databases") == ["a"]
    strange = Authority(tmp_path / "strange")
    for other in (TlsSettings(ca_file=strange.ca_file), TlsSettings()):
        with pytest.raises(MetastoreError, match="handshake failed"):
            client(run.uri, tls=other, connect_timeout_s=5).call("get_all_databases")
    with pytest.raises(MetastoreError):
        client(run.uri, connect_timeout_s=3).call("get_all_databases")  # in plain text
    assert hms.call("get_all_databases") == ["a"]


def test_a_certificate_for_another_host_is_refused(
    authority: Authority, peer: Peers, fronted: Fronts, client: Clients
) -> None:
    run = fronted(peer(Thrift(names)).uri, tls=server_tls(authority, host="elsewhere.example.com"))
    with pytest.raises(MetastoreError, match=r"127\.0\.0\.1"):
        client(run.uri, tls=TlsSettings(ca_file=authority.ca_file), connect_timeout_s=5).connect()


def test_mutual_tls_identifies_the_caller(
    authority: Authority, peer: Peers, fronted: Fronts, client: Clients, tmp_path: Path
) -> None:
    served = Thrift(names)
    run = fronted(peer(served).uri, upstream={"impersonate": True}, tls=server_tls(authority, mutual=True))
    cert_file, key_file = authority.sign("alice", password="s3cret")
    tls = TlsSettings(
        ca_file=authority.ca_file, cert_file=cert_file, key_file=key_file, key_password="s3cret"
    )
    # The certificate counts, not the name that the client gives.
    assert client(run.uri, tls=tls, user="root").call("get_all_databases") == ["a"]
    assert served.users == ["alice"]
    cert_file, key_file = Authority(tmp_path / "strange").sign("root")
    for other in ({}, {"cert_file": cert_file, "key_file": key_file}):
        with pytest.raises(MetastoreError):
            client(
                run.uri, tls=TlsSettings(ca_file=authority.ca_file, **other), connect_timeout_s=3
            ).connect()
    assert served.users == ["alice"]


def test_changed_certificates_are_served(
    authority: Authority, peer: Peers, fronted: Fronts, client: Clients, tmp_path: Path
) -> None:
    tls = server_tls(authority)
    run = fronted(peer(Thrift(names)).uri, tls=tls)
    before = TlsSettings(ca_file=authority.ca_file)
    old = client(run.uri, tls=before)
    assert old.call("get_all_databases") == ["a"]
    successor = Authority(tmp_path / "successor")
    cert_file, key_file = successor.sign("gateway", "127.0.0.1")
    # Half a change is none.
    Path(tls.cert_file).write_bytes(Path(cert_file).read_bytes())
    assert client(run.uri, tls=before).call("get_all_databases") == ["a"]
    Path(str(tls.key_file)).write_bytes(Path(key_file).read_bytes())
    after = TlsSettings(ca_file=successor.ca_file)
    assert client(run.uri, tls=after).call("get_all_databases") == ["a"]
    assert old.call("get_all_databases") == ["a"]
    with pytest.raises(MetastoreError):
        client(run.uri, tls=before, connect_timeout_s=3).connect()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "0.0.0.0"}, "in plain text"),
        ({"host": "0.0.0.0", "allow_plain": True}, "no authentication is set"),
        ({"authentication_class": "no.such.Class"}, "cannot be imported"),
        ({"authentication_class": "airflow_hive_federation.errors.GatewayError"}, "cannot authenticate"),
        ({"authentication": {"x": "y"}}, "knows no x"),
        ({"tls": ServerTls(cert_file="/no/such/file")}, "cannot be used"),
        ({"host": "192.0.2.1", "allow_plain": True, "authentication_class": f"{Anybody.__module__}.Anybody"},
         "cannot listen"),
    ],
    ids=["plain", "unknown_callers", "no_class", "other_class", "unknown_setting", "no_files", "no_address"],
)  # fmt: skip
def test_a_front_that_would_be_open_or_lame_does_not_start(
    settings: dict[str, Any], message: str, fronted: Fronts
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        fronted("thrift://127.0.0.1:1", **settings)


def test_a_port_that_is_taken(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri)
    with pytest.raises(ConfigurationError, match="cannot listen"):
        GrpcFront(run.handler, GrpcFrontSettings(port=run.front.port))


def test_the_plug_in_that_fits_is_taken() -> None:
    assert isinstance(make_authenticator(GrpcFrontSettings()), Asserted)
    tls = ServerTls(cert_file="x", client_ca_file="y")
    assert isinstance(make_authenticator(GrpcFrontSettings(host="0.0.0.0", tls=tls)), CertificateSubject)
    path = f"{Anybody.__module__}.Anybody"
    named = GrpcFrontSettings(host="0.0.0.0").with_properties({"metastore.grpc.authentication.class": path})
    assert isinstance(make_authenticator(named), Anybody)


def test_only_this_machine_is_believed() -> None:
    far = Evidence(metadata={"x-actor-username": "root"}, peer="ipv4:10.0.0.1:7")
    with pytest.raises(GatewayError, match="only clients of this machine"):
        Asserted({}).authenticate(far)
    assert Anybody({}).authenticate(far).user == "root"
    with pytest.raises(GatewayError, match="no client certificate"):
        CertificateSubject({}).authenticate(far)


@pytest.mark.parametrize("local", [True, False])
def test_nobody_of_another_machine_becomes_the_gateways_own_user(
    peer: Peers, fronted: Fronts, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    served = Thrift(names)
    plugin = f"{Anybody.__module__}.Anybody"
    run = fronted(peer(served).uri, upstream={"impersonate": True}, authentication_class=plugin)
    monkeypatch.setattr(calls, "is_local", lambda _peer: local)
    with run.channel() as channel:
        assert ask(channel, "get_all_databases", metadata=((USER_KEY, "alice"),)) == {"success": ["a"]}
        if local:
            assert ask(channel, "get_all_databases") == {"success": ["a"]}
        else:
            error = refused(lambda: ask(channel, "get_all_databases"))
            assert error.code().name == "UNAUTHENTICATED"
            assert "wants the user's name" in error.details()
    assert len(served.users) == 1 + local


def test_settings_of_the_design() -> None:
    made = GrpcFrontSettings().with_properties(
        {
            "metastore.grpc.port": "1234",
            "metastore.grpc.max.request.size": "5",
            "metastore.grpc.max.connections": "6",
            "metastore.grpc.authentication.class": TOKENS,
            "metastore.grpc.authentication.issuer": "me",
            "hive.other": "x",
        }
    )
    assert (made.port, made.max_request_bytes, made.max_connections) == (1234, 5, 6)
    assert (made.authentication_class, dict(made.authentication)) == (TOKENS, {"issuer": "me"})
    with pytest.raises(ConfigurationError, match="is 'x', which is no number"):
        GrpcFrontSettings().with_properties({"metastore.grpc.port": "x"})
    with pytest.raises(ConfigurationError, match="max_connections"):
        GrpcFrontSettings().with_properties({"metastore.grpc.max.connections": "0"})


# -- tokens -------------------------------------------------------------------------------------------------


def private(key: Any) -> str:
    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def key_file(path: Path, key: Any, account: str = ACCOUNT) -> Path:
    keys = {
        "type": "service_account",
        "client_email": account,
        "private_key_id": "k1",
        "private_key": private(key),
    }
    path.write_text(json.dumps(keys), encoding="utf-8")
    return path


def evidence(token: str) -> Evidence:
    return Evidence(metadata={"authorization": f"Bearer {token}"}, peer="ipv4:10.0.0.1:7")


@pytest.mark.parametrize(("key", "account"), [(RSA, ACCOUNT), (EC, "small")], ids=["rsa", "ec"])
def test_a_service_accounts_key_file(
    key: Any, account: str, accounts: Path, peer: Peers, fronted: Fronts, client: Clients, tmp_path: Path
) -> None:
    served = Thrift(names)
    run = fronted(
        peer(served).uri,
        upstream={"impersonate": True},
        authentication_class=TOKENS,
        authentication={"service.accounts": str(accounts)},
    )
    grpc = GrpcSettings(service_account_keyfile=str(key_file(tmp_path / "key.json", key, account)))
    assert client(run.uri, grpc=grpc, user="root").call("get_all_databases") == ["a"]
    assert served.users == [account]
    with pytest.raises(MetastoreAuthenticationError, match="no bearer token"):
        client(run.uri).connect()
    foreign = GrpcSettings(service_account_keyfile=str(key_file(tmp_path / "o.json", OTHER_RSA, account)))
    with pytest.raises(MetastoreAuthenticationError, match="none of the known keys"):
        client(run.uri, grpc=foreign).connect()
    elsewhere = GrpcSettings(service_account_keyfile=str(tmp_path / "key.json"), audience="other")
    with pytest.raises(MetastoreAuthenticationError, match="another audience"):
        client(run.uri, grpc=elsewhere).connect()
    assert served.users == [account]


@pytest.mark.parametrize("name", BAD)
def test_tokens_that_are_refused(name: str, accounts: Path) -> None:
    verifier = tokens.BearerTokens({"service.accounts": str(accounts)})
    make, message = BAD[name]
    token = make()
    with pytest.raises(GatewayError, match=message) as caught:
        verifier.authenticate(evidence(token))
    assert caught.value.facts["status"] == "unauthenticated"
    assert not token or token not in str(caught.value)
    assert verifier.authenticate(evidence(sign())).user == ACCOUNT


def test_clocks_may_differ_a_little(accounts: Path) -> None:
    late = sign(exp=int(time.time()) - 30)
    lenient = tokens.BearerTokens({"service.accounts": str(accounts)})
    assert lenient.authenticate(evidence(late)) == Caller(user=ACCOUNT, authentication="token")
    strict = tokens.BearerTokens({"service.accounts": str(accounts), "clock.skew": "5"})
    with pytest.raises(GatewayError, match="expired"):
        strict.authenticate(evidence(late))


def test_a_token_is_verified_once_until_it_expires_or_the_keys_change(
    accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = tokens.BearerTokens({"service.accounts": str(accounts)})
    first, other = evidence(sign()), evidence(sign(exp=int(time.time()) + 7200))
    for _ in range(3):
        assert verifier.authenticate(first).user == verifier.authenticate(other).user == ACCOUNT
    assert verifier._verified.cache_info().misses == 2
    with monkeypatch.context() as patch:
        late = time.time() + 661
        patch.setattr(tokens.time, "time", lambda: late)
        with pytest.raises(GatewayError, match="expired"):
            verifier.authenticate(first)
        assert verifier.authenticate(other).user == ACCOUNT
    (accounts / f"{ACCOUNT}.pem").write_bytes(public(OTHER_RSA))
    with pytest.raises(GatewayError, match="none of the known keys"):
        verifier.authenticate(other)


def test_an_identity_provider(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    keys = [jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) for key in (OTHER_RSA, RSA)]
    path.write_text(json.dumps({"keys": [{**key, "kid": str(n)} for n, key in enumerate(keys)]}))
    settings = {"jwks": str(path), "issuer": "https://idp", "user.claim": "email", "strip.domain": "true"}
    verifier = tokens.BearerTokens(settings)

    def signed(key_id: str, **others: Any) -> str:
        made = claims(iss="https://idp", sub="7", email="ada@example.com", **others)
        return jwt.encode(made, RSA, algorithm="RS256", headers={"kid": key_id})

    assert verifier.authenticate(evidence(signed("1"))).user == "ada"
    with pytest.raises(GatewayError, match="none of the known keys"):
        verifier.authenticate(evidence(signed("0")))
    with pytest.raises(GatewayError, match="names no user"):
        verifier.authenticate(evidence(jwt.encode(claims(iss="https://idp"), RSA, algorithm="RS256")))


def test_changed_keys_are_read(accounts: Path, caplog: pytest.LogCaptureFixture) -> None:
    verifier = tokens.BearerTokens({"service.accounts": str(accounts)})
    fresh = jwt.encode(claims(iss="fresh", sub="fresh"), OTHER_RSA, algorithm="RS256")
    with pytest.raises(GatewayError):
        verifier.authenticate(evidence(fresh))
    (accounts / "fresh.pem").write_bytes(public(OTHER_RSA))
    assert verifier.authenticate(evidence(fresh)).user == "fresh"
    (accounts / f"{ACCOUNT}.pem").unlink()
    with pytest.raises(GatewayError):
        verifier.authenticate(evidence(sign()))
    (accounts / "fresh.pem").write_bytes(b"nonsense")
    with caplog.at_level(logging.WARNING):
        assert verifier.authenticate(evidence(fresh)).user == "fresh"
    assert "the former keys stay in use" in caplog.text


@pytest.mark.parametrize("beside", ["nothing", "a bad file"])
def test_a_removed_key_ends_access_whatever_is_left(accounts: Path, beside: str) -> None:
    (accounts / "small.pem").unlink()
    verifier = tokens.BearerTokens({"service.accounts": str(accounts)})
    token = evidence(sign())
    assert verifier.authenticate(token).user == ACCOUNT
    (accounts / f"{ACCOUNT}.pem").unlink()
    if beside == "a bad file":
        (accounts / "fresh.pem").write_bytes(b"nonsense")
    for _ in range(2):
        with pytest.raises(GatewayError, match="none of the known keys"):
            verifier.authenticate(token)
    (accounts / f"{ACCOUNT}.pem").write_bytes(public(RSA))
    (accounts / "fresh.pem").unlink(missing_ok=True)
    assert verifier.authenticate(token).user == ACCOUNT


def test_keys_stay_in_use_while_their_directory_cannot_be_read(accounts: Path) -> None:
    verifier = tokens.BearerTokens({"service.accounts": str(accounts)})
    token = evidence(sign())
    accounts.rename(accounts.with_name("away"))
    assert verifier.authenticate(token).user == ACCOUNT


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "whose tokens"),
        ({"jwks": "x"}, "whose tokens"),
        ({"service.accounts": "/no/such/directory"}, "cannot be read"),
        ({"service.accounts": "{empty}"}, "no public keys"),
        ({"service.accounts": "{private}"}, "holds no public keys"),
        ({"service.accounts": "{accounts}", "clock.skew": "-1"}, "no number of seconds"),
        ({"service.accounts": "{accounts}", "issuers": "x"}, "knows no issuers"),
    ],
    ids=["nothing", "no_issuer", "no_directory", "empty", "private", "skew", "unknown"],
)
def test_settings_of_tokens_that_cannot_be(
    settings: dict[str, str], message: str, accounts: Path, tmp_path: Path
) -> None:
    places = {"accounts": accounts, "empty": tmp_path / "empty", "private": tmp_path / "private"}
    places["empty"].mkdir()
    places["private"].mkdir()
    (places["private"] / "a.pem").write_text(private(RSA), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message) as caught:
        tokens.BearerTokens({name: value.format(**places) for name, value in settings.items()})
    assert "PRIVATE KEY" not in str(caught.value)


def test_a_token_is_made_anew_in_time(tmp_path: Path) -> None:
    now = [1_000_000.0]
    made = ServiceAccount(key_file(tmp_path / "k", RSA), "gw", clock=lambda: now[0])
    first = made.token()
    now[0] += LIFETIME_S - EARLY_S - 1
    assert made.token() == first
    now[0] += 1
    second = made.token()
    assert second != first
    payload = jwt.decode(second, options={"verify_signature": False})
    assert payload == {
        "iss": ACCOUNT,
        "sub": ACCOUNT,
        "aud": "gw",
        "iat": int(now[0]),
        "exp": int(now[0]) + 3600,
    }
    assert jwt.get_unverified_header(second) == {"alg": "RS256", "kid": "k1", "typ": "JWT"}
    now[0] += 2
    assert made.token(renew=True) != second


def test_a_token_that_was_refused_is_replaced_once(
    accounts: Path, peer: Peers, fronted: Fronts, client: Clients, tmp_path: Path
) -> None:
    run = fronted(
        peer(Thrift(names)).uri,
        authentication_class=TOKENS,
        authentication={"service.accounts": str(accounts)},
    )
    file = tmp_path / "token"
    file.write_text(sign(), encoding="utf-8")
    hms = client(run.uri, grpc=GrpcSettings(token_file=str(file)))
    assert hms.call("get_all_databases") == ["a"]
    file.write_text(sign(exp=int(time.time()) - 600), encoding="utf-8")
    with pytest.raises(MetastoreAuthenticationError, match="has expired"):
        hms.call("get_all_databases")
    file.write_text(f"{sign()}\n", encoding="utf-8")
    assert hms.call("get_all_databases") == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{}", "no key file"),
        ('["s3cret"]', "no key file"),
        ('{"client_email": "a", "private_key": "s3cret"}', "no key file"),
        ("{s3cret", "no key file"),
    ],
    ids=["missing", "empty", "list", "no_key", "no_json"],
)
def test_key_files_that_are_none(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    settings = MetastoreSettings(
        uris=("grpc://127.0.0.1:1",), grpc=GrpcSettings(service_account_keyfile=str(path))
    )
    with MetastoreClient(settings) as client, pytest.raises(ConfigurationError, match=message) as caught:
        client.connect()
    assert "s3cret" not in str(caught.value)


def test_tokens_are_not_shown_or_logged(
    accounts: Path, peer: Peers, fronted: Fronts, client: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = sign(), sign(aud="other")
    run = fronted(
        peer(Thrift(names)).uri,
        authentication_class=TOKENS,
        authentication={"service.accounts": str(accounts)},
    )
    with caplog.at_level(logging.DEBUG):
        hms = client(run.uri, grpc=GrpcSettings(token=good))
        hms.call("get_all_databases")
        with pytest.raises(MetastoreAuthenticationError) as caught:
            client(run.uri, grpc=GrpcSettings(token=bad)).connect()
    shown = caplog.text + str(caught.value) + repr(hms.settings) + repr(evidence(good))
    assert good not in shown
    assert bad not in shown


def test_a_gateway_that_is_gone_is_unreachable_whoever_calls(client: Clients, tmp_path: Path) -> None:
    grpc = GrpcSettings(service_account_keyfile=str(key_file(tmp_path / "key.json", RSA)))
    with pytest.raises(MetastoreUnreachableError):
        client("grpc://127.0.0.1:1", grpc=grpc, connect_timeout_s=3).connect()
