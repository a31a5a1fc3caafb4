"""Runs the main job, start to end, on this machine (``hive-federation demo``)."""
