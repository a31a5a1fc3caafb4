"""Configures Sphinx; ``make docs`` builds the site (scripts/build_site.py prepares its pages)."""

from airflow_hive_federation import __version__

project = "airflow-hive-federation"
copyright = "the authors of airflow-hive-federation"  # noqa: A001 - Sphinx reads this name
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxarg.ext", "sphinxcontrib.mermaid"]
root_doc = "README"
exclude_patterns = ["build"]

# Anchors are those that GitHub makes, so links work in both places.
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
# sphinx-argparse defines a domain that cannot be searched for a name.
suppress_warnings = ["myst.domains"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Airflow calls these methods; DAG authors do not.
_OF_AIRFLOW = ("choose_branch", "execute", "execute_complete", "on_kill", "perform", "poke", "serialize")
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "exclude-members": ", ".join(_OF_AIRFLOW),
}

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_show_sourcelink = False
