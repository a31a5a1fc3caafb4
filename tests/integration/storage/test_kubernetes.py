"""A job on Kubernetes, by the objects that Spark's own submission sends to the cluster's API.

No cluster can run here: a stand-in for the API server takes the objects, and no pod is started.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from airflow_hive_federation.hooks.departures import JobDeparture
from airflow_hive_federation.hooks.spark import OPTIONS_PROPERTY, SparkPipelineHook
from tests.support.kubernetes_api import kubernetes_api

IMAGE = "registry.example.com/hive-federation-spark:1"
SECRET = "open sesame"


def test_the_drivers_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The provider asks for its client of Kubernetes, by which it kills pods; a submission uses none.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", f'{{"conn_type": "aws", "password": "{SECRET}"}}')
    conf = {
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.authenticate.driver.serviceAccountName": "jobs",
        OPTIONS_PROPERTY: "stores:options",
        "spark.kubernetes.driver.secrets.keytabs": "/etc/keytabs",
        "spark.kubernetes.executor.secrets.keytabs": "/etc/keytabs",
    }
    options = {"s3://lake": {"key": "airflow", "secret": SECRET}}
    report = (tmp_path / "_report.json").as_uri()
    with kubernetes_api() as api:
        extra = {"deploy-mode": "cluster", "namespace": "etl"}
        connection = {"conn_type": "spark", "host": api.master, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_K8S", json.dumps(connection))
        # Of a user without a kubeconfig.
        environment = {"HOME": str(tmp_path), "PATH": os.defpath}
        hook = SparkPipelineHook("k8s", storage_options=options, conf=conf, env=environment)
        hook.depart(True)
        with pytest.raises(JobDeparture):
            hook.submit("copy-files", ["--plan", "s3://lake/plan"], report_uri=report)
    pod = api.the("Pod")
    assert "/api/v1/namespaces/etl/pods" in [path for path, _ in api.requests]
    assert pod["spec"]["serviceAccountName"] == "jobs"
    (driver,) = pod["spec"]["containers"]
    assert driver["image"] == IMAGE
    # The image has the program; nothing is uploaded.
    assert driver["args"][:3] == ["driver", "--properties-file", "/opt/spark/conf/spark.properties"]
    at = driver["args"].index("local:///opt/hive-federation/spark/main.py")
    assert driver["args"][at + 1 : at + 3] == ["--report", report]
    assert driver["args"][-3:] == ["copy-files", "--plan", "s3://lake/plan"]
    by_secret = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for variable in driver["env"]
        if "secretKeyRef" in variable.get("valueFrom", {})
    }
    assert by_secret == {"HIVE_FEDERATION_STORAGE_OPTIONS": {"name": "stores", "key": "options"}}
    (volume,) = (volume for volume in pod["spec"]["volumes"] if "secret" in volume)
    assert volume["secret"]["secretName"] == "keytabs"
    mounts = {mount["name"]: mount["mountPath"] for mount in driver["volumeMounts"]}
    assert mounts[volume["name"]] == "/etc/keytabs"
    # By these properties, the driver makes the pods of its executors.
    (properties,) = (
        sent["data"]["spark.properties"]
        for sent in api.objects["ConfigMap"]
        if "spark.properties" in sent["data"]
    )
    assert "spark.kubernetes.executor.secrets.keytabs=/etc/keytabs" in properties
    assert f"spark.kubernetes.container.image={IMAGE}" in properties.replace("\\:", ":")
    assert SECRET not in str(api.requests)
