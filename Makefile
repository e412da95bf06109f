# Needs Python 3.11 or newer, git and make. Everything else goes into .venv, from the lock files.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEV    := $(VENV)/.dev-installed
DEMO   := $(VENV)/.demo-installed
RELEASE := $(VENV)/.release-installed
HA     := $(VENV)/.ha-installed
# Processes that run tests side by side: three for two processors, as tests wait a third of their
# time for leases, servers and processes. `make test JOBS=0` runs one test after the other in one
# process, which a debugger needs.
CORES  := $(shell getconf _NPROCESSORS_ONLN 2> /dev/null || echo 1)
JOBS   ?= $(shell echo $$(( ($(CORES) * 3 + 1) / 2 )))
# More for pytest: `make test ARGS="-k fenced"`.
ARGS   ?=
# Without the plugins of others, hypothesis does not load trio in each process.
PYTEST := env -u PYTHONDONTWRITEBYTECODE HYPOTHESIS_NO_PLUGINS=1 $(BIN)/python -m pytest -n $(JOBS) --dist=loadgroup
# What the tests need that `make test` leaves out.
DEBIAN := chromium chromium-driver haproxy nginx-light pgbouncer postgresql prometheus rabbitmq-server
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile
# What pip would do with one processor. Some packages hold files that are no Python of this version.
BYTES  := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null || true
CODE   := $(wildcard src tests harness bench examples tools)

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(DEMO) ## kill a worker half-way through a real job, and watch the job finish
	$(BIN)/python -m examples.census $(ARGS)

.PHONY: order-import
order-import: $(DEV) ## example: a job's work and its completion in one commit, while jobs hang and die
	$(BIN)/python -m examples.order_import

.PHONY: lease-mail
lease-mail: $(DEV) ## example: a split brain of each kind, and the audit trail that it leaves
	$(BIN)/python -m examples.lease_mail

.PHONY: shell-queue
shell-queue: $(DEV) ## example: commands as jobs on one file; a worker dies, a job is poison
	$(BIN)/python -m examples.shell_queue

.PHONY: cells
cells: $(DEV) ## example: three stores; one is killed, and a tenant moves to another one
	$(BIN)/python -m examples.cells

.PHONY: analysis-service
analysis-service: $(DEV) ## example: a pod restart, a crash without one, a dead-lock, woken by NATS
	$(BIN)/python -m examples.analysis_service

.PHONY: agent
agent: $(DEV) ## example: an assistant, killed at each of its steps, calls no tool twice
	$(BIN)/python -m examples.agent

.PHONY: automation-registry
automation-registry: $(DEV) ## example: workers with capabilities, watched on RabbitMQ (make debian)
	$(BIN)/python -m examples.automation_registry

# The tests start thousands of processes: none is to compile the same files anew, not even where
# PYTHONDONTWRITEBYTECODE is set. Files that have not changed are passed over. pytest itself would
# rewrite the tests in each of its processes.
.PHONY: compiled
compiled: $(DEV)
	@$(BIN)/python -m compileall -q -j 0 $(CODE)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m tests.rewritten

.PHONY: venv
venv: $(DEV) ## make .venv from the lock files; each target below does so itself, if need be

.PHONY: unit
unit: $(DEV) ## the unit tests that start no server, in a minute: make unit ARGS="-k delay"
	$(PYTEST) -q tests/unit -m "not slow and not server" $(ARGS)

.PHONY: test
test: compiled ## run all but the slow tests; needs Python, git and make (some four minutes)
	$(PYTEST) -m "not slow and not debian_postgres and not pgbouncer and not rabbitmq and not browser and not nginx and not prometheus" $(ARGS)

.PHONY: test-all
test-all: compiled debian ha-packages ## run all but the long tests, also those that need Debian packages (installs them)
	$(PYTEST) -m "not long" $(ARGS)

.PHONY: proofs
proofs: compiled debian ## run the long tests, which test-all leaves out: before a release
	$(PYTEST) -m long $(ARGS)

.PHONY: worlds
worlds: compiled debian ## the surroundings in which faults were found: servers, poolers, hosts, browsers
	$(PYTEST) tests/worlds $(ARGS)

