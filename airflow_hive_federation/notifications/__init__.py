"""Provides the notifiers, for callbacks and deadlines."""
