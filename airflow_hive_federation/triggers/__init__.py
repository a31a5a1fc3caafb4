"""Triggers of deferrable operators and sensors."""
