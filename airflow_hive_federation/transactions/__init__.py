"""Transactions, locks, heartbeats, snapshots and leases of a metastore."""
