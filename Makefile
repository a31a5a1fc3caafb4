# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
# Two workers run all tests; the third one runs unit tests in the time that they leave.
JOBS   ?= 3
VENV   := .venv
PY     := $(VENV)/bin/python
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Hundreds of processes import the same modules: the first one compiles each, as is Python's default. All of the
# installed ones would take a minute.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test torture fuzz check bench docs screenshots release-check clean

demo: $(READY)                ## replicate a database between two embedded metastores (UI=1 leaves Airflow's UI up; SITE=hadoop)
	$(BIN)/hive-federation demo $(if $(SITE),--site $(SITE)) $(if $(UI),--ui)

test: $(READY)                ## all tests; ARGS="-k name" narrows them, JOBS=0 runs them in one process
	@# A file's tests stay together, for what they share, and in order: the long ones come first.
	$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

torture: $(READY)             ## random histories, replicated; ARGS="--seeds 100 --operations 200"
	$(PY) -m tests.torture $(ARGS)

fuzz: $(READY)                ## random input for all that reads what others wrote; ARGS="--targets events --minutes 10"
	$(PY) -m tests.fuzz $(ARGS)

check: $(READY)               ## linters, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)               ## measurements beside the peers, into build/bench.json
	$(PY) -m benchmarks $(ARGS)

docs: $(READY)                ## the documentation as a site, with a reference made from the code, in build/site
	$(PY) scripts/build_site.py

screenshots: $(READY)         ## the pictures of the documents in docs/images, made by the browser tests (minutes)
	HIVE_FEDERATION_PICTURES=docs/images $(PY) -m pytest tests/integration/airflow/test_airflow_standalone.py

release-check: $(READY)       ## build wheel and sdist, and install each beside a new Airflow
	$(PY) scripts/check_release.py

clean:
	rm -rf $(VENV) build dist

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else \
	  f"Python 3.11 to 3.13 is needed; {sys.executable} is {sys.version.split()[0]}. Say: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	@# uv comes by the lock too, and installs the rest in seconds where pip takes minutes.
	@sed -n '/^uv==/,/^[^ ]/{/^uv==/p;/^ /p}' requirements.lock > $(VENV)/uv.txt
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/uv.txt
	@echo "Installing the packages of requirements.lock (the first time, they are downloaded)"
	@# Its own certificates first; behind a proxy with another authority, the system's.
	@$(BIN)/uv pip sync --quiet --python $(PY) --require-hashes requirements.lock 2>$(VENV)/uv.log || \
	  $(BIN)/uv pip sync --quiet --system-certs --python $(PY) --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@
