# SPDX-License-Identifier: MIT OR Apache-2.0
# The target hip_api: HIP's C functions, for a host compiler. They are a ROCm's ($ROCM_PATH, /opt/rocm) or the software
# device's, which is a libamdhip64 without headers: -DHIP_INCLUDE_DIR=… names those of any HIP.
find_path(HIP_INCLUDE_DIR hip/hip_runtime_api.h HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES include REQUIRED)
find_library(HIP_LIBRARY amdhip64 HINTS ENV ROCM_PATH PATHS /opt/rocm "${fmha_rocm_EMULATOR_DIR}" PATH_SUFFIXES lib
             REQUIRED)
add_library(hip_api INTERFACE)
target_include_directories(hip_api SYSTEM INTERFACE "${HIP_INCLUDE_DIR}")
target_compile_definitions(hip_api INTERFACE __HIP_PLATFORM_AMD__)
target_link_libraries(hip_api INTERFACE "${HIP_LIBRARY}")
