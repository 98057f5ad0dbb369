# SPDX-License-Identifier: MIT OR Apache-2.0
# One build target per translation unit of the catalogue's kernels: compile it, report on it, pack it; then the tables
# and the images the library embeds. Sets FMHA_KERNEL_SOURCES, the generated sources of the library.

set(FMHA_KERNELS_FROM "" CACHE PATH
    "Build folder whose code objects are taken as they are instead of being compiled (debug and sanitizer presets)")

set(_tools "${PROJECT_SOURCE_DIR}/native/tools")
set(_programs "${_tools}/catalogue")
set(_kernels "${PROJECT_SOURCE_DIR}/native/kernels")
set(_out "${PROJECT_BINARY_DIR}/kernels")

# K two slices ahead, for the tiles that say so: copies of two headers of CK, in front of its own.
set(_overlay "${_tools}/compile/ck_overlay.py")
set(_overlay_include "${PROJECT_BINARY_DIR}/ck_overlay")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_overlay}")
execute_process(COMMAND ${Python3_EXECUTABLE} "${_overlay}" "${CK_INCLUDE}" "${_overlay_include}"
                OUTPUT_VARIABLE _said OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(_said)
  message(STATUS "${_said}")
endif()

# fmha_relative(<variable>...): each, a path below this project, as the build folder sees it, where the compiler runs: a
# command that is the same in every clone is found in the compiler cache.
function(fmha_relative)
  foreach(variable IN LISTS ARGN)
    cmake_path(IS_PREFIX CMAKE_SOURCE_DIR "${${variable}}" NORMALIZE below)
    if(below)
      file(RELATIVE_PATH relative "${CMAKE_CURRENT_BINARY_DIR}" "${${variable}}")
      set(${variable} "${relative}" PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

set(_hip "${FMHA_HIP_PATH}")
set(_ck "${CK_INCLUDE}")
set(_own "${_kernels}")
set(_ahead "${_overlay_include}")
fmha_relative(_hip _ck _own _ahead)

if(FMHA_COMPILER_CACHE)
  foreach(arch IN LISTS FMHA_GPU_TARGETS)
    fmha_cache_program(FMHA_CACHE_${arch} ${arch} "${FMHA_BITCODE_${arch}}")
  endforeach()
endif()

# Every flag was measured on CK's kernels with clang 19; those that are not obvious have their reason here:
set(FMHA_DEVICE_FLAGS
    -x hip -std=c++20 -O3 --cuda-device-only --no-gpu-bundle-output
    --rocm-path=${_hip} --hip-path=${_hip} -isystem ${_ahead} -isystem ${_ck} -I ${_own}
    -Wall -Wextra
    # With any compiler, an instance that misses its occupancy is not the kernel that was meant.
    -Werror$<$<NOT:$<BOOL:${FMHA_WERROR}>>:=pass-failed>
    # CK's softmax relies on flushed denormals, and is faster for it.
    -fgpu-flush-denormals-to-zero
    # Without it upstream clang keeps buffer descriptors in scratch and loops over lanes (384 bytes, 24 loops).
    -DCK_TILE_USE_BUFFER_ADDRESSING_BUILTIN=1
    # All of CK must be inlined: a descriptor passed to a function ends in vector registers and does not assemble.
    "SHELL:-mllvm -inline-threshold=100000"
    # 8 vector registers fewer.
    "SHELL:-mllvm --lsr-drop-solution=1"
    # A few instructions fewer in the loop.
    "SHELL:-mllvm -greedy-reverse-local-assignment=1")
list(TRANSFORM FMHA_DEVICE_FLAGS REPLACE "^SHELL:" "")
string(REPLACE "-mllvm " "-mllvm;" FMHA_DEVICE_FLAGS "${FMHA_DEVICE_FLAGS}")

# AITER's code objects come with the package that carries CK; a CK from elsewhere has none.
set(_objects "${CK_INCLUDE}/../objects")
set(_prebuilt)
if(NOT EXISTS "${_objects}/LICENSE")
  set(_prebuilt --no-prebuilt)
  message(STATUS "Prebuilt kernels: none, since ${CK_INCLUDE} is not of the package that has them (`make toolchain`)")
endif()

string(REPLACE ";" "," _targets "${FMHA_GPU_TARGETS}")
file(GLOB _catalogue CONFIGURE_DEPENDS "${_kernels}/catalogue/*.toml" "${_kernels}/prebuilt/*.toml")
file(GLOB _families CONFIGURE_DEPENDS "${_programs}/famil*.py" "${_programs}/origins/*.py")
set(_catalogue_program "${_programs}/catalogue.py" "${_programs}/absent.py" "${_programs}/archs.py" ${_families})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_catalogue} ${_catalogue_program})
execute_process(
  COMMAND ${Python3_EXECUTABLE} "${_programs}/catalogue.py" "${_kernels}/catalogue" --set "${FMHA_KERNEL_SET}"
          --targets "${_targets}" --filter "${FMHA_KERNEL_FILTER}" --out "${_out}" ${_prebuilt}
          --enums "${FMHA_GENERATED}/host/catalogue/enums.h" --absent "${FMHA_GENERATED}/absent.cc"
  COMMAND_ERROR_IS_FATAL ANY)
