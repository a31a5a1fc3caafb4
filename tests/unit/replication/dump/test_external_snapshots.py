"""Snapshots have names that no other policy has."""

from __future__ import annotations

from dataclasses import replace

from airflow_hive_federation.replication.dump.external_snapshots import snapshot_prefix
from airflow_hive_federation.replication.policy import ReplicationPolicy


def test_no_two_policies_share_a_name() -> None:
    policy = ReplicationPolicy(name="shop", source_database="d", dump_root="hdfs://nn/dumps")
    others = [
        replace(policy, name="shop2"),
        replace(policy, dump_root="hdfs://other/dumps"),
        # Alike in what the name shows.
        replace(policy, name="a" * 80 + "1"),
        replace(policy, name="a" * 80 + "2"),
        policy.reversed(),
    ]
    prefixes = [snapshot_prefix(each) for each in (policy, *others)]
    assert len({*prefixes}) == len(prefixes)
    assert not any(one.startswith(other) for one in prefixes for other in prefixes if one != other)
    # The same policy, and so the same directory of dumps, in another way of writing.
    assert snapshot_prefix(replace(policy, dump_root="hdfs://nn//dumps/")) == prefixes[0]
    # HDFS allows 255 bytes.
    assert all(len(f"{prefix}{2**63}") < 256 for prefix in prefixes)
