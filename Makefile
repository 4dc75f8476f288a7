# `make demo` and `make test` need a Python 3.10 and PyPI; they make .venv first where it isn't there yet.
BIN := .venv/bin
# Passed on to the tool of a target: make test ARGS="-k dqn", make lock ARGS=--upgrade.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-all coverage lint types format bench lock clean

# Two processes that share the tests: when one has none left, it takes some of the other's.
PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv:  ## Make .venv from the lock; nothing is done where it stands already.
	@scripts/bootstrap

demo: venv  ## Train DQN on CartPole-v1, evaluate it, and draw its learning curve.
	$(BIN)/acme-ext train dqn gym:CartPole-v1 --steps 50000 --seed 0 --num-envs 8 --run-dir runs/demo --fresh $(ARGS)

test: venv  ## Run the tests but for the slow ones, on two processes (docs/testing.md).
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: venv  ## Run the slow tests, which `make test` leaves out.
	$(PYTEST) -m slow $(ARGS)

test-all: venv  ## Run all tests.
	$(PYTEST) $(ARGS)

coverage: venv  ## Run all tests, and write down which lines of the package none of them runs (coverage/index.html).
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html:coverage $(ARGS)

lint: venv  ## Check the code with ruff: rules and format.
	$(BIN)/ruff check $(ARGS)
	$(BIN)/ruff format --check $(ARGS)

types: venv  ## Check the types of the package with pyright.
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright $(ARGS)

format: venv  ## Rewrite the code in ruff's format.
	$(BIN)/ruff format $(ARGS)

bench: venv  ## Measure each part beside its limit.
	$(BIN)/python -m benchmarks.speed $(ARGS)

lock: venv  ## Write the lock anew from setup.cfg; ARGS=--upgrade takes the newest versions.
	$(BIN)/uv pip compile setup.cfg --extra dev --python-version 3.10 --python-platform x86_64-manylinux_2_28 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		--quiet --output-file requirements-lock.txt $(ARGS)

clean:  ## Remove .venv, caches and build products; runs/ stays.
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