include("${_out}/kernels.cmake")
if(NOT FMHA_KERNEL_UNITS AND NOT FMHA_PREBUILT_UNITS)
  message(FATAL_ERROR "No kernel in set ${FMHA_KERNEL_SET} for FMHA_GPU_TARGETS=${FMHA_GPU_TARGETS} and "
                      "FMHA_KERNEL_FILTER=${FMHA_KERNEL_FILTER}")
endif()
find_program(FMHA_ZSTD zstd REQUIRED)

set(_werror)  # another compiler may spill when ours does not; that makes a kernel slower, not wrong
if(FMHA_WERROR)
  set(_werror --werror)
endif()

list(LENGTH FMHA_KERNEL_UNITS _units)

# fmha_taken_report(<variable> <arch>/<unit>): the report of the build whose code objects are taken, if it is about the
# same rows
function(fmha_taken_report variable unit)
  set(from "${FMHA_KERNELS_FROM}/kernels/${unit}")
  if(FMHA_KERNELS_FROM AND EXISTS "${from}.json" AND EXISTS "${from}.rows.json")
    file(SHA256 "${from}.rows.json" theirs)
    file(SHA256 "${_out}/${unit}.rows.json" ours)
    if(ours STREQUAL theirs)
      set(${variable} "${from}.json" PARENT_SCOPE)
    endif()
  endif()
endfunction()

# fmha_report_unit(<arch>/<unit> [--by-device]): of its code object the report, and the file packed. Where the arch is
# like others that are built too, that is what differs from the code object of the one that it resembles most.
function(fmha_report_unit unit)
  set(object "${_out}/${unit}.co")
  set(taken)
  fmha_taken_report(taken "${unit}")
  set(by ${ARGN})
  set(disassembler)
  if(by AND FMHA_EMULATOR)  # whose target is made later
    set(disassembler emu_disasm)
    list(APPEND by --device-disassembler $<TARGET_FILE:emu_disasm>)
  endif()
  if(taken)
    add_custom_command(
      OUTPUT "${_out}/${unit}.json"
      COMMAND ${CMAKE_COMMAND} -E copy "${taken}" "${_out}/${unit}.json"
      DEPENDS "${taken}"
      COMMENT "Taking the report on kernels ${unit}"
      VERBATIM)
  else()
    add_custom_command(
      OUTPUT "${_out}/${unit}.json"
      COMMAND ${Python3_EXECUTABLE} "${_programs}/report.py" "${object}" --rows "${_out}/${unit}.rows.json" --objdump
              "${FMHA_OBJDUMP}" --out "${_out}/${unit}.json" ${_werror} ${by}
      DEPENDS "${object}" "${_out}/${unit}.rows.json" "${_programs}/report.py" "${_programs}/code_object.py" ${_families}
              ${disassembler}
      COMMENT "Reporting on kernels ${unit}"
      VERBATIM)
  endif()
  get_filename_component(arch "${unit}" DIRECTORY)
  get_filename_component(name "${unit}" NAME)
  set(base_object)
  set(from_base)
  foreach(other IN LISTS FMHA_LIKE_${arch})
    if("${other}/${name}" IN_LIST FMHA_KERNEL_UNITS)
      set(base_object "${_out}/${other}/${name}.co")
      set(from_base --single-thread "--patch-from=${base_object}")
      set_property(GLOBAL APPEND PROPERTY FMHA_PACKED_AFTER "${unit} ${other}/${name}")
      break()
    endif()
  endforeach()
  add_custom_command(
    OUTPUT "${object}.zst"
    COMMAND ${FMHA_ZSTD} -19 -qq -f ${from_base} "${object}" -o "${object}.zst"
    DEPENDS "${object}" ${base_object}
    COMMENT "Packing kernels ${unit}"
    VERBATIM)
