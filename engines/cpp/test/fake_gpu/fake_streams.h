// CUDA's streams, events and graphs, for tests. Work stays in its stream until someone waits for
// it. Then `fake::order` decides which stream runs first, as far as events allow. So a frame or a
// result that is read too early, a buffer that is written too early, and a missing event change the
// numbers.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>

#include "cuda.h"

struct FakeHandle {
  CUcontext context = fake::context();
};

struct FakeStream;
/// How often an event was recorded, and how many of the recordings were reached.
struct FakeTimes {
  unsigned recorded = 0, reached = 0;
  FakeStream* stream = nullptr;  ///< Where it was recorded last.
};
struct FakeEvent : FakeHandle {
  std::shared_ptr<FakeTimes> times = std::make_shared<FakeTimes>();
};
using cudaEvent_t = FakeEvent*;

/// A piece of work, which waits until the recording `time` of an event is reached.
struct FakeStep {
  std::function<void()> work;
  std::shared_ptr<FakeTimes> awaited = nullptr;
  unsigned time = 0;
  [[nodiscard]] bool ready() const { return awaited == nullptr || awaited->reached >= time; }
};
using FakeWork = std::deque<FakeStep>;
struct FakeStream : FakeHandle {
  bool capturing = false;
  bool spoilt = false;  ///< True if a thread waited for the context during the capture.
  FakeWork queued;
  FakeWork before;  ///< Work from before the capture, which still runs.
};
using cudaStream_t = FakeStream*;
struct FakeGraph {
  FakeWork work;
};
using cudaGraph_t = FakeGraph*;
struct FakeGraphExec : FakeHandle {
  FakeWork work;
};
using cudaGraphExec_t = FakeGraphExec*;

namespace fake {

/// Late runs only the work that is waited for. Early runs all other work first that can run.
enum class Order { late, early, random };
inline Order order = Order::late;
inline std::minstd_rand choice(1);
inline std::set<FakeStream*> streams;

inline void queue(FakeStream* stream, FakeStep step) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  stream->queued.push_back(std::move(step));
}

/// Called once, as soon as a capture has begun.
inline std::function<void()> meanwhile;

/// A wait for the whole current context, which ends the captures in it.
inline void wait_for_context() {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  for (FakeStream* stream : streams) {
    stream->spoilt |= stream->capturing && stream->context == current();
  }
}

/// The stream whose step is the next to run while someone waits for `target`.
inline FakeStream* next(FakeStream* target) {
  while (order == Order::late && !target->queued.front().ready()) {
    target = target->queued.front().awaited->stream;
  }
  std::vector<FakeStream*> able;
  for (FakeStream* stream : streams) {
    if (!stream->capturing && !stream->queued.empty() && stream->queued.front().ready()) {
      able.push_back(stream);
    }
  }
  if (order == Order::random) {
    return able.at(choice() % able.size());
  }
  for (FakeStream* stream : able) {
    if (order == Order::early && stream != target) {
      return stream;
    }
  }
  return target;
}

template <class Done>
void work_until(FakeStream* target, Done done) {
  const std::lock_guard<std::recursive_mutex> lock(guard);
  while (!done()) {
    FakeStream* stream = next(target);
    const FakeStep step = std::move(stream->queued.front());
    stream->queued.pop_front();
    step.work();
  }
}

}  // namespace fake
