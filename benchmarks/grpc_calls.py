"""Raw gRPC: the same call of a metastore straight, and through a gateway of another process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from benchmarks import results

DATABASE = "grpc_calls"
_WARM_UP = 200
_COLUMNS = 30


def run(calls: int, say: Callable[[str], None]) -> results.Result:
    """Measure ``get_table``: the median of many calls, made in turns."""
    with EmbeddedMetastore.start("grpc-calls") as metastore, gateway(metastore.uri) as uri:
        with MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client:
            _make_table(client)
        with (
            MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as straight,
            MetastoreClient(MetastoreSettings(uris=(uri,))) as through,
        ):
            say(f"{calls} calls each, in turns")
            took: dict[str, list[float]] = {"straight": [], "through": []}
            for number in range(calls + _WARM_UP):
                for name, client in (("straight", straight), ("through", through)):
                    began = time.perf_counter()
                    client.get_table(DATABASE, "wide")
                    if number >= _WARM_UP:
                        took[name].append(time.perf_counter() - began)
    return results.faster(
        "grpc",
        f"get_table of {_COLUMNS} columns through a gateway, by raw gRPC",
        ours_s=statistics.median(took["through"]),
        peer="direct Thrift",
        peer_s=statistics.median(took["straight"]),
        at_least=None,
    )


@contextmanager
def gateway(uri: str) -> Iterator[str]:
    """Run a gateway as a process, and yield its URI."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.grpc_calls", uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield f"grpc://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def _make_table(client: MetastoreClient) -> None:
    client.create_database(types.Database(name=DATABASE))
    columns = [types.FieldSchema(name=f"column_{number}", type="string") for number in range(_COLUMNS)]
    text = "org.apache.hadoop.mapred.TextInputFormat"
    storage = types.StorageDescriptor(cols=columns, inputFormat=text, serdeInfo=types.SerDeInfo())
    client.create_table(
        types.Table(
            dbName=DATABASE,
            tableName="wide",
            owner="root",
            sd=storage,
            partitionKeys=[],
            parameters={"EXTERNAL": "TRUE"},
            tableType="EXTERNAL_TABLE",
        )
    )


def _serve(uri: str) -> None:
    from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
    from airflow_hive_federation.gateway.grpc.server import GrpcFront
    from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
    from airflow_hive_federation.gateway.upstream import Upstream

    target = Metastore(Upstream("main", MetastoreSettings(uris=(uri,))))
    front = GrpcFront(Gateway(target), GrpcFrontSettings(port=0)).start()
    print(front.port, flush=True)
    sys.stdin.read()
    front.stop(0)
    target.close()


if __name__ == "__main__":
    _serve(sys.argv[1])
