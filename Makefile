# The two commands: `make demo` and `make test`. Both set up everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SPEC := pyproject.toml constraints.txt
# Tests run in so many processes, one a core, of one thread each.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

.PHONY: help demo test test-slow check install clean

help:
	@echo "make demo       set up, then the paper's gridworld result at full scale (results/gridworld)"
	@echo "make test       set up, then every check: ruff, mypy, pytest"
	@echo "make test-slow  the same with the long tests"
	@echo "make install    everything into $(VENV), PyTorch too"

demo: $(VENV)/.core
	@$(BIN)/python -m valueshare reproduce gridworld --out results/gridworld

test: check
	$(PYTEST) -m "not slow"

# One after the other: the long ones train on all cores, and start clusters.
test-slow: check
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

install: $(VENV)/.dev
	@echo "ready: $(BIN)/valueshare"

# The stamps are newer than what they were made from: the second time costs nothing.
$(VENV)/.core: $(SPEC) | $(BIN)/python
	@echo "setting up $(VENV) (once)"
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(SPEC) | $(BIN)/python
	@echo "setting up $(VENV) with everything the checks need (once; a few minutes)"
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.core

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "valueshare needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
