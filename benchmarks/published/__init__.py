# SPDX-License-Identifier: MIT OR Apache-2.0
"""Published measurements, and how far the software device's clock is from them: only a checkout has them."""
