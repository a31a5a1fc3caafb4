"""SSH routes of any number of hops, whose channels are the transport of a metastore's client."""
