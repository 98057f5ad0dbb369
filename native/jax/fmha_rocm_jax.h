/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * libfmha_rocm_jax.so: fmha_fwd, fmha_bwd, fmha_decode, fmha_kv_append and fmha_merge as custom calls
 * of XLA, for pyfa_rocm.jax.
 *
 * It links neither libfmha_rocm nor a HIP runtime: Python hands it the functions of those that it has loaded,
 * so that there is one of each in the process whatever their paths are, and nothing is searched for. XLA is
 * known only by its C header, and of that by what has been the same since version 0.1 of the interface
 * (jaxlib 0.6): one file serves all jaxlibs since.
 *
 * Attributes of a custom call, all arrays of int64:
 * - params: the bytes of an fmha_fwd_params, but for fmha_kv_append and fmha_merge. Each pointer in it is the
 * number of a buffer of the call, from 1, arguments first and then results; 0 is NULL. The workspace is the
 * part of its buffer that is aligned as fmha_fwd wants it, or none if that is too small for the device;
 * workspace_bytes is not looked at.
 * - bwd_params: only of the backward pass: the bytes of an fmha_bwd_params, likewise. Its fwd is not looked
 * at: that is params. The workspace is the part of its buffer that is aligned as fmha_bwd wants it;
 * workspace_bytes is not looked at.
 * - decode_params, append_params: the same of fmha_decode, whose fwd and cache are not looked at, and of
 * fmha_kv_append, whose cache is 0 for NULL, else whatever.
 * - merge_params: the same of fmha_merge.
 * - cache: the bytes of an fmha_cache, of the one and of the other if there is a cache. A cache that is
 * written is named as a result, and so are o and lse of a merge that accumulates; it is up to the program
 * that the result has the memory of the argument.
 * - repeat_counts: how often the problem is repeated, one number for each dimension of repetition (1: once).
 * - repeat_steps: for each dimension, and in it for each buffer: bytes from one repetition to the next.
 */
#ifndef FMHA_ROCM_JAX_H
#define FMHA_ROCM_JAX_H

#include <stddef.h>
#include <stdint.h>

#include "fmha_rocm.h"
#include "xla/ffi/api/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Functions of the software device's HIP runtime. */
typedef struct fmha_jax_device {
  int (*host_register)(void* data, size_t bytes, unsigned flags);
  int (*host_unregister)(void* data);
  int (*stream_synchronize)(void* stream);
  int (*get_last_error)(void);
  const char* (*get_error_name)(int error);
} fmha_jax_device;

/* Functions of libfmha_rocm, and where to find the software device. */
typedef struct fmha_jax_library {
  fmha_status (*fwd)(const fmha_fwd_params* params, void* stream);
  fmha_status (*fwd_prepare)(const fmha_fwd_params* params);
  fmha_status (*fwd_extents)(const fmha_fwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count);
  fmha_status (*fwd_workspace_bytes)(const fmha_fwd_params* params, int64_t* bytes);
  fmha_status (*bwd)(const fmha_bwd_params* params, void* stream);
  fmha_status (*bwd_prepare)(const fmha_bwd_params* params);
  fmha_status (*bwd_extents)(const fmha_bwd_params* params, fmha_extent* extents, int32_t capacity,
                             int32_t* count);
  fmha_status (*decode)(const fmha_decode_params* params, void* stream);
  fmha_status (*decode_prepare)(const fmha_decode_params* params);
  fmha_status (*decode_extents)(const fmha_decode_params* params, fmha_extent* extents, int32_t capacity,
                                int32_t* count);
  fmha_status (*kv_append)(const fmha_kv_append_params* params, void* stream);
  fmha_status (*kv_append_prepare)(const fmha_kv_append_params* params);
  fmha_status (*kv_append_extents)(const fmha_kv_append_params* params, fmha_extent* extents,
                                   int32_t capacity, int32_t* count);
  fmha_status (*merge)(const fmha_merge_params* params, void* stream);
  fmha_status (*merge_prepare)(const fmha_merge_params* params);
  fmha_status (*merge_extents)(const fmha_merge_params* params, fmha_extent* extents, int32_t capacity,
                               int32_t* count);
  const char* (*last_error)(void);
  /* Called before the first custom call on XLA's CPU platform, from any thread, and again if it failed.
   * Returns 0 and fills *device, or writes why not to `message`, ended by a zero byte. */
  int (*find_device)(fmha_jax_device* device, char* message, size_t message_bytes);
} fmha_jax_library;

/* Once, before XLA knows a handler. Copies *library. */
void fmha_jax_connect(const fmha_jax_library* library);

/* Platform ROCM, stage "initialize": loads the kernels, so that the calls that follow may be captured. */
XLA_FFI_Error* fmha_jax_fwd_prepare_rocm(XLA_FFI_CallFrame* frame);
/* Platform ROCM, stage "execute": enqueues on XLA's stream and does not wait. */
XLA_FFI_Error* fmha_jax_fwd_rocm(XLA_FFI_CallFrame* frame);
/* Platform CPU, stage "execute": runs on the software device, which is lent the memory, and waits for it. */
XLA_FFI_Error* fmha_jax_fwd_cpu(XLA_FFI_CallFrame* frame);

/* The same for the backward pass. */
XLA_FFI_Error* fmha_jax_bwd_prepare_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_bwd_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_bwd_cpu(XLA_FFI_CallFrame* frame);

/* The same for attention over a cache. */
XLA_FFI_Error* fmha_jax_decode_prepare_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_decode_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_decode_cpu(XLA_FFI_CallFrame* frame);

/* The same for appending to a cache. */
XLA_FFI_Error* fmha_jax_kv_append_prepare_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_kv_append_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_kv_append_cpu(XLA_FFI_CallFrame* frame);

/* The same for merging partial outputs. */
XLA_FFI_Error* fmha_jax_merge_prepare_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_merge_rocm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* fmha_jax_merge_cpu(XLA_FFI_CallFrame* frame);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* FMHA_ROCM_JAX_H */
