//! One folder per operation: contract, CPU twin, CUDA launcher, kernel and tests side by side.
