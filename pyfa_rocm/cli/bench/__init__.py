# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command `bench`: what it measures and models, its tables and its pictures."""
