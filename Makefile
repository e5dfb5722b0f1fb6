# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv first; Python 3.10+ and make are all they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help install demo test test-slow check docs format bench dist test-lowest clean

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.run      ## fairmf in .venv, ready to use: .venv/bin/fairmf (EXTRAS=ann,report adds extras)
	$(if $(EXTRAS),$(PIP) --editable ".[$(EXTRAS)]")
	@echo 'installed: $(BIN)/fairmf; for a shell of its own: source $(BIN)/activate'

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
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml

docs: $(VENV)/.docs        ## these pages as a site: site/index.html; links that lead nowhere are errors
	$(BIN)/python tools/cli_reference.py --check
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env -b html -c docs . site

format: $(VENV)/.check     ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.test       ## the short benchmarks; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

dist: $(VENV)/.dist        ## wheel and source archive in dist/, tested away from the checkout on Python 3.10 and the newest here
	$(BIN)/python tools/dist.py

test-lowest: $(VENV)/.dist ## the tests with the oldest dependencies that pyproject.toml allows
	$(BIN)/python tools/dist.py --lowest --folder build/lowest

clean:                     ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist site docs/api

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

$(VENV)/.dist: $(VENV)/.run
	$(PIP) --group dist
	@touch $@

# For the baselines' tests alone: large, so that the quick tests do without.
$(VENV)/.torch: $(VENV)/.test
	$(PIP) --group torch --group contract --group stores
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) --group check
	@touch $@
