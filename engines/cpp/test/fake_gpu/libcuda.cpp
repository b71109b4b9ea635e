// A driver that sees one GPU, for tests of a build without TensorRT.
extern "C" int cuInit(unsigned) {
  return 0;
}
extern "C" int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
