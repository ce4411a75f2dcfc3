//! Learners whose heads are distributions, on the device against their CPU twins, bit by bit.

use foxhunt_core::record::FaultKind;
use foxhunt_core::settings::TargetUpdate;
use foxhunt_core::{Head, Philox, Purpose, ReturnModel};
use foxhunt_cuda::{DriverCalls, driver_calls};
use foxhunt_ops::gpu_learner::{GpuLearner, GpuLearnerConfig};
use foxhunt_ops::learner::LearnerState;
use foxhunt_ops::ring::BatchBuffers;

use crate::learner::{Pair, cache, config, same, upload};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 6] = [
    ("distribution_learner_equals_the_cpu_for_every_head_and_option", every_option),
    ("distribution_learner_equals_the_cpu_for_every_number_of_atoms", every_size),
    ("distribution_learner_skips_what_is_not_finite", skips),
    ("distribution_q_values_equal_the_cpu", q_values),
    ("distribution_graph_equals_eager_without_costly_calls", graph),
    ("distribution_sizes_are_refused", sizes),
];

/// C51 with and QR-DQN of so many atoms.
fn kinds(atoms: usize) -> [ReturnModel; 2] {
    [ReturnModel::Categorical { atoms, v_min: -2.5, v_max: 3.0 }, ReturnModel::Quantiles { n: atoms }]
}

fn of(returns: ReturnModel, hidden: &[usize], head: Head, dueling: bool) -> GpuLearnerConfig {
    let mut config = config(7, hidden, head, dueling);
    config.shape.returns = returns;
    config.learner.huber_delta = 0.7;
    config
}

