# Every target sets up what it needs: a virtual environment of its own with the tested versions.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo quick test slow docs fuzz mutants lint types wheel clean

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

# The site, in build/docs/html: runs the examples, and fails at a warning or a link that leads nowhere.
docs: $(VENV)/.docs
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m sphinx --fail-on-warning --keep-going --quiet -d build/docs/doctrees docs build/docs/html
	$(VENV)/bin/python docs/site/links.py build/docs/html
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --quiet tests/website/test_reference_pages.py tests/website/test_site.py

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

PYTHON_FILES := src tests benchmarks examples docs/conf.py docs/site
lint: $(READY)
	$(VENV)/bin/ruff check $(PYTHON_FILES)
	$(VENV)/bin/ruff format --check $(PYTHON_FILES)

types: $(READY)
	$(VENV)/bin/mypy

wheel: $(READY)
	$(VENV)/bin/python -m build --wheel

clean:
	rm -rf $(VENV) dist build demo docs/api docs/extra docs/gallery

$(VENV)/.docs: $(READY)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
