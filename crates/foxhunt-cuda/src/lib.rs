//! The raw CUDA layer: device, buffers, pinned memory, NVRTC with its cache, graphs, timers, and the count of driver calls.
