"""Adds and changes rows of an ACID table, as the driver of a Spark application on a cluster.

Arguments: the URI of the metastore, and a table with the columns ``id int, state string``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import append, merge

uri, table = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
    new = spark.createDataFrame([(1, "new"), (2, "void"), (3, "new")], "id int, state string")
    append(spark, client, table, new)
    orders = read_table(spark, client, table, row_ids=True)
    result = merge(
        spark,
        client,
        table,
        updates=orders.where("id = 1").withColumn("state", lit("paid")),
        deletes=orders.where("state = 'void'"),
        inserts=spark.createDataFrame([(4, "new")], "id int, state string"),
    )
print(result)
spark.stop()
