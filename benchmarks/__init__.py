"""Measurements beside the peers: ``python -m benchmarks [IDS…]``; see ``docs/benchmarks.md``."""
