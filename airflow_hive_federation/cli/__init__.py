"""Implements the command ``hive-federation``."""
