// SPDX-License-Identifier: MIT OR Apache-2.0
// The main of every native test program: doctest's, compiled once.
// Signals stay those of the sanitizers, and of tests that wait for one.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include <doctest/doctest.h>
