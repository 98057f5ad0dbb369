# SPDX-License-Identifier: MIT OR Apache-2.0
# `make demo` and `make test` are all a fresh clone needs; `make help` lists the rest.

# The software device is either.
GPU_TARGETS ?= all
KERNEL_SET ?= ci
# A regular expression: kernels whose name has a match alone
KERNEL_FILTER ?=
CONFIGURE = -DFMHA_GPU_TARGETS="$(GPU_TARGETS)" -DFMHA_KERNEL_SET=$(KERNEL_SET) \
	-DFMHA_KERNEL_FILTER="$(KERNEL_FILTER)" -DFMHA_WERROR=ON --log-level=WARNING
DEMO_KERNELS = _exact$$
# Kernel compilers at a time are fewer where memory is short; CMAKE_BUILD_PARALLEL_LEVEL overrides.
JOBS ?= $(or $(CMAKE_BUILD_PARALLEL_LEVEL),$(shell nproc))
# The build whose kernels go into the wheel; none: they are compiled
WHEEL_KERNELS ?= $(BUILD)
# gpu runs the tests on the first AMD GPU instead of the software device
DEVICE ?= emulator

SHELL := bash
PYTHON := build/venv/bin/python
BUILD := build/release
LLVM := 19

.PHONY: help toolchain build demo test wheel test-adapters lint sanitize clean

help:
	@echo "make demo       prepare, build, prove that it is right, and compare with standard attention"
	@echo "make test       prepare, build, run every test (DEVICE=gpu: on hardware)"
	@echo "make wheel      a wheel with this build's kernels (WHEEL_KERNELS=: the default set, compiled), in build/dist"
	@echo "make test-adapters   what needs torch, JAX, transformers or cargo, against an installed wheel"
	@echo "make lint       style and static checks"
	@echo "make sanitize   native tests with the address and undefined-behaviour sanitizers"
	@echo "make build      library, software device and kernels, in $(BUILD)"
	@echo "make toolchain  fetch what is missing for a build, under build/"
	@echo "make clean      remove what was built, but not what was fetched"

toolchain:
	@native/tools/toolchain.sh

build: toolchain
	@cmake --preset release $(CONFIGURE)
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ln -sfn release/kernels.json build/kernels.json

# What was configured before is kept, filter and all; from nothing, the kernels that a demo may run are enough.
demo: toolchain
	@[ -e $(BUILD)/CMakeCache.txt ] || cmake --preset release $(CONFIGURE) -DFMHA_KERNEL_FILTER='$(DEMO_KERNELS)'
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ln -sfn release/kernels.json build/kernels.json
	@$(PYTHON) -m pyfa_rocm demo

test: build
	@native/tools/toolchain.sh --tests
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)
	time $(PYTHON) -m pytest tests --device $(DEVICE) -n $(JOBS) --durations=10

wheel: build
	native/tools/build_wheel.sh $(if $(WHEEL_KERNELS),--kernels-from "$(WHEEL_KERNELS)")

# Not the source tree's package but the wheel's, in an environment of its own beside the frameworks.
test-adapters: wheel
	@native/tools/toolchain.sh --adapters
	native/tools/test_adapters.sh build/dist/pyfa_rocm-*.whl -n $(JOBS) --durations=10

sanitize: build
	@cmake --preset sanitize $(CONFIGURE)
	@cmake --build build/sanitize --parallel $(JOBS)
	ctest --test-dir build/sanitize --output-on-failure

lint:
	@native/tools/toolchain.sh --lint
	@native/tools/lint.sh $(BUILD) $(LLVM)

clean:
	rm -rf build/release build/debug build/sanitize build/kernels.json
