# make demo    two apps share a local cluster, live
# make test    the tests
# make test-long  the tests that make test leaves out, so that it ends within half an hour
# make lint    style, types, layers and the wheel's contents
# make bench   the benchmarks, as ratios within one run
# make proto   the gRPC code again, after a change of themis.proto
# make clean   remove all that these targets make

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
# Installed again only when pyproject.toml changes.
READY := $(VENV)/.themis-installed

.PHONY: demo test test-long lint bench proto clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[all]'
	touch $@

demo: $(READY)
	$(BIN)/python examples/two_teams.py

# Tests that start Ray run one after the other, since each wants the machine for itself; the others
# side by side.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not ray'
	$(BIN)/python -m pytest -m 'ray and not long'

test-long: $(READY)
	$(BIN)/python -m pytest -m long

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	rm -rf build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist . > /dev/null
	$(BIN)/check-wheel-contents build/dist/*.whl

bench: $(READY)
	$(BIN)/python tests/benchmarks/run_all.py

# With the oldest tools that pyproject.toml allows, in an environment of their own: the generated code
# refuses to run on anything older than what it was made with.
proto: $(READY)
	test -x $(VENV)/proto/bin/python || $(PYTHON) -m venv $(VENV)/proto
	$(VENV)/proto/bin/python -m pip install --quiet 'grpcio-tools==1.80.0' 'setuptools<81'
	$(VENV)/proto/bin/python themis_ray/rpc/generate.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
