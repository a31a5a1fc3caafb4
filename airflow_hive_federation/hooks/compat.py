"""Imports names whose modules differ among Airflow 3.1 and later, from the installed version's module.

The common.compat provider does the same, but only in versions that the constraints of no Airflow up to 3.3
allow. Names that all versions have in ``airflow.sdk`` are imported from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.log import mask_secret

if TYPE_CHECKING:
    from airflow_hive_federation.progress.metrics import Metrics

try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferralTimeout,
        TaskDeferred,
    )
except ImportError:  # Airflow 3.1
    from airflow.exceptions import (  # type: ignore[attr-defined,no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        TaskDeferralTimeout,
        TaskDeferred,
    )
try:
    from airflow.sdk.log import redact  # type: ignore[attr-defined]
except ImportError:  # Airflow 3.1.0
    from airflow.sdk._shared.secrets_masker import redact
try:
    from airflow.sdk.bases.branch import BaseBranchOperator
except ImportError:  # Airflow 3.1
    from airflow.providers.standard.operators.branch import (  # type: ignore[assignment]
        BaseBranchOperator,
    )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "BaseBranchOperator",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "airflow_metrics",
    "configured",
    "default_deferrable",
    "mask_secret",
    "redact",
]


def airflow_metrics() -> Metrics:
    """Return the receiver of metrics that Airflow's own configuration names."""
    try:
        from airflow.sdk.observability.stats import Stats
    except ImportError:  # Airflow 3.1
        from airflow.stats import Stats
    return Stats


def configured(section: str, key: str, fallback: str) -> str:
    """Return a setting of Airflow's own configuration."""
    try:
        from airflow.sdk.configuration import conf
    except ImportError:  # Airflow 3.1
        from airflow.configuration import conf
    return str(conf.get(section, key, fallback=fallback))


def default_deferrable() -> bool:
    """Return whether tasks leave their worker by default (``[operators] default_deferrable``)."""
    return configured("operators", "default_deferrable", "False").strip().lower() in {"true", "t", "1"}
