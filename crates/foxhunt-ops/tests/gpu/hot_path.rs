//! The captured loop: no waits, copies or allocations, state that advances, snapshots that continue.

use foxhunt_cuda::{DriverCalls, Stream, driver_calls};
use foxhunt_ops::gpu_replay::{
    GpuPrioritizedReplay, GpuReplayConfig, GpuReplayError, GpuReplayState, GpuSampling,
};
use foxhunt_ops::priority_tree::cuda::DeviceUpdate;
use foxhunt_ops::ring::cuda::{DeviceBatch, DeviceRows};

use crate::twin::{config, rows, td_errors};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 4] = [
    ("hot_path_makes_no_costly_driver_call", no_calls),
    ("hot_path_graph_equals_eager", graph_equals_eager),
    ("hot_path_save_and_continue_equals_never_stopping", save_continue),
    ("hot_path_memory_that_does_not_fit", absurd),
];

const BATCH: usize = 256;

struct Loop {
    replay: GpuPrioritizedReplay,
    out: DeviceBatch,
    td: foxhunt_cuda::DeviceBuffer<f32>,
    new: DeviceRows,
}

impl Loop {
    fn new(gpu: &Gpu, config: GpuReplayConfig) -> Self {
        let s = &gpu.stream;
        let mut replay = GpuPrioritizedReplay::new(s, config, None).unwrap();
        let n = config.capacity / 2 + 1;
        let mut first = DeviceRows::zeros(s, n, config.state_dim).unwrap();
        first.upload(s, &rows(n, config.state_dim, 1, 13).view()).unwrap();
        replay.insert(s, &first, n).unwrap();
        let mut new = DeviceRows::zeros(s, 100, config.state_dim).unwrap();
        new.upload(s, &rows(100, config.state_dim, 2, 17).view()).unwrap();
        Self {
            replay,
            out: DeviceBatch::zeros(s, BATCH, config.state_dim).unwrap(),
            td: s.upload_new("td", &td_errors(BATCH, 4, true)).unwrap(),
            new,
        }
    }

    fn step(&mut self, s: &foxhunt_cuda::Stream) -> Result<(), GpuReplayError> {
        self.replay.sample(s, &mut self.out)?;
        let update = DeviceUpdate {
            indices: &self.out.indices,
            td_errors: &self.td,
            generations: Some(&self.out.generations),
            gate: None,
        };
        self.replay.update(s, &update, BATCH)?;
        self.replay.insert(s, &self.new, 100)
    }
}

/// Case D10: a sample, an update and an insert, eager or replayed, wait for nothing, copy nothing and allocate nothing; the
/// random numbers advance, so two replays draw different rows.
fn no_calls(gpu: &Gpu) {
    let s = &gpu.stream;
    let mut work = Loop::new(gpu, config(1000, 51));
    let before = driver_calls();
    for _ in 0..50 {
        work.step(s).unwrap();
    }
    assert_eq!(driver_calls() - before, DriverCalls { launches: 150, ..DriverCalls::default() });
    let mut graph = s.capture(|s| work.step(s)).unwrap();
    graph.launch(s).unwrap();
    let first = s.download(&work.out.indices).unwrap();
    let before = driver_calls();
    for _ in 0..100 {
        graph.launch(s).unwrap();
    }
    assert_eq!(driver_calls() - before, DriverCalls { graph_launches: 100, ..DriverCalls::default() });
    assert!(first != s.download(&work.out.indices).unwrap(), "two replays drew the same rows");
    let counters = work.replay.counters(s).unwrap();
    assert_eq!(counters.samples, 151);
    assert_eq!(counters.beta, 1.0, "beta has arrived");
}

/// A replayed graph leaves the same bits as the same calls one by one, beta and random numbers included.
fn graph_equals_eager(gpu: &Gpu) {
    let s = &gpu.stream;
    let run = |captured: bool| {
        let mut work = Loop::new(gpu, config(777, 9));
        if captured {
            let mut graph = s.capture(|s| work.step(s)).unwrap();
            (0..30).for_each(|_| graph.launch(s).unwrap());
        } else {
            (0..30).for_each(|_| work.step(s).unwrap());
        }
        (work.out.download(s).unwrap(), whole_state(s, &work.replay))
    };
    assert!(run(true) == run(false));
}

/// Cases A35, E02: saved, restored and continued equals never stopped, to the bit.
fn save_continue(gpu: &Gpu) {
    let s = &gpu.stream;
    for sampling in [1, 4]
        .map(|resort_every| GpuSampling::RankBased { resort_every })
        .into_iter()
        .chain([GpuSampling::Proportional])
    {
        for capacity in [5, 1000] {
            let config = GpuReplayConfig { sampling, ..config(capacity, 9) };
            let mut whole = Loop::new(gpu, config);
            (0..15).for_each(|_| whole.step(s).unwrap());
            let (saved, words) = whole_state(s, &whole.replay);
            let mut other = Loop::new(gpu, config);
            (0..3).for_each(|_| other.step(s).unwrap());
            let stride = config.row_words();
            let mut fill = |rows: std::ops::Range<usize>, out: &mut [u32]| {
                out.copy_from_slice(&words[rows.start * stride..rows.end * stride]);
            };
            other.replay.restore(s, &saved, &mut fill).unwrap();
            let (again, words_again) = whole_state(s, &other.replay);
            assert!(
                words_again == words
                    && again.priorities == saved.priorities
                    && again.counters == saved.counters
                    && again.order == saved.order
            );
            for _ in 0..5 {
                whole.step(s).unwrap();
                other.step(s).unwrap();
                assert!(
                    whole.out.download(s).unwrap() == other.out.download(s).unwrap(),
                    "{sampling:?} {capacity}"
                );
            }
            let mut torn = saved.clone();
            torn.priorities.pop();
            assert!(other.replay.restore(s, &torn, &mut fill).is_err());
        }
    }
}

/// Everything that a memory holds.
fn whole_state(s: &Stream, replay: &GpuPrioritizedReplay) -> (GpuReplayState, Vec<u32>) {
    let state = replay.save(s).unwrap();
    let words = replay.rows(s, 0..state.counters.len).unwrap();
    (state, words)
}

/// A capacity that no device holds is an error that names the bytes asked and free, and takes nothing.
fn absurd(gpu: &Gpu) {
    let (before, _) = gpu.device.memory().unwrap();
    let config = config(1 << 31, 1024);
    let error = GpuPrioritizedReplay::new(&gpu.stream, config, None).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&config.bytes().to_string()) && text.contains("bytes are free"), "{text}");
    let (after, _) = gpu.device.memory().unwrap();
    assert!(before.abs_diff(after) < 64 << 20);
}
