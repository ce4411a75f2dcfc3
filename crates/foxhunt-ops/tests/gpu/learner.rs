//! The learner on the device against its CPU twin, bit by bit.

use foxhunt_core::record::FaultKind;
use foxhunt_core::settings::{NanPolicy, TargetUpdate};
use foxhunt_core::{Head, LinearSchedule, Philox, Purpose, ReturnModel};
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{DriverCalls, driver_calls};
use foxhunt_ops::gpu_learner::{GpuLearner, GpuLearnerConfig};
use foxhunt_ops::learner::{Batch, CpuUpdate, EpochSums, LearnerState, Progress};
use foxhunt_ops::mlp::{MlpShape, Network};
use foxhunt_ops::ring::BatchBuffers;
use foxhunt_ops::ring::cuda::DeviceBatch;

use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 10] = [
    ("learner_equals_the_cpu_for_every_head_and_option", every_option),
    ("learner_equals_the_cpu_for_every_size", every_size),
    ("learner_equals_the_cpu_for_every_cluster", clusters),
    ("learner_gradient_is_close_to_f64", oracle),
    ("learner_skips_what_is_not_finite", skips),
    ("learner_q_values_equal_the_cpu", q_values),
    ("learner_graph_equals_eager_without_costly_calls", graph),
    ("learner_copies_and_restores", copies),
    ("learner_loses_no_fault_in_silence", overflow),
    ("learner_memory_is_known_and_refused", memory),
];

/// Compiled once for all tests.
pub(crate) fn cache() -> Cache {
    Cache::at(&std::env::temp_dir().join("foxhunt-gpu-tests"))
}

fn hash(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

pub(crate) fn config(state_dim: usize, hidden: &[usize], head: Head, dueling: bool) -> GpuLearnerConfig {
    let (hidden, head, returns) = (hidden.to_vec(), head.into(), ReturnModel::Mean);
    let mut config = GpuLearnerConfig::new(MlpShape { state_dim, hidden, head, dueling, returns });
    config.learner.learning_rate = LinearSchedule { start: 1e-3, end: 2e-4, steps: 37 };
    config.learner.clip_norm = 0.5;
    config.guard.collapse_warmup = 2;
    config
}

pub(crate) fn rows(config: &GpuLearnerConfig, n: usize, salt: u64) -> BatchBuffers {
    let (state_dim, n_actions) = (config.shape.state_dim, config.shape.head.n_actions() as u64);
    let mut stream = Philox::new(salt).stream(Purpose::Synthetic, 0, 0);
    let mut normal = |n: usize| -> Vec<f32> { (0..n).map(|_| stream.next_normal() as f32).collect() };
    let mut out = BatchBuffers::new(n, state_dim);
    out.states = normal(n * state_dim);
    out.next_states = normal(n * state_dim);
    out.rewards = normal(n);
    let id = |i: usize| hash(salt << 20 | i as u64);
    out.actions = (0..n).map(|i| (id(i) % n_actions) as u32).collect();
    out.terminated = (0..n).map(|i| f32::from(u8::from(id(i) >> 8 & 7 == 0))).collect();
    out.discounts = (0..n).map(|i| 0.9 + (id(i) >> 20 & 63) as f32 * 1e-3).collect();
    out.weights = (0..n).map(|i| 0.2 + (id(i) >> 30 & 63) as f32 / 80.0).collect();
    out.indices = (0..n).map(|i| (id(i) >> 33) as u32).collect();
    out.generations = (0..n).map(|i| id(i) >> 40).collect();
    out
}

pub(crate) fn upload(gpu: &Gpu, rows: &BatchBuffers, state_dim: usize) -> DeviceBatch {
    let mut batch = DeviceBatch::zeros(&gpu.stream, rows.actions.len(), state_dim).unwrap();
    let s = &gpu.stream;
    s.upload(&mut batch.states, &rows.states).unwrap();
    s.upload(&mut batch.next_states, &rows.next_states).unwrap();
    s.upload(&mut batch.actions, &rows.actions).unwrap();
    s.upload(&mut batch.rewards, &rows.rewards).unwrap();
    s.upload(&mut batch.terminated, &rows.terminated).unwrap();
    s.upload(&mut batch.discounts, &rows.discounts).unwrap();
    s.upload(&mut batch.weights, &rows.weights).unwrap();
    s.upload(&mut batch.indices, &rows.indices).unwrap();
    s.upload(&mut batch.generations, &rows.generations).unwrap();
    batch
}

/// A learner on the device and its twin, from one state.
pub(crate) struct Pair<'g> {
    gpu: &'g Gpu,
    pub(crate) config: GpuLearnerConfig,
    pub(crate) device: GpuLearner,
    pub(crate) online: Network,
    pub(crate) target: Network,
    pub(crate) host: CpuUpdate,
    sums: EpochSums,
    salt: u64,
}

