# The documented commands; `make help` lists them.  Each makes the environment it needs: git,
# make and Python >= 3.11 are all that a machine must have beforehand.
#
# `make test SYSTEM=1` (and test-all, experiments) uses the torch and JAX already on the machine,
# such as its GPU builds: in .venv-system, with no versions pinned, made by the machine's python3.
# PYTHON=/path/to/python picks the interpreter of a new environment, WORKERS=8 the number of test
# processes; PYTEST_ARGS='-k vmap -x' goes on to pytest.

ifdef SYSTEM
VENV        := .venv-system
VENV_FLAGS  ?= --system-site-packages
CONSTRAINTS ?=
PYTHONS     ?= python3 python3.11
else
VENV        := .venv
VENV_FLAGS  ?=
CONSTRAINTS ?= constraints.txt
PYTHONS     ?= python3.11 python3
endif

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for p in $(PYTHONS); do $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
endif

WORKERS     ?= 2
PYTEST_ARGS ?=
BIN         := $(VENV)/bin
INSTALLED   := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check \
               $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
LINKS       := build/src/twingrad/interop build/src/twingrad/ops
# one thread for each test process: $(WORKERS) of them share the machine
PYTEST      := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

VENV_JAX    := .venv-jax
# prints the path of a python3.12 that really runs (a version manager's shim may not)
FIND_312    := exe='import sys; print(sys.executable)'; \
               python3.12 -c "$$exe" 2>/dev/null || \
               PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | grep '^3\.12' | tail -n 1) \
               python3.12 -c "$$exe" 2>/dev/null || true

.PHONY: help install check test test-all conformance test-jax-only experiments clean
.DEFAULT_GOAL := help

help:  ## list these commands
	@sed -n 's/^\([a-z-]*:\)[^#]*## \(.*\)/\1 \2/p' Makefile | \
	  while IFS=: read -r name text; do printf 'make %-14s%s\n' "$$name" "$$text"; done

install: $(INSTALLED) $(LINKS)  ## make .venv with the pinned versions, and the links that type checkers follow

check: install  ## format, lint, types (mypy strict, pyright) and the import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p twingrad.interop -p twingrad.ops
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo

test: $(INSTALLED)  ## the test suite, without the tests marked slow
	$(PYTEST) -m "not slow"

test-all: $(INSTALLED)  ## the whole test suite
	$(PYTEST)

conformance: $(INSTALLED)  ## the test suite, whose record becomes the table in the README
	$(PYTEST) -m "not slow" --record --ignore tests/house/test_conformance.py
	$(BIN)/python -m tests.conformance

test-jax-only:  ## the JAX side on Python 3.12 with the newest JAX and no torch, where there is a python3.12
	@python=$$($(FIND_312)); \
	if [ -z "$$python" ]; then echo "test-jax-only: skipped: no python3.12"; exit 0; fi; \
	$(MAKE) --no-print-directory PYTHON312="$$python" run-jax-only

experiments: $(INSTALLED)  ## every experiment, up to experiments/results/REPORT.md
	$(BIN)/python -m experiments.run

clean:  ## remove the environments, the links and all caches
	rm -rf .venv .venv-system $(VENV_JAX) build dist *.egg-info .hypothesis .mypy_cache \
	  .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 among: $(PYTHONS)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) $(VENV_FLAGS)
	$(PIP_INSTALL) "setuptools>=77"
	$(PIP_INSTALL) --no-build-isolation --editable ".[all,dev]"
	@touch $@

build/src/twingrad/%:
	@mkdir -p $(@D)
	@ln -sfn ../../../$* $@

.PHONY: run-jax-only
run-jax-only: $(VENV_JAX)/.installed
	@! $(VENV_JAX)/bin/python -c 'import torch' 2>/dev/null || \
	  { echo "test-jax-only: torch is importable in $(VENV_JAX)" >&2; exit 1; }
	@$(VENV_JAX)/bin/python -c 'import jax, sys; print("jax", jax.__version__, "python", sys.version)'
	OMP_NUM_THREADS=1 $(VENV_JAX)/bin/python -m pytest -n $(WORKERS) tests -m "not slow" \
	  --ignore-glob 'tests/*torch*' $(PYTEST_ARGS)

$(VENV_JAX)/.installed: pyproject.toml
	@$(VENV_JAX)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON312) -m venv $(VENV_JAX)
	$(VENV_JAX)/bin/python -m pip install -qq --disable-pip-version-check --upgrade \
	  --upgrade-strategy eager --editable ".[jax]" pytest pytest-xdist flatbuffers hypothesis mpmath optax
	@touch $@
