// The state of a learner on the device and how it moves on. Twin: foxhunt-ops/src/learner/cpu.rs.
#pragma once

// base^exponent by repeated squaring; twin of `power` in foxhunt-ops/src/adam/mod.rs.
__device__ __forceinline__ double power(double base, u64 exponent) {
  double result = 1., square = base;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result = __dmul_rn(result, square);
    square = __dmul_rn(square, square);
  }
  return result;
}

// The learning rate of update number `count`, 0 for the first; twin of `LinearSchedule::at`.
__device__ __forceinline__ double rate_at(const SumArgs& s, u64 count) {
  if (count >= s.rate_steps) return s.rate_end;
  double share = __ddiv_rn((double)count, (double)s.rate_steps);
  return __dadd_rn(s.rate_start, __dmul_rn(__dadd_rn(s.rate_end, -s.rate_start), share));
}

// Sums the rows of a sub-batch in the tree of tree_sum.rs, for blocks of 64 threads and up, of which 256 work. Behind the last sub-batch
// everything about the step that does not need the norm is worked out, by a second warp meanwhile and beside the way
// back, which takes longer. One block; `scratch` holds 520 f64.
__device__ __forceinline__ void sum_up(const SumArgs& s, u32 rows, double* scratch) {
  double *losses = scratch, *errors = scratch + 256;
  u32* bad = (u32*)(scratch + 512);
  StepState* state = s.state;
  if (threadIdx.x == 0) *bad = 0;
  if (threadIdx.x == 32 && s.last) {
    u64 updates = state->updates, t = *s.adam_t + 1;
    double rate = rate_at(s, updates);
    state->collapse_threshold = (float)__dmul_rn(rate, s.collapse_multiplier);
    state->warmup = updates < s.collapse_warmup;
    state->step_size = (float)__ddiv_rn(rate, __dadd_rn(1., -power(s.beta1, t)));
    state->root_factor = (float)__ddiv_rn(1., __dsqrt_rn(__dadd_rn(1., -power(s.beta2, t))));
  }
  double loss[4] = {}, error[4] = {};
  u32 found = 0;
#pragma unroll 4
  for (u32 first = threadIdx.x; first < rows + threadIdx.x; first += 256) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      u32 lane = k * blockDim.x, i = first + lane;
      if (threadIdx.x + lane >= 256 || i >= rows) continue;
      float x = s.losses[i], y = s.td[i];
      loss[k] = __dadd_rn(loss[k], (double)x);
      error[k] = __dadd_rn(error[k], (double)y);
      found += !is_finite(y);
    }
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    u32 lane = threadIdx.x + k * blockDim.x;
    if (lane < 256) losses[lane] = loss[k], errors[lane] = error[k];
  }
  __syncthreads();
  if (found) atomicAdd(bad, found);
  for (u32 half = 128; half; half >>= 1) {
    for (u32 i = threadIdx.x; i < half; i += blockDim.x) {
      losses[i] = __dadd_rn(losses[i], losses[i + half]);
      errors[i] = __dadd_rn(errors[i], errors[i + half]);
    }
    __syncthreads();
  }
  if (threadIdx.x) return;
  double loss_sum = losses[0], error_sum = errors[0];
  found = *bad;
  if (!s.first) {
    loss_sum = __dadd_rn(state->loss_of_rows, loss_sum);
    error_sum = __dadd_rn(state->td_of_rows, error_sum);
    found += state->bad_td;
  }
  state->loss_of_rows = loss_sum, state->td_of_rows = error_sum, state->bad_td = found;
  if (!s.last) return;
  Findings f = {};
  f.loss = __ddiv_rn(loss_sum, s.rows_total), f.td_error = __ddiv_rn(error_sum, s.rows_total);
  f.bad_td = found, f.bad_states = state->bad_states, f.bad_rewards = state->bad_rewards;
  *s.findings = f;
}

