# make demo | test | test-all | bench | bench-ops | simulate | build | clean.  Each builds what it needs, once.
.DEFAULT_GOAL := build
# make bazel builds the same C++ with Bazel.
.PHONY: demo test test-all bench bench-ops simulate bazel build deps cpp-tests system-deps data servers clean
.DELETE_ON_ERROR:
SHELL := /bin/bash

PYTHON ?= python3.11
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --no-input
CACHE  := .cache
JOBS   ?= $(shell nproc)
export JOBS
# Tests wait for one another's processes now and then: three at once keep two cores busy.
TEST_JOBS ?= 3
# Warnings of our own C++ are errors here; `pip install` on a user's machine does not insist.
export ADAPTCP_WERROR ?= 1

REQUIREMENTS := requirements.txt requirements-build.txt requirements-test.txt requirements-constraints.txt
DEPS_STAMP   := $(VENV)/.deps-stamp
INSTALLED    := $(VENV)/.installed-stamp
DATA_STAMPS  := $(CACHE)/ml-100k/ml-100k.inter $(CACHE)/open-bandit/random-women.csv

# ---- environment ------------------------------------------------------------

$(PY):
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "tfadaptcp needs CPython 3.11, the newest one with TFRA wheels; there is no '$(PYTHON)' on the PATH." >&2; \
	  echo "Install it, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; ok = v[:2] == (3, 11) and sys.implementation.name == "cpython"; \
	  ok or sys.exit("tfadaptcp needs CPython 3.11, the newest one with TFRA wheels. Received: $(PYTHON) = %s %d.%d.%d. Try: make PYTHON=/path/to/python3.11" % (sys.implementation.name, *v[:3]))'
	@echo "==> virtual environment in $(VENV)"
	$(PYTHON) -m venv $(VENV)

$(DEPS_STAMP): $(REQUIREMENTS) | $(PY)
	@echo "==> dependencies (TensorFlow is 600 MB to download, 2.6 GB on disk)"
	$(PIP) install -r requirements-test.txt -c requirements-constraints.txt </dev/null
	@touch $@

deps: $(DEPS_STAMP)

# ---- build ------------------------------------------------------------------

# The editable install is made once; after that only the library is brought up to date.
$(INSTALLED): $(DEPS_STAMP) pyproject.toml setup.py
	@echo "==> tfadaptcp, editable"
	$(PY) -m tools.native </dev/null
	$(PIP) install --quiet --no-deps --no-build-isolation -e . </dev/null
	@touch $@

build: $(INSTALLED)
	@echo "==> native library"
	@$(PY) setup.py --quiet build_ext --inplace </dev/null

# ---- tests ------------------------------------------------------------------

# GoogleTest and g++: installed when root on a Debian, named otherwise.
system-deps:
	@if echo '#include <gtest/gtest.h>' | g++ -x c++ -std=c++17 -fsyntax-only - 2>/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "==> apt-get install g++ libgtest-dev"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get update -qq </dev/null; apt-get install -y -qq --no-install-recommends g++ libgtest-dev </dev/null; } || \
	    [ -z "$$CI" ] || exit 1; \
	else \
	  echo "The C++ unit tests need g++ and GoogleTest and will be skipped. To run them:"; \
	  echo "  sudo apt-get install g++ libgtest-dev"; \
	fi

# Servers of stores, built once below $(CACHE). One that can't be built is said and left out: the tests that need it are
# skipped. In the continuous integration, where none may be, what is missing is installed.
servers: $(DEPS_STAMP) system-deps
	@if [ -n "$$CI" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! $(PY) -m tools.hdfs.fetch --have-tools; then \
	  echo "==> apt-get install openjdk-17-jdk-headless maven"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq </dev/null && apt-get install -y -qq --no-install-recommends openjdk-17-jdk-headless maven </dev/null >/dev/null; \
	fi
	@$(PY) -m tools.hdfs.fetch $(CACHE)/hdfs </dev/null
	@$(PY) -m tools.build_gcs $(CACHE) </dev/null

cpp-tests: $(DEPS_STAMP) system-deps
	@if echo '#include <gtest/gtest.h>' | g++ -x c++ -std=c++17 -fsyntax-only - 2>/dev/null; then \
	  echo "==> C++ unit tests"; $(PY) -m tools.cpp_build tests tsan asan </dev/null; fi

# Tests that need the machine for themselves run first, alone. Exit code 5: there are none.
define run_pytest
	@echo "==> tests that run alone"
	@$(PY) -m pytest -m "serial$(1)" </dev/null || [ $$? = 5 ]
	@echo "==> tests"
	@$(PY) -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder -m "not serial$(1)" </dev/null
endef

test: system-deps build data servers cpp-tests
	$(call run_pytest, and not slow)

test-all: system-deps build data servers cpp-tests
	$(call run_pytest)

# ---- demo, benchmarks -------------------------------------------------------

$(DATA_STAMPS) &: requirements-data.txt tools/fetch_data.py | $(DEPS_STAMP)
	@echo "==> MovieLens-100k and Open Bandit"
	$(PY) tools/fetch_data.py $(CACHE) </dev/null
	@touch $(DATA_STAMPS)

data: $(DATA_STAMPS)

demo: system-deps build data
	@echo "==> demo"
	@$(PY) examples/movielens_ps.py --data $(CACHE)/ml-100k </dev/null

# All systems side by side: measures what is missing of the cells asked for, then reports on all there are. The core takes
# about 145 minutes on 2 cores that nobody else uses, and 12 GB of memory; it may be interrupted and goes on. See docs/benchmarks.md.
BENCH_ARGS ?= --core
bench: system-deps build
	@$(PIP) install --quiet -r requirements-bench.txt -c requirements-constraints.txt </dev/null
	@$(PY) -m benchmarks.side_by_side run $(BENCH_ARGS) </dev/null
	@$(PY) -m benchmarks.simulate totals --rows 1e5 --logs $(CACHE) --results $(CACHE)/side_by_side </dev/null
	@$(PY) -m benchmarks.side_by_side report </dev/null

# What single ops cost. Needs 12 GB of memory; BENCH_OPS_ARGS="--rows 1000000" needs less.
bench-ops: system-deps build
	@set -e; for source in $$(find ops -name '*_bench.cc' | sort); do \
	  echo "==> $$source"; $(PY) -m tools.cpp_build run $$source </dev/null; done
	@echo "==> benchmarks/table_ops.py"
	@$(PY) -m benchmarks.table_ops $(BENCH_OPS_ARGS) </dev/null

# What policies write and restores read on replayed traces: minutes, 1 GB. See docs/cost_model.md.
SIMULATE_ARGS ?= policies --rows 1e6 --checkpoints 177 --weights 1
simulate: $(DEPS_STAMP)
	@$(PY) -m benchmarks.simulate $(SIMULATE_ARGS) </dev/null

# Works with Debian's bazel-bootstrap, which needs no download: see tools/bazel/README.md.
bazel: system-deps $(DEPS_STAMP)
	@command -v bazel >/dev/null || { echo "make bazel needs Bazel: apt-get install bazel-bootstrap" >&2; exit 1; }
	ADAPTCP_PYTHON=$(abspath $(PY)) bazel build //ops/... </dev/null
	ADAPTCP_PYTHON=$(abspath $(PY)) bazel test //ops/... --test_output=errors </dev/null

clean:
	rm -rf build dist *.egg-info tfadaptcp/_adaptcp_ops.so tfadaptcp/_adaptcp_ops.json .pytest_cache .hypothesis $(VENV)/.installed-stamp
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
