"""ORC files as Hive has them: what pyarrow's reader and writer leave to be done."""
