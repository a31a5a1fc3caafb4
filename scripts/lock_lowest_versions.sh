#!/usr/bin/env bash
# Locks the lowest versions that pyproject.toml allows beside Airflow 3.1, 3.2 and 3.3. What they need in turn is as
# of a date soon after the release of that Airflow, as in its own constraints.
set -euo pipefail
cd "$(dirname "$0")/.."
while read -r version airflow date; do
  lock=requirements/lowest-$version.lock
  rm -f "$lock"
  echo "apache-airflow~=$airflow" | .venv/bin/uv pip compile --quiet pyproject.toml - --extra grpc \
    --resolution lowest-direct --universal --generate-hashes --no-header --no-annotate \
    --exclude-newer "$date" -o "$lock"
done <<'VERSIONS'
3.1 3.1.1 2026-01-31
3.2 3.2.0 2026-04-30
3.3 3.3.0 2026-07-08
VERSIONS
