"""Replicates several databases of one source as of one moment: the cycles of a consistency group."""
