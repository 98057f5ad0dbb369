# SPDX-License-Identifier: MIT OR Apache-2.0
"""Instructions of the scalar unit."""
