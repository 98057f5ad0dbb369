/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* hiprtc for CuPy and OpenMM, which compile their kernels when they are first used: it writes the source to a
   file and runs hipcc. It leaves out what neither uses: headers given as text, lowered names of templates. */
#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* hiprtc has these declarations without an include. */
static const char kBefore[] =
    "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n#define __HIPCC_RTC__\n#line 1\n";

struct text {
  char* bytes;
  size_t size;
};
struct _hiprtcProgram {
  char* source;
  int names;
  struct text ProgramLog, Code;
};

static struct text read_file(const char* path) {
  struct text text = {0};
  struct stat facts;
  const int file = open(path, O_RDONLY);
  if (file < 0 || fstat(file, &facts)) return (struct text){calloc(1, 1), 0};
  text.bytes = calloc((size_t)facts.st_size + 1, 1); /* logs end with a 0, which their size counts */
  if (read(file, text.bytes, (size_t)facts.st_size) == facts.st_size) text.size = (size_t)facts.st_size;
  close(file);
  return text;
}

/* Runs hipcc with its errors in a file; whether it succeeded. */
static int run(char* const* arguments, const char* errors) {
  const pid_t child = fork();
  if (child == 0) {
    if (freopen(errors, "w", stderr)) execvp(arguments[0], arguments);
    _exit(127);
  }
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* Adds the caller's options, with clang's name for that of the GPU, which is written to `arch`, or the
   device's that is there: two archs are two code objects, and there is one file for them. */
static void add_options(const char** arguments, int count, const char** options, char* arch, size_t size) {
  static const char kClangs[] = "--offload-arch=", kOther[] = "--gpu-architecture=";
  int named = 0;
  for (int i = 0; i < count; ++i) {
    arguments[i] = options[i];
    if (!strncmp(options[i], kClangs, sizeof kClangs - 1)) named = 1;
    if (strncmp(options[i], kOther, sizeof kOther - 1)) continue;
    snprintf(arch, size, "%s%s", kClangs, options[i] + sizeof kOther - 1);
    arguments[i] = arch, named = 1;
  }
  if (!named) arguments[count] = arch;
}

hiprtcResult hiprtcVersion(int* major, int* minor) { return *major = 7, *minor = 0, HIPRTC_SUCCESS; }

const char* hiprtcGetErrorString(hiprtcResult e) {
  return e == HIPRTC_ERROR_COMPILATION ? "hipcc failed" : "see hiprtc.c";
}

hiprtcResult hiprtcCreateProgram(hiprtcProgram* program, const char* source, const char* name, int headers,
                                 const char** sources, const char** names) {
  if (headers) return HIPRTC_ERROR_INVALID_INPUT;
  *program = calloc(1, sizeof **program);
  (*program)->source = strdup(source);
  (*program)->ProgramLog.bytes = calloc(1, 1), (*program)->Code.bytes = calloc(1, 1);
  return HIPRTC_SUCCESS;
}

/* Keeps what a program names, such as the address of a variable, though its kernels may not use it. */
hiprtcResult hiprtcAddNameExpression(hiprtcProgram program, const char* name) {
  char* more = NULL;
  if (asprintf(&more, "%s\n__device__ __attribute__((used)) const void* const hiprtc_name_%d = %s;\n",
               program->source, program->names++, name) < 0)
    return HIPRTC_ERROR_OUT_OF_MEMORY;
  free(program->source);
  program->source = more;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcDestroyProgram(hiprtcProgram* program) {
  free((*program)->source), free((*program)->ProgramLog.bytes), free((*program)->Code.bytes), free(*program);
  *program = NULL;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcCompileProgram(hiprtcProgram program, int count, const char** options) {
  char folder[] = "/tmp/hiprtc.XXXXXX", paths[3][64], arch[300];
  const char* names[] = {"source.hip", "code", "log"};
  hipDeviceProp_t properties;
  int device = 0;
  if (count > 100 || hipGetDevice(&device) || hipGetDeviceProperties(&properties, device))
    return HIPRTC_ERROR_INVALID_INPUT;
  snprintf(arch, sizeof arch, "--offload-arch=%s", strtok(properties.gcnArchName, ":"));
  if (!mkdtemp(folder)) return HIPRTC_ERROR_INTERNAL_ERROR;
  for (int i = 0; i < 3; ++i) snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
  FILE* file = fopen(paths[0], "w");
  fputs(kBefore, file), fputs(program->source, file), fclose(file);
  const char* arguments[128] = {
      "hipcc", "-O3", "--cuda-device-only", "--no-gpu-bundle-output", "-w", paths[0], "-o", paths[1]};
  add_options(arguments + 8, count, options, arch, sizeof arch);
  const int done = run((char* const*)arguments, paths[2]);
  free(program->ProgramLog.bytes), free(program->Code.bytes);
  program->ProgramLog = read_file(paths[2]), program->Code = read_file(paths[1]);
  for (int i = 0; i < 3; ++i) unlink(paths[i]);
  rmdir(folder);
  return done ? HIPRTC_SUCCESS : HIPRTC_ERROR_COMPILATION;
}

#define GIVES(what, end)                                                              \
  hiprtcResult hiprtcGet##what##Size(hiprtcProgram program, size_t* size) {           \
    return *size = program->what.size + end, HIPRTC_SUCCESS;                          \
  }                                                                                   \
  hiprtcResult hiprtcGet##what(hiprtcProgram program, char* to) {                     \
    return memcpy(to, program->what.bytes, program->what.size + end), HIPRTC_SUCCESS; \
  }
GIVES(Code, 0)
GIVES(ProgramLog, 1)
