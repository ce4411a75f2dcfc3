//! Parity, golden, determinism, crash and command-line tests, and the benches.
