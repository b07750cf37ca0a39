# The only entry point for people and CI.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
ENGINES ?= .venv-engines
BIN := $(VENV)/bin
RUN := $(BIN)/python
STAMP := $(VENV)/.installed
PIP = $(RUN) -m pip install --quiet --disable-pip-version-check
SOURCES := crds/modelcache_api crds/modelcache_kube operator agent e2e tests benchmarks charts/modelcache_chart
PROFILE ?= control-plane
TESTBED := $(RUN) -m modelcache_testbed
K ?=
DEFLAKE_ROUNDS ?= 10
CYCLONEDX ?= cyclonedx-bom==7.3.0
REGISTRY ?=
# Most tests wait for a cluster most of the time. A file's tests share what it brought up; files go
# in their order because the long ones come first. Two runs would be in each other's way on one cluster.
BOTH_CORES := $(if $(KUBECONFIG_UNDER_TEST),,--numprocesses=2 --dist=loadfile --no-loadscope-reorder)
ROOT := $(filter 0,$(shell id -u))
HYPOTHESIS_PROFILE ?= default
export HYPOTHESIS_PROFILE

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP) ## Create the virtual environment with the locked dependencies.

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ModelCache needs Python 3.11 or newer: set PYTHON=python3.11")'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "installing locked dependencies into $(VENV)"
	@$(PIP) --require-hashes --no-deps -r requirements/bootstrap.txt
	@$(BIN)/uv pip install --quiet --python $(RUN) --require-hashes --no-deps -r requirements/dev.txt || \
	  $(PIP) --require-hashes --no-deps -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: binaries
binaries: setup ## Build the control plane's binaries into the cache (once, about 10 minutes).
	@$(TESTBED) build --profile $(PROFILE)

.PHONY: fmt
fmt: setup ## Format and fix what can be fixed.
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

.PHONY: lint
lint: setup ## Format check, lint, import contracts.
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/lint-imports --no-cache

.PHONY: types
types: setup ## mypy --strict.
	@$(BIN)/mypy

.PHONY: gen
gen: setup ## Regenerate CRDs, the chart's copies of them, and the references.
	@$(RUN) -m modelcache_api.crdgen --write crds
	@$(RUN) -m modelcache_api.docgen --write docs/api.md
	@$(RUN) -m modelcache_cli.helpgen --write docs/cli.md
	@$(RUN) -m modelcache_operator.injection_files --write charts/modelcache
	@$(RUN) -m modelcache_chart --write .

.PHONY: gen-check
gen-check: setup
	@$(RUN) -m modelcache_api.crdgen --check crds
	@$(RUN) -m modelcache_api.docgen --check docs/api.md
	@$(RUN) -m modelcache_cli.helpgen --check docs/cli.md
	@$(RUN) -m modelcache_operator.injection_files --check charts/modelcache
	@$(RUN) -m modelcache_chart --check .

.PHONY: lock
lock: setup ## Refresh the lock of dependencies.
	@$(BIN)/uv pip compile --quiet pyproject.toml --all-extras --group dev --generate-hashes \
	  --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/dev.txt
	@echo 'uv>=0.8' | $(BIN)/uv pip compile --quiet - --constraint requirements/dev.txt --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --universal --python-version 3.11 -o requirements/bootstrap.txt
	@for extra in operator agent; do \
	  $(BIN)/uv pip compile --quiet pyproject.toml --extra $$extra --constraint requirements/dev.txt --generate-hashes \
	    --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/$$extra.txt; done
	@$(BIN)/uv pip compile --quiet pyproject.toml --extra agent --extra gpu --constraint requirements/dev.txt --generate-hashes \
	  --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/agent-gpu.txt
	@$(BIN)/uv pip compile --quiet requirements/build.in --constraint requirements/dev.txt --generate-hashes \
	  --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/build.txt
	@$(BIN)/uv pip compile --quiet requirements/docs.in --constraint requirements/dev.txt --generate-hashes \
	  --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/docs.txt
	@for what in engines engines-only; do \
	  $(BIN)/uv pip compile --quiet requirements/$$what.in $$(test $$what = engines || echo --no-deps) --generate-hashes \
	    --no-emit-index-url --no-header --universal --python-version 3.11 -o requirements/$$what.txt; done

.PHONY: docs
docs: setup ## Build the pages as a site, to dist/site; a link that leads nowhere ends it.
	@$(BIN)/uv run --quiet --isolated --no-project --python $(RUN) --with-requirements requirements/docs.txt \
	  zensical build --strict --clean

.PHONY: images
images: setup ## Build the images of operator and agent: with Docker, or without (as root).
	@$(TESTBED) images

.PHONY: sbom
sbom: setup ## Write bills of materials of what the images install, to dist/.
	@mkdir -p dist
	@for extra in operator agent; do \
	  $(BIN)/uv tool run --quiet --from $(CYCLONEDX) cyclonedx-py requirements requirements/$$extra.txt \
	    --pyproject pyproject.toml --mc-type application --output-reproducible -o dist/modelcache-$$extra.cdx.json; done

.PHONY: release-images
release-images: ## Build for amd64 and arm64, with SBOM and provenance, and push: REGISTRY=host/path.
	@test -n "$(REGISTRY)" || { echo "name the registry: make release-images REGISTRY=host/path" >&2; exit 1; }
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); for name in operator agent; do \
	  docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max --push \
	    --build-arg VERSION=$$version --build-arg REVISION=$$(git rev-parse HEAD) \
	    --tag $(REGISTRY)/modelcache/$$name:$$version --file Dockerfile.$$name .; done

