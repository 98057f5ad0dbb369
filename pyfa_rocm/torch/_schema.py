# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the operators take: their schemas, and the same as Python sees it.

`out` is an argument of operators of their own, since torch has to know what an operator writes to.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["SCHEMAS", "Lengths", "Options"]

# Fields of Options and of Lengths, name for name. Sizes and seeds that change from call to call may be
# symbols (SymInt): a compiled graph then serves them all. Windows are constants of it, like all masks.
_OPTIONS = (
    "float? softmax_scale=None, bool causal=False, int window_left=-1, int window_right=-1, "
    "float softcap=0.0, Tensor? alibi_slopes=None, Tensor? bias=None, bool top_left=False, "
    "bool return_lse=False, float dropout_p=0.0, Tensor? philox=None, SymInt philox_seed=0, "
    "SymInt philox_offset=0, ScalarType? out_dtype=None, float? q_descale=None, float? k_descale=None, "
    "float? v_descale=None, int candidate=0"
)
_LENGTHS = (
    "Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? seqused_q, Tensor? seqused_k, "
    "SymInt max_seqlen_q, SymInt max_seqlen_k"
)
_INPUTS = "Tensor q, Tensor k, Tensor v"
_OUT = "Tensor(a!) out"
SCHEMAS = {
    "fmha_fwd": f"({_INPUTS}, {_OPTIONS}) -> (Tensor out, Tensor lse)",
    "fmha_fwd_out": f"({_INPUTS}, {_OUT}, {_OPTIONS}) -> Tensor lse",
    "fmha_varlen_fwd": f"({_INPUTS}, {_LENGTHS}, {_OPTIONS}) -> (Tensor out, Tensor lse)",
    "fmha_varlen_fwd_out": f"({_INPUTS}, {_OUT}, {_LENGTHS}, {_OPTIONS}) -> Tensor lse",
}


class Lengths(NamedTuple):
    """Where the sequences are; as in `pyfa_rocm.flash_attn_varlen_func`."""

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seqused_q: torch.Tensor | None
    seqused_k: torch.Tensor | None
    max_seqlen_q: int
    max_seqlen_k: int


class Options(NamedTuple):
    """What the operators take beside tensors and lengths; as in `pyfa_rocm.flash_attn_func`.

    window_left and window_right are window_size; philox_seed and philox_offset, read without `philox`, are
    unsigned numbers in signed ones of 64 bits; candidate is `kernel`, a name that Inductor keeps to itself.
    """

    softmax_scale: float | None = None
    causal: bool = False
    window_left: int = -1
    window_right: int = -1
    softcap: float = 0.0
    alibi_slopes: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    top_left: bool = False
    return_lse: bool = False
    dropout_p: float = 0.0
    philox: torch.Tensor | None = None
    philox_seed: int = 0
    philox_offset: int = 0
    out_dtype: torch.dtype | None = None
    q_descale: float | None = None
    k_descale: float | None = None
    v_descale: float | None = None
    candidate: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether there are no tensors among them, nor numbers that are looked at in each call."""
        return (
            self.bias is None and self.alibi_slopes is None and self.philox is None and not self.dropout_p
            and self.q_descale is None and self.k_descale is None and self.v_descale is None
        )  # fmt: skip