endfunction()

# fmha_add_unit(<arch>/<unit> <number>): <arch>/<unit>.co with its kernels, the report on them, and the file packed
function(fmha_add_unit unit number)
  get_filename_component(arch "${unit}" DIRECTORY)
  set(object "${_out}/${unit}.co")
  set(source "${_out}/${unit}.hip")
  if(FMHA_KERNELS_FROM)
    set(from "${FMHA_KERNELS_FROM}/kernels/${unit}")
    if(NOT EXISTS "${from}.co")
      message(FATAL_ERROR "FMHA_KERNELS_FROM is ${FMHA_KERNELS_FROM}, which has no ${unit}: build it there first "
                          "(`make build`), or compile the kernels here with -DFMHA_KERNELS_FROM=")
    endif()
    set(assembly)
    if(EXISTS "${from}.s")
      set(assembly "${from}.s")
    endif()
    add_custom_command(
      OUTPUT "${object}"
      COMMAND ${CMAKE_COMMAND} -E copy "${from}.co" "${from}.cost.json" ${assembly} "${_out}/${arch}"
      DEPENDS "${from}.co"
      COMMENT "Taking kernels ${unit}"
      VERBATIM)
  else()
    set(what -c)
    set(made "${object}")
    set(link)
    set(waits)
    set(waits_program)
    if(FMHA_ADD_WAITS_${arch})
      set(waits_program "${_tools}/compile/scalar_waits.py")
      set(waits COMMAND ${Python3_EXECUTABLE} "${waits_program}" "${_out}/${unit}.s")
    endif()
    if(FMHA_BY_ASSEMBLY_${arch} OR waits)  # which the report reads; where waits are added
      set(what -S)
      set(made "${_out}/${unit}.s")
      set(link COMMAND ${FMHA_COMPILER_${arch}} --target=amdgcn-amd-amdhsa -mcpu=${arch} "${made}" -o "${object}")
    endif()
    set(bitcode "${FMHA_BITCODE_${arch}}")
    set(cached "${FMHA_CACHE_${arch}}")
    set(target "${object}")
    fmha_relative(bitcode source target made cached)
    add_custom_command(
      OUTPUT "${object}"
      COMMAND
        ${Python3_EXECUTABLE} "${_tools}/compile/compile.py" "${_out}/${unit}.cost.json" ${cached} ${FMHA_COMPILER_${arch}}
        --offload-arch=${arch} ${FMHA_DEVICE_FLAGS} --rocm-device-lib-path=${bitcode} ${FMHA_FLAGS_${unit}}
        -MD -MF "${target}.d" -MT "${target}" ${what} "${source}" -o "${made}"
      ${waits}
      ${link}
      DEPENDS "${_out}/${unit}.hip" ${waits_program}
      DEPFILE "${object}.d"
      JOB_POOL fmha_kernels
      COMMENT "Compiling kernels ${unit} (${number} of ${_units})"
      VERBATIM)
  endif()
  fmha_report_unit("${unit}")
