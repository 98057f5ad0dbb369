# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm for SGLang: attention of the server on our kernels, by SGLang's own plug-in interface.

The wheel has an entry point of the group ``sglang.srt.plugins``, so that SGLang calls `register` in each of
its processes. That only adds a name: ask with ``--attention-backend pyfa_rocm``.
"""

from pyfa_rocm.sglang._register import register
from pyfa_rocm.sglang._versions import VERSIONS

__all__ = ["VERSIONS", "register"]