impl<'g> Pair<'g> {
    pub(crate) fn new(gpu: &'g Gpu, config: GpuLearnerConfig) -> Self {
        let layout = config.layout();
        let mut device = GpuLearner::new(&gpu.stream, &config, Some(&cache())).unwrap();
        let online = Network::new(layout.clone(), layout.init(3));
        let target = Network::new(layout.clone(), layout.init(4));
        let host = CpuUpdate::new(&layout, &config.learner, &config.guard, config.seed);
        device.upload_state(&gpu.stream, &host.state(&online, &target)).unwrap();
        Self { gpu, config, device, online, target, host, sums: EpochSums::default(), salt: 0 }
    }

    pub(crate) fn name(&self) -> String {
        let (s, l) = (&self.config.shape, &self.config.learner);
        format!(
            "{:?} {:?} {:?} {} dueling {} double {} Munchausen {} batch {} x {} {:?} noise {:?}",
            s.hidden,
            s.head,
            s.returns,
            s.state_dim,
            s.dueling,
            l.double,
            l.munchausen,
            l.batch,
            l.accumulation,
            l.target,
            self.config.noise
        )
    }

    pub(crate) fn fresh_rows(&mut self) -> Vec<BatchBuffers> {
        let learner = &self.config.learner;
        (0..learner.accumulation)
            .map(|_| {
                self.salt += 1;
                rows(&self.config, learner.batch, self.salt)
            })
            .collect()
    }

    /// One update on both sides; everything that comes out of it is compared.
    pub(crate) fn update(&mut self, rows: &[BatchBuffers]) -> bool {
        let (s, name) = (&self.gpu.stream, self.name());
        let device: Vec<_> = rows.iter().map(|r| upload(self.gpu, r, self.config.shape.state_dim)).collect();
        self.device.update(s, &device).unwrap();
        s.synchronise().unwrap();
        let views: Vec<Batch<'_>> = rows.iter().map(Batch::from).collect();
        let report = self.host.run(&mut self.online, &mut self.target, &views);
        let step = report.guard.step;
        if !report.td.is_empty() {
            let td = s.download(self.device.td_errors()).unwrap();
            same(&td, report.td, &format!("td, update {step} of {name}"));
        }
        let live = self.device.live().unwrap();
        let (got, want) = (live.guard, report.guard);
        assert_eq!(got.step, want.step, "{name}");
        for (what, got, want) in [
            ("loss", got.raw_loss, want.raw_loss),
            ("norm", got.raw_grad_norm, want.raw_grad_norm),
            ("clipped loss", got.clipped_loss, want.clipped_loss),
        ] {
            same(&[got], &[want], &format!("{what}, update {step} of {name}"));
        }
        let flags = |w: foxhunt_ops::guard::GuardWords| (w.halt_nan, w.halt_loss_clip, w.halt_grad_collapse);
        assert_eq!(flags(got), flags(want), "{name}");
        assert_eq!(s.download(self.device.gate()).unwrap()[0] != 0, !report.applied, "{name}");
        let drained = self.device.drain_faults();
        assert_eq!((drained.faults.as_slice(), drained.lost), (report.faults, 0), "{name}");
        let (applied, td_error, loss, norm) =
            (report.applied, report.td_error, report.loss, report.grad_norm);
        self.sums.collapsed_updates += u64::from(want.halt_grad_collapse);
        self.sums.loss_clipped_updates += u64::from(want.halt_loss_clip);
        if applied {
            self.sums.guard.add(loss, norm);
            self.sums.td_error += td_error;
            self.sums.updates += 1;
        } else {
            self.sums.skipped += 1;
        }
        assert_eq!(live.progress.counts, self.host.counts(), "{name}");
        let slots: Vec<u32> = rows.iter().flat_map(|r| r.indices.clone()).collect();
        assert_eq!(s.download(self.device.priorities().indices).unwrap(), slots, "{name}");
        let generations: Vec<u64> = rows.iter().flat_map(|r| r.generations.clone()).collect();
        assert_eq!(s.download(self.device.priorities().generations.unwrap()).unwrap(), generations);
        applied
    }

