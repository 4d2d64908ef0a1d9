# Two commands do everything: `make demo` and `make test`. Both start from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup java debian demo test warm lint unit kafka stores spark soak docs bench bench-check bench-long bench-time bench-kafka bench-setup clean

help: ## Show what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed ## Make .venv and install everything into it

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Millpond needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version`. Fix: make PYTHON=python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

java:
	@command -v java >/dev/null || [ -x "$$JAVA_HOME/bin/java" ] || \
		{ echo "Spark needs Java 17 or newer, and none was found."; \
		  echo "Fix: Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17; or set JAVA_HOME."; exit 1; }

# Tests that kill programs compile a small library; those that set the clock load libfaketime.
debian:
	@command -v cc >/dev/null || $(call install,gcc libc6-dev)
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || $(call install,libfaketime)

# Install packages of Debian or Ubuntu where that is allowed, or say how.
define install
{ if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(1) >/dev/null; \
else \
	echo "Tests need: $(1). Fix: Debian, Ubuntu: sudo apt-get install $(1)"; exit 1; \
fi; }
endef

demo: setup java ## Run a stateful pipeline on Spark, with live progress and the state at the end
	$(BIN)/python examples/demo.py

# What a job says comes in one piece, where make can do that.
WHOLE = $(if $(filter output-sync,$(.FEATURES)),-Otarget)

test: debian warm ## Lint, type-check and run all tests
	@# What needs no JVM first: it fails soonest. Then what waits for servers, beside the others.
	$(MAKE) $(WHOLE) -j2 lint unit
	$(MAKE) $(WHOLE) -j3 stores kafka spark

warm: setup java
	@# Tests start Spark some forty times; with this, each start takes less.
	$(BIN)/millpond warmup

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: setup ## Tests without a JVM, on all cores; fails where branch coverage is below its floor
	$(BIN)/pytest -q -n auto --dist worksteal --cov --cov-report=term-missing:skip-covered \
		-m "not spark and not cluster and not kafka and not soak" tests

kafka: setup java ## Tests against a real Kafka broker
	$(BIN)/pytest -q --durations=10 -m "(kafka or spark) and not soak" tests/kafka

stores: setup java debian ## Tests with S3, HDFS, clusters, and with programs, brokers and disks that fail
	$(BIN)/pytest -q --durations=10 -m "(kafka or spark or cluster) and not soak" \
		tests/remote tests/disturbed

spark: setup java debian ## Tests on Spark alone, in two processes with a JVM each
	$(BIN)/pytest -q -n 2 --dist worksteal --durations=15 -m "spark and not soak" tests/spark tests/docs

soak: setup java debian ## Kill programs before each change of a file, executors and a broker 25 times, damage files 260 times
	MILLPOND_KILLS=25 MILLPOND_DAMAGES=260 MILLPOND_CRASHES=1000 $(BIN)/pytest -q tests/disturbed tests/remote
	MILLPOND_DAMAGES=260 $(BIN)/pytest -q tests/unit/test_damage.py
	MILLPOND_KEYS=100000 $(BIN)/pytest -q tests/spark/test_admin_corners.py
	MILLPOND_FUZZ=20000 $(BIN)/pytest -q -s tests/semantics/test_no_poison.py
	$(BIN)/python tests/shared/audit.py

docs: setup ## Build the documentation site into build/site; fails on a dead link or an undocumented name
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@# Not --quiet: what is quiet is not counted as a warning, and so not refused.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "The site is in build/site. To look at it: $(BIN)/python -m http.server -b 127.0.0.1 -d build/site 8000"

PEERS := .venv-peers/bin/python

bench: bench-setup ## Measure beside plain PySpark, Bytewax and Quix Streams; writes docs/benchmarks.md
	$(BIN)/python benchmarks/run.py $(PEERS)

bench-check: bench-setup ## Fail where a ratio is worse than its floor; two minutes
	$(BIN)/python benchmarks/run.py --check $(PEERS)

bench-time: bench-setup ## Measure windows and expiry
	$(BIN)/python benchmarks/side_by_side.py

bench-long: bench-setup ## Ten thousand batches in a row, ten million records that wait, many keys, many names, latency; an hour
	$(BIN)/python benchmarks/long.py batches build/long
	$(BIN)/python benchmarks/long.py outage build/long
	$(BIN)/python benchmarks/long.py memory build/long
	$(BIN)/python benchmarks/long.py names build/long
	$(BIN)/python benchmarks/long.py latency build/long
	$(BIN)/python benchmarks/long.py sync build/long

bench-setup: setup java warm
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	test -x $(PEERS) || $(PYTHON) -m venv .venv-peers
	$(PEERS) -m pip install --quiet --disable-pip-version-check bytewax==0.21.1 quixstreams==3.28.1 msgspec

bench-kafka: bench-setup ## Measure on Kafka, side by side with Quix Streams in an environment of its own
	$(BIN)/python benchmarks/kafka_side_by_side.py $(PEERS)

clean: ## Remove what was built
	rm -rf $(VENV) .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .coverage*
