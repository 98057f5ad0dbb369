# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of what instructions compute."""
