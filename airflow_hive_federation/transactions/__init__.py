"""Runs Hive transactions, with their locks, heartbeats, snapshots and leases."""
