# `make` lists what there is. Everything is installed into this folder and nothing else.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help up test faults soak check demo conformance bench images images-test chart format lock clean

PYTHON ?= python3
DIR := $(abspath .)
BIN := .venv/bin
STAMP := .venv/.installed
MANIFESTS := $(wildcard pyproject.toml libs/*/pyproject.toml services/*/pyproject.toml router/pyproject.toml \
             conformance/pyproject.toml cli/pyproject.toml)

export UV_CACHE_DIR := $(DIR)/.cache/uv
export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPYCACHEPREFIX := $(DIR)/.cache/pycache

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' Makefile
	@echo 'ARGS="..." goes to up (--port-base 19778 --data DIR), test and conformance (-k spill);'
	@echo 'PYTHON=python3.12 chooses the Python of the first installation.'

up: $(STAMP) ## serve the whole federation on this machine; Ctrl-C stops it
	@$(BIN)/a2m up $(ARGS)

test: $(STAMP) ## run the tests, on real engines
	@$(BIN)/pytest -n 2 --dist loadscope -m "not faults and not conformance and not images" $(ARGS)

check: $(STAMP) ## lint, types, import rules, lock files
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check . && echo "ruff: clean"
	@$(BIN)/pyright -p .
	@said=$$($(BIN)/lint-imports --no-cache --no-logo 2>&1) && echo "imports: clean" || { echo "$$said"; exit 1; }
	@$(BIN)/python tools/locks.py --check
	@$(BIN)/python tools/chart.py --check

faults: $(STAMP) ## every process killed at every step, networks cut, long interleavings
	@$(BIN)/pytest -m faults -n 2 --dist load $(ARGS)

soak: $(STAMP) ## 50 conversations while processes die, for SOAK_SECONDS (600)
	@$(BIN)/pytest -n 0 -s tests/faults/soak.py $(ARGS)

demo: $(STAMP) ## a conversation lives in a federation, is asked questions, and ends by itself
	@$(BIN)/a2m demo

conformance: $(STAMP) ## check all six servers against A2M 0.1, over HTTP and stdio
	@$(BIN)/pytest -m conformance -n 0 -s tests/conformance $(ARGS)

bench: $(STAMP) ## measure against the bare engines in the same run
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

images: ## build all container images, by docker or buildah (tools/images.py says what it is told)
	@$(PYTHON) tools/images.py $(ARGS)

images-test: $(STAMP) ## start each image on real databases, by buildah; needs root and BASE
	@test -n "$$BASE" || { echo "BASE is the image that they were built from: its size is taken off"; exit 1; }
	@$(BIN)/pytest -m images -n 0 tests/deploy/test_images.py $(ARGS)

chart: $(STAMP) ## make the Helm chart from the kustomize base
	@$(BIN)/python tools/chart.py

format: $(STAMP) ## format the code and mend what the linter can
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

lock: $(STAMP) ## lock versions anew, with hashes and without addresses
	@$(BIN)/python tools/locks.py

clean: ## remove what was installed and cached; data in .a2m stay
	rm -rf .venv .uv .cache .pytest_cache .ruff_cache .hypothesis reports
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock tools/install.sh tools/bootstrap.lock $(MANIFESTS)
	@PYTHON="$(PYTHON)" sh tools/install.sh
	@touch $(STAMP)
