# make demo       set up, run a small study on the embedded data and make its report: a minute or two
# make test       set up and run lint, types and tests (under 10 minutes on two cores)
# make test-slow  what takes longer, the tests in a browser among it where there is one
# make test-browser  the report's page in a real browser (chromium); screenshots go to build/screenshots
# make coverage   run the tests and tell which branches of core, neurons and experiment they leave out
# make mutants    change the code that chooses weights in many small ways; prints what no test notices (20 minutes)
# make results    make every report under results/ anew from its records, and the tables of both READMEs
# make dist       build the wheel and the source archive into dist/, without the network once .venv is there
# make format     let ruff rewrite the sources
# make docs       build the documentation into site/
# make clean      remove the environment and everything built
#
# The first run creates .venv and installs the exact versions of constraints.txt; later runs start at once.
# Another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml constraints.txt

.PHONY: demo test test-slow test-browser coverage mutants results dist format docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/.core
	$(BIN)/activeprune run demo
	$(BIN)/activeprune report runs/demo

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow
	@if browser=$$(sh tools/chromium.sh); then CHROMIUM="$$browser" $(BIN)/python -m pytest -m browser; \
	else echo "the tests in a browser were skipped: see above"; fi

test-browser: $(VENV)/.dev
	@browser=$$(sh tools/chromium.sh) && CHROMIUM="$$browser" $(BIN)/python -m pytest -m browser

coverage: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2
	$(BIN)/coverage combine --quiet
	$(BIN)/python tools/branches.py

mutants: $(VENV)/.mutants
	$(BIN)/python tools/mutants.py $(ONLY)

results: $(VENV)/.core
	for records in results/*/records.json.gz; do $(BIN)/activeprune report "$${records%/*}" || exit; done
	$(BIN)/python tools/results.py README.md results/README.md

dist: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	$(BIN)/zensical build --clean

clean:
	rm -rf $(VENV) site dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

# What is installed is recorded by empty files in .venv. Each set-up installs into the same environment and keeps what
# is there already.

$(VENV)/.core: $(SOURCES)
	@PYTHON="$(PYTHON)" sh tools/install.sh $(VENV) .
	@touch $@

$(VENV)/.dev: $(SOURCES)
	@PYTHON="$(PYTHON)" sh tools/install.sh $(VENV) '.[dev,tensorboard,vision]'
	@touch $@ $(VENV)/.core

$(VENV)/.mutants: $(SOURCES)
	@PYTHON="$(PYTHON)" sh tools/install.sh $(VENV) '.[dev,tensorboard,vision,mutants]'
	@touch $@ $(VENV)/.dev $(VENV)/.core

$(VENV)/.docs: $(SOURCES)
	@PYTHON="$(PYTHON)" sh tools/install.sh $(VENV) '.[docs]'
	@touch $@