    /// Gradient, parameters, moments and counts are the twin's.
    pub(crate) fn same_state(&self) {
        let (s, name) = (&self.gpu.stream, self.name());
        let (state, counts) = self.device.download_state(s).unwrap();
        let want = self.host.state(&self.online, &self.target);
        same(
            &s.download(self.device.gradient()).unwrap(),
            self.host.gradient(),
            &format!("gradient of {name}"),
        );
        same(&state.m, &want.m, &format!("m of {name}"));
        same(&state.v, &want.v, &format!("v of {name}"));
        same(&state.online, &want.online, &format!("online of {name}"));
        same(&state.target, &want.target, &format!("target of {name}"));
        assert_eq!((state.adam_t, counts), (want.adam_t, self.host.counts()), "{name}");
        let (progress, sums) = self.device.progress(s).unwrap();
        assert_eq!((progress.counts, sums), (counts, self.sums), "{name}");
    }
}

/// Equal bits; any NaN equals any other.
pub(crate) fn same(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let equal = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(
            equal,
            "{what}: [{i}] is {got:e} ({:08x}), not {want:e} ({:08x})",
            got.to_bits(),
            want.to_bits()
        );
    }
}

/// Each head, dueling or not, double or not, one or three sub-batches, hard or Polyak target: 1, 2 and 50 updates.
fn every_option(gpu: &Gpu) {
    let updates = if gpu.small { 3 } else { 50 };
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for options in 0..32 {
            let on = |bit: u32| options >> bit & 1 == 1;
            if gpu.small && ![0, 15, 16, 31].contains(&options) {
                continue;
            }
            // Heads, loss and the way back to the units in launches of their own, and in one.
            let hidden = [33, if on(4) { 20 } else { 17 }];
            let mut config = config(7, &hidden, head, on(0));
            config.learner.double = on(1);
            config.learner.accumulation = if on(2) { 3 } else { 1 };
            config.learner.batch = 33;
            config.learner.target =
                if on(3) { TargetUpdate::Hard { every: 4 } } else { TargetUpdate::Polyak { tau: 0.005 } };
            let mut pair = Pair::new(gpu, config);
            for update in 1..=updates {
                let rows = pair.fresh_rows();
                assert!(pair.update(&rows));
                if [1, 2, updates].contains(&update) {
                    pair.same_state();
                }
            }
        }
    }
}

/// Batches around every edge, networks around every tile, and rows of more than one segment.
fn every_size(gpu: &Gpu) {
    let nets: [(usize, &[usize]); 6] =
        [(51, &[256, 256]), (5, &[7]), (9, &[33, 65, 17]), (4, &[]), (64, &[128]), (3, &[1, 1])];
    let batches: &[usize] = if gpu.small { &[1, 33] } else { &[1, 31, 32, 33, 64, 256, 1000, 1025, 2500] };
    for (state_dim, hidden) in nets {
        if gpu.small && state_dim == 51 {
            continue;
        }
        for &batch in batches {
            for accumulation in [1, 2] {
                let mut config = config(state_dim, hidden, Head::Factored, true);
                config.learner.batch = batch;
                config.learner.accumulation = accumulation;
                let mut pair = Pair::new(gpu, config);
                for _ in 0..3 {
                    let rows = pair.fresh_rows();
                    assert!(pair.update(&rows));
                }
                pair.same_state();
            }
        }
    }
    if gpu.small {
        return;
    }
    let mut config = config(51, &[256, 256], Head::Branching, true);
    config.learner.batch = 8192;
    let mut pair = Pair::new(gpu, config);
    for _ in 0..2 {
        let rows = pair.fresh_rows();
        assert!(pair.update(&rows));
    }
    pair.same_state();
}

