# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measurements that only a checkout makes and judges. A program is a module: `python -m benchmarks.clock`."""
