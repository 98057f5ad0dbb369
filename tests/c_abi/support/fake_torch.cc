// SPDX-License-Identifier: MIT OR Apache-2.0
// Stands for PyTorch's libtorch_hip.so: a library that is linked to one of the HIP runtimes of a process.
extern "C" int hipGetDevice(int* device);

extern "C" __attribute__((visibility("default"))) int fake_torch_device(int* device) {
  return hipGetDevice(device);
}
