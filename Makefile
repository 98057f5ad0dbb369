# SPDX-License-Identifier: MIT OR Apache-2.0
# `make demo` and `make test` are all a fresh clone needs; `make help` lists the rest.

# With ci, archs whose kernels are those of no other: what CI has the time for
GPU_TARGETS ?= $(if $(filter ci,$(SET)),distinct,all)
# A wheel packs this set if none is named: it is for everybody
WHEEL_SET := $(or $(KERNEL_SET),default)
KERNEL_SET ?= ci
# A regular expression: builds only the kernels of the set whose name has a match
KERNEL_FILTER ?=
SET = $(KERNEL_SET)
# The software device's code for this machine's CPU; a wheel's has that for older ones.
EMU_LEVELS ?= native
EMU_WAVES ?= 64;32
CONFIGURE = -DFMHA_GPU_TARGETS="$(GPU_TARGETS)" -DFMHA_KERNEL_SET=$(SET) -DFMHA_KERNEL_FILTER='$(KERNEL_FILTER)' \
	-DFMHA_EMU_LEVELS="$(EMU_LEVELS)" -DFMHA_EMU_WAVES="$(EMU_WAVES)" -DFMHA_WERROR=ON --log-level=WARNING

# Three builds, each a part of the next, in one folder: for the demo, for `make test`, and whole. A goal that needs less
# than there is takes what there is.
MADE_FOR = $(shell sed -n 's/^FMHA_MADE_FOR:[A-Z]*=//p' $(BUILD)/CMakeCache.txt 2>/dev/null)
# The demo's build has none of the test programs.
HAS_TESTS = $(shell sed -n 's/^BUILD_TESTING:[A-Z]*=//p' $(BUILD)/CMakeCache.txt 2>/dev/null)
# The demo's kernels, for the cards of this machine, or if it has none, for the one that the software device plays: of our own
# those that its problems take, and one of Composable Kernel's, for dropout; on MI200, which has fewer of ours, three more
DEMO_KERNELS = ($(DEMO_OWN)|bf16_d64_mask_pad_dropout|gfx9.a/fmha_(fwd_bf16_d128_mask_pad|fwd_fp16_d64_group_mask_pad_alibi|bwd_bf16_d128))$$
DEMO_OWN = $(DEMO_FORWARD)|$(DEMO_BACKWARD)|gfx1.*/fmha_(fwd|bwd)_.*|bwd_(dot|sum|bias)_.*|decode_fp16(_fp8(fn)?)?_d128|merge_.*
DEMO_FORWARD = fwd_((bf16|fp16)_(d64|d128)_(group_)?mask_pad|fp16_d64_group_mask_pad_alibi|bf16_d128_mask_pad_softcap|bf16_d192v128_mask_pad|fp8(fn)?_bf16_d128_mask_pad)_pingpong
DEMO_BACKWARD = bwd_((fp16|bf16)_(d64|d128)(_alibi|_softcap)?_pingpong|bf16_d192_wide|fp32_(d64|d128))
# Those of `make test`: our own, some of the decoding ones, AITER's, and of Composable Kernel's two forward and one backward
TEST_KERNELS = $(TEST_OWN)|$(TEST_DECODE)|$(TEST_CK)
TEST_OWN = gfx1.*/fmha_(fwd|bwd)_|_pingpong|_wide|_one_pass|_aiter|bwd_fp32_|_bwd_(dot|sum|bias)_|_merge_|_kv_append_|_quantize_
TEST_DECODE = decode_((fp16|bf16)_(d64|d128)(_vectors)?|bf16_d576v512(_m128)?|bf16_d64_m32|(fp16|bf16)_fp8(fn)?_d128|bf16_fp8(fn)?_(d64_vectors|d576v512(_m128)?))$$
TEST_CK = (gfx9(0a|42)/fmha_fwd_(fp16_d64_group_mask_pad_alibi|bf16_d64_mask_pad_dropout)|bwd_fp16_d64)$$
# SKIP_PASSED=1: without tests that passed before, in any clone: of the same tree, or if they use none of our kernels, on the
# same device
NOTED = --note-passed $(if $(SKIP_PASSED),--skip-passed)
# How far `make test-full` finds each kernel from float64, for `make evidence`
ERRORS = $(BUILD)/errors
# `make test` leaves these ctests out: fuzzing, half a minute, and tests of kernels that it does not build
LEFT_CTESTS = fuzz_replay|native.(call_path|remembered|bad_input)
DEMO_TARGETS = $(if $(wildcard /dev/kfd),native,$(SOFTWARE_DEVICE))
SOFTWARE_DEVICE = $(shell sed -n 's/^software_device = "\(.*\)"/\1/p' native/archs.toml)
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
PROGRESS = $(PYTHON) native/tools/progress.py
PYTEST = $(PYTHON) -m pytest tests --device $(DEVICE) -n $(JOBS) --dist worksteal
CTEST = $(PROGRESS) "native tests" ctest --test-dir $(BUILD) --no-tests=error --output-on-failure --parallel $(JOBS)

