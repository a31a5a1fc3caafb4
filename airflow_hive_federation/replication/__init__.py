"""Replicates Hive databases, by the design of replication V2: policy, dump, copy, load and verification."""
