# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm for vLLM: attention of the engine on our kernels, by vLLM's own plug-in interface.

The wheel has an entry point of the group ``vllm.general_plugins``, so that vLLM calls `register` in each of
its processes. That changes nothing by itself: on ROCm, ask with ``vllm serve MODEL --attention-backend
CUSTOM``, or for a model with latent attention, with the environment variable PYFA_ROCM_VLLM_MLA=1 and
``--attention-backend TRITON_MLA``. On vLLM's CPU platform, which then computes on the software device, ask
with PYFA_ROCM_VLLM_CPU=1.
"""

from pyfa_rocm.vllm._register import register
from pyfa_rocm.vllm._versions import VERSIONS

__all__ = ["VERSIONS", "register"]
