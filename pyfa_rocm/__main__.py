# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m pyfa_rocm``."""

import sys

from pyfa_rocm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
