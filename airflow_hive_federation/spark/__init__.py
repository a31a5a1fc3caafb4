"""Jobs that run on Spark: entry points and what they share."""
