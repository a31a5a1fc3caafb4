"""A person forgets what is published about an object; the next publication brings it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.clusters.look import CopyLook, TableLook
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.runs import IngestReport
from airflow_hive_federation.published.clusters import (
    CLUSTERS,
    ROUTED,
    ROUTES,
    ClusterPublisher,
    PublishedRoute,
)
from airflow_hive_federation.published.directory import REPLICATION, StateDirectory, key_of
from airflow_hive_federation.published.documents import PolicyName, Publisher
from airflow_hive_federation.published.forgetting import Kind, forget, known_objects
from airflow_hive_federation.published.policies import PolicyPublisher
from airflow_hive_federation.published.remotes import RemotePublisher
from airflow_hive_federation.published.work import IngestPublisher, publish_compactions

BY = Publisher(command="a test")


def policy(place: StateDirectory, name: str, target: str) -> PolicyPublisher:
    return PolicyPublisher(place, PolicyName(name=name, source_database=name, target_database=target), BY)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    """Publish objects of every kind."""
    uri = f"file:{tmp_path / 'state'}"
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", uri)
    place = StateDirectory(uri)
    for target in ("shop_copy", "shop_other"):
        policy(place, "shop", target).failure("E: no", "", seconds=0)
        policy(place, "shop", target).wait("waits")
    RemotePublisher(place, metastore="hive", remote="far", kind="database", by=BY).drop()
    IngestPublisher(place, metastore="hive", table="d.t", source="files", by=BY).run(
        IngestReport(table="d.t")
    )
    publish_compactions(place, "hive", None, [], BY)
    clusters = ClusterPublisher(place, metastore="hive", by=BY)
    copy = CopyLook(cluster="C2", objects=1)
    clusters.looked(
        [
            TableLook(table="d.a", primary="C1", copies=(copy,)),
            TableLook(table="d.b", primary="C2"),
            TableLook(table="e.c", primary="C1", copies=(copy,)),
        ]
    )
    clusters.routed([PublishedRoute(at_s=1.0, cluster=name, rule="input") for name in ("C1", "C2")])
    return place


def shown(place: StateDirectory) -> set[str]:
    return {f"{each.kind} {each.name} of {each.of}" for each in known_objects(place)}


def test_all_that_is_published_is_known(place: StateDirectory) -> None:
    assert shown(place) == {
        "policy shop of shop_copy",
        "policy shop of shop_other",
        "remote far of hive",
        "ingest d.t of hive",
        "queue hive of hive",
        "table d.a of hive",
        "table d.b of hive",
        "table e.c of hive",
        "cluster C1 of hive",
        "cluster C2 of hive",
    }


def test_a_policy_loses_all_of_its_documents_and_comes_again(place: StateDirectory) -> None:
    with pytest.raises(ConfigurationError, match="in shop_copy, shop_other") as caught:
        forget(place, Kind.POLICY, "shop")
    assert caught.value.remedy == "Name one of these with --target."
    forget(place, Kind.POLICY, "shop", of="shop_copy")
    assert len(place.keys(REPLICATION)) == 1
    assert shown(place) >= {"policy shop of shop_other"}
    policy(place, "shop", "shop_copy").wait("waits")
    assert shown(place) >= {"policy shop of shop_copy", "policy shop of shop_other"}


@pytest.mark.parametrize(("kind", "name"), [("remote", "far"), ("ingest", "d.t"), ("queue", "hive")])
def test_an_object_is_forgotten_alone(place: StateDirectory, kind: str, name: str) -> None:
    before = shown(place)
    forget(place, Kind(kind), name)
    assert before - shown(place) == {f"{kind} {name} of hive"}


def test_a_table_goes_and_its_neighbours_stay(place: StateDirectory) -> None:
    before = shown(place)
    forget(place, Kind.TABLE, "d.a")
    assert before - shown(place) == {"table d.a of hive"}
    forget(place, Kind.TABLE, "e.c")
    assert len(place.keys(CLUSTERS)) == 1


def test_a_cluster_goes_with_its_tables_copies_and_routes(place: StateDirectory) -> None:
    before = shown(place)
    forget(place, Kind.CLUSTER, "C2", of="hive")
    assert before - shown(place) == {"table d.b of hive", "cluster C2 of hive"}
    routes = place.read(ROUTES, key_of("hive"), ROUTED)
    assert routes is not None
    assert [route.cluster for route in routes.routes] == ["C1"]


def test_a_document_that_cannot_be_read_is_forgotten_by_its_key(
    place: StateDirectory, tmp_path: Path
) -> None:
    (path,) = (tmp_path / "state" / "remotes").iterdir()
    path.write_text("{", encoding="utf-8")
    key = path.name.removesuffix(".state.json")
    assert f"remote {key} of " in shown(place)
    forget(place, Kind.REMOTE, key)
    assert not list((tmp_path / "state" / "remotes").iterdir())


def test_the_command_lists_and_forgets(place: StateDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "list", "policy"]) == 0
    assert capsys.readouterr().out.count("shop_") == 2
    assert main(["state", "forget", "policy", "shop", "--target", "shop_other"]) == 0
    assert capsys.readouterr().out == "Forgot policy shop (shop_other)\n"
    assert main(["state", "forget", "remote", "nothing"]) == 1
    assert "No remote 'nothing' is published in" in capsys.readouterr().err
    assert main(["state", "forget", "remote", "far", "--target", "x"]) == 1
    assert "--target is not for a remote" in capsys.readouterr().err
    assert main(["state", "list", "--json"]) == 0
    assert '"of": "shop_other"' not in capsys.readouterr().out


def test_nothing_is_published_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path}")
    assert main(["state", "list"]) == 0
    assert capsys.readouterr().out == f"Nothing is published in file:{tmp_path}.\n"
