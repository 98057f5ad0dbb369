# SPDX-License-Identifier: MIT OR Apache-2.0
# Flags of fmha_rocm, by pkg-config, and of HIP's C functions: of a ROCm, or with HIP_LIB the software device's folder.
ROCM_PATH ?= /opt/rocm
HIP_INCLUDE ?= $(ROCM_PATH)/include
HIP_LIB ?= $(if $(wildcard $(ROCM_PATH)/lib/libamdhip64.so),$(ROCM_PATH)/lib,$(shell pkg-config --variable=emulator fmha_rocm))
LIB := $(shell pkg-config --variable=libdir fmha_rocm)
CPPFLAGS += -D__HIP_PLATFORM_AMD__ -isystem $(HIP_INCLUDE) $(shell pkg-config --cflags fmha_rocm)
# The folders are kept in the program, so that it runs without LD_LIBRARY_PATH.
LDLIBS += $(shell pkg-config --libs fmha_rocm) -L$(HIP_LIB) -lamdhip64 -lm -Wl,-rpath,$(LIB):$(HIP_LIB)
