# The same commands for people and for CI. Needs Python 3.11 or newer, pip and make; the rest is set up here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS := .venv-docs
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: help demo test test-slow test-all fuzz test-browser picture test-backends test-integrations test-package lint format docs pages bench bench-gpu bench-collect quality results clean

help:
	@echo "make demo    run everything once on the embedded study, without torch and without network"
	@echo "make test    run the tests that take no processes, clusters, trainers or downloads of their own"
	@echo "make test-slow    run the others; make test-all: both, as CI does"
	@echo "make fuzz    spoil 5,000 files and kill 200 commands, and count what went wrong"
	@echo "make test-browser    the report in a real chromium, which is installed where it is missing"
	@echo "make test-backends   vLLM, llama.cpp and lm-eval for real, each in an environment of its own"
	@echo "make test-integrations    trackers, launchers and PEFT for real, in .venv-integrations"
	@echo "make test-package    wheel, sdist, uvx, pipx, lowest versions, types and licences, in clean environments"
	@echo "make lint    check style and types"
	@echo "make docs    build the documentation into site/; a broken link is an error"
	@echo "make bench   print the tables of lab/LOG.md, of which docs/performance.md has a part; make bench-gpu: on a GPU; make bench-collect: only those of collect"
	@echo "make quality every method on the zoo and on the public studies whose files are here"
	@echo "make pages   renew the command line reference, pictures and outputs that pages show; needs the OLMo ladder"
	@echo "make results write docs/results.md, its figures and the README's table again"
	@echo "make picture take the picture of the report again"
	@echo "make format  let ruff rewrite the code"
	@echo "make clean   remove the virtual environment and what the demo wrote"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml
	$(PIP) --editable ".[report]"
	@touch $@

$(VENV)/.dev: $(VENV)/.core constraints.txt
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) --constraint constraints.txt --group dev
	@touch $@

$(VENV)/.browser: $(VENV)/.core
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) --group browser
	@touch $@

$(DOCS)/.installed: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade "pip>=25.1"
	$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet --group docs
	@touch $@

demo: $(VENV)/.core
	$(BIN)/benchcast demo --out benchcast-demo

# A file of tests at a time, each process with one thread. PYTEST_ADDOPTS=-n0 for one process.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev
	$(PYTEST) -n 2 -m "not slow"

# Three processes: one of them often waits, for a cluster or for a killed process, and two cores stay busy.
test-slow: $(VENV)/.dev
	$(PYTEST) -n 3 -m slow

test-all: test test-slow

fuzz: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python tests/fuzz/fuzz.py --count 5000 --kills 200

test-browser: $(VENV)/.browser
	@tests/browser/install.sh
	$(BIN)/pytest tests/browser -m browser

picture: $(VENV)/.browser
	@tests/browser/install.sh
	PYTHONPATH=.:tests $(BIN)/python tests/browser/picture.py docs/report.png

test-backends: $(VENV)/.dev
	$(BIN)/python tests/collect/real_backends.py
	$(BIN)/pytest tests/collect -m backends

# Trackers pin other versions of what the package needs, so they have an environment of their own.
.venv-integrations/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-integrations
	.venv-integrations/bin/python -m pip --disable-pip-version-check install --quiet --upgrade "pip>=25.1"
	.venv-integrations/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
	  --editable . --group integrations
	@touch $@

test-integrations: .venv-integrations/.ready
	OMP_NUM_THREADS=1 .venv-integrations/bin/pytest tests/live tests/cluster -m integrations

# The demo runs once for each way to install; CHECK=--smoke for a part of it.
test-package: $(VENV)/.dev
	$(PYTHON) tests/package/check.py $(CHECK)
	$(BIN)/python tests/package/licences.py report hf train http hub yaml ray

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# From nothing: a page that is gone from docs/ would stay in site/, and an old page would be checked.
docs: $(DOCS)/.installed
	rm -rf site
	$(DOCS)/bin/python -m zensical build --strict --clean
	$(DOCS)/bin/python -m tools.site.links site

pages: $(VENV)/.dev
	$(BIN)/python -m lab reference docs
	OMP_NUM_THREADS=1 $(BIN)/python -m lab pictures docs
	OMP_NUM_THREADS=1 $(BIN)/python -m lab outputs docs/index.md docs/tutorial.md docs/formats.md docs/undo.md docs/how-many.md
	OMP_NUM_THREADS=1 $(BIN)/python -m lab outputs --demo docs/extrapolation.md docs/runs.md docs/sharing.md docs/gate.md docs/proxies.md

bench: $(VENV)/.dev
	$(BIN)/python bench/bench.py
	$(BIN)/python bench/busy.py
	$(BIN)/python bench/collect.py

bench-gpu: $(VENV)/.dev
	$(BIN)/python bench/gpu.py

bench-collect: $(VENV)/.dev
	$(BIN)/python bench/collect.py

quality: $(VENV)/.dev
	OMP_NUM_THREADS=2 $(BIN)/python -m lab quality --decisions

results: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m lab results docs
	$(BIN)/python -m lab reference docs

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(DOCS) .venv-integrations site benchcast-demo
