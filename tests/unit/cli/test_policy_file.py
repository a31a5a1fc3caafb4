from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.cli.connecting import end_for, settings_for
from airflow_hive_federation.cli.replicate import policy_text, read_policy_file
from airflow_hive_federation.errors import ConfigurationError

LEAST = """
name = "shop"
source = "thrift://a:9083"
target = "hive_target"
source_database = "Shop"
dump_root = "s3://bucket/dumps"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_least(tmp_path: Path) -> None:
    file = read_policy_file(written(tmp_path, LEAST))
    assert (file.source, file.target) == ("thrift://a:9083", "hive_target")
    assert (file.policy.source_database, file.policy.target_database) == ("shop", "shop")
    assert file.policy.into_existing is False


def test_everything(tmp_path: Path) -> None:
    text = """
target_database = "copy"
external_base = "s3://bucket/external"
functions_root = "s3://bucket/functions"
open_txn_timeout_s = "5m"
bandwidth_bytes_per_s = 1_000_000
"""
    policy = read_policy_file(written(tmp_path, LEAST + text), into_existing=True).policy
    assert (policy.target_database, policy.open_txn_timeout_s) == ("copy", 300.0)
    assert (policy.bandwidth_bytes_per_s, policy.into_existing) == (1_000_000, True)


def test_settings_under_hives_names(tmp_path: Path) -> None:
    text = (
        LEAST.replace('dump_root = "s3://bucket/dumps"', "")
        + """
[options]
"hive.repl.rootdir" = "s3://bucket/dumps"
"hive.repl.bootstrap.dump.open.txn.timeout" = "90s"
"""
    )
    policy = read_policy_file(written(tmp_path, text)).policy
    assert (policy.dump_root, policy.open_txn_timeout_s) == ("s3://bucket/dumps", 90.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "cannot be read"),
        (
            LEAST.replace("name = ", "nam = "),
            r"nam not known; name missing\. Remedy: Keys are source, target",
        ),
        (LEAST.replace('target = "hive_target"', ""), "target missing"),
        (LEAST.replace('"hive_target"', "7"), "target is 7.*Give text"),
        (LEAST + "dump_root = 1", "cannot be read"),
        (LEAST + "bandwidth_bytes_per_s = true", "bandwidth_bytes_per_s is True.*whole number"),
        (LEAST + 'into_existing = "yes"', "into_existing is 'yes'.*true or false"),
        (LEAST + 'open_txn_timeout_s = "soon"', "'soon' is not a duration"),
        (LEAST + '[storage_options]\nkey = "sesame"', "storage_options not known"),
        (LEAST + 'options = "x"', "options is no table"),
        (LEAST + '[options]\n"hive.repl.nonsense" = "x"', "'hive.repl.nonsense' is not known"),
        (LEAST.replace('"shop"', '"a/b"'), "'a/b' cannot name a replication policy"),
    ],
)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_policy_file(written(tmp_path, text))


def test_no_text_at_all(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xff\xfe")
    for wrong, remedy in (
        (path, "Correct the TOML"),
        (tmp_path, "Check the path"),
        (tmp_path / "none", "Check the path"),
    ):
        with pytest.raises(ConfigurationError, match=f"cannot be read.*{remedy}"):
            read_policy_file(wrong)


def test_uris_on_the_command_line() -> None:
    assert settings_for("thrift://a:1, thrift://b:2").uris == ("thrift://a:1", "thrift://b:2")
    with pytest.raises(ConfigurationError, match="no metastore URI"):
        settings_for("ftp://a")


def test_a_connection_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    value = '{"conn_type": "hive_federation", "host": "h", "extra": {"storage_options": {"anon": true}}}'
    monkeypatch.setenv("AIRFLOW_CONN_SOMEWHERE", value)
    end = end_for("somewhere")
    assert (end.settings.uris, end.storage_options) == (("thrift://h",), {"anon": True})
    with pytest.raises(ConfigurationError, match="'nowhere' is neither a URI nor") as caught:
        end_for("nowhere")
    assert "AIRFLOW_CONN_NOWHERE in the environment" in caught.value.remedy
    with pytest.raises(ConfigurationError) as caught:
        end_for("localhost:9083")
    assert "AIRFLOW_CONN" not in caught.value.remedy


def test_a_policy_that_was_written_is_read_the_same(tmp_path: Path) -> None:
    text = LEAST + 'external_base = "s3://bucket/\N{GRINNING FACE}"\n'
    text += 'open_txn_timeout_s = "5m"\ninto_existing = true\n'
    first = read_policy_file(written(tmp_path, text))
    again = read_policy_file(written(tmp_path, policy_text(first.policy, first.source, first.target)))
    assert again == first
