"""Failures of Kerberos: each names the principals, the realm, the server, the reason and the remedy."""

from __future__ import annotations

import pickle

import pytest

from airflow_hive_federation.errors import KdcUnreachableError, MetastoreAuthenticationError
from airflow_hive_federation.metastore import KerberosSettings
from airflow_hive_federation.metastore.kerberos_failures import kerberos_error
from airflow_hive_federation.metastore.settings import Endpoint
from airflow_hive_federation.runtime.kerberos import KerberosFailure

ENDPOINT = Endpoint(scheme="thrift", host="Meta.example.com", port=9083)
BASE = -1765328384


def settings(principal: str | None = "etl@B.TEST", keytab: str | None = "/k") -> KerberosSettings:
    return KerberosSettings(server_principal="hive/_HOST@A.TEST", client_principal=principal, keytab=keytab)


@pytest.mark.parametrize(
    ("number", "reason", "remedy"),
    [
        (6, "does not know the client's principal", "create it"),
        (7, "does not know the server's principal", "hive-site.xml"),
        (24, "keys are not those of the KDC", "ktadd"),
        (32, "ticket has expired", "airflow kerberos"),
        (33, "not valid yet", "clocks"),
        (37, "clocks differ too much", "NTP"),
        (141, "the keytab /k cannot be read", "klist -kt"),
        (195, "the keytab /k cannot be read", "klist -kt"),
        (154, "does not know the realm", "krb5.conf"),
        (181, "no key of the client's principal", "klist -kt"),
        (999, "text of the library", "KRB5_TRACE"),
    ],
)
def test_a_refusal(number: int, reason: str, remedy: str) -> None:
    error = kerberos_error(
        KerberosFailure(code=BASE + number, text="text of the library"), settings(), ENDPOINT
    )
    assert type(error) is MetastoreAuthenticationError
    assert not error.retryable
    for part in (reason, "hive/meta.example.com@A.TEST", "thrift://Meta.example.com:9083", "as etl@B.TEST"):
        assert part in error.message
    assert remedy in error.remedy
    assert (error.realm, error.principal) == ("B.TEST", "hive/meta.example.com@A.TEST")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_no_ticket() -> None:
    error = kerberos_error(KerberosFailure(text="t", code=BASE + 141), settings(None, None), ENDPOINT)
    assert error.reason == "no ticket is in the cache"
    assert "KRB5CCNAME" in error.remedy


def test_credentials_that_the_library_calls_expired() -> None:
    error = kerberos_error(KerberosFailure(text="expired", expired=True), settings(None, None), ENDPOINT)
    assert "as the ticket's principal: the ticket has expired" in error.message
    assert error.realm == "A.TEST"


@pytest.mark.parametrize("failure", [{"code": BASE + 156}, {"silent": True}])
def test_no_kdc(failure: dict[str, int]) -> None:
    error = kerberos_error(KerberosFailure(text="no answer", **failure), settings(None), ENDPOINT)  # type: ignore[arg-type]
    assert type(error) is KdcUnreachableError
    assert error.retryable
    assert "as the keytab's principal: no KDC of the realm A.TEST answers" in error.message
