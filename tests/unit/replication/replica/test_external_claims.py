"""Directories of external tables belong to a target database of one metastore."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.errors import LocationConflictError, StoragePermissionError
from airflow_hive_federation.replication.metadata.directories import Claim
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import external_claims
from airflow_hive_federation.replication.replica.external_claims import (
    check_external_claims,
    claim_external,
    release_external,
)


@pytest.fixture
def policy(tmp_path: Path) -> ReplicationPolicy:
    return ReplicationPolicy(
        name="p",
        source_database="shop",
        dump_root=f"file:{tmp_path}/dumps",
        external_base=f"file:{tmp_path}/base",
    )


def tables(policy: ReplicationPolicy, *paths: str) -> list[Claim]:
    root = (policy.external_base or "").removesuffix("/base").removesuffix("/base/lake")
    return [Claim(owner=f"table {path}", table=path, target=f"{root}/{path}") for path in paths]


def claims_below(directory: Path) -> dict[str, bool]:
    return {
        path.name: json.loads(path.read_text(encoding="utf-8"))["checked"]
        for path in directory.glob("_hive_federation_targets/*")
    }


@pytest.mark.parametrize("theirs", ["base/lake/t", "base/lake", "base/lake/t/p=1"])
def test_targets_of_two_metastores_that_would_erase_each_other(
    policy: ReplicationPolicy, tmp_path: Path, theirs: str
) -> None:
    claim_external("one", policy, tables(policy, "base/lake/t"))
    other = replace(policy, name="q", target_database="bazaar")
    for ask in (claim_external, check_external_claims):
        with pytest.raises(LocationConflictError) as refused:
            ask("two", other, tables(policy, theirs))
        message = str(refused.value)
        assert "database shop of another metastore (id one)" in message
        assert f"table {theirs}" in message
        assert f"{tmp_path}/base/_hive_federation_targets/one@shop.json" in message
        assert refused.value.facts["tables"] == [theirs]
        assert refused.value.facts["paths"] == [f"file:{tmp_path}/{theirs}", f"file:{tmp_path}/base/lake/t"]
    assert claims_below(tmp_path / "base") == {"one@shop.json": True}
    # Tables beside it share nothing but the base; databases of one metastore compare elsewhere.
    claim_external("two", other, tables(policy, "base/lake/u", "base/lake/t2"))
    claim_external("one", other, tables(policy, "base/lake/t/inner"))
    # The owner goes on; the other one does when the owner is gone for good.
    claim_external("one", policy, tables(policy, "base/lake/t", "base/lake/v"))
    (tmp_path / "base/_hive_federation_targets/one@shop.json").unlink()
    (tmp_path / "base/_hive_federation_targets/one@bazaar.json").unlink()
    claim_external("two", other, tables(policy, theirs))


def test_a_claim_that_is_refused_leaves_what_was_claimed_before(
    policy: ReplicationPolicy, tmp_path: Path
) -> None:
    claim_external("one", policy, tables(policy, "base/a"))
    claim_external("two", policy, tables(policy, "base/b"))
    with pytest.raises(LocationConflictError):
        claim_external("two", policy, tables(policy, "base/a", "base/c"))
    assert claims_below(tmp_path / "base") == {"one@shop.json": True, "two@shop.json": True}
    claim_external("one", policy, tables(policy, "base/c"))


@pytest.mark.parametrize("first", ["base", "base/lake"])
def test_bases_that_lie_in_each_other(policy: ReplicationPolicy, tmp_path: Path, first: str) -> None:
    """Whichever claims first: claims above a base are read, and those between a base and its tables."""
    inner = replace(policy, external_base=f"file:{tmp_path}/base/lake")
    begun, other = (policy, inner) if first == "base" else (inner, policy)
    claim_external("one", begun, tables(begun, "base/lake/t"))
    with pytest.raises(LocationConflictError, match=r"\(id one\)"):
        claim_external("two", other, tables(other, "base/lake/t"))
    claim_external("two", other, tables(other, "base/lake/u"))


def test_of_claims_that_meet_at_least_one_is_refused(
    policy: ReplicationPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tables(policy, "base/t")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(external_claims, "list_directory", killed)
        with pytest.raises(KeyboardInterrupt):
            claim_external("one", policy, ours)
    assert claims_below(tmp_path / "base") == {"one@shop.json": False}
    with pytest.raises(LocationConflictError, match=r"\(id one\)"):
        claim_external("two", policy, ours)
    claim_external("one", policy, ours)
    # A damaged claim still has an owner, who writes it anew.
    (tmp_path / "base/_hive_federation_targets/one@shop.json").write_text("{", encoding="utf-8")
    with pytest.raises(LocationConflictError, match=r"one@shop\.json cannot be read"):
        claim_external("two", policy, ours)
    claim_external("one", policy, ours)
    assert claims_below(tmp_path / "base") == {"one@shop.json": True}


def test_a_claim_that_was_compared_is_not_compared_again(
    policy: ReplicationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_external("one", policy, tables(policy, "base/t", "base/u"))
    monkeypatch.delattr(external_claims, "list_directory")
    claim_external("one", policy, tables(policy, "base/u", "base/t"))


def test_directories_are_given_up_at_the_end_of_the_load_that_empties_them(
    policy: ReplicationPolicy, tmp_path: Path
) -> None:
    claim_external("one", policy, tables(policy, "base/t", "base/u"))
    for _ in ("killed", "run again"):
        claim_external("one", policy, tables(policy, "base/u"))
        with pytest.raises(LocationConflictError):
            claim_external("two", policy, tables(policy, "base/t"))
    release_external("one", policy, tables(policy, "base/u"))
    claim_external("two", policy, tables(policy, "base/t"))
    with pytest.raises(LocationConflictError):
        claim_external("two", policy, tables(policy, "base/u"))
    release_external("one", policy, [])
    claim_external("two", policy, tables(policy, "base/u"))
    assert claims_below(tmp_path / "base") == {"two@shop.json": True}


def test_a_claim_that_another_load_has_written_is_not_given_up(policy: ReplicationPolicy) -> None:
    """A load that was suspended at its end must not replace the claim of its successor."""
    release_external("one", policy, tables(policy, "base/t"))
    claim_external("one", policy, tables(policy, "base/u"))
    release_external("one", policy, tables(policy, "base/t"))
    with pytest.raises(LocationConflictError):
        claim_external("two", policy, tables(policy, "base/u"))
    claim_external("two", policy, tables(policy, "base/t"))


def test_rights_may_end_at_the_base(
    policy: ReplicationPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = external_claims.list_directory

    def refused_at(place: str) -> None:
        def list_directory(uri: str, **given: object) -> dict[str, int]:
            if uri.startswith(place):
                raise StoragePermissionError("no", path=uri, remedy="none")
            return listing(uri, **given)  # type: ignore[arg-type]

        monkeypatch.setattr(external_claims, "list_directory", list_directory)

    refused_at(f"file:{tmp_path}/_hive_federation_targets")
    claim_external("one", policy, tables(policy, "base/t"))
    refused_at(f"file:{tmp_path}/base/_hive_federation_targets")
    with pytest.raises(StoragePermissionError):
        claim_external("one", policy, tables(policy, "base/u"))


@pytest.mark.parametrize("base", ["file:/", "s3://bucket", None])
def test_nothing_is_claimed_at_the_root_of_a_store(policy: ReplicationPolicy, base: str | None) -> None:
    policy = replace(policy, external_base=base, storage_options={"never": "asked"})
    for ask in (claim_external, release_external):
        ask("one", policy, [Claim(owner="table t", table="t", target="file:/t")])
