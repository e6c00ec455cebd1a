# make run    set up and run the main job      make test   set up and run the tests
# make check  format, lint, types, import layers, tests
# Needs Python >= 3.11 and make; uses uv where it is installed. Offline after the first time.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
export UV_PYTHON_DOWNLOADS := never

ifneq ($(UV),)
install = VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet
make_venv = $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
else
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check
make_venv = $(PYTHON) -m venv $(VENV)
endif

PEERS := .venv-bench
CLIENTS := .clients

.PHONY: run test check lint style format bench peers clients fuzz soak clean

run: $(VENV)/.ready
	$(BIN)/thresher demo

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest

check: lint test

lint: $(VENV)/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell src docs tools benchmarks examples *.md
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_names.py
	$(BIN)/python tools/check_formats.py
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_style.py --check

style: $(VENV)/.ready-dev
	$(BIN)/python tools/check_style.py

format: $(VENV)/.ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.ready-bench
	$(BIN)/python benchmarks/read.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/tokens.py
	$(BIN)/python benchmarks/savings.py
	$(BIN)/python benchmarks/evals.py
	$(BIN)/python benchmarks/fit_speed.py
	$(BIN)/python benchmarks/window_speed.py
	$(BIN)/python benchmarks/search.py quality
	$(BIN)/python benchmarks/search.py speed --messages 100000
	$(BIN)/python benchmarks/timeline.py
	$(BIN)/python benchmarks/context.py

# Other tools come with many dependencies: they get an environment of their own.
peers: $(PEERS)/.ready
	$(PEERS)/bin/python benchmarks/legality.py
	$(PEERS)/bin/python benchmarks/cost.py --split report
	$(PEERS)/bin/python benchmarks/replay.py --split report
	$(PEERS)/bin/python benchmarks/search.py quality fast-resume fast-resume+stop ccrecall agentsview cc-conversation-search
	$(PEERS)/bin/python benchmarks/search.py speed --messages 1000000 fast-resume

# Real clients of the MCP server, from npm (Node >= 20, 0.8 GB), with a scripted model on loopback.
clients: $(VENV)/.ready-dev $(CLIENTS)/.ready
	THRESHER_CLIENTS=$(CLIENTS) $(BIN)/python -m pytest -n0 tests/clients

fuzz: $(VENV)/.ready-dev
	$(BIN)/python benchmarks/fuzz.py --minutes 3

soak: $(VENV)/.ready-dev
	$(BIN)/python benchmarks/soak.py
	$(BIN)/python benchmarks/soak_memory.py
	$(BIN)/python benchmarks/soak_mcp.py
	$(BIN)/python benchmarks/soak_proxy.py

clean:
	rm -rf $(VENV) $(PEERS) .clients .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/.venv:
	$(make_venv)
	touch $@

$(VENV)/.ready: $(VENV)/.venv pyproject.toml
	$(install) --editable '.[mcp,serve]'
	touch $@

$(VENV)/.ready-dev: $(VENV)/.venv pyproject.toml
	$(install) --editable '.[dev]'
	touch $@ $(VENV)/.ready

$(PEERS)/.ready: pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	touch $@

$(CLIENTS)/.ready: tests/clients/package.json
	mkdir -p $(CLIENTS)
	cp $< $(CLIENTS)
	npm install --prefix $(CLIENTS) --no-audit --no-fund --loglevel error
	touch $@

$(VENV)/.ready-bench: $(VENV)/.ready-dev
	$(install) --editable '.[dev,bench]'
	touch $@
