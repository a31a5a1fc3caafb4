"""Registers the page with Airflow, by the entry point ``airflow.plugins``.

Every process of Airflow imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_hive_federation.hooks.compat import configured

try:
    from airflow.sdk.plugins_manager import AirflowPlugin
except ImportError:  # Airflow 3.1
    from airflow.plugins_manager import AirflowPlugin  # type: ignore[assignment]

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: Prefix of the URLs of the page's script and data, and its route in Airflow's UI.
PREFIX, ROUTE = "/hive-federation", "hive-federation"
#: Name of the page in Airflow's navigation; the script assigns its component to a global of this name.
NAME = "Hive federation"


class PageApp:
    """The application behind the page, which is built at the first request: only API servers need it."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._app is None:
            from airflow_hive_federation.plugin.app import build_app

            self._app = build_app()
        await self._app(scope, receive, send)


def script_url() -> str:
    """Return the path of the page's script, below the path of ``[api] base_url``."""
    path = urlsplit(configured("api", "base_url", "/")).path.rstrip("/")
    return f"{path}{PREFIX}/page.js"


class HiveFederationPlugin(AirflowPlugin):
    """The page, its script and its data."""

    name = "hive_federation"
    fastapi_apps: list[dict[str, object]] = [{"app": PageApp(), "url_prefix": PREFIX, "name": NAME}]
    react_apps: list[dict[str, object]] = [
        {
            "name": NAME,
            "bundle_url": script_url(),
            "destination": "nav",
            "url_route": ROUTE,
            "category": "browse",
        }
    ]
