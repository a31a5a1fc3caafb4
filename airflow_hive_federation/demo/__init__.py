"""``hive-federation demo`` runs the main job, start to end, on this machine."""
