# Every target makes first what of .venv it needs; scripts/bootstrap says how. Extras by name: make venv EXTRAS="atari ray".
# PYTHON=3.12 chooses the Python, VENV another folder.
export VENV ?= .venv
export PYTHON
BIN := $(VENV)/bin
# Passed on to the tool of a target: make test ARGS="-k dqn", make lock ARGS=--upgrade.
ARGS ?=
EXTRAS ?=

.DEFAULT_GOAL := help
.PHONY: help venv dev demo test test-newest test-slow test-release test-all coverage lint types format bench docs peers \
	lock clean

# The tests start hundreds of processes that import the package, so its byte-code is kept even where this variable is set.
unexport PYTHONDONTWRITEBYTECODE

# Two processes that share the tests: when one has none left, it takes some of the other's.
PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv:  ## Make .venv from the locks; nothing is done where it stands already.
	@scripts/bootstrap $(EXTRAS)

dev:  ## Put what the tests and checks need into .venv too.
	@scripts/bootstrap dev

demo: venv  ## Train DQN on CartPole-v1, evaluate it, and draw its learning curve.
	$(BIN)/acme-ext train dqn gym:CartPole-v1 --steps 50000 --seed 0 --num-envs 8 \
		--set learning_rate_decay_steps=12500 --set replay.max_size=20000 --run-dir runs/demo --fresh $(ARGS)

test: dev  ## Run the tests but for the slow ones, on two processes (docs/testing.md).
	$(PYTEST) -m "not slow and not release" $(ARGS)

# What must hold without Reverb on the newest Python: a run in one process, its table, recorded data, a compiled run, a
# program, the command line, and the environments and the search, whose libraries are newer there.
NEWEST = VENV=.venv-newest PYTHON=3.12
NEWEST_TESTS = tests/utils/test_system.py tests/replay/test_tables.py tests/launch/test_offline.py \
	tests/launch/test_exact.py::test_two_runs_of_a_seed_are_equal_and_another_seed_differs \
	tests/launch/test_compiled.py::test_evaluations_may_become_more_frequent \
	tests/program/test_served_replay.py tests/agents/dqn tests/commands/test_cli.py tests/commands/test_doctor.py \
	tests/envs/test_jax_libraries.py tests/envs/test_envpool.py tests/envs/test_dmc.py tests/envs/test_board.py \
	tests/ops/test_search.py::test_it_finds_the_best_way_through_a_tree

test-newest:  ## Run tests of what needs no Reverb, on the newest Python for which all extras have wheels.
	@$(NEWEST) scripts/bootstrap dev
	@$(NEWEST) $(MAKE) --no-print-directory test \
		ARGS="--none-without-reverb -o cache_dir=.pytest_cache/newest $(NEWEST_TESTS) $(ARGS)"

test-slow: dev  ## Run the slow tests, which `make test` leaves out.
	$(PYTEST) -m "slow and not release" $(ARGS)

test-release: dev  ## Run the slowest tests, which neither of them runs.
	$(PYTEST) -m release $(ARGS)

test-all: dev  ## Run all tests.
	$(PYTEST) $(ARGS)

coverage: dev  ## Run all tests, and write down which lines of the package none of them runs (coverage/index.html).
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html:coverage $(ARGS)

lint: dev  ## Check the code with ruff: rules and format.
	$(BIN)/ruff check $(ARGS)
	$(BIN)/ruff format --check $(ARGS)

types: dev  ## Check the types of the package with pyright, on Linux and on macOS.
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright $(ARGS)
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonplatform Darwin $(ARGS)

format: dev  ## Rewrite the code in ruff's format.
	$(BIN)/ruff format $(ARGS)

bench: dev  ## Measure each part beside its limit.
	$(BIN)/python -m benchmarks.speed $(ARGS)

docs: dev  ## Build the documentation as a site, in build/site; any broken link fails it.
	NO_MKDOCS_2_WARNING=1 COLUMNS=100 $(BIN)/python -m mkdocs build --strict --quiet $(ARGS)

PEERS = benchmarks/speed/peers
peers: dev  ## Make the environments of the libraries that `python -m benchmarks.speed --peers` compares with.
	$(BIN)/uv venv --quiet --seed --clear --python 3.11 $(PEERS)/.venv/sb3
	$(PEERS)/.venv/sb3/bin/pip install --quiet -r $(PEERS)/requirements-sb3.txt
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(PEERS)/.venv/acme
	$(BIN)/uv pip install --quiet --python $(PEERS)/.venv/acme -r $(PEERS)/requirements-acme.txt

COMPILE = $(BIN)/uv pip compile setup.cfg --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	--quiet
LOCK = $(COMPILE) --python-version 3.10 --python-platform x86_64-manylinux_2_28

lock: venv  ## Write all locks anew from setup.cfg; ARGS=--upgrade takes the newest versions.
	$(LOCK) --generate-hashes --extra dev --output-file requirements/dev.txt $(ARGS)
	$(LOCK) --generate-hashes --constraint requirements/dev.txt --output-file requirements/core.txt
	$(COMPILE) --universal --python-version 3.11 --generate-hashes --extra dev \
		--output-file requirements/newest.txt $(ARGS)
	$(LOCK) --no-annotate --extra all --extra cuda --constraint requirements/dev.txt --output-file acme_ext/constraints.txt

clean:  ## Remove .venv, caches and build products; runs/ stays.
	rm -rf .venv .venv-newest build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .coverage* coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
