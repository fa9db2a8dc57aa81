# Needs make and Python 3.11 or newer; everything else goes into the virtual environment VENV.
# Another Python: make demo PYTHON=python3.12. Options for pytest: make test ARGS=--slow.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
# Empty files in VENV that say what is installed there, so that nothing is installed twice.
MADE := $(VENV)/.made
PLOTS := $(VENV)/.installed-plots
DEV := $(VENV)/.installed-dev
INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench install clean

help: ## Print this list
	@echo "make TARGET, with TARGET one of:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target says; do printf '%-10s %s\n' "$$target" "$$says"; done

demo: $(PLOTS) ## Install into .venv (the first time) and run the demonstration
	@$(BIN)/heterofactor demo

# One BLAS thread for each of the two test workers: more would fight over the cores.
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: export MKL_NUM_THREADS = 1
test: $(DEV) ## Run all tests and the examples in the docstrings
	$(BIN)/python -m pytest -n 2 $(ARGS)

lint: $(DEV) ## Check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(DEV) ## Format the code and sort the imports
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(DEV) ## Run the benchmarks, one after the other
	@for script in $(sort $(wildcard benchmarks/*.py)); do \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

install: $(DEV) ## Install into .venv all that development needs

clean: ## Remove .venv, caches and built files
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "heterofactor needs Python 3.11 or newer, and '$(PYTHON)' is older or missing:" \
			"choose another with 'make $(MAKECMDGOALS) PYTHON=python3.12'." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(PLOTS): pyproject.toml | $(MADE)
	@echo "Installing heterofactor into $(VENV) (only the first time; a minute or two)"
	@$(INSTALL) -e ".[plots]"
	@touch $@

$(DEV): pyproject.toml | $(MADE)
	@echo "Installing heterofactor and the tools of its developers into $(VENV) (only the first time)"
	@$(INSTALL) -e ".[dev]"
	@touch $(PLOTS) $@