# While a package is installed, a policy of the system's keeps its service from being started.
.PHONY: debian
debian: ## install the Debian packages that some tests need, where that is possible
	@missing=$$(for each in $(DEBIAN); do dpkg -s $$each > /dev/null 2>&1 || echo $$each; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	root=$$([ "$$(id -u)" = 0 ] || echo "sudo -n"); \
	echo "debian: installs" $$missing; \
	$$root mkdir -p /etc/postgresql-common/createcluster.d; \
	echo "create_main_cluster = false" | $$root tee /etc/postgresql-common/createcluster.d/outlast.conf > /dev/null; \
	policy=/usr/sbin/policy-rc.d; \
	if [ ! -e $$policy ]; then \
		printf '#!/bin/sh\nexit 101\n' | $$root tee $$policy > /dev/null && $$root chmod +x $$policy; \
		trap "$$root rm -f $$policy" EXIT; \
	fi; \
	$$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -qq -y \
		--no-install-recommends $$missing > /dev/null \
	|| echo "debian: could not install" $$missing "(see above): the tests that need it are skipped"

.PHONY: check
check: lint types layers test ## format, lint, types, layers and tests: what a change has to pass

.PHONY: lint
lint: $(DEV) ## ruff: format and rules
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

.PHONY: types mypy pyright
types: mypy pyright ## mypy (strict) and pyright
mypy: $(DEV)
	$(BIN)/mypy
pyright: $(DEV)
	$(BIN)/pyright --warnings

.PHONY: layers
layers: $(DEV) ## import-linter: imports run down only
	$(BIN)/lint-imports --no-cache --no-logo

.PHONY: format
format: $(DEV) ## rewrite the code in the house format
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

.PHONY: weigh
weigh: $(DEV) ## count lines, the claim, a job's calls: how heavy the code is
	$(BIN)/python -m tools.weigh

.PHONY: screenshots
screenshots: $(DEV) debian ## take the pictures of the page that are in the docs
	$(BIN)/python -m tools.screenshots

.PHONY: demo-picture
demo-picture: $(DEV) ## run `outlast demo`, and draw the picture of it that is in the docs
	$(BIN)/python -m tools.demo_picture

# The wheel is built from the sdist, so that a file which the sdist lacks is missed at once.
DIST   ?= dist
.PHONY: dist
dist: $(DEV) ## build the sdist and the wheel
	$(BIN)/python -m uv --no-config --quiet --offline --no-cache build --no-build-isolation \
		--python $(BIN)/python --clear --out-dir $(DIST)

.PHONY: release
release: $(RELEASE) ## make a release in dist/, checked, the same bytes each time; publishes nothing
	$(BIN)/python -m tools.release $(if $(REHEARSE),--rehearse)

.PHONY: docs
docs: $(DEV) ## build the pages as a site with search, into build/site
	$(BIN)/python -m tools.site

.PHONY: bench
bench: $(DEV) ## measure everything; a part: make bench ARGS="rates --quick"
	$(BIN)/python -m bench $(ARGS)

.PHONY: model
model: $(DEV) ## explore the model, on the code of SQLite: make model STATES="60000 replies"
	$(BIN)/python -m tests.model $(STATES)

.PHONY: sim
sim: $(DEV) ## simulate faults on a virtual clock: make sim SEEDS="1 500" JOBS=2
	JOBS=$(JOBS) $(BIN)/python -m tests.sim $(or $(SEEDS),1 200)

.PHONY: twins
twins: $(DEV) ## take one guard away at a time: the simulation has to notice
	$(BIN)/python -m tests.sim.caught $(ARGS)

.PHONY: fuzz
fuzz: $(DEV) ## random content where strangers write: make fuzz MINUTES=30 (or EXAMPLES=2000)
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5) \
		$(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

ROUNDS := children dependencies events exchange expiry fairness flows_of_peers keep limits limits_of_peers ordered turns_of_others turns_of_several
.PHONY: rounds
rounds: compiled ## the tests of jobs that wait, where 1, 2, 3, 4 or 5 rows fill a round: make rounds MOST=2
	for most in $(or $(MOST),1 2 3 4 5); do \
		OUTLAST_TEST_MOST=$$most $(PYTEST) -q $(ROUNDS:%=tests/conformance/test_%.py) $(ARGS); \
	done

.PHONY: chaos
chaos: $(DEV) ## real workers in a storm of faults: make chaos STORE=sqlite SECONDS=600 SEED=7
	$(BIN)/python -m tests.chaos $(or $(STORE),postgres) --seconds $(or $(SECONDS),60) \
		$(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: upgrade
upgrade: $(DEV) ## the last release, this tree, and back, under load: make upgrade SECONDS=3600 SEED=7
	$(BIN)/python -m tests.upgrade $(or $(STORE),both) --seconds $(or $(SECONDS),120) \
		$(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: matrix
matrix: $(DEV) ## the conformance tests on each PostgreSQL, PgBouncer, SQLite and Python that is here
	env -u PYTHONDONTWRITEBYTECODE HYPOTHESIS_NO_PLUGINS=1 $(BIN)/python -m tools.matrix $(ARGS)

.PHONY: hosts
hosts: $(DEV) ## the same on hosts that are really apart (root): make hosts ARGS="--minutes 60 --seed 7"
	$(BIN)/python -m tests.chaos hosts $(ARGS)

.PHONY: ha
ha: $(DEV) ha-packages ## drill failovers of PostgreSQL under Patroni: make ha DRILL=leader-killed SEED=7, or SECONDS=3600
	$(BIN)/python -m tests.ha $(if $(DRILL),--drill $(DRILL)) $(if $(SECONDS),--seconds $(SECONDS)) \
		$(if $(SEED),--seed $(SEED)) $(ARGS)

# The index is the client's default one, whatever this machine's settings say, and no address
# or path gets into the files. The demo's pins are the developers' pins.
COMPILE := $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	--custom-compile-command "make lock" $(LOCKARGS)
UPGRADE ?=

.PHONY: lock
lock: $(DEV) ## pin all dependencies again (UPGRADE=--upgrade for newer versions)
	$(COMPILE) $(UPGRADE) pyproject.toml requirements/build.in --all-extras --group dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml requirements/build.in --group demo -c requirements/dev.txt -o requirements/demo.txt
	$(COMPILE) $(UPGRADE) pyproject.toml --group release -c requirements/dev.txt -o requirements/release.txt
	$(COMPILE) $(UPGRADE) pyproject.toml --group ha -c requirements/dev.txt -o requirements/ha.txt

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# --- the virtual environment -------------------------------------------------------------------

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Outlast needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(DEV): requirements/dev.txt pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@$(BYTES)
	@touch $@

$(RELEASE): requirements/release.txt $(DEV)
	$(PIP) --require-hashes -r requirements/release.txt
	@touch $@

.PHONY: ha-packages
ha-packages: $(DEV)
	@[ $(HA) -nt requirements/ha.txt ] || { $(PIP) --require-hashes -r requirements/ha.txt && touch $(HA); } \
	|| echo "ha: could not install Patroni and etcd (see above): the tests that need them are skipped"

$(DEMO): requirements/demo.txt pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r requirements/demo.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@$(BYTES)
	@touch $@