.PHONY: help toolchain build demo check test test-full test-all wheel test-adapters test-clients test-engines windows conda evidence site lint \
	sanitize $(SANITIZERS:%=sanitize-%) clean

help:
	@echo "make demo       build a few kernels, check their results, and compare with standard attention"
	@echo "make check      test what changed since the last commit, in about a minute (SINCE=REV: since another)"
	@echo "make test       build some kernels of each kind, and run tests of everything (DEVICE=gpu: on hardware)"
	@echo "make test-full  build the kernel set ci, and run every test that needs no framework"
	@echo "make test-all   the same with every kernel there is (hours to compile; KERNEL_SET=default: most of them)"
	@echo "make wheel      build/dist: a wheel with the kernel set default (KERNEL_SET=ci: the small one of the tests)"
	@echo "make test-adapters   install a wheel of ci, and run the tests that need torch, JAX, transformers or cargo"
	@echo "make test-clients    run JAX, CuPy, Triton and others, as built for ROCm, on the software device"
	@echo "make test-engines    run vLLM, SGLang, ONNX Runtime and context parallel, on the software device"
	@echo "make windows    library and wheel for Windows, with this build's kernels, run under Wine"
	@echo "make conda      conda package with some of this build's kernels, against stand-ins for conda-forge's packages"
	@echo "make evidence   build/evidence/index.html: what was shown, in one page, looked at by a browser"
	@echo "make site       build/site/html/index.html: the documentation, looked at by a browser"
	@echo "make lint       check style, types and C++ (SINCE=REV: clang-tidy of what differs from it)"
	@echo "make sanitize   run the native tests with the sanitizers address and undefined, then thread"
	@echo "make build      build the library, the software device and the kernels, in $(BUILD)"
	@echo "make toolchain  fetch what a build needs and this machine lacks, into build/"
	@echo "make clean      remove what was built, but not what was fetched"

toolchain:
	@native/tools/toolchain.sh --targets "$(GPU_TARGETS)"

build: toolchain
	@cmake --preset release $(CONFIGURE) -DFMHA_MADE_FOR=all $(WITH_TESTS)
	@$(PROGRESS) building cmake --build $(BUILD) --parallel $(JOBS)
	@ln -sfn release/kernels.json build/kernels.json

demo: GPU_TARGETS = $(DEMO_TARGETS)
demo: KERNEL_FILTER = $(DEMO_KERNELS)
demo: EMU_WAVES = $(if $(wildcard /dev/kfd),64;32,targets)
demo:
	@native/tools/toolchain.sh --targets "$(GPU_TARGETS)" --demo
	@[ -n "$(MADE_FOR)" ] || cmake --preset release $(CONFIGURE) -DFMHA_MADE_FOR=demo -DBUILD_TESTING=OFF
	@$(PROGRESS) building cmake --build $(BUILD) --parallel $(JOBS) --target fmha_rocm amdhip64_emu
	@ln -sfn release/kernels.json build/kernels.json
	@$(PYTHON) -m pyfa_rocm demo

# Some kernels of each family, arch and origin. FULL_FOLLOWS=1: leaves to `make test-full` what that would run again.
test: KERNEL_FILTER = $(TEST_KERNELS)
test:
	@native/tools/toolchain.sh --targets "$(GPU_TARGETS)" --tests
	@if [ "$(MADE_FOR)" != all ]; then \
	  cmake --preset release $(CONFIGURE) -DFMHA_MADE_FOR=test -DBUILD_TESTING=ON; \
	elif [ "$(HAS_TESTS)" != ON ]; then \
	  cmake --preset release -DBUILD_TESTING=ON --log-level=WARNING; \
	fi
	@$(PROGRESS) building cmake --build $(BUILD) --parallel $(JOBS)
	@ln -sfn release/kernels.json build/kernels.json
	$(CTEST) -E '$(LEFT_CTESTS)'
	time $(PYTEST) --quick $(NOTED) $(if $(FULL_FOLLOWS),--full-follows)

