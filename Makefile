# Every target sets itself up in .venv; the second time it starts at once.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO_READY := .venv/.ready-demo
INSTALL = UV_FIND_LINKS="$(PIP_FIND_LINKS)" $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt

# page.py is the last: it writes docs/speed.md from what the others recorded
BENCHMARKS := losses solver metrics calibrators decisions corruptions training augment experiments table_marks \
	reading startup peers page
NUMERIC := losses maxent metrics calibrators corruptions models training

ifeq ($(OS),Windows_NT)
SHELL := bash
PYTHON := python
BIN := .venv/Scripts
# Windows has no fork, fcntl, resource or SIGKILL: test files that use them, or the helpers that do, are left out
POSIX := ^import (fcntl|resource)|os\.fork|SIGKILL|"fork"|/dev/full|shell=True|(made\.(training|sweeps)|faults\.running) import
LEFT_OUT := $(addprefix --ignore=,$(shell grep -rlE '$(POSIX)' tests --include='test_*.py'))
endif

.PHONY: help demo test quick test-portable test-oldest faults check bench docs dist clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */make \1\t/' | expand -t 20

# uv is fast, and with the constraint it keeps a CPU build of torch where one is on offer (UV_FIND_LINKS may be empty).
define CREATE_VENV
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "calibrant needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
@test -x $(BIN)/python || $(PYTHON) -m venv .venv
@echo "setting up .venv for $(1)"
@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
endef

$(READY): pyproject.toml constraints.txt
	$(call CREATE_VENV,development (once; a minute or so))
	@$(INSTALL) --compile-bytecode -e '.[dev]'
	@touch $(DEMO_READY) $@

# A third of the packages, and only modules that the demo imports are compiled: that takes seconds.
$(DEMO_READY): pyproject.toml constraints.txt
	$(call CREATE_VENV,the demo (once; some seconds and the downloads))
	@$(INSTALL) -e '.[report,train]'
	@touch $@

demo: $(DEMO_READY)  ## the paper's losses on the embedded data under 19 corruptions: runs/demo with a table, figures and a report
	$(BIN)/calibrant run experiments/demo.toml

test: check  ## all checks and all tests; of one package: make test T=tests/losses
	$(BIN)/python -m pytest -n 3 --dist loadfile $(LEFT_OUT) $(T)

quick: $(READY)  ## the tests but those marked slow, for the inner loop
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" $(LEFT_OUT) $(or $(T),tests)

test-portable: $(READY)  ## the tests of the numeric packages as on a processor without vector instructions
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -n 2 --dist loadfile $(LEFT_OUT) \
		$(NUMERIC:%=tests/%) $(NUMERIC:%=src/calibrant/%)

test-oldest: $(READY)  ## the tests with the oldest versions that pyproject.toml allows, in .venv-oldest
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	$(BIN)/uv pip install --quiet --python .venv-oldest/bin/python --resolution lowest-direct -e '.[dev]'
	.venv-oldest/bin/python -m pytest -n 3 --dist loadfile -m "not slow" $(LEFT_OUT) $(or $(T),tests)

faults: $(READY)  ## kills, damaged and hostile files, full disks, wrong calls: half an hour; FAULTS="--kinds disks --trials 500"
	cd tests && ../$(BIN)/python -m faults $(FAULTS)

check: $(READY)  ## format, lint, types and import layers
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(READY)  ## speed against peers and floors, as ratios: benchmarks/results and docs/speed.md
	@$(INSTALL) -e '.[dev,bench]'
	@test -x .venv-peers/$(notdir $(BIN))/python || $(PYTHON) -m venv .venv-peers
	-@$(INSTALL:$(BIN)/python=.venv-peers/$(notdir $(BIN))/python) 'torch-uncertainty[cpu]==0.13.*' scikit-learn
	@failed=; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || failed="$$failed $$name"; done; \
		test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

docs: $(READY)  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

dist: $(READY)  ## wheel and sdist in dist/, checked, and one run of the demo by the wheel alone (ONLY= runs all of it)
	rm -rf dist
	$(BIN)/uv build --quiet
	$(BIN)/uv tool run --quiet twine check --strict dist/*.whl dist/*.tar.gz
	UV_FIND_LINKS="$(PIP_FIND_LINKS)" $(BIN)/python scripts/check_dist.py

clean:  ## remove everything that was made
	rm -rf .venv .venv-oldest .venv-peers site build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
