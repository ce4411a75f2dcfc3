//! Tests of the whole library: real engine, real files.
// Helpers of tests fail like tests.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod cuda;
mod cuda_options;
mod engine_state;
mod faults;
mod hostile_state;
mod learns;
mod metrics_file;
mod resume;
mod settings_walk;
mod stress;
mod support;
mod training;
mod walk_forward;
