"""Build the wheel and the source archive, and install each beside a new Airflow: ``make release-check``.

Each gets an environment of its own with nothing but what it and its extra ``grpc`` declare, in the versions
of ``requirements.lock``. There, every module and example DAG is imported, and Airflow lists the provider.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PACKAGE = "airflow-hive-federation"
#: Files that the package needs, and that no import would miss.
NEEDED = (
    "py.typed",
    "embedded/jars.lock",
    "embedded/launcher/RunMetastore.groovy",
    "example_dags/replicate_database.py",
)


def main() -> int:
    """Build, check and report; return the exit code."""
    for former in DIST.glob("airflow_hive_federation-*"):
        former.unlink()
    uv("build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", DIST, ROOT)
    faults = []
    for archive in sorted(DIST.glob("airflow_hive_federation-*")):
        of_archive = [*absent(archive), *installed_faults(archive)]
        print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB, {len(of_archive)} faults")
        faults += of_archive
    print("\n".join(faults), end="\n" if faults else "")
    return int(bool(faults))


def absent(archive: Path) -> list[str]:
    """Return a fault for each file that an archive lacks, or has in vain."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as files:
            names = set(files.namelist())
        faults = [
            f"{name} does not belong into {archive.name}" for name in names if name.startswith("tests/")
        ]
        needed = [f"airflow_hive_federation/{name}" for name in NEEDED]
    else:
        with tarfile.open(archive) as files:
            names = {member.name.partition("/")[2] for member in files.getmembers()}
        faults = []
        needed = ["LICENSE", "NOTICE", "README.md", "requirements.lock", "pyproject.toml"]
    return faults + [f"{archive.name} lacks {name}" for name in needed if name not in names]


def installed_faults(archive: Path) -> list[str]:
    """Install an archive into a new environment; return its faults there."""
    with tempfile.TemporaryDirectory() as home:
        python = Path(home, "env", "bin", "python")
        uv("venv", "--quiet", "--python", sys.executable, python.parents[1])
        lock = ROOT / "requirements.lock"
        named = f"{PACKAGE}[grpc] @ {archive.as_uri()}"
        uv("pip", "install", "--quiet", "--system-certs", "--python", python, "--constraint", lock, named)
        uv("pip", "check", "--quiet", "--python", python)
        report = json.loads(
            run(python, ROOT / "tests" / "support" / "installed_provider.py", cwd=home).splitlines()[-1]
        )
        listed = json.loads(
            run(python, "-m", "airflow", "providers", "list", "--output", "json", cwd=home, AIRFLOW_HOME=home)
        )
        version = run(python.with_name("hive-federation"), "--version", cwd=home).split()[-1]
        known = {provider["package_name"]: provider["version"] for provider in listed}
    faults = [f"{module}: {error}" for module, error in {**report["imports"], **report["dag_errors"]}.items()]
    if known.get(PACKAGE) != version:
        faults.append(f"airflow providers list has {PACKAGE} {known.get(PACKAGE)}, not {version}")
    return faults


def uv(*arguments: str | Path) -> None:
    """Run uv."""
    run(sys.executable, "-m", "uv", *arguments)


def run(*command: str | Path, cwd: str | Path = ROOT, **environment: str) -> str:
    """Run a command and return its output.

    :raises SystemExit: it failed; the message has its output.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        named = " ".join(map(str, command))
        raise SystemExit(f"{named} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
