# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page of evidence: what was shown about the library, and what was not. `make evidence` writes it."""
