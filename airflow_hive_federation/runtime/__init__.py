"""The runtime finds a Java and the cache directory of this machine."""