/// Networks and batches that a cluster does in one launch: every pair of widths, each head, rows from few to the most and one more.
fn clusters(gpu: &Gpu) {
    let widths = [64, 128, 256];
    let pairs = widths.iter().flat_map(|&first| widths.map(|second| [first, second]));
    let batches: &[usize] = if gpu.small { &[1, 20] } else { &[1, 8, 64, 121, 200, 256, 270, 271] };
    for (i, hidden) in pairs.enumerate().filter(|(i, _)| !gpu.small || [0, 4].contains(i)) {
        for (j, &batch) in batches.iter().enumerate() {
            // Each head, with and without value and double targets, and states of one value to many, in turn.
            let turn = i + j;
            let head = [Head::Exposure, Head::Factored, Head::Branching][turn % 3];
            let state_dim = [51, 1, 9, 64][(turn / 2) % 4];
            let mut config = config(state_dim, &hidden, head, turn % 5 != 0);
            config.learner.double = turn % 4 != 3;
            config.learner.batch = batch;
            config.learner.accumulation = 1 + usize::from(turn % 7 == 0);
            let mut pair = Pair::new(gpu, config);
            for _ in 0..3 {
                let rows = pair.fresh_rows();
                assert!(pair.update(&rows));
            }
            pair.same_state();
        }
    }
}

/// The gradient against the formulas in f64. Chains of n roundings of terms of about one size grow as sqrt(n) ulp; the
/// bound is the relative error of the whole gradient in the 2-norm.
fn oracle(gpu: &Gpu) {
    for (dueling, hidden) in [(false, [64, 32]), (true, [64, 32]), (false, [64, 64]), (true, [128, 256])] {
        let mut config = config(51, &hidden, Head::Branching, dueling);
        config.learner.batch = 96;
        let mut pair = Pair::new(gpu, config);
        let rows = pair.fresh_rows();
        let start = pair.host.state(&pair.online, &pair.target);
        assert!(pair.update(&rows));
        let got = gpu.stream.download(pair.device.gradient()).unwrap();
        let want =
            crate::oracle::update(pair.online.layout(), &start.online, &start.target, &rows[0]).gradient;
        let (mut error, mut size) = (0.0, 0.0);
        for (got, want) in got.iter().zip(&want) {
            error += (f64::from(*got) - want).powi(2);
            size += want.powi(2);
        }
        let relative = (error / size).sqrt();
        println!("       dueling {dueling}, {hidden:?}: relative error of the gradient {relative:.2e}");
        assert!(relative < 1e-6 && size > 0.0, "{relative:e}");
    }
}

