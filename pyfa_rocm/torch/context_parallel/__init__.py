# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of sequences that one device does not hold: each rank of a process group has some of the rows.

`context_parallel_attn_func` and, of packed sequences, `context_parallel_attn_varlen_func` are ring attention
(keys and values travel), Ulysses (ranks exchange rows for heads), or both at once, forward and backward, over
any process group or DeviceMesh. `shard` cuts what a model starts from, and `unshard` joins what it ends with.


No other module of `pyfa_rocm` imports ``torch.distributed``.
"""

from pyfa_rocm.torch.context_parallel.functional import (
    context_parallel_attn_func,
    context_parallel_attn_varlen_func,
    local_rows,
    shard,
    unshard,
)

__all__ = [
    "context_parallel_attn_func",
    "context_parallel_attn_varlen_func",
    "local_rows",
    "shard",
    "unshard",
]
