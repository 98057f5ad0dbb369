// SPDX-License-Identifier: MIT OR Apache-2.0
// The least a test needs: CHECK goes on after a failure, and check_failures() is what main returns.
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static int g_check_count, g_check_failures; /* counted from any thread */

static inline void check_add(int* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

static inline void check_fail(const char* file, int line, const char* format, ...) {
  va_list arguments;
  check_add(&g_check_failures);
  fprintf(stderr, "%s:%d: ", file, line);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

static inline int check_result(void) {
  fprintf(stderr, "%d checks, %d failed\n", g_check_count, g_check_failures);
  return g_check_failures != 0 || g_check_count == 0;
}

#ifdef __cplusplus
}
#endif

#define CHECK(condition)                                                          \
  do {                                                                            \
    check_add(&g_check_count);                                                    \
    if (!(condition)) check_fail(__FILE__, __LINE__, "not true: %s", #condition); \
  } while (0)

// The status, and a message that contains the text.
#define CHECK_STATUS(call, expected, text)                                                                 \
  do {                                                                                                     \
    const int check_status_ = (call);                                                                      \
    check_add(&g_check_count);                                                                             \
    if (check_status_ != (expected)) {                                                                     \
      check_fail(__FILE__, __LINE__, "%s gave %d, expected %d: %s", #call, check_status_, (int)(expected), \
                 fmha_last_error());                                                                       \
    } else if (check_status_ != FMHA_OK && strstr(fmha_last_error(), (text)) == NULL) {                    \
      check_fail(__FILE__, __LINE__, "%s: no '%s' in its message: %s", #call, (text), fmha_last_error());  \
    }                                                                                                      \
  } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, FMHA_OK, "")