/// Cases C03, C11, C12, C15: whatever is not finite changes nothing, is named and counted as on the CPU, closes the gate,
/// and the next healthy update is as if nothing had been.
fn skips(gpu: &Gpu) {
    type Poison = fn(&mut BatchBuffers, &mut LearnerState);
    let cases: [(FaultKind, Poison); 12] = [
        (FaultKind::NonFiniteState, |rows, _| rows.states[3] = f32::NAN),
        (FaultKind::NonFiniteState, |rows, _| *rows.states.last_mut().unwrap() = f32::NAN),
        (FaultKind::NonFiniteState, |rows, _| *rows.next_states.last_mut().unwrap() = f32::NAN),
        (FaultKind::NonFiniteReward, |rows, _| *rows.terminated.last_mut().unwrap() = f32::NAN),
        (FaultKind::NonFiniteState, |rows, _| rows.next_states[0] = f32::INFINITY),
        (FaultKind::NonFiniteReward, |rows, _| rows.rewards[1] = f32::NAN),
        (FaultKind::NonFiniteReward, |rows, _| rows.terminated[0] = f32::NEG_INFINITY),
        (FaultKind::NonFiniteTdError, |rows, _| rows.discounts.fill(f32::NAN)),
        (FaultKind::NonFiniteTdError, |_, state| state.target[0] = f32::NAN),
        (FaultKind::NonFiniteLoss, |rows, _| rows.weights[0] = f32::INFINITY),
        (FaultKind::NonFiniteGradNorm, |_, state| state.online[..64].fill(3e38)),
        (FaultKind::NonFiniteGradNorm, |rows, _| rows.weights.fill(3e38)),
    ];
    // A launch a layer, and clusters with few rows and with many.
    let nets: [(&[usize], usize); 3] = [(&[33, 17], 40), (&[64, 64], 40), (&[128, 128], 265)];
    for (kind, poison) in cases {
        for (hidden, batch, accumulation) in nets.iter().flat_map(|&(h, b)| [(h, b, 1), (h, b, 2)]) {
            if gpu.small && batch > 40 {
                continue;
            }
            let mut config = config(9, hidden, Head::Branching, true);
            config.learner.batch = batch;
            config.learner.accumulation = accumulation;
            let mut pair = Pair::new(gpu, config);
            let healthy = pair.fresh_rows();
            assert!(pair.update(&healthy));
            let good = pair.host.state(&pair.online, &pair.target);
            let (mut bad, mut state) = (pair.fresh_rows(), good.clone());
            poison(bad.last_mut().unwrap(), &mut state);
            let give = |pair: &mut Pair<'_>, state: &LearnerState| {
                pair.device.upload_state(&gpu.stream, state).unwrap();
                pair.host.set_state(state, &mut pair.online, &mut pair.target);
            };
            give(&mut pair, &state);
            assert!(!pair.update(&bad), "{kind:?}");
            assert!(!pair.update(&bad), "{kind:?}");
            let (after, counts) = pair.device.download_state(&gpu.stream).unwrap();
            for (got, want) in [
                (&after.online, &state.online),
                (&after.target, &state.target),
                (&after.m, &state.m),
                (&after.v, &state.v),
            ] {
                same(got, want, &format!("{kind:?}"));
            }
            assert_eq!((after.adam_t, counts.updates, counts.skipped, counts.skipped_in_row), (1, 1, 2, 2));
            give(&mut pair, &good);
            assert!(pair.update(&healthy), "{kind:?}");
            pair.same_state();
            assert_eq!(pair.device.live().unwrap().progress.longest_skipped_row, 2);
        }
    }
    // What the CPU refuses with an error: no index to come from, an action outside the head.
    for poison in [|r: &mut BatchBuffers| r.indices[5] = u32::MAX, |r: &mut BatchBuffers| r.actions[5] = 45] {
        let mut config = config(9, &[33], Head::Factored, true);
        config.learner.batch = 40;
        let mut pair = Pair::new(gpu, config);
        let mut rows = pair.fresh_rows();
        poison(&mut rows[0]);
        let batch = [upload(gpu, &rows[0], 9)];
        let before = pair.device.download_state(&gpu.stream).unwrap().0;
        pair.device.update(&gpu.stream, &batch).unwrap();
        assert!(pair.device.download_state(&gpu.stream).unwrap().0 == before);
        let faults = pair.device.drain_faults().faults;
        assert!(faults.iter().any(|f| f.kind == FaultKind::NonFiniteTdError && f.count == 1), "{faults:?}");
    }
}

/// Acting: every row, at any number of rows, has the bits of the CPU's forward pass.
fn q_values(gpu: &Gpu) {
    let s = &gpu.stream;
    let nets: [(usize, &[usize]); 4] = [(51, &[256, 256]), (9, &[33, 65, 17]), (4, &[]), (5, &[7])];
    for (state_dim, hidden) in nets {
        for (head, dueling) in [(Head::Factored, true), (Head::Branching, true), (Head::Exposure, false)] {
            let mut config = config(state_dim, hidden, head, dueling);
            config.acting_rows = if gpu.small { 70 } else { 5000 };
            let mut pair = Pair::new(gpu, config);
            let width = head.n_outputs();
            for rows in [1, 31, 32, 33, 70, 1024, 5000] {
                if rows > pair.config.acting_rows {
                    let states = s.zeros::<f32>("states", rows * state_dim).unwrap();
                    let mut q = s.zeros::<f32>("q", rows * width).unwrap();
                    assert!(pair.device.q_values(s, &states, rows, &mut q).is_err());
                    continue;
                }
                let mut normal = Philox::new(rows as u64).stream(Purpose::Synthetic, 1, 0);
                let mut states: Vec<f32> =
                    (0..rows * state_dim).map(|_| normal.next_normal() as f32).collect();
                states[0] = f32::NAN;
                let device = s.upload_new("states", &states).unwrap();
                let mut q = s.zeros::<f32>("q", rows * width).unwrap();
                pair.device.q_values(s, &device, rows, &mut q).unwrap();
                let mut want = vec![0.0; rows * width];
                pair.online.q_values(&states, &mut want);
                same(&s.download(&q).unwrap(), &want, &format!("q of {rows} rows, {}", pair.name()));
            }
        }
    }
}

