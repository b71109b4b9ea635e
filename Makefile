# `make demo` and `make test` need only Python, make and g++; they create .venv themselves.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

DEMO := bundles/demo
WORLD := bundles/sample

.PHONY: demo test test-rest test-all gpu-test release-bundle results lint venv clean

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
test: venv build/headers build/triton build/onnxruntime-web.tgz
	$(PYTEST) -m "not thorough"

# Repeats tests over backbones, sizes, precisions and seeds, and the C++ tests with sanitizers.
test-rest: venv build/headers build/triton build/onnxruntime-web.tgz build/cuda-bindings-12
	$(PYTEST) -m "thorough and not cpp"
	MRCFA_SANITIZE=address,undefined $(PYTEST) -m cpp tests/engines

# The runs of tests share the bundles and programs that they make.
test-all:
	export MRCFA_TEST_FILES=$$(mktemp -d) && trap 'rm -rf "$$MRCFA_TEST_FILES"' EXIT \
		&& $(MAKE) test && $(MAKE) test-rest

# For a machine with a GPU; gpu-test.json lists everything that the machine lacks as "not run".
# JetPack has CUDA's programs, but not in PATH.
gpu-test: venv build/headers $(DEMO)/manifest.json
	! command -v nvidia-smi > /dev/null \
		|| $(BIN)/python -m pip install --quiet --only-binary :all: "nvidia-cuda-sanitizer-api>=12" \
		|| echo "compute-sanitizer: no wheel for this machine"
	PATH="$$PATH:/usr/local/cuda/bin" $(BIN)/python tests/gpu/kit.py $(DEMO) --json gpu-test.json

# The demo for somebody without torch: all precisions, and engines for Turing, Ampere with Ada, and
# Blackwell. It takes a quarter of an hour, most of it for the loss of 8 bits.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' mrcfa/__init__.py)
RELEASE := mrcfa-demo-$(VERSION)
release-bundle: | $(STAMP)
	rm -rf bundles/calibration
	$(BIN)/mrcfa sample bundles/calibration --videos 1 --train 8 --frames 16
	$(BIN)/mrcfa export --demo --size 384x672 --frame 480x864 --variants fp32,fp16,fp32-gpu \
		-o bundles/$(RELEASE) --force
	$(BIN)/mrcfa quantize bundles/$(RELEASE) --data bundles/calibration --frames 32 --precision int8
	$(BIN)/mrcfa quantize bundles/$(RELEASE) --data bundles/calibration --frames 32 --precision fp8
	$(BIN)/mrcfa build bundles/$(RELEASE) --flavour rtx --sm 75
	$(BIN)/mrcfa build bundles/$(RELEASE) --flavour rtx --sm 86 --sm 89
	$(BIN)/mrcfa build bundles/$(RELEASE) --flavour rtx --sm 120
	tar -cf bundles/$(RELEASE).tar --sort=name --owner=0 --group=0 --numeric-owner -C bundles $(RELEASE)
	@echo "wrote bundles/$(RELEASE).tar"

# Measures this machine for docs/benchmarks.md: `make results MACHINE=epyc`. Close other programs.
results: $(DEMO)/manifest.json | $(STAMP)
	test -n "$(MACHINE)" || { echo "name the machine: make results MACHINE=epyc" >&2; exit 2; }
	$(BIN)/mrcfa bench --threads $$(nproc) --frames 20 --drift 0 \
		--json benchmarks/results/$(MACHINE).jsonl --report build/report.html
	$(BIN)/mrcfa selftest $(DEMO) --json benchmarks/results/$(MACHINE).json
	$(BIN)/python -m mrcfa.benchmarks.machines

# Headers for the C++ tests; without them these tests report "not run".
build/headers:
	engines/cpp/fetch-headers $@ || { rm -rf $@; echo "C++: not run (no ONNX Runtime headers)"; }

# A server for the tests of serving; without it these tests report "not run".
build/triton: | $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/tritonserver-on-cpu.sh \
		|| echo "Triton: not run (no wheel of nvidia-pytriton for this machine)"

# The runtime for browsers, which npm gets; without it the tests of the site in a browser report "not run".
build/onnxruntime-web.tgz: mrcfa/web/runtime.py | $(STAMP)
	mkdir -p build
	$(BIN)/python -c "from mrcfa.web.runtime import fetch_archive; fetch_archive('$@')" 2> /dev/null \
		|| echo "Browser: not run (npm cannot bring onnxruntime-web)"

# The bindings of CUDA 12, whose test over a stub driver repeats that of the installed ones.
build/cuda-bindings-12: | $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --target $@ "cuda-bindings==12.9.*" cuda-pathfinder \
		|| { rm -rf $@; echo "cuda.bindings 12: not run (no wheel for this machine)"; }

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

venv: $(STAMP)

# Installs everything that a machine without a GPU can use, once: the stamp file records it.
# On aarch64 TensorRT comes from the system (JetPack), and TensorRT-RTX supports no Jetson.
EXTRAS := export,cpu,webgpu,video,view,report,triton,dev
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
