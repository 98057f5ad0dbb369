# SPDX-License-Identifier: MIT OR Apache-2.0
"""FlashAttention for AMD GPUs, for any framework or none.

Start with `flash_attn_func`. Without a GPU the same kernels run on a software device. An adapter for one
framework is a module to import by name, such as `pyfa_rocm.torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyfa_rocm._public import *  # noqa: F403
    from pyfa_rocm._public import __all__ as __all__
    from pyfa_rocm._public import __version__ as __version__
else:

    def __getattr__(name):
        """Import everything at the first use of any of it: importing NumPy takes a tenth of a second."""
        from importlib import import_module

        # Private ones are modules, which the import system asks for here before it imports them.
        if name.startswith("_") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = import_module("pyfa_rocm._public")
        globals().update({key: getattr(public, key) for key in ("__all__", "__version__", *public.__all__)})
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
