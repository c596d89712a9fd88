# Two commands do all the set-up on a fresh machine: `make bench` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
ROOT := $(shell test "$$(id -u)" = 0 || echo sudo)

.PHONY: install bench browser check test fast-tests tests lint docs soak clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench,client,docs,index,spark,test]'
	touch $@

bench: install  ## the latency benchmark of the paper, on real text: a table and a plot
	$(BIN)/driftline bench latency

browser:  ## Chromium, for the tests of the page: Debian's package, where there is none
	command -v chromium >/dev/null || { $(ROOT) apt-get update -q && \
	  $(ROOT) apt-get install -qy --no-install-recommends chromium fonts-dejavu-core; }

check: install  ## before each commit, in under 3 minutes: style, types, fast tests
	$(MAKE) --no-print-directory --jobs=2 lint fast-tests

test: install  ## what CI runs: style, types, all tests but the long ones
	$(MAKE) --no-print-directory --jobs=2 lint tests

fast-tests:
	$(BIN)/pytest -m '(fast or not slow) and not soak' --hypothesis-profile=fast

tests:
	$(BIN)/pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Not --quiet: what is not said, --strict does not count.
docs: install  ## the documentation, in out/docs; a reference or link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

soak: install  ## nightly, two hours: thousands of seeds, kills, a live run and an index for half an hour
	$(BIN)/driftline simulate --all --seeds 20000
	$(BIN)/pytest -m soak

clean:
	rm -rf .venv out build *.egg-info
