# `make demo` needs Python 3.11 and nothing else, `make test` Chromium too, for its browser test;
# each sets up .venv when it must.

PYTHON ?= $(or $(shell command -v python3.11),python3)
# Worker processes of the test run, two more than two cores have: some tests wait for most of
# their time. 0 runs the tests in one process.
TEST_PROCESSES ?= 4
# What to test, and further options: make test TESTS=tests/ledger PYTEST_OPTIONS=-x
TESTS ?= tests
PYTEST_OPTIONS ?=
HOST ?= 127.0.0.1
PORT ?= 8000

VENV := .venv
BIN := $(VENV)/bin
INPUTS := requirements.lock pyproject.toml client/pyproject.toml
# Named for the hash of what was installed, so that a changed lock is installed again.
STAMP := $(VENV)/installed-$(shell cat $(INPUTS) | sha256sum | cut -c1-16)
# The loops whose machine code is stored beside them: after a change each release would compile
# them anew, for its process may not write there.
LOOPS := $(sort $(shell grep -rl --include='*.py' '^@compiled' app/engine))
WARM := $(VENV)/warmed-$(shell cat $(LOOPS) | sha256sum | cut -c1-16)

.PHONY: demo test serve check docs lock adapter-locks image-check clean chromium install
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo 'make demo          a real table from upload to synthetic rows, in demo-output/'
	@echo 'make test          all tests'
	@echo 'make serve         the service at http://$(HOST):$(PORT), its store in ./halftone-data'
	@echo 'make check         lint, types, import rules, migrations, locks, documentation'
	@echo 'make docs          the documentation as a site, docs/_build/index.html'
	@echo 'make lock          resolve the locked requirements anew'
	@echo 'make adapter-locks hash the versions of the libraries behind adapters anew'
	@echo 'make image-check   run the Dockerfile in an empty root (root, no Docker needed)'

demo: $(STAMP) $(WARM)
	$(BIN)/python examples/demo.py

test: $(STAMP) $(WARM) chromium
	$(BIN)/python -m pytest $(TESTS) -n $(TEST_PROCESSES) --dist loadfile \
	  --no-loadscope-reorder $(PYTEST_OPTIONS)

serve: $(STAMP) $(WARM)
	$(BIN)/halftone serve --host $(HOST) --port $(PORT)

check: $(STAMP) docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_lock.py
	$(BIN)/python -m pytest tests/test_migrations.py

# From nothing, since Sphinx repeats no warning of an unchanged page and keeps pages that are gone.
docs: $(STAMP)
	rm -rf docs/_build
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	$(BIN)/python scripts/check_site.py docs/_build

install: $(STAMP) $(WARM)

$(STAMP): $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' \
	  || { echo 'Halftone needs Python 3.11 or later; name one: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo "Installing into $(VENV), once; this takes a minute or more and prints nothing."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e . -e ./client
	rm -f $(VENV)/installed-*
	touch $@

$(WARM): $(STAMP)
	$(BIN)/python -m app.engine.warming
	rm -f $(VENV)/warmed-*
	touch $@

# The browser test drives Debian's Chromium, which only root can install; without it that test
# fails. Nothing else is installed outside .venv.
chromium:
	@command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	      apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	  else \
	    echo 'The browser test needs Chromium. Install it once: sudo apt-get install chromium' >&2; \
	  fi; }

UV_COMPILE := $(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url \
  --custom-compile-command 'make lock'

# The server's and the build's locks take their versions from the full one.
lock: $(STAMP)
	$(UV_COMPILE) --extra demo --extra dev pyproject.toml -o requirements.lock
	$(UV_COMPILE) -c requirements.lock pyproject.toml -o requirements-server.lock
	echo 'hatchling>=1.27' | $(UV_COMPILE) -c requirements.lock - -o requirements-build.lock

# Of the libraries behind adapters, at the very versions that the benchmarks compare with.
adapter-locks: $(STAMP)
	for library in dpmm smartnoise; do \
	  $(BIN)/uv pip compile -q --no-deps --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --python-version 3.11 -o app/engine/adapters/$$library.lock \
	    bench/synthesizers/peers/requirements-$$library.txt || exit 1; \
	done

image-check: $(STAMP)
	$(BIN)/python scripts/check_dockerfile.py

clean:
	rm -rf demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
