// libcuda.so.1 without a GPU, for the real cuda.bindings: device memory is host memory, a stream
// does its work at once, a graph is the list of the copies that were captured.
//
// A capture ends invalid if its thread allocates or frees memory, or any thread waits for the context.
// An event records streams of its own context alone. Contexts are numbers: those of the GPUs are
// `first` + device, and any further multiple of 16 added to one is another context of that GPU.
// STUB_DEVICES is the number of GPUs. `stub_live` tells how many objects were made and not given back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NO_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, CAPTURING = 900, WRONG_CAPTURE = 901 };
typedef struct { void *to; const void *from; int fill; size_t size; } Work;
typedef struct { Work *works; size_t count; } Graph;
typedef struct { Graph *captured; pthread_t by; int spoilt; void *context; } Stream;
typedef struct { void *context; long unused; } Place;  // before the memory of an allocation
typedef struct { struct timespec at; void *context; } Event;

static int live;
static Stream default_stream, *capturing;
static __thread void *stack[16];
static __thread int depth;

static void *made(size_t size) { __atomic_fetch_add(&live, 1, __ATOMIC_SEQ_CST); return calloc(1, size ? size : 1); }
static int gone(void *thing) { __atomic_fetch_sub(&live, 1, __ATOMIC_SEQ_CST); free(thing); return SUCCESS; }
int stub_live(void) { return __atomic_load_n(&live, __ATOMIC_SEQ_CST); }

static char *const first = (char *)0xC0D0;
static void *current(void) { return depth ? stack[depth - 1] : NULL; }
static long device_of(void *context) { return ((char *)context - first) % 16; }
static long device(void) { return device_of(current()); }
static int count(void) { const char *given = getenv("STUB_DEVICES"); return given ? atoi(given) : 1; }
static int forbidden(int any_thread) {
  if (!capturing || (!any_thread && !pthread_equal(capturing->by, pthread_self()))) return SUCCESS;
  capturing->spoilt = 1;
  return CAPTURING;
}
static int allocated(void **memory, size_t size) {
  if (!depth || forbidden(0)) return depth ? CAPTURING : NO_CONTEXT;
  Place *place = made(sizeof *place + size);
  place->context = current();
  *memory = place + 1;
  return SUCCESS;
}
static int freed(void *memory) { return !depth ? NO_CONTEXT : forbidden(0) ? CAPTURING : gone((Place *)memory - 1); }
static void done(const Work *work) {
  if (work->from) memcpy(work->to, work->from, work->size); else memset(work->to, work->fill, work->size);
}
static int queued(Stream *stream, Work work) {
  if (depth == 0) return NO_CONTEXT;
  if ((uintptr_t)stream <= 2) stream = &default_stream;
  Graph *graph = stream->captured;
  if (!graph) { done(&work); return SUCCESS; }
  graph->works = realloc(graph->works, (graph->count + 1) * sizeof work);
  graph->works[graph->count++] = work;
  return SUCCESS;
}

