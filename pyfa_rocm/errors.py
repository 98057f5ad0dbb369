# SPDX-License-Identifier: MIT OR Apache-2.0
"""Exceptions of this package: one class for each failure status of the C library.

Every message names the argument, what it got and what was expected.
"""

from __future__ import annotations

__all__ = [
    "AbiMismatchError",
    "FmhaError",
    "HipError",
    "InternalError",
    "InvalidArgumentError",
    "UnsupportedError",
]


class FmhaError(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    status : int
        The ``fmha_status`` of the C library this error stands for.
    """

    status = -1


class InvalidArgumentError(FmhaError, ValueError):
    """An argument, or a combination of them, makes no sense (``FMHA_INVALID_ARGUMENT``)."""

    status = 1


class UnsupportedError(FmhaError, NotImplementedError):
    """The arguments make sense, but no kernel here can do it (``FMHA_UNSUPPORTED``)."""

    status = 2


class HipError(FmhaError, RuntimeError):
    """The HIP runtime is missing, ambiguous, or refused (``FMHA_HIP_ERROR``)."""

    status = 3


class InternalError(FmhaError, RuntimeError):
    """A defect of the library: please report it (``FMHA_INTERNAL``)."""

    status = 4


class AbiMismatchError(FmhaError, RuntimeError):
    """Header and library do not fit together (``FMHA_ABI_MISMATCH``)."""

    status = 5


# Keyed by the status of the C library.
BY_STATUS: dict[int, type[FmhaError]] = {
    cls.status: cls
    for cls in (InvalidArgumentError, UnsupportedError, HipError, InternalError, AbiMismatchError)
}
