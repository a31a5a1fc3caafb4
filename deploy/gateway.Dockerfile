# A container of the gateway; see docs/gateway.md. Build it in the root of the repository:
#   docker build -f deploy/gateway.Dockerfile -t hive-federation-gateway .
FROM python:3.12-slim

WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY dags dags
COPY airflow_hive_federation airflow_hive_federation
# This package lies in the directory; it has no version to pin. The gateway runs no Spark jobs, and Spark would be
# a third of the image.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir '.[grpc]' \
    && pip uninstall --yes pyspark pyspark-client py4j \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin hive-gateway

# Its number, which Kubernetes' runAsNonRoot understands. Another one needs "user" in [upstream], or USER.
USER 10001
WORKDIR /
EXPOSE 9083 9084 9090
# Mount the file, and the certificates and secrets that it names. Its fronts need host = "0.0.0.0".
ENTRYPOINT ["hive-federation", "gateway", "serve", "--config", "/etc/hive-federation/gateway.toml"]
# It drains for drain_timeout_s (30 s); Docker kills after 10 s unless "docker stop --time 60" gives it longer.
STOPSIGNAL SIGTERM
