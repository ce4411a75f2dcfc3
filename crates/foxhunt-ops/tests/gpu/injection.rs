//! A thousand values that are not finite, at random updates, into everything an update is made from.

use std::collections::BTreeMap;

use foxhunt_core::record::{Fault, FaultKind};
use foxhunt_core::{Head, Philox, Purpose, ReturnModel};
use foxhunt_ops::gpu_learner::{GpuLearner, GpuLearnerConfig};
use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig};
use foxhunt_ops::learner::LearnerState;
use foxhunt_ops::mlp::MlpShape;
use foxhunt_ops::ring::cuda::{DeviceBatch, DeviceRows};

use crate::learner::cache;
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 1] = [("injection_of_a_thousand_non_finite_values_changes_nothing", thousand)];

const DIM: usize = 9;
const BATCH: usize = 32;

/// Everything that an update which is refused must leave alone.
#[derive(PartialEq)]
struct Bits {
    state: [Vec<u32>; 4],
    adam_t: u64,
    updates: u64,
    priorities: Vec<u32>,
    max_priority: u32,
}

fn bits(gpu: &Gpu, learner: &GpuLearner, replay: &GpuPrioritizedReplay) -> (Bits, LearnerState) {
    let s = &gpu.stream;
    let (state, counts) = learner.download_state(s).unwrap();
    let of = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
    let bits = Bits {
        state: [&state.online, &state.target, &state.m, &state.v].map(|values| of(values)),
        adam_t: state.adam_t,
        updates: counts.updates,
        priorities: of(&replay.priorities(s).unwrap()),
        max_priority: replay.counters(s).unwrap().max_priority.to_bits(),
    };
    (bits, state)
}

