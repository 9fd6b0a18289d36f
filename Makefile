# Two commands are enough: `make demo` shows it, `make test` proves it.  `make` alone lists the rest.

PYTHON ?= python3

# uv unpacks what its cache holds in seconds.  It does not read pip's settings, so pip stands in where uv gets nothing;
# pip reads dependency groups from 25.1 on, and the one that Python brings along is often older.
UV := $(or $(shell command -v uv),.venv/bin/uv)
PIP := .venv/bin/python -m pip install --quiet --disable-pip-version-check
add = $(UV) pip install --quiet --python .venv/bin/python $(1) || \
	{ $(PIP) --upgrade 'pip>=25.1' && PYTHONWARNINGS='ignore:Editable installation' $(PIP) --no-compile $(1); }

# A few loops are in C.  If this machine has no compiler, PyPI has one.
COMPILED := setup.py $(wildcard stream_dp/loops/*.[ch])
ifeq ($(shell command -v cc),)
export CC := $(CURDIR)/.venv/bin/python -m ziglang cc
export LDSHARED := $(CC) -shared
endif

# What one process has compiled is there for the next.
unexport PYTHONDONTWRITEBYTECODE

# Whole systems wait: six files at a time keep two processors busy, and each more costs what it loads.
# A failed test is tried once more, and the summary shows how it failed: STRICT=1 makes that a failure of the run.
PYTEST := .venv/bin/python -m pytest --numprocesses 6 --dist loadfile --no-loadscope-reorder \
	--reruns 1 $(if $(STRICT),--fail-on-flaky)

# What needs more than Python has a target of its own.
ELSEWHERE := $(addprefix --ignore ,tests/system/browser tests/packaging tests/deploy tests/containers tests/kubernetes \
	tests/apache_spark)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-browser test-kafka deployment containers kubernetes spark coverage lint docs schemas bench bench-accuracy screenshots soak package release release-check audit-dependencies lock pins clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.installed-test ## make .venv with everything needed to run and to test

demo: .venv/.installed ## watch private histograms of real flights, with an embedded broker and Redis
	@.venv/bin/stream-dp demo

test: install ## run all tests that need nothing but Python; broker and Redis are started for you
	@echo "These tests take about seven minutes on two cores."
	@for part in tests/system '--ignore tests/system'; do \
		.venv/bin/python -m pytest --collect-only -qq $(ELSEWHERE) $$part >/dev/null 2>&1 & \
	done; wait  # compiles what they import once, not by every process again
	$(PYTEST) $(ELSEWHERE)

test-kafka: install ## run the system tests whose outcome a broker decides on Apache Kafka (needs Java 17, Maven, PostgreSQL and a Redis with TLS)
	$(PYTEST) tests/system --kafka apache

test-browser: install ## run the tests of the dashboard and of the notebook's widgets in a browser (needs Chromium)
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
		{ echo "Chromium is needed (Debian: apt-get install chromium chromium-driver)." >&2; exit 1; }
	$(PYTEST) tests/system/browser

deployment: install .venv/.installed-deployment ## load the chart and the Compose file as Helm and Compose load them (needs Go), and run what the chart runs
	$(PYTEST) tests/deploy

containers: install ## build the image and run the Compose file in a container engine of its own (needs root, docker.io, mmdebstrap, Go, Java and Maven)
	.venv/bin/python -m pytest tests/containers --capture no -rs

kubernetes: install ## install the chart in a Kubernetes of one node, built from its sources (needs what containers needs, and containernetworking-plugins)
	.venv/bin/python -m pytest tests/kubernetes --capture no -rs

spark: install .venv/.installed-spark ## run jobs on Apache Spark, with the same results as here (needs Java 17 and Maven)
	$(PYTEST) tests/apache_spark

coverage: install ## measure how much of the package the tests in one process run
	$(PYTEST) --ignore tests/system --cov --cov-report term-missing

lint: install .venv/.installed-lint ## check style, format, types, which folder imports which, and the script of the page
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/oxlint --deny-warnings stream_dp/dashboard/static stream_dp/notebook/static

docs: .venv/.installed-docs ## build the documents as a site in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet

schemas: install ## write docs/schemas and openapi.json from the structs of records and answers
	.venv/bin/python -m tests.docs.generate_schemas
	.venv/bin/python -m tests.docs.generate_openapi

bench: install .venv/.installed-bench ## measure speed and accuracy
	.venv/bin/python -m benchmarks

bench-accuracy: install .venv/.installed-bench-accuracy .venv/.tensorflow-privacy ## measure accuracy, beside OpenDP, jax-privacy and TensorFlow Privacy
	.venv/bin/python -m benchmarks.accuracy

screenshots: install ## take the pictures of the page that the documents show (needs Chromium)
	.venv/bin/python -m tests.dashboard.screenshots

soak: install .venv/.installed-spark ## kill workers, flip bits, feed broken records, half on Apache Kafka; kill Spark; run windows for long; audit 20 times (takes a night; docs/soak.md)
	.venv/bin/python -m tests.soak

package: install ## build the package, and try each extra in an environment of its own on each Python that is here (needs PyPI)
	.venv/bin/python -m tests.package

release: install ## make a release, for you to push: commit, tag, package, digests and SBOM; make release VERSION=0.2.0
	@.venv/bin/python deploy/release.py make '$(VERSION)'

release-check: install ## run the tests of what people install; make a release in a clone, and build it twice: the same bytes
	$(PYTEST) tests/packaging
	@.venv/bin/python deploy/release.py rehearse

audit-dependencies: install .venv/.installed-audit-dependencies ## ask PyPI for known vulnerabilities of what is installed, where it can be reached
	.venv/bin/python -m pip_audit --local --skip-editable

LOCK := $(UV) pip compile --quiet --upgrade --universal --python-version 3.12 --generate-hashes --custom-compile-command 'make lock'

lock: .venv/.created ## choose the packages of the container and of the release again, and write their hashes to deploy (needs PyPI)
	$(LOCK) --only-binary :all: --group release --output-file deploy/release.txt
	$(LOCK) --only-binary :all: --group build --output-file deploy/image/build.txt
	$(LOCK) --extra worker --extra jobs --output-file deploy/image/requirements.txt pyproject.toml

pins: ## name images and workflow actions by what their tags stand for now (needs docker, git and their servers)
	$(PYTHON) deploy/pins.py

clean: ## remove what make and the tools made; .stream-dp (state and privacy ledger) stays
	rm -rf .venv .kafka build *.egg-info stream_dp/loops/*.so .pytest_cache .hypothesis .mypy_cache .ruff_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The demo needs its extra alone.  Each group has a stamp; a changed pyproject.toml, or a changed loop in C, installs it again.
.venv/.installed: pyproject.toml $(COMPILED) | .venv/.created
	@echo "Installing stream_dp into .venv ..."
	@$(call add,--editable '.[demo]')
	@touch $@

.venv/.installed-%: pyproject.toml $(COMPILED) | .venv/.created
	@echo "Installing stream_dp and its $* dependencies into .venv ..."
	@$(call add,--editable '.[all]' --group $*)
	@touch $@ .venv/.installed

# TensorFlow Privacy pins numpy 1 and dp-accounting 0.4, so it has an environment of its own; it ends with Python 3.11.
.venv/.tensorflow-privacy: | .venv/.created
	@if .venv/bin/python -c 'import sys; sys.exit(sys.version_info >= (3, 12))'; then \
		.venv/bin/python -m venv .venv/tensorflow && .venv/tensorflow/bin/python -m pip --quiet \
		--disable-pip-version-check install 'tensorflow-privacy==0.9.0' 'tensorflow<2.16'; fi
	@touch $@

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "stream_dp needs Python 3.11 or newer: try make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: apt-get install python3-venv)." >&2; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || \
		{ echo "$(PYTHON) has no headers for C: install its dev package (Debian: apt-get install python3-dev)." >&2; exit 1; }
	@$(PYTHON) -m venv .venv
	@command -v cc >/dev/null || $(PIP) ziglang
	@[ -x $(UV) ] || $(PIP) uv || echo "There is no uv for this machine: pip installs the rest."
	@touch $@