/// Each kind and head, dueling or not, double or not, one or three sub-batches, hard or Polyak target.
fn every_option(gpu: &Gpu) {
    let updates = if gpu.small { 2 } else { 30 };
    for returns in kinds(if gpu.small { 5 } else { 11 }) {
        for head in [Head::Exposure, Head::Factored, Head::Branching] {
            for options in 0..16 {
                let on = |bit: u32| options >> bit & 1 == 1;
                if gpu.small && ![0, 15].contains(&options) {
                    continue;
                }
                let mut config = of(returns, &[33, 17], head, on(0));
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
}

/// Atoms around every edge of a warp and a block, up to the most; one row and rows of more than one segment.
fn every_size(gpu: &Gpu) {
    let atoms: &[usize] = if gpu.small { &[2, 33] } else { &[2, 3, 31, 32, 33, 51, 127, 128, 129, 200, 256] };
    for &atoms in atoms {
        for returns in kinds(atoms) {
            for (head, dueling) in [(Head::Branching, true), (Head::Factored, false), (Head::Factored, true)]
            {
                let mut config = of(returns, &[20], head, dueling);
                config.learner.batch = if gpu.small { 3 } else { 40 };
                let mut pair = Pair::new(gpu, config);
                for _ in 0..3 {
                    let rows = pair.fresh_rows();
                    assert!(pair.update(&rows));
                }
                pair.same_state();
            }
        }
    }
    for returns in kinds(51) {
        for batch in if gpu.small { vec![1] } else { vec![1, 31, 256, 1025] } {
            let mut config = of(returns, &[64, 64], Head::Exposure, true);
            config.learner.batch = batch;
            let mut pair = Pair::new(gpu, config);
            for _ in 0..3 {
                let rows = pair.fresh_rows();
                assert!(pair.update(&rows));
            }
            pair.same_state();
        }
    }
}

/// Whatever is not finite changes nothing, is named and counted as on the CPU, and closes the gate.
fn skips(gpu: &Gpu) {
    type Poison = fn(&mut BatchBuffers, &mut LearnerState);
    let cases: [(FaultKind, Poison); 6] = [
        (FaultKind::NonFiniteState, |rows, _| rows.states[3] = f32::NAN),
        (FaultKind::NonFiniteReward, |rows, _| rows.rewards[1] = f32::NAN),
        (FaultKind::NonFiniteTdError, |rows, _| rows.discounts.fill(f32::NAN)),
        (FaultKind::NonFiniteTdError, |_, state| state.target[0] = f32::NAN),
        (FaultKind::NonFiniteLoss, |rows, _| rows.weights[0] = f32::INFINITY),
        (FaultKind::NonFiniteGradNorm, |rows, _| rows.weights.fill(3e38)),
    ];
    for returns in kinds(9) {
        for (kind, poison) in cases {
            let mut config = of(returns, &[33, 17], Head::Branching, true);
            config.learner.batch = 40;
            let mut pair = Pair::new(gpu, config);
            let healthy = pair.fresh_rows();
            assert!(pair.update(&healthy));
            let good = pair.host.state(&pair.online, &pair.target);
            let (mut bad, mut state) = (pair.fresh_rows(), good.clone());
            poison(&mut bad[0], &mut state);
            let give = |pair: &mut Pair<'_>, state: &LearnerState| {
                pair.device.upload_state(&gpu.stream, state).unwrap();
                pair.host.set_state(state, &mut pair.online, &mut pair.target);
            };
            give(&mut pair, &state);
            assert!(!pair.update(&bad), "{returns:?} {kind:?}");
            let (after, counts) = pair.device.download_state(&gpu.stream).unwrap();
            same(&after.online, &state.online, "online");
            same(&after.m, &state.m, "m");
            assert_eq!((after.adam_t, counts.updates, counts.skipped), (1, 1, 1));
            give(&mut pair, &good);
            assert!(pair.update(&healthy));
            pair.same_state();
        }
        // What the CPU refuses with an error: no index to come from, an action outside the head.
        for poison in
            [|r: &mut BatchBuffers| r.indices[5] = u32::MAX, |r: &mut BatchBuffers| r.actions[5] = 45]
        {
            let mut config = of(returns, &[33], Head::Factored, true);
            config.learner.batch = 40;
            let mut pair = Pair::new(gpu, config);
            let mut rows = pair.fresh_rows();
            poison(&mut rows[0]);
            let before = pair.device.download_state(&gpu.stream).unwrap().0;
            pair.device.update(&gpu.stream, &[upload(gpu, &rows[0], 7)]).unwrap();
            assert!(pair.device.download_state(&gpu.stream).unwrap().0 == before);
            let faults = pair.device.drain_faults().faults;
            assert!(
                faults.iter().any(|f| f.kind == FaultKind::NonFiniteTdError && f.count == 1),
                "{faults:?}"
            );
        }
    }
}

/// Acting: every row, at any number of rows, has the bits of the CPU's expectations.
fn q_values(gpu: &Gpu) {
    let s = &gpu.stream;
    for atoms in [2, 33, 51, 256] {
        for returns in kinds(atoms) {
            for (head, dueling) in [(Head::Factored, true), (Head::Branching, true), (Head::Exposure, false)]
            {
                let mut config = of(returns, &[33, 20], head, dueling);
                config.acting_rows = if gpu.small { 33 } else { 1024 };
                let mut pair = Pair::new(gpu, config);
                let width = head.n_outputs();
                for rows in [1, 31, 33, 1024].into_iter().filter(|&rows| rows <= pair.config.acting_rows) {
                    let mut normal = Philox::new(rows as u64).stream(Purpose::Synthetic, 1, 0);
                    let mut states: Vec<f32> = (0..rows * 7).map(|_| normal.next_normal() as f32).collect();
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
}

/// Case D10: captured updates leave the bits of eager ones, wait for nothing, copy nothing and allocate nothing.
fn graph(gpu: &Gpu) {
    let s = &gpu.stream;
    let replays = if gpu.small { 3 } else { 20 };
    for returns in kinds(51) {
        let run = |captured: bool, programmatic: bool| {
            let mut config = of(returns, &[64, 64], Head::Factored, true);
            config.learner.batch = 64;
            config.programmatic = programmatic;
            let mut pair = Pair::new(gpu, config);
            let rows = pair.fresh_rows();
            let batches: Vec<_> = rows.iter().map(|r| upload(gpu, r, 7)).collect();
            let before = driver_calls();
            if captured {
                let mut graph = s.capture(|s| pair.device.update(s, &batches)).unwrap();
                let before = driver_calls();
                (0..replays).for_each(|_| graph.launch(s).unwrap());
                let calls = DriverCalls { graph_launches: replays, ..DriverCalls::default() };
                assert_eq!(driver_calls() - before, calls);
            } else {
                (0..replays).for_each(|_| pair.device.update(s, &batches).unwrap());
                let made = driver_calls() - before;
                assert_eq!(made, DriverCalls { launches: made.launches, ..DriverCalls::default() });
                // Three layers forward, loss, three back; squares and the step.
                assert_eq!(made.launches, replays * 9);
            }
            s.synchronise().unwrap();
            (pair.device.download_state(s).unwrap(), s.download(pair.device.td_errors()).unwrap())
        };
        let want = run(false, false);
        assert_eq!(want.0.1.updates, replays);
        for (captured, programmatic) in [(false, true), (true, false), (true, true)] {
            assert!(run(captured, programmatic) == want, "{returns:?} {captured} {programmatic}");
        }
    }
}

/// More atoms than a block has room for are refused by name, before anything is taken.
fn sizes(gpu: &Gpu) {
    for returns in kinds(257) {
        let config = of(returns, &[8], Head::Exposure, true);
        let error = GpuLearner::new(&gpu.stream, &config, Some(&cache())).unwrap_err().to_string();
        assert!(error.contains("atoms = 257"), "{error}");
    }
}
