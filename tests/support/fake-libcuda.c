// Fake of NVIDIA's driver library for tests: FAKE_CUDA names what is wrong with it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int is(char const* what) {
  char const* set = getenv("FAKE_CUDA");
  return set && strcmp(set, what) == 0;
}

int cuDriverGetVersion(int* version) {
  *version = is("too old") ? 11040 : 13000;
  return 0;
}
int cuInit(unsigned flags) {
  (void)flags;
  return is("none") ? 100 : is("mismatch") ? 803 : 0;
}
int cuGetErrorName(int error, char const** name) {
  *name = error == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_ECC_UNCORRECTABLE";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetName(char* name, int bytes, int device) {
  (void)device;
  strncpy(name, is("mig") ? "NVIDIA A100-SXM4-40GB MIG 1g.5gb" : "NVIDIA Test", (size_t)bytes);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? (is("old gpu") ? 7 : 9) : attribute == 76 && is("old gpu") ? 5 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = NULL;
  (void)device;
  return is("no memory") ? 2 : is("lost") ? 214 : 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return 0;
}
