"""Dumps a source: writes its state for a bootstrap, or its changes for an increment."""
