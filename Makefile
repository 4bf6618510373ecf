# make run    the window (without a display: its picture, circuitlab.png)        make test       the tests, offscreen
# make real   SmolLM2 (89 MiB, fetched once) in the window, with its lesson
# make bench  speed as ratios against named peers                              make test-slow  types, wheel, X server, models
# make lint   style, types, imports                                            make fuzz       2 000 damaged and hostile model files
# make gate   lint, the fast tests and a few slow ones: what every change passes
# make archives  checkpoints of models/ as zips in dist/archives, and their list
# make family  the matched models, trained one after the other: ARGS="runs/family --text …"
# make notebook  docs/notebook.ipynb, executed where it stands
# make clean  forget what was installed                                    make monkey     10 000 random events on the window
# make processors  the tests that compare numbers, on processors that round otherwise
#
# Everything is installed into .venv, from constraints.txt, when pyproject.toml or constraints.txt changed; otherwise at once.
#   PYTHON=…   the interpreter to make .venv with (else the first of those below that has venv)
#   TORCH=…    the requirement for torch, with pip's options if need be (README, "CPU only")
#   JOBS=…     test processes (default: one per core)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
TORCH ?= torch==2.13.0
JOBS ?= auto
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY := $(VENV)/.installed
TESTED := $(VENV)/.installed-test

# Python keeps its bytecode, whatever the shell says: hundreds of the tests' processes would compile the package anew, 1 s each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run real gate style test test-slow bench fuzz mutants processors monkey lint archives notebook family clean

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

# -- install ---------------------------------------------------------------------------------------------------------------

# A Debian python3 without python3-venv has `venv` but not `ensurepip`; a pyenv shim may stand for a version that is not there.
define PICK
fits() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }; \
whole() { "$$1" -c 'import venv, ensurepip' >/dev/null 2>&1; }; \
bare=""; chosen=""; \
for python in $(or $(PYTHON),python3.11 /usr/bin/python3.11 python3.12 python3.13 python3 /usr/bin/python3 python); do \
	fits "$$python" || continue; \
	if whole "$$python"; then chosen=$$python; break; fi; \
	bare=$${bare:-$$python}; \
done; \
if [ -z "$$chosen" ] && [ -n "$$bare" ]; then \
	version=$$("$$bare" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	echo "$$bare (Python $$version) has no venv module." >&2; \
	echo "  do: on Debian or Ubuntu: apt-get install python3-venv   (or python$$version-venv)" >&2; \
	exit 3; \
elif [ -z "$$chosen" ]; then \
	echo "No Python 3.11 or newer was found$(if $(PYTHON), as $(PYTHON))." >&2; \
	echo "  do: on Debian 12 or Ubuntu 24.04: apt-get install python3 python3-venv; or name one: make PYTHON=/path/to/python" >&2; \
	exit 3; \
fi
endef

$(BIN)/python:
	@$(PICK); echo "making $(VENV) with $$chosen ($$("$$chosen" --version))"; "$$chosen" -m venv --clear $(VENV)

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt $(TORCH)
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

# What only tests need is compiled when it is imported: 150 MB of sources, 40 s of one core, of which a fraction is ever used.
$(TESTED): $(READY)
	$(PIP) install --quiet --no-compile -c constraints.txt -e '.[test]'
	@touch $@

# -- use -------------------------------------------------------------------------------------------------------------------

run: $(READY)
	$(BIN)/python -m circuitlab $(ARGS)

GGUF := $(VENV)/.installed-gguf

$(GGUF): $(READY)
	$(PIP) install --quiet -c constraints.txt -e '.[gguf]'
	@touch $@

real: $(GGUF)
	$(BIN)/python -m circuitlab get smollm2-135m
	$(BIN)/python -m circuitlab open smollm2-135m --lesson 13-induction-in-a-real-model $(ARGS)

style: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports

test: style
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n $(JOBS) -m "not slow and not thorough" $(ARGS)

# What every change passes: style, types, imports, the fast tests and those slow ones that are marked `gate`; unstable ones are named.
# Types are checked beside the tests, as the checker keeps but one core busy; what it says comes last.
gate: style
	@said=$(VENV)/types.txt; tests=0; types=0; \
	$(BIN)/basedpyright >"$$said" 2>&1 & checker=$$!; trap 'kill $$checker 2>/dev/null || :' EXIT; \
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m tests.gate -n $(JOBS) $(ARGS) || tests=$$?; \
	wait $$checker || types=$$?; \
	cat "$$said"; exit $$((tests ? tests : types))

test-slow: $(TESTED)
	$(BIN)/basedpyright
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow $(ARGS)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n $(JOBS) -m "hypothesis and not slow and not thorough" --hypothesis-profile random $(ARGS) || [ $$? -eq 5 ]

lint: style
	$(BIN)/basedpyright

bench: $(TESTED)
	$(BIN)/python -m tests.benchmarks $(ARGS)

fuzz: $(TESTED)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Deliberate breaks of important lines, each of which the tests of its own room must notice; a sample is part of test-slow.
mutants: $(TESTED)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n $(JOBS) -m "slow or thorough" tests/mutants $(ARGS)

# A pretended processor, and what numpy and torch keep for older ones; two of them are part of test-slow.
processors: $(TESTED)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n $(JOBS) -m "slow or thorough" tests/processors $(ARGS)

monkey: $(TESTED)
	$(BIN)/python -m tests.monkey $(ARGS)

# The list models/archives.json is committed; the zips are put at its address: ARGS="--address https://…".
archives: $(READY)
	$(BIN)/python -m circuitlab.training.archiving models dist/archives $(ARGS)

# Stopped or killed, the same command goes on. Days of one core.
family: $(READY)
	$(BIN)/python -m circuitlab.training.family $(ARGS)

# What its cells show is kept with it; a test compares kinds and words.
notebook: $(TESTED)
	QT_QPA_PLATFORM=offscreen $(BIN)/python tests/e2e/run_notebook.py --store docs/notebook.ipynb

clean:
	rm -rf $(VENV) .venvs build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
