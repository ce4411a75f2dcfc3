// The training guard by itself, over raw values on the device: for losses that this learner did not make.
//
//   training_guard_check        judges one loss and norm and writes the record to pinned memory
//   training_guard_accumulate   adds them to the sums on the device
//
// One thread each. Record: record.cuh. Sums and twin: guard.cuh.
#include "common.cuh"
#include "shared_structs.cuh"
#include "record.cuh"
#include "guard.cuh"

extern "C" __global__ void training_guard_check(const float* loss, const float* norm, float collapse_threshold,
                                                float loss_threshold, u32 warmup, GuardState* state, u64* record) {
  dependency_wait();
  dependents_may_start();
  if (threadIdx.x || blockIdx.x) return;
  u64 step = ++state->checks;
  Judgement j = judge(*loss, *norm, collapse_threshold, loss_threshold, warmup != 0, step);
  write_record(record, j, nullptr, 0);
  __threadfence_system();
  publish_record(record, step);
}

extern "C" __global__ void training_guard_accumulate(const float* loss, const float* norm, GuardState* state) {
  dependency_wait();
  dependents_may_start();
  if (threadIdx.x == 0 && blockIdx.x == 0) add_to_sums(state, *loss, *norm);
}
