"""A process that streams numbered records and is killed, really, at a step of its own code.

A run begins at the committed position, and ends when all records are in, or by SIGKILL.
"""

from __future__ import annotations

import json
import os
import random
import signal
from typing import Any

# Everything that a run needs is loaded before the first fork (see forked_workers).
import airflow_hive_federation.ingest.connection  # noqa: F401
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreSettings


def worker(arguments: list[str]) -> None:
    """Stream the records of a seed, from the position that was committed last; the argument is JSON."""
    run: dict[str, Any] = json.loads(arguments[0])
    chance = random.Random(run["seed"] * 1000 + run["attempt"])
    steps = 0

    def step(_name: str) -> None:
        nonlocal steps
        steps += 1
        if steps == run["kill_at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    key = run["key"]
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database(run["database"])
        .with_table(run["table"])
        .with_record_writer(StrictDelimitedInputWriter.new_builder().with_field_delimiter(",").build())
        .with_conf(MetastoreSettings(uris=(run["uri"],)))
        .with_transaction_batch_size(chance.randint(1, 4))
        .with_buffer_bytes(chance.choice([100, 10_000_000]))
        .with_position_key(key)
        .with_step_callback(step)
        .connect()
    )
    position = int(connection.committed_position or 0)
    while position < run["records"]:
        following = min(position + chance.randint(1, 40), run["records"])
        connection.begin_transaction()
        for number in range(position, following):
            connection.write(f"{run['seed']},{number},{number % 3}".encode())
            if number % 7 == 0:
                connection.flush()
        if chance.random() < 0.2:
            connection.abort_transaction()
            continue
        connection.commit_transaction(key=key, value=str(following))
        position = following
    connection.close()
