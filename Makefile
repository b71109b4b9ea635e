# `make demo` does the main job from nothing, `make test` passes the tests from nothing.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

DEMO := bundles/demo
WORLD := bundles/sample

.PHONY: demo test test-rest test-all gpu-test lint venv clean

# The trained model in the box on videos that it never saw: engines, masks, metrics, speed.
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

# Every promise once, on every layer. Each worker begins with a half of its own, so that they seldom
# wait for the same bundle.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
test: venv build/headers build/triton
	$(PYTEST) -m "not thorough"

# Repetitions over backbones, sizes, precisions and seeds; the C++ tests again, with sanitizers.
test-rest: venv build/headers build/triton
	MRCFA_SANITIZE=address,undefined $(PYTEST) -m "thorough or cpp"

test-all: test test-rest

# For a machine with a GPU: what it lacks is "not run" in gpu-test.json.
gpu-test: venv build/headers $(DEMO)/manifest.json
	! command -v nvidia-smi > /dev/null || $(BIN)/python -m pip install --quiet nvidia-cuda-sanitizer-api
	$(BIN)/python tests/gpu/kit.py $(DEMO) --json gpu-test.json

# For the C++ tests; without them the tests say that C++ was not run.
build/headers:
	engines/cpp/fetch-headers $@ || { rm -rf $@; echo "C++: not run (no ONNX Runtime headers)"; }

# For the tests of serving; without it they say that Triton was not run.
build/triton: | $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/tritonserver-on-cpu.sh \
		|| echo "Triton: not run (no wheel of nvidia-pytriton for this machine)"

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

venv: $(STAMP)

# Everything that a machine without a GPU can use. The stamp makes a second run free.
# On aarch64, TensorRT is the system's (JetPack), and TensorRT-RTX knows no Jetson.
EXTRAS := export,cpu,video,view,report,triton,dev
ifeq ($(shell uname -m),aarch64)
VENV_FLAGS := --system-site-packages
INSTALLED := ".[$(EXTRAS)]" "cuda-python>=12.9.1,<13"
else
INSTALLED := ".[$(EXTRAS),rtx]"
endif
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV_FLAGS) .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt -e $(INSTALLED)
	touch $@

clean:
	rm -rf .venv bundles
