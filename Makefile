# `make demo`, `make test` and the others set up everything that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SPEC := pyproject.toml constraints.txt
# Tests run in so many processes of one thread each. They wait for children and browsers: on 2 cores 3 are faster than 2.
WORKERS ?= 3
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

.PHONY: help demo test test-slow test-integrations check docs release-check install clean

help:
	@echo "make demo       set up, then the paper's gridworld result at full scale (results/gridworld)"
	@echo "make test       set up, then every check: ruff, mypy, pytest"
	@echo "make test-slow  the same with the long tests"
	@echo "make test-integrations  PFRL, Tianshou, ONNX and W&B, which make test leaves out (minutes)"
	@echo "make docs       set up, then the documentation as a site (site/index.html)"
	@echo "make release-check  build and check what would be released, in clean environments (minutes)"
	@echo "make install    everything into $(VENV), PyTorch too"

demo: $(VENV)/.core
	@$(BIN)/python -m valueshare reproduce gridworld --out results/gridworld

test: check
	$(PYTEST) -m "not slow"

# One after the other: the long ones train on all cores, and start clusters.
test-slow: check
	$(BIN)/python -m pytest

test-integrations: $(VENV)/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python tools/integrations.py

check: $(VENV)/.dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# Every warning is an error: links and anchors too.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html: the documentation"

release-check: $(VENV)/.release
	$(BIN)/python tools/release_check.py

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

$(VENV)/.docs $(VENV)/.release: $(VENV)/.%: $(SPEC) | $(BIN)/python
	@echo "setting up $(VENV) with what make needs for: $* (once)"
	@$(PIP) install --constraint constraints.txt --editable '.[$*]'
	@touch $@ $(VENV)/.core

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "valueshare needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .venv-integrations site dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
