# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv first; Python 3.10+ and make are all they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test test-slow check docs format bench clean

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.run         ## train and compare models on synthetic data; ends with a report to open
	$(BIN)/fairmf demo

test: $(VENV)/.test        ## the test suite (about five minutes)
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.torch  ## the long tests (a quarter of an hour): real data, large inputs, other libraries, the report in a browser
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.check      ## formatting, lint, types, the import rule
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs        ## these pages as a site: site/index.html; links that lead nowhere are errors
	$(BIN)/python tools/cli_reference.py --check
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env -b html -c docs . site

format: $(VENV)/.check     ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.test       ## the short benchmarks; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

clean:                     ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist site docs/api.md

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "fairmf needs Python 3.10 or newer; set one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25.1"

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) --editable ".[ann,tune,report,sql,ray,serve]" --group test --group peers --group browser
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	$(PIP) --group docs
	@touch $@

# For the baselines' tests alone: large, so that the quick tests do without.
$(VENV)/.torch: $(VENV)/.test
	$(PIP) --group torch --group contract
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) --group check
	@touch $@
