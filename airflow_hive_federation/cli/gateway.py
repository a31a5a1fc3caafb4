"""``hive-federation gateway serve|check``: serves a gateway to metastores, or checks it as a client would."""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_hive_federation.gateway.config import GatewayConfig
    from airflow_hive_federation.gateway.properties import GrpcSection


#: grpcio's server then waits for messages in its own threads. By default, threads of grpcio's event engine
#: wait and wake those threads, which takes some 25 to 50 microseconds more per call.
_GRPC_EXPERIMENTS = ("GRPC_EXPERIMENTS", "-event_engine_listener")
#: Seconds that a worker has to end after its fronts have drained.
_STOP_S = 10.0


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser("gateway", help="serve metastores to engines, old clients and far sites")
    actions = parser.add_subparsers(dest="gateway_action", required=True, metavar="serve|check")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, help="the gateway's file (TOML); see docs/gateway.md")
    common.add_argument("--upstream", help="URIs of the metastore, or the id of an Airflow connection")
    common.add_argument("--host", help="address of the fronts (default: 127.0.0.1)")
    common.add_argument("--port", type=int, help="port of the Thrift front (default: 9083)")
    common.add_argument("--grpc-port", type=int, help="port of the gRPC front (default: none)")
    common.add_argument("--metrics-port", type=int, help="port of Prometheus' metrics (default: none)")
    common.add_argument("--cert-file", help="PEM file of the fronts' certificate")
    common.add_argument("--key-file", help="PEM file of its key")
    common.add_argument("--client-ca-file", help="PEM file of authorities; clients need a certificate then")
    common.add_argument("--allow-plain", action="store_true", help="serve other machines in plain text, too")
    common.add_argument("--access-log", help="file for a line per call; - is standard error")

    serve = actions.add_parser("serve", parents=[common], help="serve until it is stopped")
    serve.add_argument("--workers", type=int, default=1, help="processes that share the ports (default: 1)")
    serve.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    serve.set_defaults(gateway_run=_serve)

    check = actions.add_parser(
        "check", parents=[common], help="check a gateway by the typical calls of a client"
    )
    check.add_argument("--as-user", default="", help="the client's user")
    check.add_argument("--as-group", action="append", default=[], help="one of the client's groups")
    check.add_argument("--json", action="store_true", help="print findings as JSON")
    check.set_defaults(gateway_run=_check)


def run(args: argparse.Namespace) -> int:
    """Run one action and return the exit code.

    :raises HiveFederationError: the action failed; the caller prints the error.
    """
    # grpcio's C++ core logs to standard error beside its errors, which would mix with our lines.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    action: Callable[[argparse.Namespace], int] = args.gateway_run
    return action(args)


def _serve(args: argparse.Namespace) -> int:
    # Before grpcio is imported.
    os.environ.setdefault(*_GRPC_EXPERIMENTS)
    from airflow_hive_federation.cli.connecting import settings_for
    from airflow_hive_federation.gateway.serving import run_until_stopped, start

    logging.getLogger("airflow_hive_federation.gateway").setLevel(logging.INFO)
    config = _with_options(_config(args), args)
    if args.workers < 1:
        raise ConfigurationError(f"--workers is {args.workers}.", remedy="Give a number above 0.")
    config.refuse_no_front()
    if args.workers > 1 and args.worker is None:
        return _serve_by_several(args, config)
    serving = start(config, settings_for, worker=args.worker)
    for front in serving.fronts:
        print(f"serving {front.uri}", flush=True)
    if serving.metrics is not None and args.worker is None and config.metrics is not None:
        print(f"metrics: http://{config.metrics.host}:{serving.metrics.port}/metrics", flush=True)
    run_until_stopped(serving, parent=args.worker is not None)
    return 0


def _serve_by_several(args: argparse.Namespace, config: GatewayConfig) -> int:
    from airflow_hive_federation.gateway.workers import Workers, reserve_ports

    command = [sys.executable, "-m", "airflow_hive_federation.cli.main", *_argv(args)]
    holders: list[socket.socket] = []

    def reserve(option: str, host: str, port: int, count: int = 1) -> int:
        held, first = reserve_ports(host, port, count)
        holders.extend(held)
        command.extend([option, str(first)])
        return first

    try:
        if config.thrift is not None:
            reserve("--port", config.thrift.host, config.thrift.port)
        if config.grpc is not None:
            reserve("--grpc-port", config.grpc.settings.host, config.grpc.settings.port)
        if config.metrics is not None:
            host = config.metrics.host
            first = reserve("--metrics-port", host, config.metrics.port, args.workers)
            for number in range(args.workers):
                print(f"metrics of worker {number}: http://{host}:{first + number}/metrics", flush=True)
        commands = [[*command, "--worker", str(number)] for number in range(args.workers)]
        return Workers(commands, stop_timeout_s=_STOP_S + _longest_drain_s(config)).run()
    finally:
        for holder in holders:
            holder.close()


