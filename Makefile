# Each target sets up everything it needs on a Debian or Ubuntu with git, make and python3.
#   make demo    a model turned into thresholds, pushed to a lab on this machine, and measured
#   make test    every check and every test
#   make check   lint, types and layers only
#   make test-fast, make test-lab, make test-quiet   the parts of the tests
#   make test-bmv2                  the P4 program on a real switch; part of test-lab, which skips it without BMv2
#   make docs                       these pages as a site that needs no network, in build/docs
#   make wheel                       a wheel with the compiled data plane, in dist/
#   make release                     wheel, source archive, SBOM and checksums of a tagged commit, in dist/
#   make man                         a manual page for each command, in build/man/
#   make coverage                   lines and branches that the fast half reaches

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
TORCH := $(VENV)/.torch

FAST := not lab and not root and not browser and not bmv2 and not release

.PHONY: demo test test-fast test-lab test-quiet test-bmv2 differential coverage check laws search golden lock docs man pictures wheel release clean
.DELETE_ON_ERROR:

demo: $(SETUP)
	@$(BIN)/python scripts/demo.py

test: check test-fast test-lab test-quiet

# Much of what they do is to wait, for SSH, timers and processes: two a processor.
WORKERS = $(shell n=$$((2 * $$(nproc))); echo $$((n < 16 ? n : 16)))

test-fast: $(TORCH)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$(FAST)" --durations=10 tests bmv2_tests

# Each process has a network and a /run of its own, and a module is one process's.
test-lab: $(TORCH)
	MLTSWITCH_OWN_MACHINE=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder \
	    -m "not ($(FAST)) and not quiet" --durations=15 tests bmv2_tests

test-quiet: $(TORCH)
	$(BIN)/python -m pytest -m quiet --durations=5 tests bmv2_tests

# A switch and its test keep two processors busy; each worker has a switch of its own.
SWITCHES = $(shell n=$$(($$(nproc) / 2)); echo $$((n < 2 ? 2 : n > 4 ? 4 : n)))

# The P4 program on a real simple_switch_grpc; fails where BMv2, p4c or root is missing, instead of skipping.
test-bmv2: $(SETUP)
	$(BIN)/python -m pytest --require-bmv2 -n $(SWITCHES) --dist worksteal -m bmv2 --durations=10 bmv2_tests

# Random packets through switch and model; MLTSWITCH_DIFFERENTIAL_PACKETS says how many, _SEED which.
differential: $(SETUP)
	MLTSWITCH_DIFFERENTIAL_PACKETS=$${MLTSWITCH_DIFFERENTIAL_PACKETS:-100000} \
	    $(BIN)/python -m pytest --require-bmv2 -q -m bmv2 bmv2_tests/test_differential.py

coverage: $(TORCH)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "$(FAST)" --cov --cov-report=term:skip-covered tests bmv2_tests

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The laws of all targets on 1,000 random plans each, new ones every time; `make test` takes the same 10.
laws: $(SETUP)
	MLTSWITCH_LAW_EXAMPLES=1000 $(BIN)/python -m pytest -q --hypothesis-profile=search \
	    tests/targets -k test_laws -m "not lab"

# The fast tests with new examples for every property, where `make test-fast` takes the same ones every time.
search: $(TORCH)
	MLTSWITCH_LAW_EXAMPLES=25 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
	    --hypothesis-profile=search -m "$(FAST)" tests bmv2_tests

# Rewrites the golden files from what the code renders now; read the difference before you commit it.
golden: $(SETUP)
	$(BIN)/python -m pytest -q tests/golden tests/inventory/test_corpus.py tests/cli/test_variables.py \
	    tests/app/live/test_metrics.py --update-golden

# The pages of docs/ and the reference from the code, in build/docs; a dead link fails.
docs: $(SETUP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

# The picture of docs/report.md anew, where the report has changed; needs Chromium.
pictures: $(SETUP)
	$(BIN)/python -m scripts.pictures

# A wheel with the compiled data plane for Linux machines with the glibc of this one, or a later one.
wheel: $(SETUP)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	PATH=$(BIN):$$PATH $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl

# Source archive, wheel, SBOM and SHA256SUMS in dist/, of a clean tree whose commit has the version's tag.
release: $(SETUP)
	$(BIN)/python -m scripts.release

# A manual page for each command, in build/man.
man: $(SETUP)
	$(BIN)/python scripts/man.py build/man

# Resolves the lock file anew from pyproject.toml; the only step that chooses versions.
lock: $(SETUP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
	    --extra deploy --extra lab --extra dev --extra docs --extra release --quiet --output-file requirements.lock

$(SETUP): requirements.lock pyproject.toml setup.py scripts/setup $(wildcard mltswitch/hostagent/dataplane/*.[ch]) \
    mltswitch/hostagent/dataplane/build.py
	@PYTHON=$(PYTHON) scripts/setup $(VENV)
	@touch $@

# Only `profile from-torch` is tested with it; where no small build is to be had, those tests skip and say so.
$(TORCH): $(SETUP) requirements-torch.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-torch.lock \
	    2>/dev/null || echo "setup: no CPU build of torch for this Python here; tests that need torch skip"
	@touch $@

clean:
	rm -rf $(VENV) build dist demo-output *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache mltswitch/hostagent/dataplane/*.so
