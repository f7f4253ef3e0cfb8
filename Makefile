# make demo    the whole story on the bundled graph (installs by itself)
# make test    ruff, mypy and the tests (installs by itself)
# make models  the shipped classifiers anew, from nothing: collect, label, fit
#
# The environment is .venv. `demo` runs an installed wheel, all else the checkout (editable);
# each puts its own in place, so that either may follow the other.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help install demo test test-full browser lint bench models constraints clean

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
export PYTHON
PINS := pyproject.toml constraints.txt .ci/environment.sh
SOURCES := $(shell find rudder controllers datasets training_ml eval -type f \
	-not -path '*/__pycache__/*') README.md LICENSE

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile
	@echo "also: make install | test-full | lint | bench | constraints | clean"

install: $(VENV)/.all

demo: $(VENV)/.wheel
	@mkdir -p rudder-data
	cd rudder-data && $(BIN)/rudder demo --home .

# Two at a time: most tests wait, for processes and links, as long as they compute.
PARALLEL := -n 2 --dist loadfile

test: browser lint
	$(BIN)/pytest -m "not full" $(PARALLEL)

# One at a time: what they measure of the machine is theirs alone.
test-full: test
	$(BIN)/pytest -m full

# Told at once, not after twenty minutes.
browser:
	@command -v chromedriver >/dev/null || { echo "make test drives a browser: apt-get install chromium" \
		"chromium-driver. Without one: make lint, then .venv/bin/pytest -m 'not ui and not full'" >&2; exit 1; }

lint: $(VENV)/.all
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/.all
	@for script in tests/benchmarks/bench_*.py; do \
		echo "== $$script"; $(BIN)/python -I "$$script"; \
	done

# A data directory of their own: what lies in the user's stays out of what is shipped.
MODELS_HOME := $(CURDIR)/build/models

models: $(VENV)/.all
	@rm -rf $(MODELS_HOME) && mkdir -p $(MODELS_HOME)
	$(BIN)/rudder collect train --home $(MODELS_HOME)
	$(BIN)/rudder label --rule counterfactual --home $(MODELS_HOME)
	$(BIN)/rudder fit --all --threshold auto --no-track --out training_ml/models --home $(MODELS_HOME)

# Stamps: what .venv holds. An editable installation and the wheel replace each other.
$(VENV)/.wheel: $(PINS) $(SOURCES)
	.ci/environment.sh wheel classifiers,llm
	@rm -f $(VENV)/.all
	@touch $@

$(VENV)/.all: $(PINS)
	.ci/environment.sh editable classifiers,llm,dev
	@rm -f $(VENV)/.wheel
	@touch $@

# Versions that are still allowed stay as they are; delete constraints.txt first to renew all.
constraints: $(VENV)/.all
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --all-extras --no-annotate \
		--no-header --output-file constraints.txt pyproject.toml
	@sed -i -E "s/(and )?(platform_machine == 'x86_64'|sys_platform == 'linux'|platform_python_implementation != 'PyPy'|implementation_name != 'PyPy')//g; s/ +/ /g; s/; and /; /; s/[ ;]+$$//" constraints.txt
	@sed -i -e "1i # Every version of the tested environment, for Python 3.10 to 3.12 on Linux x86-64." \
		-e "1i # Written by 'make constraints'; pip and uv read it by -c." constraints.txt

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
