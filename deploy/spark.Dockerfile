# An image of Spark's driver and executors on Kubernetes; see docs/engines.md. Build it in the root of the repository:
#   docker build -f deploy/spark.Dockerfile -t hive-federation-spark .
FROM python:3.12-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgssapi-krb5-2 default-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY dags dags
COPY airflow_hive_federation airflow_hive_federation
COPY deploy/spark-entrypoint.sh /opt/entrypoint.sh
# This package lies in the directory; it has no version to pin. Spark comes with it, as pyspark. The version of
# Spark is the worker's: "pip install 'pyspark==4.1.*'" before it takes another one.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir '.[hdfs,s3]' \
    && ln -s "$(python -c 'import pyspark; print(pyspark.__path__[0])')" /opt/spark \
    && ln -s "$(python -c 'import airflow_hive_federation; print(airflow_hive_federation.__path__[0])')" \
        /opt/hive-federation \
    && mkdir -p /opt/spark/conf /opt/spark/work-dir \
    && chmod 0755 /opt/entrypoint.sh \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin spark \
    && chown spark /opt/spark/conf /opt/spark/work-dir

ENV SPARK_HOME=/opt/spark PYSPARK_PYTHON=python3 PYSPARK_DRIVER_PYTHON=python3
# Its number, which Kubernetes' runAsNonRoot understands.
USER 10001
WORKDIR /opt/spark/work-dir
ENTRYPOINT ["tini", "-g", "--", "/opt/entrypoint.sh"]
