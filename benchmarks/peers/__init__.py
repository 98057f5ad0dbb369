# SPDX-License-Identifier: MIT OR Apache-2.0
"""Others' attention kernels, which the clock times beside ours: a file each, that `--peer NAME=PATH` names.

A file defines `peers(path)`: it takes the text behind "=", or "" if there is none, and returns subjects
(pyfa_rocm/clock/subjects.py). A subject made of code objects is a `Peer`: for a problem's arrays it gives
launches, and a launch gives a code object, a kernel's name, arguments, grid and threads. The column of a file
is the first of its subjects that does a problem.

Sources and code objects are others'. None is in this repository.
"""