def _longest_drain_s(config: GatewayConfig) -> float:
    # All fronts of a process drain at the same time.
    drains = [] if config.thrift is None else [config.thrift.drain_timeout_s]
    if config.grpc is not None:
        drains.append(config.grpc.settings.drain_timeout_s)
    return max(drains, default=0.0)


def _argv(args: argparse.Namespace) -> list[str]:
    """Return the arguments of the command line except ports and workers; they hold no secrets."""
    argv = ["gateway", "serve"]
    options = ("config", "upstream", "host", "grpc_port", "metrics_port", "cert_file", "key_file")
    for name in (*options, "client_ca_file", "access_log"):
        if (value := getattr(args, name)) is not None:
            argv += [f"--{name.replace('_', '-')}", str(value)]
    return [*argv, *(["--allow-plain"] if args.allow_plain else [])]


def _config(args: argparse.Namespace) -> GatewayConfig:
    from airflow_hive_federation.gateway.config import config_of, read_config

    if args.config is not None:
        config = read_config(args.config)
        if args.upstream is not None:
            raise ConfigurationError(
                f"--upstream is given beside --config {args.config}, whose [upstream] names the metastore.",
                remedy="Leave --upstream out.",
            )
        return config
    if args.upstream is None:
        raise ConfigurationError(
            "The gateway needs a metastore.", remedy="Give --config FILE, or --upstream thrift://host:9083."
        )
    return config_of({"upstream": {"connection": args.upstream}})


def _with_options(config: GatewayConfig, args: argparse.Namespace) -> GatewayConfig:
    from airflow_hive_federation.gateway.certificates import ServerTls
    from airflow_hive_federation.gateway.config import LogSection, MetricsSection
    from airflow_hive_federation.gateway.thrift_settings import ThriftSettings

    options: dict[str, Any] = {}
    if args.cert_file is not None:
        options["tls"] = ServerTls(
            cert_file=args.cert_file, key_file=args.key_file, client_ca_file=args.client_ca_file
        )
    options |= {name: getattr(args, name) for name in ("host", "port") if getattr(args, name) is not None}
    options |= {"allow_plain": True} if args.allow_plain else {}
    changes: dict[str, Any] = {}
    # Of the options, only a port asks for a Thrift front that the file leaves out.
    if options and (config.thrift is not None or args.port is not None):
        changes["thrift"] = replace(config.thrift or ThriftSettings(), **options)
    if args.grpc_port is not None or (options and config.grpc is not None):
        changes["grpc"] = _grpc(config.grpc, args)
    if args.metrics_port is not None:
        changes["metrics"] = replace(config.metrics or MetricsSection(), port=args.metrics_port)
    if args.access_log is not None:
        changes["log"] = LogSection(access=args.access_log)
    return replace(config, **changes)


def _grpc(section: GrpcSection | None, args: argparse.Namespace) -> GrpcSection:
    from airflow_hive_federation.gateway.certificates import ServerTls
    from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
    from airflow_hive_federation.gateway.properties import GrpcSection

    options: dict[str, Any] = {} if args.grpc_port is None else {"port": args.grpc_port}
    options |= {} if args.host is None else {"host": args.host}
    options |= {"allow_plain": True} if args.allow_plain else {}
    if args.cert_file is not None:
        options["tls"] = ServerTls(
            cert_file=args.cert_file, key_file=args.key_file, client_ca_file=args.client_ca_file
        )
    section = section or GrpcSection(settings=GrpcFrontSettings())
    return replace(section, settings=replace(section.settings, **options))


def _check(args: argparse.Namespace) -> int:
    from airflow_hive_federation.cli.connecting import settings_for
    from airflow_hive_federation.gateway.check import examine
    from airflow_hive_federation.gateway.handler import Caller

    caller = Caller(user=args.as_user, authentication="asserted", groups=tuple(args.as_group))
    findings = examine(_with_options(_config(args), args), settings_for, caller)
    if args.json:
        print(json.dumps([finding.to_json() for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.state:<8} {finding.name}: {finding.detail}")
            if finding.remedy:
                print(f"{'':<8} → {finding.remedy}")
    return int(any(finding.state == "error" for finding in findings))
