# `make demo` does the main job from nothing, `make test` passes the tests from nothing.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint venv clean

demo: venv
	$(BIN)/mrcfa doctor

test: venv
	$(BIN)/python -m pytest

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

venv: $(STAMP)

# Everything that a machine without a GPU can use. The stamp makes a second run free.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -e ".[export,cpu,rtx,video,report,dev]"
	touch $@

clean:
	rm -rf .venv bundles
