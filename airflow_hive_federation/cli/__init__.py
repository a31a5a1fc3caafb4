"""The command ``hive-federation``."""
