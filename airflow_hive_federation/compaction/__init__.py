"""Plans the compactions of the metastore's queue, merges their files in tasks, and publishes them."""
