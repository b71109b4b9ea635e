# `make demo` and `make test` need only Python, make and g++; they create .venv themselves.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

DEMO := bundles/demo
WORLD := bundles/sample

.PHONY: demo test test-rest test-all gpu-test lint venv clean

# Runs the included demo model on videos that training never saw: engines, masks, metrics, speed.
demo: $(DEMO)/manifest.json $(WORLD)
	$(BIN)/mrcfa doctor
	$(BIN)/mrcfa build $(DEMO)
	$(BIN)/mrcfa run $(DEMO) $(WORLD)/street.mp4 -o bundles/masks.mp4 --as color --force
	$(BIN)/mrcfa run $(DEMO) $(WORLD)/street.mp4 -o bundles/overlay.mp4 --as overlay --force
	$(BIN)/mrcfa eval $(DEMO) $(WORLD) --split test
	$(BIN)/mrcfa bench $(DEMO) --frames 20 --drift 100 --report report.html
	@echo "Look at bundles/overlay.mp4, bundles/masks.mp4 and report.html"

$(DEMO)/manifest.json: | $(STAMP)
	$(BIN)/mrcfa export --demo --size 384x672 --frame 480x864 -o $(DEMO)

$(WORLD): | $(STAMP)
	$(BIN)/mrcfa sample $@ --videos 1 --test 6

# Tests every promise once, on every layer. With `worksteal` each worker begins with its own half of
# the tests, so the workers seldom wait for the same bundle.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
test: venv build/headers build/triton
	$(PYTEST) -m "not thorough"

# Repeats tests over backbones, sizes, precisions and seeds, and the C++ tests with sanitizers.
test-rest: venv build/headers build/triton
	MRCFA_SANITIZE=address,undefined $(PYTEST) -m "thorough or cpp"

test-all: test test-rest

# For a machine with a GPU; gpu-test.json lists everything that the machine lacks as "not run".
gpu-test: venv build/headers $(DEMO)/manifest.json
	$(BIN)/python tests/gpu/kit.py $(DEMO) --json gpu-test.json

# Headers for the C++ tests; without them these tests report "not run".
build/headers:
	engines/cpp/fetch-headers $@ || { rm -rf $@; echo "C++: not run (no ONNX Runtime headers)"; }

# A server for the tests of serving; without it these tests report "not run".
build/triton: | $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/tritonserver-on-cpu.sh \
		|| echo "Triton: not run (no wheel of nvidia-pytriton for this machine)"

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

venv: $(STAMP)

# Installs everything that a machine without a GPU can use, once: the stamp file records it.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt -e ".[export,cpu,rtx,video,view,report,triton,dev]"
	touch $@

clean:
	rm -rf .venv bundles
