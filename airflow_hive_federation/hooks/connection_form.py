"""Defines the form of the connection type ``hive_federation``, as metadata and as widgets for Airflow 3.1."""

from __future__ import annotations

from typing import Any


def form_widgets() -> dict[str, object]:
    """Return the form's own fields as widgets, for Airflow 3.1, which does not know ``conn-fields``.

    Number fields are text fields here, because Airflow 3.1 has whole numbers only.
    """
    # Airflow 3.1 replaces these classes with its own while it calls this function.
    from wtforms import PasswordField, StringField  # type: ignore[import-untyped]
    from wtforms.validators import any_of  # type: ignore[import-untyped]

    made: dict[str, object] = {}
    for name, field in CONNECTION_TYPE["conn-fields"].items():
        schema = field["schema"]
        kind = PasswordField if schema.get("format") == "password" else StringField
        made[name] = kind(
            field["label"],
            [any_of(schema["enum"])] if "enum" in schema else None,
            description=field["description"],
            default=schema.get("default"),
        )
    return made


def field_behaviour() -> dict[str, object]:
    """Return the layout of Airflow's own fields in the form, for Airflow 3.1."""
    behaviour = CONNECTION_TYPE["ui-field-behaviour"]
    return {name.replace("-", "_"): value for name, value in behaviour.items()}


def _field(label: str, description: str, kind: str = "string", **schema: object) -> dict[str, object]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


# The fields of the connection's form; HiveMetastoreHook defines their meaning (its EXTRAS are these and
# http_headers). Airflow hides secrets by the field's name; the format only hides them while a user types.
CONNECTION_TYPE: dict[str, Any] = {
    "connection-type": "hive_federation",
    "hook-class-name": "airflow_hive_federation.hooks.metastore.HiveMetastoreHook",
    "hook-name": "Hive metastore (federation)",
    "ui-field-behaviour": {
        "hidden-fields": ["schema"],
        "relabeling": {"host": "Host", "login": "User"},
        "placeholders": {
            "host": "metastore.example.com",
            "port": "9083",
            "login": "user to act as; by default the operating system's user",
            "password": "if the metastore requires one (LDAP, PAM, custom)",
        },
    },
    "conn-fields": {
        "uris": _field(
            "URIs",
            "Instead of host and port, several servers of one metastore, comma-separated: "
            "thrift://a:9083,thrift://b:9083 (or grpc://a:9084,grpc://b:9084)",
        ),
        "transport": _field(
            "Transport",
            "Protocol of the metastore at host and port",
            enum=["thrift", "thrift+tls", "http", "https", "grpc", "grpc+tls"],
            default="thrift",
        ),
        "catalog": _field("Catalog", "Hive catalog of names without a catalog", default="hive"),
        "connect_timeout_s": _field(
            "Connect timeout", "Seconds to connect to one server (10)", "number", minimum=0
        ),
        "call_timeout_s": _field("Call timeout", "Seconds one call may take (600)", "number", minimum=0),
        "max_answer_bytes": _field(
            "Longest answer",
            "Maximum bytes of an answer (268435456, which is 256 MiB); a longer answer is an error",
            "number",
            minimum=1,
        ),
        "tls_ca_file": _field("TLS authorities", "PEM file of the authorities to trust"),
        "tls_cert_file": _field("TLS client certificate", "PEM file, if the server requires one"),
        "tls_key_file": _field(
            "TLS client key", "PEM file, if the certificate's file does not contain the key"
        ),
        "tls_key_password": _field("TLS key password", "Password of the client key", format="password"),
        "kerberos_principal": _field("Kerberos server", "The metastore's principal: hive/_HOST@EXAMPLE.COM"),
        "kerberos_client_principal": _field(
            "Kerberos client", "The client's principal; by default the keytab's first, or the ticket's"
        ),
        "kerberos_keytab": _field(
            "Kerberos keytab", "File with the client's keys; without it, the ticket of kinit is used"
        ),
        "delegation_token": _field(
            "Delegation token", "Of the metastore, instead of keytab and ticket", format="password"
        ),
        "http_path": _field("HTTP path", "Path of the HTTP transport (/metastore)"),
        "http_bearer_token": _field(
            "HTTP bearer token", "Sent with every request of the HTTP transport", format="password"
        ),
        "grpc_plaintext": _field(
            "gRPC without TLS",
            "true: connect without TLS to gateways of other machines, too; tokens then need an SSH route",
            enum=["false", "true"],
            default="false",
        ),
        "grpc_token": _field("gRPC bearer token", "Sent with every call of gRPC", format="password"),
        "grpc_jwt_file": _field("gRPC token file", "File with a bearer token, read for each call"),
        "grpc_keyfile": _field(
            "gRPC key file", "JSON key file of a service account, whose key signs the tokens"
        ),
        "grpc_audience": _field("gRPC audience", "Audience of those tokens (hive-metastore)"),
        "grpc_cluster": _field("gRPC cluster", "Cluster whose locations the gateway shows"),
        "client_class": _field(
            "Client class", "Dotted path of a subclass of MetastoreClient (metastore.custom.client.class)"
        ),
        "ssh_route": _field("SSH route", "user@host -> user@host, as many hops as there are"),
        "ssh_key_files": _field(
            "SSH key files", "Files of private keys, comma-separated: one for each hop, or one for all"
        ),
        "ssh_known_hosts": _field("SSH known hosts", "Files of known host keys (~/.ssh/known_hosts)"),
        "ssh_timeout_s": _field("SSH timeout", "Seconds to connect one hop (60)", "number", minimum=0),
        "ssh_passphrase": _field("SSH passphrase", "Of the private keys", format="password"),
        "storage_options": _field(
            "Storage options",
            'Options of the file systems, as fsspec takes them: {"endpoint_url": "https://…"}; where they '
            'differ by store, {"s3://bucket": {…}}. Shown to everybody.',
            format="multiline",
        ),
        "secret_storage_options": _field(
            "Secret storage options",
            'Keys of the file systems, in the same form: {"key": "…", "secret": "…"}. Never shown again.',
            format="password",
        ),
    },
}
