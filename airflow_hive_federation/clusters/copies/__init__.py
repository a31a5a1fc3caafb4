"""Makes copies of tables in secondary clusters."""