#ifdef WITH_DECISION
// What every block needs to know to step, or not to.
struct Decision {
  bool apply, copy, bad_inputs;
  float clip, step_size, root_factor;
  float loss, norm;
  double td_error;
};

__device__ __forceinline__ Decision decide(const ApplyArgs& a, const StepState& s, const Findings& f, double squares) {
  Decision d;
  const float nan = __int_as_float(0x7fc00000);
  double norm = __dsqrt_rn(squares);
  d.bad_inputs = f.bad_states || f.bad_rewards;
  d.loss = d.bad_inputs ? nan : (float)f.loss;
  d.norm = d.bad_inputs ? nan : (float)norm;
  d.td_error = f.td_error;
  d.apply = !is_refused(f, norm);
  d.clip = norm <= a.clip_norm ? 1.f : (float)__ddiv_rn(a.clip_norm, norm);
  d.step_size = s.step_size, d.root_factor = s.root_factor;
  d.copy = a.copy_every && (s.updates + 1) % a.copy_every == 0;
  return d;
}

// Counts the update, opens or closes the gate for the priorities, tells the host. One thread; `steppers` other blocks
// are waited for to have read the state before it changes. WITHOUT_GUARD leaves out the judgement, the sums and the
// record, which are what the guard costs beside the gate, so that a bench can tell how much that is.
__device__ __forceinline__ void move_on(const ApplyArgs& a, StepState& s, const Decision& d, u32 steppers) {
  u64 step = s.updates + s.skipped + 1;
#ifndef WITHOUT_GUARD
  Judgement j = judge(d.loss, d.norm, s.collapse_threshold, a.loss_threshold, s.warmup != 0, step);
  if (j.halt_grad_collapse) {
    s.collapsed_in_row++;
    s.collapsed_updates++;
  } else if (!j.halt_nan) {
    s.collapsed_in_row = 0;
  }
  s.loss_clipped_updates += j.halt_loss_clip;
#endif
  *a.gate = !d.apply;
  FaultState faults;
  if (d.apply) {
    *a.adam_t += 1;
    s.updates++;
    s.epoch_updates++;
    s.skipped_in_row = 0;
#ifndef WITHOUT_GUARD
    add_to_sums(a.sums_of_epoch, d.loss, d.norm);
#endif
    s.td_sum = __dadd_rn(s.td_sum, d.td_error);
  } else {
    s.skipped++;
    s.epoch_skipped++;
    s.skipped_in_row++;
    faults = *a.faults;
    u64 taken = hear(a.ring + 3);
    if (d.bad_inputs) {
      record_fault(&faults, a.ring, a.ring_capacity, taken, step, 5, s.bad_states);
      record_fault(&faults, a.ring, a.ring_capacity, taken, step, 4, s.bad_rewards);
    } else {
      record_fault(&faults, a.ring, a.ring_capacity, taken, step, 3, s.bad_td);
      record_fault(&faults, a.ring, a.ring_capacity, taken, step, 1, !is_finite(d.loss));
      record_fault(&faults, a.ring, a.ring_capacity, taken, step, 2, !is_finite(d.norm));
    }
    *a.faults = faults;
  }
  s.longest_skipped_row = max(s.longest_skipped_row, s.skipped_in_row);
  s.longest_collapsed_row = max(s.longest_collapsed_row, s.collapsed_in_row);
  s.bad_states = 0, s.bad_rewards = 0, s.ticket = 0;
#ifndef WITHOUT_GUARD
  u64 counts[6] = {s.updates, s.skipped, s.skipped_in_row, s.collapsed_in_row, s.longest_skipped_row, s.longest_collapsed_row};
  write_record(a.record, j, counts, 6);
#endif
  while (*(volatile u32*)&a.state->ticket < steppers) {}
  *a.state = s;
#ifndef WITHOUT_GUARD
  __threadfence_system();
  if (!d.apply) publish_faults(&faults, a.ring);
  publish_record(a.record, step);
#endif
}
#endif
