//! Tests of the whole library: real engine, real files.
#![allow(missing_docs)]

mod engine_state;
mod faults;
mod learns;
mod resume;
mod settings_walk;
mod support;
mod training;