/// Into the loss (a weight), the gradient (one that no f32 holds), the TD errors (a discount or a parameter of
/// the target), a reward or a state, with any number of healthy updates between: weights, moments, step count, target and
/// priorities keep their bits, the record names the update and the kind, the host sees each one, and training goes on.
fn thousand(gpu: &Gpu) {
    let s = &gpu.stream;
    let shape = MlpShape {
        state_dim: DIM,
        hidden: vec![33, 17],
        head: Head::Factored.into(),
        dueling: true,
        returns: ReturnModel::Mean,
    };
    let mut config = GpuLearnerConfig::new(shape);
    config.learner.batch = BATCH;
    let mut learner = GpuLearner::new(s, &config, Some(&cache())).unwrap();
    let (online, n) = (learner.layout().init(5), learner.layout().len());
    let start = LearnerState {
        target: learner.layout().init(6),
        online,
        m: vec![0.0; n],
        v: vec![0.0; n],
        adam_t: 0,
    };
    learner.upload_state(s, &start).unwrap();

    let mut replay = GpuPrioritizedReplay::new(s, GpuReplayConfig::new(500, DIM), Some(&cache())).unwrap();
    let mut random = Philox::new(31).stream(Purpose::Synthetic, 0, 0);
    let mut rows = DeviceRows::zeros(s, 500, DIM).unwrap();
    let mut normal = |n: usize| -> Vec<f32> { (0..n).map(|_| random.next_normal() as f32).collect() };
    s.upload(&mut rows.states, &normal(500 * DIM)).unwrap();
    s.upload(&mut rows.next_states, &normal(500 * DIM)).unwrap();
    s.upload(&mut rows.rewards, &normal(500)).unwrap();
    s.upload(&mut rows.discounts, &[0.95; 500]).unwrap();
    s.upload(&mut rows.actions, &(0..500).map(|i| i % 45).collect::<Vec<u32>>()).unwrap();
    replay.insert(s, &rows, 500).unwrap();

    let mut out = DeviceBatch::zeros(s, BATCH, DIM).unwrap();
    let word = |step: u64, k: u32| Philox::new(77).block(Purpose::Synthetic, k, step, 0)[0];
    let bad = |w: u32| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][w as usize % 3];
    let injections = if gpu.small { 12 } else { 1000 };
    let (mut step, mut seen, mut moved, mut kinds) = (0_u64, 0, 0, BTreeMap::new());
    for injection in 0..injections {
        for _ in 0..word(injection, 0) % 3 {
            let before = bits(gpu, &learner, &replay).0;
            replay.sample(s, &mut out).unwrap();
            learner.update(s, std::slice::from_ref(&out)).unwrap();
            replay.update(s, &learner.priorities(), BATCH).unwrap();
            step += 1;
            let after = bits(gpu, &learner, &replay).0;
            assert!(after.state[0] != before.state[0] && after.priorities != before.priorities);
            assert!(learner.drain_faults().faults.is_empty());
            moved += 1;
        }
        replay.sample(s, &mut out).unwrap();
        let at = word(injection, 1) as usize;
        let value = bad(word(injection, 2));
        let mut host = out.download(s).unwrap();
        let (_, good) = bits(gpu, &learner, &replay);
        let mut state = good.clone();
        let kind = match word(injection, 3) % 7 {
            0 => {
                host.states[at % (BATCH * DIM)] = value;
                FaultKind::NonFiniteState
            }
            1 => {
                host.next_states[at % (BATCH * DIM)] = value;
                FaultKind::NonFiniteState
            }
            2 => {
                host.rewards[at % BATCH] = value;
                FaultKind::NonFiniteReward
            }
            3 => {
                host.weights[at % BATCH] = value;
                FaultKind::NonFiniteLoss
            }
            4 => {
                // The same Q-values from hidden values a thousand times as large: the loss still fits an f32, the
                // gradient of the head does not.
                let layers = learner.layout().layers();
                let (last, head) = (layers[layers.len() - 2], layers[layers.len() - 1]);
                state.online[last.weight..last.weight + last.n_in * last.n_out]
                    .iter_mut()
                    .for_each(|w| *w *= 1e3);
                state.online[last.bias..last.bias + last.n_out].iter_mut().for_each(|w| *w *= 1e3);
                state.online[head.weight..head.weight + head.n_in * head.n_out]
                    .iter_mut()
                    .for_each(|w| *w *= 1e-3);
                host.weights.fill(1e37);
                FaultKind::NonFiniteGradNorm
            }
            5 => {
                host.discounts[at % BATCH] = value;
                host.terminated[at % BATCH] = 0.0;
                FaultKind::NonFiniteTdError
            }
            _ => {
                let n = state.target.len();
                state.target[n - 1 - at % 45] = value;
                FaultKind::NonFiniteTdError
            }
        };
        out.upload(s, &host).unwrap();
        learner.upload_state(s, &state).unwrap();
        let before = bits(gpu, &learner, &replay).0;
        learner.update(s, std::slice::from_ref(&out)).unwrap();
        replay.update(s, &learner.priorities(), BATCH).unwrap();
        step += 1;
        assert!(bits(gpu, &learner, &replay).0 == before, "injection {injection}: {kind:?} at update {step}");
        let drain = learner.drain_faults();
        let named = |fault: &Fault| fault.step == step && fault.kind == kind && fault.count > 0;
        assert!(drain.lost == 0 && drain.faults.iter().any(named), "{kind:?} at {step}: {:?}", drain.faults);
        assert!(drain.faults.iter().all(|fault| fault.step == step), "{:?}", drain.faults);
        let live = learner.live().unwrap();
        assert_eq!(live.guard.step, step);
        *kinds.entry(format!("{kind:?}")).or_insert(0) += 1;
        seen += 1;
        learner.upload_state(s, &good).unwrap();
    }
    assert!(gpu.small || kinds.len() == 5, "{kinds:?}");
    let (progress, sums) = learner.progress(s).unwrap();
    assert_eq!((seen, progress.counts.skipped), (injections, injections));
    assert_eq!((progress.counts.updates, sums.updates), (moved, moved));
    println!("       {injections} injections among {moved} healthy updates: {kinds:?}");
}