/// Case D10: captured updates leave the bits of eager ones, wait for nothing, copy nothing and allocate nothing.
fn graph(gpu: &Gpu) {
    // A cluster with few rows and one with many, and a launch a layer.
    for (hidden, batch, launches) in [([64, 64], 64, 6), ([256, 128], 200, 6), ([64, 32], 64, 12)] {
        let mut config = config(51, &hidden, Head::Factored, true);
        config.learner.batch = batch;
        config.learner.accumulation = 2;
        let learner = GpuLearner::new(&gpu.stream, &config, Some(&cache())).unwrap();
        let clusters = learner.resources().unwrap().iter().any(|(name, _)| name == "cluster_pass");
        assert!(!clusters || launches == 6);
        graph_of(gpu, &config, if clusters { 6 } else { 12 });
    }
}

fn graph_of(gpu: &Gpu, config: &GpuLearnerConfig, launches: u64) {
    let s = &gpu.stream;
    let replays = if gpu.small { 3 } else { 40 };
    let run = |captured: bool, programmatic: bool| {
        let mut config = config.clone();
        config.programmatic = programmatic;
        let mut pair = Pair::new(gpu, config);
        let rows = pair.fresh_rows();
        let batches: Vec<_> = rows.iter().map(|r| upload(gpu, r, 51)).collect();
        if captured {
            let mut graph = s.capture(|s| pair.device.update(s, &batches)).unwrap();
            let before = driver_calls();
            (0..replays).for_each(|_| graph.launch(s).unwrap());
            let calls = DriverCalls { graph_launches: replays, ..DriverCalls::default() };
            assert_eq!(driver_calls() - before, calls);
        } else {
            let before = driver_calls();
            (0..replays).for_each(|_| pair.device.update(s, &batches).unwrap());
            let made = driver_calls() - before;
            assert_eq!(made, DriverCalls { launches: made.launches, ..DriverCalls::default() });
            // A cluster, and weight gradients, twice; or two layers forward, heads and loss, two back. Squares and the step.
            assert_eq!(made.launches, replays * launches);
        }
        s.synchronise().unwrap();
        let before = driver_calls();
        let live = pair.device.live().unwrap();
        assert!(pair.device.drain_faults().faults.is_empty());
        assert_eq!(driver_calls() - before, DriverCalls::default());
        assert_eq!((live.guard.step, live.progress.counts.updates), (replays, replays));
        (pair.device.download_state(s).unwrap(), s.download(pair.device.td_errors()).unwrap())
    };
    let eager = run(false, false);
    assert!(eager == run(true, false) && eager == run(true, true) && eager == run(false, true));
}

/// A good copy and a rollback move every bit on the device; a saved state goes on as if never stopped.
fn copies(gpu: &Gpu) {
    let s = &gpu.stream;
    let mut config = config(9, &[33, 17], Head::Exposure, true);
    config.learner.batch = 31;
    for policy in [NanPolicy::Skip, NanPolicy::Rollback] {
        config.guard.nan_policy = policy;
        let mut pair = Pair::new(gpu, config.clone());
        assert_eq!(pair.device.roll_back(s).unwrap(), policy == NanPolicy::Rollback);
        let start = pair.host.state(&pair.online, &pair.target);
        pair.device.upload_state(s, &start).unwrap();
        let rows = pair.fresh_rows();
        pair.update(&rows);
        let (good, _) = pair.device.download_state(s).unwrap();
        pair.device.keep_good_copy(s).unwrap();
        pair.update(&rows);
        pair.update(&rows);
        assert!(pair.device.roll_back(s).unwrap());
        let (back, counts) = pair.device.download_state(s).unwrap();
        assert!(back == good && counts.updates == 3, "counts stay, all else goes back");
        pair.host.set_state(&good, &mut pair.online, &mut pair.target);
        pair.update(&rows);
        pair.same_state();

        let mut other = GpuLearner::new(s, &config, Some(&cache())).unwrap();
        let (state, _) = pair.device.download_state(s).unwrap();
        let (progress, sums) = pair.device.progress(s).unwrap();
        other.upload_state(s, &state).unwrap();
        other.set_progress(s, &progress, &sums).unwrap();
        assert_eq!(other.live(), None);
        assert_eq!(other.progress(s).unwrap(), (progress, sums));
        let batch = [upload(gpu, &rows[0], 9)];
        other.update(s, &batch).unwrap();
        pair.update(&rows);
        assert!(other.download_state(s).unwrap() == pair.device.download_state(s).unwrap());
        assert_eq!(other.live().unwrap(), pair.device.live().unwrap());
        pair.device.set_progress(s, &Progress::default(), &EpochSums::default()).unwrap();
        assert_eq!(pair.device.progress(s).unwrap(), Default::default());
        assert!(other.upload_state(s, &LearnerState { m: vec![0.0], ..state }).is_err());
    }
}