check:
	@native/tools/toolchain.sh --tests --lint
	@$(PYTHON) native/tools/check.py --build $(BUILD) --jobs $(JOBS) $(if $(SINCE),--since "$(SINCE)")

test-full: WITH_TESTS = -DBUILD_TESTING=ON
test-full: build
	@native/tools/toolchain.sh --tests
	$(CTEST)
	rm -rf $(ERRORS)
	time PYFA_ROCM_KEEP_ERRORS=$(abspath $(ERRORS)) $(PYTEST) --durations=10 $(NOTED)

# `test-full` runs each kernel of the library: what it leaves out, `ci` does not have. And more random problems.
test-all:
	@FMHA_TEST_EXAMPLES=800 $(MAKE) --no-print-directory test-full KERNEL_SET=$(if $(filter ci,$(KERNEL_SET)),full,$(KERNEL_SET))

# Only kernels are built here: a wheel's host side is of another compiler.
wheel: SET = $(WHEEL_SET)
wheel: toolchain
	@cmake --preset release -B $(WHEEL_KERNELS) $(CONFIGURE) -DFMHA_MADE_FOR=all
	@$(PROGRESS) "building kernels" cmake --build $(WHEEL_KERNELS) --parallel $(JOBS) --target kernels
	native/tools/wheel/build_wheel.sh --kernels-from "$(WHEEL_KERNELS)"

# Tests the wheel's package, not the source tree's, in an environment of its own with the frameworks.
test-adapters:
	@$(MAKE) --no-print-directory wheel KERNEL_SET=$(KERNEL_SET)
	@native/tools/toolchain.sh --adapters
	native/tools/test_adapters.sh build/dist/pyfa_rocm-*linux*.whl -n $(JOBS) --durations=10 $(NOTED)

# Programs of others on this build's software device, each in an environment of its own. CLIENTS: only these.
test-clients: build
	@native/tools/toolchain.sh --adapters
	native/tools/test_clients.sh $(CLIENTS) -- -n $(JOBS) --durations=10 $(NOTED)

# Engines of others that call this build's library, each in an environment of its own. ENGINES: only these. Two at a time:
# what tests of an engine wait for is mostly one process.
ENGINES ?= vllm onnxruntime sglang parallel vllm_first
test-engines: build
	@native/tools/toolchain.sh --tests --onnxruntime
	@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync=target $(ENGINES:%=test-engine-%)
# It waits for the environment, which the two share.
test-engine-vllm_first: $(filter test-engine-vllm,$(ENGINES:%=test-engine-%))
$(ENGINES:%=test-engine-%): test-engine-%:
	native/tools/test_engines.sh $* -- --durations=10 $(NOTED)

windows: build
	@native/tools/toolchain.sh --tests
	native/tools/test_windows.sh

conda: build
	@native/tools/toolchain.sh --tests
	native/tools/test_conda.sh

# Tests what `make test-full` has not tested of this build. MEASURED: what `pyfa-rocm first-day` wrote on a card.
evidence: WITH_TESTS = -DBUILD_TESTING=ON
evidence: build
	@native/tools/toolchain.sh --tests --evidence
	ERRORS=$(ERRORS) native/tools/evidence.sh $(MEASURED)

# It builds nothing: it reads pages, docstrings and the header.
site:
	@native/tools/toolchain.sh --site
	native/tools/site.sh

sanitize: $(SANITIZERS:%=sanitize-%)
$(SANITIZERS:%=sanitize-%): sanitize-%: build
	@cmake --preset $@ $(CONFIGURE)
	@$(PROGRESS) building cmake --build build/$@ --parallel $(JOBS)
	ctest --test-dir build/$@ --output-on-failure --parallel $(JOBS)

# SINCE=REV: clang-tidy of what differs from it
lint: toolchain
	@native/tools/toolchain.sh --lint
	@native/tools/lint.sh $(LLVM) $(SINCE)

clean:
	rm -rf build/release build/debug build/windows $(SANITIZERS:%=build/sanitize-%) build/wheel-kernels build/kernels.json
