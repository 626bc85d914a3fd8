# Every target sets up what it needs: Python 3.11 or newer and make are all a machine must have.
# What was set up is remembered by stamp files inside .venv, so a second run starts at once.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SET_UP := $(VENV)/.set-up
SET_UP_JVM := $(VENV)/.set-up-jvm
SET_UP_DOCS := $(VENV)/.set-up-docs
SET_UP_STORE := $(VENV)/.set-up-store
# Tests start hundreds of processes, which import the package: without compiled modules on disk, each compiles it anew.
unexport PYTHONDONTWRITEBYTECODE
ROUNDS ?= 25
SEEDS ?= 1000
STEPS ?= 500
FIRST ?= 1
AGAIN ?=
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test verify ready jvm-files unit conform compat crash simulate simulate-clients simulate-jobs simulate-spark simulate-planted chaos spark suites bench dist docs generate kafka-jars kcat chromium postgres prometheus lint format pins clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SET_UP) ## make .venv with everything pinned, and .venv/bin/headrace

demo: $(SET_UP_JVM) ## five acts: scale, failover, dead letters, Spark killed and restarted, the account
	$(BIN)/headrace demo

test: ready ## every check and every kind of test (under 10 minutes on 2 cores); make verify has the rest
	$(BIN)/python tools/run_tests.py --at-once=3 -m "not verify" $(AGAIN)

verify: ready ## the tests that make test leaves out: longer ones, and the same on Apache Kafka (under 45 minutes)
	-@$(MAKE) --no-print-directory $(SET_UP_STORE)
	$(BIN)/python tools/run_tests.py -m verify $(AGAIN)

# Packages are installed one after another; then the checks run while Spark's classes and Kafka's jars are prepared.
ready: kcat chromium postgres prometheus $(SET_UP_JVM) $(SET_UP_DOCS)
	@$(MAKE) --no-print-directory --jobs=2 lint jvm-files

jvm-files: $(SET_UP_JVM)
	-@$(MAKE) --no-print-directory kafka-jars
	@$(BIN)/python -m tests.spark_archive

unit: $(SET_UP_JVM) ## the inner loop: no processes, no JVM, under a minute
	$(BIN)/python tools/run_tests.py --folders=unit,property,tidy

conform: $(SET_UP) ## the same tests against our broker and Apache Kafka
	-@$(MAKE) --no-print-directory kafka-jars
	$(PYTEST) tests/conformance

compat: $(SET_UP) kcat ## foreign clients and Apache's command-line tools against our broker
	-@$(MAKE) --no-print-directory kafka-jars
	$(PYTEST) tests/compat

crash: $(SET_UP) ## power lost at every write in turn, on a disk in memory
	$(PYTEST) tests/crash

simulate: $(SET_UP) ## random lives of a broker on a simulated machine: make simulate SEEDS=1000 STEPS=500 FIRST=1
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --steps $(STEPS) --first $(FIRST)

simulate-clients: $(SET_UP) ## the same with real clients and workers, on machines that stop, lose connections and die
	$(BIN)/python -m tests.simulation --path client --seeds $(SEEDS) --steps $(STEPS) --first $(FIRST)

simulate-jobs: $(SET_UP) ## the same with schedules, tasks with once=, outboxes and a database, all of which are killed
	$(BIN)/python -m tests.simulation --path jobs --seeds $(SEEDS) --steps $(STEPS) --first $(FIRST)

simulate-spark: $(SET_UP_JVM) ## the same with Spark queries, which are stopped, killed, changed, copied and cut off from power (no JVM)
	$(BIN)/python -m tests.simulation --path spark --seeds $(SEEDS) --steps $(STEPS) --first $(FIRST)

simulate-planted: $(SET_UP_JVM) ## bugs planted in copies of the sources, each found by the simulator within its number of seeds
	$(PYTEST) tests/simulation/test_planted.py --thorough

chaos: $(SET_UP) ## kill -9 under load, real processes: make chaos ROUNDS=100
	$(PYTEST) tests/chaos --rounds $(ROUNDS) --timeout 0

spark: $(SET_UP_JVM) $(SET_UP_STORE) ## the Spark source killed at every step, in every mode, on both brokers (half an hour)
	-@$(MAKE) --no-print-directory kafka-jars
	@$(BIN)/python -m tests.spark_archive
	$(PYTEST) tests/spark --thorough