int cuInit(unsigned flags) { return SUCCESS; }
int cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_STUB"; return SUCCESS; }
int cuGetErrorString(int code, const char **text) { *text = "stub"; return SUCCESS; }
int cuDeviceGetCount(int *number) { *number = count(); return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < count() ? SUCCESS : 101; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Stub GPU"); return SUCCESS; }
int cuDeviceGetAttribute(int *value, int kind, int device) { *value = kind == 75 ? 8 : kind == 76 ? 6 : 0; return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = first + device; return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuCtxGetCurrent(void **context) { *context = current(); return SUCCESS; }
int cuCtxGetDevice(int *number) { if (!depth) return NO_CONTEXT; *number = device(); return SUCCESS; }
int cuCtxSynchronize(void) { return forbidden(1); }
int cuCtxPushCurrent_v2(void *context) { stack[depth++] = context; return SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { *context = stack[--depth]; return SUCCESS; }
int cuMemAlloc_v2(uint64_t *address, size_t size) { return allocated((void **)address, size); }
int cuMemFree_v2(uint64_t address) { return freed((void *)(uintptr_t)address); }
int cuMemHostAlloc(void **address, size_t size, unsigned flags) { return allocated(address, size); }
int cuMemFreeHost(void *address) { return freed(address); }
int cuPointerGetAttribute(void *answer, int kind, uint64_t address) {
  void *context = ((Place *)(uintptr_t)address - 1)->context;
  if (kind == 1) *(void **)answer = context;
  else if (kind == 9) *(int *)answer = device_of(context);  // the ordinal of its device
  else return INVALID_VALUE;
  return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, Stream *s) { return queued(s, (Work){(void *)(uintptr_t)to, from, 0, size}); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, Stream *s) { return queued(s, (Work){to, (void *)(uintptr_t)from, 0, size}); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, Stream *s) { return queued(s, (Work){(void *)(uintptr_t)to, (void *)(uintptr_t)from, 0, size}); }
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, Stream *s) { return queued(s, (Work){(void *)(uintptr_t)to, NULL, value, size}); }
int cuStreamCreate(Stream **stream, unsigned flags) {
  *stream = made(sizeof(Stream));
  (*stream)->context = current();
  return SUCCESS;
}
int cuStreamGetCtx(Stream *stream, void **context) {
  *context = (uintptr_t)stream <= 2 ? current() : stream->context;
  return SUCCESS;
}
int cuStreamDestroy_v2(Stream *stream) { return gone(stream); }
int cuStreamSynchronize(Stream *stream) { return stream->captured ? WRONG_CAPTURE : SUCCESS; }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) { return SUCCESS; }
int cuStreamBeginCapture_v2(Stream *stream, int mode) {
  *(capturing = stream) = (Stream){made(sizeof(Graph)), pthread_self(), 0, stream->context};
  return SUCCESS;
}
int cuGraphDestroy(Graph *graph);
int cuStreamEndCapture(Stream *stream, Graph **graph) {
  *graph = stream->captured;
  stream->captured = NULL;
  capturing = NULL;
  if (!stream->spoilt) return SUCCESS;
  cuGraphDestroy(*graph);
  *graph = NULL;
  return WRONG_CAPTURE;
}
int cuGraphDestroy(Graph *graph) { free(graph->works); return gone(graph); }
int cuGraphExecDestroy(Graph *graph) { return cuGraphDestroy(graph); }
int cuGraphInstantiateWithFlags(Graph **ready, Graph *graph, uint64_t flags) {
  *ready = made(sizeof(Graph));
  (*ready)->count = graph->count;
  (*ready)->works = memcpy(malloc(graph->count * sizeof(Work) + 1), graph->works ? (void *)graph->works : "", graph->count * sizeof(Work));
  return SUCCESS;
}
int cuGraphLaunch(Graph *graph, Stream *stream) { for (size_t i = 0; i < graph->count; ++i) done(&graph->works[i]); return SUCCESS; }
int cuGraphGetNodes(Graph *graph, void **nodes, size_t *count) {
  for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = &graph->works[i];
  *count = graph->count;
  return SUCCESS;
}
int cuEventCreate(Event **event, unsigned flags) {
  *event = made(sizeof(Event));
  (*event)->context = current();
  return SUCCESS;
}
int cuEventDestroy_v2(Event *event) { return gone(event); }
int cuEventRecord(Event *event, Stream *stream) {
  void *context;
  cuStreamGetCtx(stream, &context);
  if (event->context != context) return INVALID_HANDLE;
  clock_gettime(CLOCK_MONOTONIC, &event->at);
  return SUCCESS;
}
int cuEventSynchronize(Event *event) { return SUCCESS; }
int cuEventElapsedTime_v2(float *ms, Event *from, Event *to) {
  *ms = (to->at.tv_sec - from->at.tv_sec) * 1e3f + (to->at.tv_nsec - from->at.tv_nsec) / 1e6f;
  return SUCCESS;
}
int cuEventElapsedTime(float *ms, Event *from, Event *to) { return cuEventElapsedTime_v2(ms, from, to); }

/// cuda.bindings asks for every function by its plain name and takes the newest one there is.
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  static const char *const endings[] = {"_v3", "_v2", "", "WithFlags"};
  *function = NULL;
  for (int i = 0; i < 4 && !*function; ++i) {
    char symbol[128];
    snprintf(symbol, sizeof symbol, "%s%s", name, endings[i]);
    *function = dlsym(RTLD_DEFAULT, symbol);
    Dl_info from, self;
    if (*function && dladdr(*function, &from) && dladdr((void *)cuGetProcAddress_v2, &self) && from.dli_fbase != self.dli_fbase) *function = NULL;
  }
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) { return cuGetProcAddress_v2(name, function, version, flags, NULL); }
