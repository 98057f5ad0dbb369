# SPDX-License-Identifier: MIT OR Apache-2.0
# `make demo` and `make test` are all a fresh clone needs; `make help` lists the rest.

# With ci, archs whose kernels are those of no other: what CI has the time for
GPU_TARGETS ?= $(if $(filter ci,$(SET)),distinct,all)
# What a wheel packs if no set is named: what is installed is for everybody
WHEEL_SET := $(or $(KERNEL_SET),default)
KERNEL_SET ?= ci
# A regular expression: builds only the kernels of the set whose name has a match
KERNEL_FILTER ?=
SET = $(KERNEL_SET)
CONFIGURE = -DFMHA_GPU_TARGETS="$(GPU_TARGETS)" -DFMHA_KERNEL_SET=$(SET) \
	-DFMHA_KERNEL_FILTER="$(KERNEL_FILTER)" -DFMHA_WERROR=ON --log-level=WARNING
# The demo's kernels: one for each feature, and of Radeon's, which compile in a second, all. They are built for the cards
# of this machine, or if it has none, for the one that the software device plays.
DEMO_KERNELS = (gfx1.*/fmha_(fwd|bwd)_.*|bwd_bf16_(d256|d128_aiter_causal)|bwd_(dot|sum)_bf16|fwd_bf16_d128_mask_pad_(exact|pingpong)|fp16_d64_group_mask_pad_alibi|fp16_d128_mask_pad_(bias|softcap)|bf16_d64_mask_pad_dropout|fp16_d192v128_mask_pad|fp32_d64_mask_pad|fp8_bf16_d128_mask_pad|merge_.*)$$
DEMO_TARGETS = $(if $(wildcard /dev/kfd),native,$(shell sed -n 's/^software_device = "\(.*\)"/\1/p' native/archs.toml))
# CMake runs fewer kernel compilers at a time if memory is short; CMAKE_BUILD_PARALLEL_LEVEL overrides.
JOBS ?= $(or $(CMAKE_BUILD_PARALLEL_LEVEL),$(shell nproc))
# The build whose kernels go into the wheel: that of the set it packs
WHEEL_KERNELS = $(if $(filter $(KERNEL_SET),$(WHEEL_SET)),$(BUILD),build/wheel-kernels)
# gpu: run the tests on the first AMD GPU instead of the software device
DEVICE ?= emulator

SHELL := bash
PYTHON := build/venv/bin/python
BUILD := build/release
LLVM := 19
SANITIZERS := address thread

.PHONY: help toolchain build demo test test-all wheel test-adapters test-clients lint sanitize $(SANITIZERS:%=sanitize-%) clean

help:
	@echo "make demo       build a few kernels, check their results, and compare with standard attention"
	@echo "make test       build, and run every test that needs no framework (DEVICE=gpu: on hardware)"
	@echo "make test-all   the same with every kernel there is (hours to compile; KERNEL_SET=default: most of them)"
	@echo "make wheel      build/dist: a wheel with the kernel set default (KERNEL_SET=ci: the small one of the tests)"
	@echo "make test-adapters   install a wheel of ci, and run the tests that need torch, JAX, transformers or cargo"
	@echo "make test-clients    run JAX, CuPy and Triton, as others built them for ROCm, on the software device"
	@echo "make lint       check style, types and C++"
	@echo "make sanitize   run the native tests with the sanitizers address and undefined, then thread"
	@echo "make build      build the library, the software device and the kernels, in $(BUILD)"
	@echo "make toolchain  fetch what a build needs and this machine lacks, into build/"
	@echo "make clean      remove what was built, but not what was fetched"

toolchain:
	@native/tools/toolchain.sh --targets "$(GPU_TARGETS)"

build: toolchain
	@cmake --preset release $(CONFIGURE)
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ln -sfn release/kernels.json build/kernels.json

# An existing build keeps its configuration; a new one gets only the kernels of the demo.
demo: GPU_TARGETS = $(DEMO_TARGETS)
demo: toolchain
	@[ -e $(BUILD)/CMakeCache.txt ] || cmake --preset release $(CONFIGURE) \
		-DFMHA_KERNEL_FILTER='$(DEMO_KERNELS)'
	@cmake --build $(BUILD) --parallel $(JOBS)
	@ln -sfn release/kernels.json build/kernels.json
	@$(PYTHON) -m pyfa_rocm demo

test: build
	@native/tools/toolchain.sh --tests
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)
	time $(PYTHON) -m pytest tests --device $(DEVICE) -n $(JOBS) --dist worksteal --durations=10

# `test` runs each kernel of the library: what it leaves out, `ci` does not have.
test-all:
	@$(MAKE) --no-print-directory test KERNEL_SET=$(if $(filter ci,$(KERNEL_SET)),full,$(KERNEL_SET))

# Only kernels are built here: a wheel's host side is of another compiler.
wheel: SET = $(WHEEL_SET)
wheel: toolchain
	@cmake --preset release -B $(WHEEL_KERNELS) $(CONFIGURE)
	@cmake --build $(WHEEL_KERNELS) --parallel $(JOBS) --target kernels
	native/tools/build_wheel.sh --kernels-from "$(WHEEL_KERNELS)"

# Tests the wheel's package, not the source tree's, in an environment of its own with the frameworks.
test-adapters:
	@$(MAKE) --no-print-directory wheel KERNEL_SET=$(KERNEL_SET)
	@native/tools/toolchain.sh --adapters
	native/tools/test_adapters.sh build/dist/pyfa_rocm-*.whl -n $(JOBS) --durations=10

# Programs of others on this build's software device, each in an environment of its own. CLIENTS: only these.
test-clients: build
	@native/tools/toolchain.sh --adapters
	native/tools/test_clients.sh $(CLIENTS) -- -n $(JOBS) --durations=10

sanitize: $(SANITIZERS:%=sanitize-%)
$(SANITIZERS:%=sanitize-%): sanitize-%: build
	@cmake --preset $@ $(CONFIGURE)
	@cmake --build build/$@ --parallel $(JOBS)
	ctest --test-dir build/$@ --output-on-failure --parallel $(JOBS)

lint:
	@native/tools/toolchain.sh --lint
	@native/tools/lint.sh $(BUILD) $(LLVM)

clean:
	rm -rf build/release build/debug $(SANITIZERS:%=build/sanitize-%) build/wheel-kernels build/kernels.json
