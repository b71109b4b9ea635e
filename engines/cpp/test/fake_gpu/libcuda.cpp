// A driver with two GPUs and a context on the second, for tests of a build without TensorRT.
extern "C" int cuInit(unsigned) {
  return 0;
}
extern "C" int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
extern "C" int cuCtxGetCurrent(void** context) {
  static int made = 0;
  *context = &made;
  return 0;
}
extern "C" int cuCtxGetDevice(int* device) {
  *device = 1;
  return 0;
}