.PHONY: verify
verify: gen-check lint types ## Everything that needs no run: generated files, lint, types, imports.
	@echo "verify: all checks passed"

.PHONY: test
test: setup binaries ## All tests that this machine can run, real control plane included.
	@$(RUN) -m pytest $(if $(K),-k "$(K)",$(BOTH_CORES))

.PHONY: test-failed
test-failed: setup ## Repeat the tests that failed last.
	@$(RUN) -m pytest tests e2e --last-failed --last-failed-no-failures none $(if $(K),-k "$(K)")

.PHONY: test-fast
test-fast: setup ## Unit and property tests only.
	@$(RUN) -m pytest tests/unit tests/property $(if $(K),-k "$(K)")

.PHONY: test-gpu
test-gpu: setup ## Tests that need a card of NVIDIA and a torch that uses it.
	@$(RUN) -m pytest tests/gpu -m gpu $(if $(K),-k "$(K)")

.PHONY: test-engines
test-engines: setup ## vLLM, SGLang and other readers on the mounted folder (own environment, 8 GB).
	@test -x $(ENGINES)/bin/python || $(BIN)/uv venv --quiet --python $(RUN) $(ENGINES)
	@$(BIN)/uv pip install --quiet --python $(ENGINES)/bin/python --require-hashes --no-deps \
	  -r requirements/engines.txt -r requirements/engines-only.txt
	@$(BIN)/uv pip install --quiet --python $(ENGINES)/bin/python --no-deps --no-build-isolation --editable .
	@$(ENGINES)/bin/python -m pytest --override-ini addopts=--import-mode=importlib tests/engines

.PHONY: deflake
deflake: setup binaries ## Repeat tests until one fails: make deflake K=expr.
	@for round in $$(seq $(DEFLAKE_ROUNDS)); do echo "round $$round"; $(RUN) -m pytest -x -q $(if $(K),-k "$(K)") || exit 1; done

.PHONY: fuzz-nightly
fuzz-nightly: setup ## The socket: a million malformed messages, a thousand attaches with kills.
	@MODELCACHE_FUZZ_MESSAGES=1000000 MODELCACHE_KILLED_CLIENTS=1000 $(RUN) -m pytest -q tests/socket/test_fuzz.py tests/socket/test_killed_clients.py

.PHONY: rollouts-nightly
rollouts-nightly: setup binaries ## Twenty rollouts, forth and back, under kills of everything.
	@MODELCACHE_ROLLOUT_RUNS=20 $(RUN) -m pytest -q -s e2e/test_rollout_kills.py

.PHONY: fleet-nightly
fleet-nightly: setup binaries ## C40, C44, C52, C61 among 1,000 played nodes and 200 ModelCaches.
	@MODELCACHE_FLEET_NODES=$(or $(NODES),1000) MODELCACHE_FLEET_CACHES=$(or $(CACHES),200) $(RUN) -m pytest -q -s tests/fleet -m fleet $(if $(K),-k "$(K)")

.PHONY: e2e
e2e: setup binaries $(if $(ROOT),images) ## End-to-end: demo and kills; as root also the product on three real nodes.
	@$(if $(ROOT),,echo "not root: the suites on real nodes are left out")
	@$(RUN) -m pytest $(if $(ROOT),e2e,e2e/test_demo.py e2e/test_kills.py e2e/test_rollout_kills.py) $(if $(K),-k "$(K)")

.PHONY: bench
bench: setup binaries ## Benchmarks: all, or NAME=s3-to-disk.
	@$(RUN) benchmarks/run.py $(NAME)

ATTACHES ?= 10000000
.PHONY: nightly
nightly: setup ## What is too long for every change: ten million simulated attaches, time and memory.
	@$(RUN) benchmarks/many_attaches.py $(ATTACHES)

SOAK_MINUTES ?= 120
export SOAK_MINUTES
.PHONY: soak
soak: setup binaries ## Hours of churn; fails if operator or agents grow: SOAK_MINUTES=120, SOAK_SEED=9.
	@$(RUN) benchmarks/soak.py

.PHONY: demo
demo: setup binaries $(if $(filter nodes,$(PROFILE)),images) ## The main job on a real model; PROFILE=nodes: on three real nodes.
	@$(RUN) -m modelcache_testbed.demo --profile $(PROFILE)

.PHONY: dashboard-picture
dashboard-picture: setup binaries ## The demo, read by a real Prometheus; its dashboard as dist/dashboard.png.
	@$(RUN) -m modelcache_testbed.demo --picture dist/dashboard.png

.PHONY: demo-down
demo-down: setup ## End the demo and remove everything it made.
	@$(RUN) -m modelcache_testbed.demo --down

.PHONY: cluster-up
cluster-up: setup binaries ## Bring up a cluster: PROFILE=control-plane, nodes or kind. Prints its KUBECONFIG.
	@$(TESTBED) up --profile $(PROFILE)

.PHONY: cluster-down
cluster-down: setup ## End the cluster and remove its files.
	@$(TESTBED) down

.PHONY: cluster-status
cluster-status: setup ## Say what runs.
	@$(TESTBED) status

.PHONY: clean
clean: ## Remove the virtual environment and caches of tools.
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache dist build
