// right_of_way.h - loading a model gives way to steps of engines in the same process.
//
// While an engine computes steps, a load works on one thread, which rests after every millisecond of work for
// four. Else it uses all its threads and never rests. The processor's time counts, not time at the disk.
#pragma once

#include <cstdint>

namespace bunting {

// Scope in which an engine computes a step.
class ComputedStep {
 public:
  ComputedStep();
  ~ComputedStep();
  ComputedStep(ComputedStep const&) = delete;
  ComputedStep& operator=(ComputedStep const&) = delete;
};

// True while an engine computes a step and between two steps of a stream.
bool steps_are_computed();

// Scope of a piece of loading: its end rests if the work since the last rest is due for one.
class YieldingWork {
 public:
  YieldingWork();
  ~YieldingWork();
  YieldingWork(YieldingWork const&) = delete;
  YieldingWork& operator=(YieldingWork const&) = delete;

 private:
  int64_t begun_ns_;
};

}  // namespace bunting
