# The same commands for people and for CI. Needs Python 3.11 or newer, pip and make; the rest is set up here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: help demo test fuzz test-browser picture test-backends lint format bench bench-gpu bench-collect quality results clean

help:
	@echo "make demo    run everything once on the embedded study, without torch and without network"
	@echo "make test    run the tests"
	@echo "make fuzz    spoil 5,000 files and kill 200 commands, and count what went wrong"
	@echo "make test-browser    the report in a real chromium, which is installed where it is missing"
	@echo "make test-backends   vLLM, llama.cpp and lm-eval for real, each in an environment of its own"
	@echo "make lint    check style and types"
	@echo "make bench   print the tables of docs/performance.md; make bench-gpu: on a GPU; make bench-collect: only those of collect"
	@echo "make quality every method on the zoo and on the public studies whose files are here"
	@echo "make results write docs/results.md and its figures again"
	@echo "make picture take the README's picture of the report again"
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

demo: $(VENV)/.core
	$(BIN)/benchcast demo --out benchcast-demo

# Three processes of one thread each, a file of tests at a time: one of them often waits, for a cluster or for a killed
# process, and two cores stay busy. PYTEST_ADDOPTS=-n0 for one process.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

fuzz: $(VENV)/.dev
	PYTHONPATH=. $(BIN)/python tests/fuzz/fuzz.py --count 5000 --kills 200

test-browser: $(VENV)/.browser
	@tests/browser/install.sh
	$(BIN)/pytest tests/browser -m browser

picture: $(VENV)/.browser
	@tests/browser/install.sh
	PYTHONPATH=. $(BIN)/python tests/browser/picture.py docs/report.png

test-backends: $(VENV)/.dev
	$(BIN)/python tests/collect/real_backends.py
	$(BIN)/pytest tests/collect -m backends

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python bench/bench.py
	$(BIN)/python bench/collect.py

bench-gpu: $(VENV)/.dev
	$(BIN)/python bench/gpu.py

bench-collect: $(VENV)/.dev
	$(BIN)/python bench/collect.py

quality: $(VENV)/.dev
	OMP_NUM_THREADS=2 $(BIN)/python -m lab quality --decisions

results: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m lab results docs

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) benchcast-demo
