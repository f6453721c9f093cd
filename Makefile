# Every target sets up what it needs: a virtual environment of its own with the tested versions.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo quick test slow fuzz mutants lint types wheel clean

demo: $(READY)
	$(VENV)/bin/graphmend demo

# Less than a minute: lint, types, and the tests that are nearest to what has changed since main.
quick: lint types
	OMP_NUM_THREADS=1 $(VENV)/bin/python tests/quick.py

test: lint types
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto

# What takes minutes: clean environments, killed processes, large graphs.
slow: $(READY)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto -m slow

# Random files, calls and commands: about five minutes on two cores. Others of them: make fuzz SEED=20000 INPUTS=100000
INPUTS ?= 20000
SEED ?= 0
fuzz: $(READY)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(VENV)/bin/python -m fuzz.run --inputs $(INPUTS) --seed $(SEED)

# Random small faults in the core, one at a time in each of JOBS copies of the tree: do the tests notice?
COUNT ?= 60
JOBS ?= 2
mutants: $(READY)
	$(VENV)/bin/python tests/mutants.py --count $(COUNT) --seed $(SEED) --jobs $(JOBS) --out mutants.json

lint: $(READY)
	$(VENV)/bin/ruff check src tests benchmarks
	$(VENV)/bin/ruff format --check src tests benchmarks

types: $(READY)
	$(VENV)/bin/mypy

wheel: $(READY)
	$(VENV)/bin/python -m build --wheel

clean:
	rm -rf $(VENV) dist build demo

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
