# Every target does all that it needs, on a machine with Python 3.11 or newer and nothing else.
#
#   make run      install, fetch the weights, serve, ask a spoken question, stay up for the page
#   make test     install with development tools, then linters, types and all tests
#   make setup    only install and fetch
#
# PYTHON=python3.12 chooses the interpreter of a new .venv, PORT=8001 where `make run` serves.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
PORT ?= 8000
CLIP ?= samples/clips/capital_of_france.wav

BIN := .venv/bin
PACKAGES := gateway encoders core kernels web
# What is installed is what pyproject.toml said then: its checksum is part of the stamp's name.
STAMP := $(shell cksum < pyproject.toml | cut -d' ' -f1)
ENGINE := .venv/.engine-$(STAMP)
DEV := .venv/.dev-$(STAMP)

.PHONY: setup run test test-clients lint types weights packages clean
.DEFAULT_GOAL := run

setup: $(DEV) .links/sensorium weights

run: $(ENGINE) weights
	@$(BIN)/sensorium demo $(CLIP) --port $(PORT)

test: setup packages lint types
	$(BIN)/pytest

test-clients: setup
	@if [[ -d tests/clients ]]; then $(BIN)/pytest tests/clients; \
	else echo "tests/clients: no suites of other clients yet"; fi

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV) .links/sensorium
	$(BIN)/mypy -p sensorium.gateway -p sensorium.core -p sensorium.encoders -p sensorium.kernels
	$(BIN)/mypy tests

weights: $(ENGINE)
	@$(BIN)/sensorium pull

# Debian's, for the tests of the page, of spoken questions, and of text in pictures (opencv wants libGL).
packages: $(DEV)
	@missing=""; \
	for tool in chromium espeak-ng; do command -v $$tool > /dev/null || missing+=" $$tool"; done; \
	$(BIN)/python -c 'import ctypes; ctypes.CDLL("libGL.so.1")' 2> /dev/null || missing+=" libgl1"; \
	if [[ -z "$$missing" ]]; then exit 0; fi; \
	if ! command -v apt-get > /dev/null; then echo "the tests need$$missing"; exit 1; fi; \
	as_root=$$([[ $$(id -u) == 0 ]] || echo sudo); \
	$$as_root apt-get update -q; \
	$$as_root apt-get install -q -y --no-install-recommends $$missing

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) \
	  else f"Sensorium needs Python 3.11 or newer, this is {v}: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

$(ENGINE): | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --no-compile -e '.[engine]'
	@touch $@

$(DEV): | .venv/pyvenv.cfg
	$(BIN)/python -m pip install --no-compile -e '.[engine,dev]'
	@touch $(ENGINE) $@

# The folders under their installed names, for mypy and editors.
.links/sensorium:
	@mkdir -p $@
	@for package in $(PACKAGES); do ln -sfn ../../$$package $@/$$package; done

clean:
	rm -rf .venv .links build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +
