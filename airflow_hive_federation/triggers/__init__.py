"""Provides the triggers of deferrable operators and sensors."""
