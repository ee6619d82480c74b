# Everything starts here: `make demo` runs the product, `make test` tests it. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_ARGS ?=
TEST_ARGS ?=
ALL ?=
# The shells of some set a RANDOM of their own: only one that is given to make counts.
RANDOM_CASES := $(if $(filter command line,$(origin RANDOM)),$(RANDOM))
# Three keep two cores busy, since tests also wait; each may take 3 GB.
TEST_WORKERS ?= $(shell awk '/^MemTotal/ { print ($$2 > 12000000) ? 3 : 2 }' /proc/meminfo 2>/dev/null || echo 2)
BENCH_ARGS ?=
CASES ?= ../shared/conformance

# Dozens of processes import the same modules: where bytecode is not to be written, each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test ready complete check format bench conformance clean setup web picture lock
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Three at a time, since each mostly waits for the network: Spark, which is most of what is fetched, the other packages,
# and Tidewheel itself.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.10 or later is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or later is needed, $(PYTHON) is $$($(PYTHON) --version); set PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting up $(VENV) (once; about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Spark comes as a source package, of which pip makes a wheel: to compress that takes longer than all the rest.
$(VENV)/.spark: constraints.txt | $(VENV)/.made
	@awk '/^[^ ]/ { mine = /^pyspark==/ } mine' constraints.txt >$(VENV)/spark.txt
	@printf '[bdist_wheel]\ncompression = stored\n' >$(VENV)/spark.cfg
	@DIST_EXTRA_CONFIG=$(CURDIR)/$(VENV)/spark.cfg $(INSTALL) --require-hashes --requirement $(VENV)/spark.txt
	@touch $@

$(VENV)/.packages: constraints.txt | $(VENV)/.made
	@awk '/^[^ ]/ { mine = !/^pyspark==/ } mine' constraints.txt >$(VENV)/packages.txt
	@$(INSTALL) --require-hashes --requirement $(VENV)/packages.txt
	@touch $@

$(VENV)/.tidewheel: pyproject.toml hatch_build.py $(shell find src -name '*.proto') | $(VENV)/.made
	@$(INSTALL) --editable .
	@touch $@

# Imported once, so that what the processes of the demo all begin with is compiled.
$(VENV)/.installed: $(VENV)/.spark $(VENV)/.packages $(VENV)/.tidewheel
	@$(BIN)/python -m pip check --disable-pip-version-check
	@$(BIN)/python -c 'import pandas, pyspark.worker, pyspark.sql.streaming.python_streaming_source_runner, tidewheel.engine.execution.shared_query, tidewheel.serve.http.server, tidewheel_transit.commands.demo_view, tidewheel_transit.jobs, tidewheel_transit.simulator'
	@touch $@

$(VENV)/.ready: constraints-dev.txt $(VENV)/.installed
	@$(INSTALL) --require-hashes --requirement constraints-dev.txt
	@$(BIN)/python -m pip check --disable-pip-version-check
	@touch $@

setup: ## the virtual environment with all packages, also those that tests and checks need
	@$(MAKE) --no-print-directory --jobs=3 $(VENV)/.ready

web: ## the page of the live map, when its sources changed (npm; Node.js from PyPI where there is none)
	@$(PYTHON) web/build.py

# What the demo needs.
ready:
	@$(MAKE) --no-print-directory --jobs=4 $(VENV)/.installed web

complete:
	@$(MAKE) --no-print-directory --jobs=4 $(VENV)/.ready web

demo: ready ## simulator, log, all jobs and the live map, until Ctrl-C (DEMO_ARGS="--for 30s")
	@$(BIN)/tidewheel demo $(DEMO_ARGS)

# From the first time on, Spark starts in half the time (see `tidewheel warm-up`); the tests need not wait for that.
test: complete ## the tests, several at a time; ALL=1 for the long ones as well, RANDOM=1 for new generated cases (TEST_ARGS="-k name", TEST_WORKERS=4)
	@test -e $(VENV)/.warm || { touch $(VENV)/.warm; $(BIN)/tidewheel warm-up >/dev/null 2>&1 & }
	@$(BIN)/python web/build.py test
	@$(if $(RANDOM_CASES),TIDEWHEEL_TEST_RANDOM=1 )$(BIN)/python -m pytest --numprocesses $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(if $(ALL),,-m "not long") $(TEST_ARGS)

check: setup ## ruff and mypy; tsc and eslint for the page
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python web/build.py check

format: setup ## format, and fix what ruff can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

lock: ## the hashes in constraints.txt and constraints-dev.txt, after a version in one was changed or a package added (needs the package index)
	@$(PYTHON) lock.py

bench: setup ## the figures, as a table and as JSON in build/bench/
	@$(BIN)/python -m bench $(BENCH_ARGS)

picture: complete ## the picture of the README, docs/map.png, from the demo (needs Chromium; three minutes)
	@$(BIN)/python -m tests.browser.picture docs/map.png

conformance: setup ## others' test cases on the reference and on Spark (CASES=folder of the same layout)
	@$(BIN)/python -m tests.conformance --cases $(CASES) --runner reference,spark

clean: ## remove all that is made
	@rm -rf $(VENV) build dist web/node_modules web/public/land.json src/tidewheel/serve/page .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find src -name '*_pb2.py' -delete -o -name '*_pb2.pyi' -delete
