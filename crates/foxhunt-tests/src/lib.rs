//! Parity, golden, determinism, crash and command-line tests, and the benches.
//!
//! What the benches share is here; the tests are under `tests`.

pub mod timing;
