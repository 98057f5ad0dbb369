# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measurements that only a checkout makes and judges. Its programs are modules: `python -m benchmarks.clock`."""
