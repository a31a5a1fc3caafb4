"""Java trusts whom the machine trusts."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.truststore import certificates, java_key_store, trust_flags
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.java import find_java

SYSTEM_BUNDLE = ssl.get_default_verify_paths().cafile


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path / "cache"))


@pytest.mark.skipif(not SYSTEM_BUNDLE, reason="this machine has no PEM bundle")
def test_java_itself_reads_every_authority_of_the_bundle(tmp_path: Path) -> None:
    ders = list(certificates(Path(str(SYSTEM_BUNDLE)).read_bytes()))
    store = tmp_path / "store.jks"
    store.write_bytes(java_key_store(ders))
    keytool = find_java().home / "bin" / "keytool"
    listing = subprocess.run(
        [keytool, "-J-Duser.language=en", "-list", "-keystore", store, "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"contains {len(ders)} entries" in listing.stdout
    assert listing.stdout.count("trustedCertEntry") == len(ders)


def test_a_named_bundle_is_used_and_rewritten_once(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n")
    flags = trust_flags({"SSL_CERT_FILE": str(bundle)})
    assert flags[0].startswith(f"-Djavax.net.ssl.trustStore={tmp_path / 'cache'}")
    assert trust_flags({"SSL_CERT_FILE": str(bundle)}) == flags


def test_a_store_chosen_by_hand_is_left_alone() -> None:
    assert trust_flags({"JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=/x"}) == []


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"SSL_CERT_FILE names .*nowhere"):
        trust_flags({"SSL_CERT_FILE": str(tmp_path / "nowhere.pem")})


def test_a_bundle_without_certificates_is_named(tmp_path: Path) -> None:
    bundle = tmp_path / "empty.pem"
    bundle.write_text("nothing here")
    with pytest.raises(ConfigurationError, match="holds no certificate"):
        trust_flags({"REQUESTS_CA_BUNDLE": str(bundle)})