endfunction()

# fmha_add_prebuilt(<arch>/<unit> <file> <sha256>): the same of a code object that comes as it is
function(fmha_add_prebuilt unit file sha256)
  set(from "${_objects}/${file}")
  if(NOT EXISTS "${from}")
    message(FATAL_ERROR "${from} is missing: remove ${CK_INCLUDE}/.. and run `make toolchain`")
  endif()
  file(SHA256 "${from}" got)
  if(NOT got STREQUAL sha256)
    message(FATAL_ERROR "${from}: SHA-256 is ${got}, expected ${sha256} (native/kernels/prebuilt)")
  endif()
  add_custom_command(
    OUTPUT "${_out}/${unit}.co"
    COMMAND ${CMAKE_COMMAND} -E copy "${from}" "${_out}/${unit}.co"
    DEPENDS "${from}"
    COMMENT "Taking prebuilt kernel ${unit}"
    VERBATIM)
  get_filename_component(arch "${unit}" DIRECTORY)
  set(by)
  if(FMHA_BY_ASSEMBLY_${arch})  # which there is none of
    set(by --by-device)
  endif()
  fmha_report_unit("${unit}" ${by})
endfunction()

set(_packed)
set(_reports)
set(_number 0)
foreach(unit IN LISTS FMHA_KERNEL_UNITS)
  math(EXPR _number "${_number} + 1")
  fmha_add_unit("${unit}" ${_number})
  list(APPEND _packed "${_out}/${unit}.co.zst")
  list(APPEND _reports "${_out}/${unit}.json")
endforeach()
while(FMHA_PREBUILT_UNITS)
  list(POP_FRONT FMHA_PREBUILT_UNITS unit file sha256)
  fmha_add_prebuilt("${unit}" "${file}" "${sha256}")
  list(APPEND _packed "${_out}/${unit}.co.zst")
  list(APPEND _reports "${_out}/${unit}.json")
endwhile()

set(_format)
if(WIN32)
  set(_format --coff)
endif()
get_property(_bases GLOBAL PROPERTY FMHA_PACKED_AFTER)
list(JOIN _bases "\n" _bases)
file(CONFIGURE OUTPUT "${_out}/bases.txt" CONTENT "${_bases}\n" @ONLY)

set(FMHA_KERNEL_SOURCES "${FMHA_GENERATED}/kernels.cc" "${FMHA_GENERATED}/kernels.S" "${FMHA_GENERATED}/absent.cc")
add_custom_command(
  OUTPUT "${FMHA_GENERATED}/kernels.cc" "${FMHA_GENERATED}/kernels.S" "${PROJECT_BINARY_DIR}/kernels.json"
  COMMAND
    ${Python3_EXECUTABLE} "${_programs}/embed.py" ${_reports} --kernels "${_out}" --bases "${_out}/bases.txt" --out
    "${FMHA_GENERATED}" --report "${PROJECT_BINARY_DIR}/kernels.json" --version "${PROJECT_VERSION}" --compiler "${FMHA_DEVICE_COMPILER_ID}"
    --ck-version "${FMHA_CK_VERSION}" --kernel-set "${FMHA_KERNEL_SET}" --kernel-filter "${FMHA_KERNEL_FILTER}" ${_format}
  DEPENDS ${_reports} ${_packed} "${_out}/bases.txt" "${_programs}/embed.py" "${FMHA_ARCHS}" ${_catalogue_program}
  COMMENT "Writing kernels.json and the kernel table"
  VERBATIM)
set_source_files_properties("${FMHA_GENERATED}/kernels.S" PROPERTIES OBJECT_DEPENDS "${_packed}")
add_custom_target(kernels DEPENDS "${PROJECT_BINARY_DIR}/kernels.json")
