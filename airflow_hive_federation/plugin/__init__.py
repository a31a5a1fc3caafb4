"""The page "Hive federation" in Airflow's UI. It reads published state, and reaches no metastore."""
