"""Reports the progress of the package's work as typed events to one observer."""
