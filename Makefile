# Two commands do all the set-up on a fresh machine: `make bench` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install bench test check soak clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench,spark,test]'
	touch $@

bench: install  ## the latency benchmark of the paper, on real text: a table and a plot
	$(BIN)/driftline bench latency

test: check  ## everything that has to hold: style, types, tests
	$(BIN)/pytest

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: install  ## half an hour: thousands of seeds, many kills of real processes
	$(BIN)/driftline simulate --all --seeds 20000
	$(BIN)/pytest -m soak

clean:
	rm -rf .venv out build *.egg-info
