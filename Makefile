# Every target sets up what it needs: a virtual environment of its own with the tested versions.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test fuzz lint types wheel clean

demo: $(READY)
	$(VENV)/bin/graphmend demo

test: lint types
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto

# Random files, calls and commands: about five minutes on two cores. Others of them: make fuzz SEED=20000 INPUTS=100000
INPUTS ?= 20000
SEED ?= 0
fuzz: $(READY)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(VENV)/bin/python -m fuzz.run --inputs $(INPUTS) --seed $(SEED)

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