/// More faults than the ring holds while nobody reads: the first are kept in order, the rest are counted, and after a
/// drain the ring takes new ones.
fn overflow(gpu: &Gpu) {
    let s = &gpu.stream;
    let mut config = config(3, &[5], Head::Exposure, true);
    config.learner.batch = 4;
    let mut learner = GpuLearner::new(s, &config, Some(&cache())).unwrap();
    let mut bad = rows(&config, 4, 1);
    bad.states[0] = f32::NAN;
    bad.rewards.fill(f32::INFINITY);
    let batch = [upload(gpu, &bad, 3)];
    let mut graph = s.capture(|s| (0..50).try_for_each(|_| learner.update(s, &batch))).unwrap();
    let (rounds, capacity) = (50_u64, 4096);
    (0..rounds).for_each(|_| graph.launch(s).unwrap());
    s.synchronise().unwrap();
    let drain = learner.drain_faults();
    let steps = rounds * 50;
    assert_eq!((drain.faults.len(), drain.lost, drain.last_lost), (capacity, 2 * steps - 4096, steps));
    for (i, fault) in drain.faults.iter().enumerate() {
        let (kind, count) =
            if i % 2 == 0 { (FaultKind::NonFiniteState, 1) } else { (FaultKind::NonFiniteReward, 4) };
        assert_eq!((fault.step, fault.kind, fault.count), (i as u64 / 2 + 1, kind, count));
    }
    assert!(learner.drain_faults().faults.is_empty());
    graph.launch(s).unwrap();
    s.synchronise().unwrap();
    let drain = learner.drain_faults();
    assert_eq!((drain.faults.len(), drain.lost, drain.faults[0].step), (100, 0, steps + 1));
    assert_eq!(learner.live().unwrap().progress.counts.skipped, steps + 50);
}

/// The bytes promised are the bytes taken, and a learner that does not fit is refused before anything is taken.
fn memory(gpu: &Gpu) {
    let mut config = config(51, &[256, 256], Head::Factored, true);
    config.learner.batch = 4096;
    config.acting_rows = 16_384;
    let allocated = |config: &GpuLearnerConfig| {
        let before = gpu.device.memory().unwrap().0;
        let learner = GpuLearner::new(&gpu.stream, config, Some(&cache())).unwrap();
        let taken = before - gpu.device.memory().unwrap().0;
        drop(learner);
        taken
    };
    allocated(&config);
    // The driver hands out pieces of up to 2 MiB, and code takes some.
    let taken = allocated(&config);
    assert!(taken.abs_diff(config.bytes()) < 96 << 20, "{taken} taken, {} promised", config.bytes());
    config.shape.hidden = vec![4096; 8];
    config.learner.batch = 1 << 16;
    config.learner.accumulation = 1024;
    config.acting_rows = 1 << 16;
    if config.bytes() > gpu.device.memory().unwrap().0 {
        let error = GpuLearner::new(&gpu.stream, &config, Some(&cache())).unwrap_err().to_string();
        assert!(error.contains(&config.bytes().to_string()) && error.contains("bytes are free"), "{error}");
    }
    for wrong in [
        |c: &mut GpuLearnerConfig| c.learner.batch = 0,
        |c: &mut GpuLearnerConfig| c.shape.hidden = vec![5000],
        |c: &mut GpuLearnerConfig| c.acting_rows = 1 << 17,
    ] {
        let mut config = self::config(5, &[7], Head::Exposure, true);
        wrong(&mut config);
        assert!(GpuLearner::new(&gpu.stream, &config, Some(&cache())).is_err());
    }
}
