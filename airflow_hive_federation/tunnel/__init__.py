"""Connects metastore clients through SSH routes of any number of hops."""
