"""The steps of writing an ACID table: planned, arranged, written by tasks, published."""