suites: $(SET_UP_JVM) ## other projects' test suites against our broker, and docs/reference/suites.md: make suites ONLY=franz-go
	-@$(MAKE) --no-print-directory kafka-jars
	$(BIN)/python -m tests.suites $(ONLY)

bench: $(SET_UP) kafka-jars ## brokers, clients and task queues side by side, alternating; prints ratios
	$(BIN)/python -m bench

docs: $(SET_UP_DOCS) ## write the generated pages of docs/ and the site: build/site/index.html
	$(BIN)/python tools/generate_docs.py
	$(BIN)/zensical build --clean --strict

dist: $(SET_UP) ## build the wheel and the source archive into dist/; a release sets PROJECT_URL=... for their links
	rm -rf dist
	PROJECT_URL="$(PROJECT_URL)" $(BIN)/hatchling build -d dist

generate: $(SET_UP) kafka-jars ## write src/headrace/wire/messages/ from Apache Kafka's message definitions
	$(BIN)/python tools/generate_messages.py
	$(BIN)/ruff format -q src/headrace/wire/messages

kafka-jars: $(SET_UP_JVM) ## fetch Apache Kafka's jars into the per-user cache
	@$(BIN)/python -m headrace.testing >/dev/null

kcat: ## install kcat where we may (tests that need it say so when it is missing)
	@command -v kcat >/dev/null || $(call install-package,kcat)

chromium: ## install Chromium where we may, for the tests of the dashboard's pages
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || $(call install-package,chromium)

postgres: ## install PostgreSQL where we may, for the tests of exactly-once tasks
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || $(call install-package,postgresql)

prometheus: ## install Prometheus where we may, for the tests of alerts and panels
	@command -v promtool >/dev/null || $(call install-package,prometheus)

# Debian's package, with root's rights if we have them; never a reason to stop.
define install-package
{ \
	sudo=""; test "$$(id -u)" = 0 || sudo="sudo -n"; \
	$$sudo apt-get install -y -qq --no-install-recommends $(1) >/dev/null 2>&1 \
	|| { $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends $(1); } >/dev/null 2>&1 \
	|| echo "$(1) is not here and may not be installed: the tests that need it will be left out" >&2; }
endef

lint: $(SET_UP) ## ruff, mypy and the layer rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(SET_UP) ## mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# No index and no address may be recorded: whoever installs uses the registry of their own machine, held to these hashes.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links
pins: $(SET_UP) ## pin the newest packages that fit; UPGRADE= keeps what still fits
	$(COMPILE) $(UPGRADE) --extra web pyproject.toml -o requirements/base.txt
	$(COMPILE) $(UPGRADE) requirements/dev.in -c requirements/base.txt -o requirements/dev.txt
	$(COMPILE) $(UPGRADE) requirements/jvm.in -c requirements/base.txt -c requirements/dev.txt -o requirements/jvm.txt
	$(COMPILE) $(UPGRADE) requirements/docs.in -c requirements/base.txt -c requirements/dev.txt -o requirements/docs.txt
	$(COMPILE) $(UPGRADE) requirements/peers.in -o requirements/peers.txt
	$(COMPILE) $(UPGRADE) requirements/store.in -o requirements/store.txt
UPGRADE ?= --upgrade

clean: ## remove .venv and every cache in this folder
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found on the path" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) has no venv module with pip (Debian: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(SET_UP): requirements/base.txt requirements/dev.txt pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --require-hashes -r requirements/base.txt -r requirements/dev.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# PySpark comes as a source archive; it is built with the pinned setuptools, so nothing unpinned is fetched.
$(SET_UP_JVM): requirements/jvm.txt | $(SET_UP)
	$(PIP) install --quiet --require-hashes --no-build-isolation -r requirements/jvm.txt
	@touch $@

$(SET_UP_DOCS): requirements/docs.txt | $(SET_UP)
	$(PIP) install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

# A server of its own, run as a process: its packages would hold ours back to older versions.
$(SET_UP_STORE): requirements/store.txt | $(SET_UP)
	$(PIP) install --quiet --require-hashes --upgrade --target $(VENV)/object-store -r requirements/store.txt
	@touch $@
