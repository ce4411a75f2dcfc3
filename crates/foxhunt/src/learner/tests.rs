use candle_core::{DType, Device, Tensor, Var};
use foxhunt_core::record::FaultKind;
use foxhunt_core::settings::TargetUpdate;
use foxhunt_core::{Head, LinearSchedule, Philox, Purpose, ReturnModel, Settings};
use foxhunt_ops::mlp::{MlpLayout, MlpShape};
use foxhunt_ops::td_loss::{TargetRule, TdLossInput, TdLossParams, td_loss};
use serde_json::Value;

use super::{Batch, Learner, LearnerState, QNetwork, reference};
use crate::MLError;
use crate::engine::Snapshot;

mod distributions;
mod noisy;

const STATE_DIM: usize = 7;

/// Owned rows, and a view of some of them.
#[derive(Clone)]
struct Rows {
    states: Vec<f32>,
    next_states: Vec<f32>,
    actions: Vec<u32>,
    rewards: Vec<f32>,
    terminated: Vec<f32>,
    discounts: Vec<f32>,
    weights: Vec<f32>,
}

impl Rows {
    fn new(rows: usize, head: Head, seed: u64) -> Self {
        let mut stream = Philox::new(seed).stream(Purpose::Synthetic, 0, 0);
        let mut normal = |n: usize| -> Vec<f32> { (0..n).map(|_| stream.next_normal() as f32).collect() };
        Self {
            states: normal(rows * STATE_DIM),
            next_states: normal(rows * STATE_DIM),
            actions: (0..rows).map(|i| (i * 7 % head.n_actions()) as u32).collect(),
            rewards: normal(rows),
            terminated: (0..rows).map(|i| if i % 5 == 2 { 1.0 } else { 0.0 }).collect(),
            discounts: vec![0.97; rows],
            weights: (0..rows).map(|i| 0.4 + 0.1 * (i % 7) as f32).collect(),
        }
    }

    fn view(&self) -> Batch<'_> {
        self.part(0..self.actions.len())
    }

    fn part(&self, of: std::ops::Range<usize>) -> Batch<'_> {
        let states = of.start * STATE_DIM..of.end * STATE_DIM;
        Batch {
            states: &self.states[states.clone()],
            next_states: &self.next_states[states],
            actions: &self.actions[of.clone()],
            rewards: &self.rewards[of.clone()],
            terminated: &self.terminated[of.clone()],
            discounts: &self.discounts[of.clone()],
            weights: &self.weights[of],
        }
    }
}

fn settings(head: Head) -> Settings {
    let mut settings = Settings::default();
    settings.network.head = head;
    settings.network.hidden = vec![32, 16];
    settings.learner.learning_rate = LinearSchedule::constant(1e-3);
    settings
}

fn learner(head: Head) -> Learner {
    Learner::new(&settings(head), STATE_DIM)
}

fn bits(state: &LearnerState) -> Vec<u32> {
    [&state.online, &state.target, &state.m, &state.v]
        .iter()
        .flat_map(|v| v.iter().map(|x| x.to_bits()))
        .collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn singles(value: &Value) -> Vec<f32> {
    numbers(value).iter().map(|&v| v as f32).collect()
}

fn assert_close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let difference = (f64::from(got) - want).abs();
        assert!(difference <= tolerance * want.abs().max(1.0), "{what}[{i}] = {got}, PyTorch {want}");
    }
}

/// Q, loss, |TD error|, gradient, norm, and the state after three updates, against PyTorch in f64, for DQN, C51, QR-DQN
/// (tests/golden/learner.py), Munchausen and noise (options.py). Case C18 in a network: moments and weights carry over from
/// step to step.
#[test]
fn updates_equal_pytorch() {
    for document in
        [include_str!("../../tests/golden/learner.json"), include_str!("../../tests/golden/options.json")]
    {
        equals_golden(&serde_json::from_str(document).unwrap());
    }
}

fn equals_golden(golden: &Value) {
    let of = &golden["settings"];
    let number = |key: &str| of[key].as_f64().unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let mut settings = Settings::default();
        settings.network.head = serde_json::from_value(case["head"].clone()).unwrap();
        settings.network.dueling = case["dueling"].as_bool().unwrap();
        settings.network.hidden = vec![5, 4];
        match case.get("kind").map_or("dqn", |kind| kind.as_str().unwrap()) {
            "c51" => {
                settings.network.c51_atoms = of["atoms"].as_u64().unwrap() as usize;
                settings.network.c51_range = numbers(&of["range"]).try_into().unwrap();
            }
            "qr" => settings.network.quantiles = of["atoms"].as_u64().unwrap() as usize,
            kind => assert_eq!(kind, "dqn"),
        }
        settings.learner.double = case["double"].as_bool().unwrap();
        if let Some(rule) = case.get("munchausen").filter(|rule| rule.is_object()) {
            let of = |key: &str| rule[key].as_f64().unwrap();
            let l = &mut settings.learner;
            l.munchausen = true;
            (l.munchausen_alpha, l.munchausen_tau, l.munchausen_floor) =
                (of("alpha"), of("tau"), of("floor"));
        }
        if let Some(seed) = case.get("noise_seed").and_then(Value::as_u64) {
            (settings.network.noisy, settings.run.seed) = (true, seed);
        }
        settings.learner.huber_delta = number("huber_delta");
        settings.learner.clip_norm = number("clip_norm");
        settings.learner.learning_rate = LinearSchedule::constant(number("learning_rate"));
        settings.learner.adam_beta1 = number("beta1");
        settings.learner.adam_beta2 = number("beta2");
        settings.learner.adam_epsilon = number("epsilon");
        settings.learner.target = TargetUpdate::Polyak { tau: number("tau") };
        let mut learner = Learner::new(&settings, of["state_dim"].as_u64().unwrap() as usize);
        let mut start = learner.state();
        start.online = singles(&case["start"]["online"]);
        start.target = singles(&case["start"]["target"]);
        learner.set_state(&start).unwrap();

        let batch = |key: &str| singles(&case["batch"][key]);
        let rows = Rows {
            states: batch("states"),
            next_states: batch("next_states"),
            actions: numbers(&case["batch"]["actions"]).iter().map(|&a| a as u32).collect(),
            rewards: batch("rewards"),
            terminated: batch("terminated"),
            discounts: batch("discounts"),
            weights: batch("weights"),
        };
        let view = Batch {
            states: &rows.states,
            next_states: &rows.next_states,
            actions: &rows.actions,
            rewards: &rows.rewards,
            terminated: &rows.terminated,
            discounts: &rows.discounts,
            weights: &rows.weights,
        };
        let want = |key: &str| numbers(&case["want"][key]);
        let scalar = |key: &str| vec![case["want"][key].as_f64().unwrap()];

        let mut q = vec![0.0; want("q").len()];
        learner.network_mut().q_values(&rows.states, &mut q).unwrap();
        // Chains of at most five rounded terms of size one.
        assert_close("q", &q, &want("q"), 2e-6);
        let report = learner.update(&[view]).unwrap();
        assert!(report.applied);
        assert_close("loss", &[report.loss], &scalar("loss"), 2e-6);
        assert_close("norm", &[report.grad_norm], &scalar("norm"), 2e-6);
        assert_close("td", report.td, &want("td"), 2e-6);
        assert_close("gradient", learner.gradient(), &want("gradient"), 2e-6);
        for _ in 0..2 {
            assert!(learner.update(&[view]).unwrap().applied);
        }
        let state = learner.state();
        assert_close("m", &state.m, &want("m"), 2e-6);
        assert_close("v", &state.v, &want("v"), 2e-6);
        // Adam divides by the root of v: a gradient near 0 has a direction that f32 knows less well.
        assert_close("online", &state.online, &want("online"), 2e-5);
        assert_close("target", &state.target, &want("target"), 2e-6);
    }
}

/// The hand-written backward against candle's autograd in f64, for every head, over more than one block of rows.
#[test]
fn gradients_equal_candle_autograd() {
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for dueling in [false, true] {
            let mut settings = settings(head);
            settings.network.dueling = dueling;
            let mut learner = Learner::new(&settings, STATE_DIM);
            let rows = Rows::new(150, head, 3);
            let layout = learner.network().layout().clone();
            let online = learner.network().parameters().to_vec();

            // dL/dQ comes from the TD loss, tested by itself; everything behind it from candle.
            let q_of = |states: &[f32]| {
                let mut q = vec![0.0; 150 * layout.n_outputs()];
                let mut network = QNetwork::with_parameters(layout.clone(), online.clone()).unwrap();
                network.q_values(states, &mut q).unwrap();
                q
            };
            let (q, q_next) = (q_of(&rows.states), q_of(&rows.next_states));
            let input = TdLossInput {
                q: &q,
                q_next_online: &q_next,
                q_next_target: &q_next,
                q_target: &[],
                actions: &rows.actions,
                rewards: &rows.rewards,
                terminated: &rows.terminated,
                discounts: &rows.discounts,
                weights: &rows.weights,
            };
            let params = TdLossParams {
                head: head.into(),
                rule: TargetRule::Double,
                huber_delta: 1.0,
                rows_total: 150,
            };
            let (mut dq, mut losses, mut td) = (vec![0.0; q.len()], vec![0.0; 150], vec![0.0; 150]);
            td_loss(&params, &input, &mut dq, &mut losses, &mut td);

            let wide = |v: &[f32], shape: (usize, usize)| {
                Tensor::from_slice(v, shape, &Device::Cpu).unwrap().to_dtype(DType::F64).unwrap()
            };
            let w: Vec<f64> = online.iter().map(|&v| f64::from(v)).collect();
            let w = Var::from_slice(&w, layout.len(), &Device::Cpu).unwrap();
            let candle_q =
                reference::forward(&layout, w.as_tensor(), &wide(&rows.states, (150, STATE_DIM))).unwrap();
            let objective = (candle_q * wide(&dq, (150, layout.n_outputs()))).unwrap().sum_all().unwrap();
            let want = objective.backward().unwrap().remove(w.as_tensor()).unwrap().to_vec1::<f64>().unwrap();

            let report = learner.update(&[rows.view()]).unwrap();
            assert_eq!(report.td, td);
            assert_close("gradient", learner.gradient(), &want, 1e-6);
            let norm = want.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!(norm > 0.01);
        }
    }
}

/// A network can fit: loss falls, weights move, every update is counted.
#[test]
fn loss_falls_on_a_fixed_problem() {
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        let mut learner = learner(head);
        let mut rows = Rows::new(64, head, 1);
        // All terminal: the target is the reward, a plain regression.
        rows.terminated.fill(1.0);
        let before = learner.network().parameters().to_vec();
        let first = learner.update(&[rows.view()]).unwrap().loss;
        for _ in 0..400 {
            learner.update(&[rows.view()]).unwrap();
        }
        let last = learner.update(&[rows.view()]).unwrap().loss;
        assert!(last < 0.2 * first, "{head:?}: loss went from {first} to {last}");
        assert_eq!(learner.counts().updates, 402);
        let moved = before.iter().zip(learner.network().parameters()).filter(|(a, b)| a != b).count();
        assert!(moved > before.len() / 2, "{moved} of {} weights moved", before.len());
    }
}

/// Cases C03, C11, C12 and C15: whatever is not finite, wherever it enters, no bit of weights, moments, step count or
/// target changes, the fault is recorded with its step and count, and the next healthy update is as if nothing was.
#[test]
fn nothing_that_is_not_finite_is_applied() {
    type Poison = fn(&mut Rows, &mut LearnerState);
    let cases: [(FaultKind, Poison); 8] = [
        (FaultKind::NonFiniteState, |rows, _| rows.states[3] = f32::NAN),
        (FaultKind::NonFiniteState, |rows, _| rows.next_states[0] = f32::INFINITY),
        (FaultKind::NonFiniteReward, |rows, _| rows.rewards[1] = f32::NAN),
        (FaultKind::NonFiniteReward, |rows, _| rows.terminated[0] = f32::NAN),
        (FaultKind::NonFiniteTdError, |rows, _| rows.discounts[0] = f32::NAN),
        (FaultKind::NonFiniteTdError, |_, state| state.target[0] = f32::NAN),
        (FaultKind::NonFiniteLoss, |rows, _| rows.weights[0] = f32::INFINITY),
        // An infinite value of the target network: the loss is infinite, but Huber's slope keeps the gradient finite.
        (FaultKind::NonFiniteLoss, |_, state| {
            let value_bias = state.target.len() - 12;
            state.target[value_bias] = f32::INFINITY;
        }),
    ];
    for (kind, poison) in cases {
        let mut learner = learner(Head::Branching);
        let healthy = Rows::new(40, Head::Branching, 2);
        learner.update(&[healthy.view()]).unwrap();
        let good = learner.state();
        let (mut rows, mut state) = (healthy.clone(), good.clone());
        poison(&mut rows, &mut state);
        learner.set_state(&state).unwrap();

        let report = learner.update(&[rows.view()]).unwrap();
        assert!(!report.applied && report.guard.halt_nan, "{kind:?}");
        let fault = report.faults.iter().find(|fault| fault.kind == kind);
        let fault = fault.unwrap_or_else(|| panic!("{kind:?} is missing in {:?}", report.faults));
        assert!(fault.step == 2 && fault.count >= 1);
        assert_eq!(bits(&learner.state()), bits(&state), "{kind:?}");
        assert_eq!(learner.state().adam_t, 1);
        let counts = learner.counts();
        assert_eq!((counts.updates, counts.skipped, counts.skipped_in_row), (1, 1, 1));

        learner.set_state(&good).unwrap();
        assert!(learner.update(&[healthy.view()]).unwrap().applied);
        assert_eq!(learner.counts().skipped_in_row, 0);
        let mut clean = self::learner(Head::Branching);
        clean.update(&[healthy.view()]).unwrap();
        clean.update(&[healthy.view()]).unwrap();
        assert_eq!(bits(&learner.state()), bits(&clean.state()), "{kind:?}");
    }
}

/// A gradient that overflows is found by its norm, and the parameter is named.
#[test]
fn a_gradient_that_is_not_finite_names_its_parameter() {
    let mut learner = learner(Head::Exposure);
    let mut state = learner.state();
    // A first layer this large overflows the hidden units, so the gradient of what follows is not finite.
    state.online[..32 * STATE_DIM].fill(3e38);
    learner.set_state(&state).unwrap();
    let rows = Rows::new(8, Head::Exposure, 2);
    let report = learner.update(&[rows.view()]).unwrap();
    assert!(!report.applied);
    assert!(report.non_finite_parameters.iter().any(|name| name == "layer1.weight"), "{report:?}");
    assert!(report.faults.iter().any(|fault| fault.kind == FaultKind::NonFiniteGradNorm));
    assert_eq!(bits(&learner.state()), bits(&state));
}

/// Cases C08 and C09: sub-batches of any size give the gradient of all rows at once, and nothing stays behind.
#[test]
fn sub_batches_average_over_all_rows() {
    let rows = Rows::new(150, Head::Factored, 5);
    let mut whole = learner(Head::Factored);
    let loss = whole.update(&[rows.view()]).unwrap().loss;
    for cuts in [vec![0, 1, 150], vec![0, 70, 70, 140, 150]] {
        let mut learner = learner(Head::Factored);
        let parts: Vec<_> = cuts.windows(2).map(|cut| rows.part(cut[0]..cut[1])).collect();
        let report = learner.update(&parts).unwrap();
        assert!((report.loss - loss).abs() < 1e-6);
        assert_eq!(report.td.len(), 150);
        let want: Vec<f64> = whole.gradient().iter().map(|&g| f64::from(g)).collect();
        // The same sums in the same order but for where they are cut.
        assert_close("gradient", learner.gradient(), &want, 1e-6);
        // The next update starts from an empty gradient (case C09).
        let single = rows.part(0..20);
        let state = learner.state();
        learner.update(&[single]).unwrap();
        let gradient = learner.gradient().to_vec();
        let mut fresh = self::learner(Head::Factored);
        fresh.set_state(&state).unwrap();
        fresh.update(&[single]).unwrap();
        assert_eq!(gradient, fresh.gradient());
        assert_eq!(learner.counts().updates, 2);
    }
}

/// Cases B09, B10 and B12: the target keeps its own memory, is copied at updates N, 2N, ..., and an interval is never
/// part of what is saved, so saving and loading cannot change it.
#[test]
fn the_target_is_copied_every_n_updates_whatever_is_saved_between() {
    let mut settings = settings(Head::Exposure);
    settings.learner.target = TargetUpdate::Hard { every: 4 };
    let mut learner = Learner::new(&settings, STATE_DIM);
    let rows = Rows::new(16, Head::Exposure, 1);
    let mut synced = Vec::new();
    for update in 1..=13 {
        assert!(learner.update(&[rows.view()]).unwrap().applied);
        if learner.target() == learner.network().parameters() {
            synced.push(update);
        }
        assert_ne!(learner.target().as_ptr(), learner.network().parameters().as_ptr());
        if update % 3 == 0 {
            let mut snapshot = Snapshot::default();
            learner.snapshot(&mut snapshot);
            learner = Learner::new(&settings, STATE_DIM);
            learner.restore(&snapshot).unwrap();
        }
    }
    assert_eq!(synced, [4, 8, 12]);
}

/// A skipped update does not count towards the next copy, nor towards the learning rate.
#[test]
fn schedules_go_by_applied_updates() {
    let mut settings = settings(Head::Exposure);
    settings.learner.learning_rate = LinearSchedule { start: 1e-3, end: 0.5e-3, steps: 10 };
    let mut learner = Learner::new(&settings, STATE_DIM);
    let rows = Rows::new(16, Head::Exposure, 1);
    let mut bad = rows.clone();
    bad.rewards[0] = f32::NAN;
    assert_eq!(learner.update(&[rows.view()]).unwrap().learning_rate, 1e-3);
    assert!(!learner.update(&[bad.view()]).unwrap().applied);
    assert!((learner.update(&[rows.view()]).unwrap().learning_rate - 0.95e-3).abs() < 1e-12);
    for _ in 0..20 {
        learner.update(&[rows.view()]).unwrap();
    }
    assert_eq!(learner.learning_rate(), 0.5e-3);
}

/// Case C18: everything Adam knows comes back, to the bit; a snapshot that does not fit changes nothing.
#[test]
fn a_restored_learner_goes_on_to_the_bit() {
    let mut first = learner(Head::Branching);
    let rows = Rows::new(70, Head::Branching, 4);
    for _ in 0..10 {
        first.update(&[rows.view()]).unwrap();
    }
    let mut snapshot = Snapshot::default();
    first.snapshot(&mut snapshot);
    let mut second = learner(Head::Branching);
    second.restore(&snapshot).unwrap();
    assert_eq!(second.counts(), first.counts());
    for _ in 0..5 {
        first.update(&[rows.view()]).unwrap();
        second.update(&[rows.view()]).unwrap();
    }
    assert_eq!(bits(&first.state()), bits(&second.state()));

    let mut other = learner(Head::Exposure);
    let before = other.state();
    assert!(matches!(other.restore(&snapshot), Err(MLError::Checkpoint { .. })));
    snapshot.arrays.remove("adam_v.layer0.bias");
    assert!(matches!(second.restore(&snapshot), Err(MLError::Checkpoint { .. })));
    assert_eq!(bits(&other.state()), bits(&before));
    assert_eq!(bits(&first.state()), bits(&second.state()));
}

/// The same seed gives the same bits, on any number of threads; another seed gives others.
#[test]
fn the_seed_decides_every_bit() {
    let run = |seed, threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut settings = settings(Head::Factored);
        settings.run.seed = seed;
        let mut learner = Learner::new(&settings, STATE_DIM);
        let rows = Rows::new(200, Head::Factored, 6);
        let mut all = Vec::new();
        pool.install(|| {
            for _ in 0..5 {
                let report = learner.update(&[rows.view()]).unwrap();
                all.extend([
                    report.loss.to_bits(),
                    report.grad_norm.to_bits(),
                    report.td_error.to_bits() as u32,
                ]);
                all.extend(report.td.iter().map(|td| td.to_bits()));
            }
        });
        all.extend(bits(&learner.state()));
        all
    };
    let one = run(1, 1);
    assert_eq!(one, run(1, 1));
    assert_eq!(one, run(1, 2));
    assert_eq!(one, run(1, 5));
    assert_ne!(one, run(2, 1));
}

/// Case C17 in the learner: collapsed updates in a row are counted past warm-up; a skipped one neither counts nor
/// resets.
#[test]
fn collapsed_updates_are_counted_in_a_row() {
    let mut settings = settings(Head::Exposure);
    settings.guard.collapse_warmup = 1;
    settings.guard.collapse_multiplier = 1e3;
    let mut learner = Learner::new(&settings, STATE_DIM);
    let rows = Rows::new(16, Head::Exposure, 1);
    let (mut flat, mut bad) = (rows.clone(), rows.clone());
    flat.weights.fill(0.0);
    bad.rewards[0] = f32::NAN;
    let mut update = |rows: &Rows| {
        learner.update(&[rows.view()]).unwrap();
        learner.counts().collapsed_in_row
    };
    // Weights of 0 have no gradient at all; the first is within warm-up.
    assert_eq!([update(&flat), update(&flat), update(&flat)], [0, 1, 2]);
    assert_eq!([update(&bad), update(&flat)], [2, 3]);
}

#[test]
fn sub_batches_that_do_not_fit_change_nothing() {
    let mut learner = learner(Head::Exposure);
    let before = bits(&learner.state());
    let rows = Rows::new(4, Head::Exposure, 1);
    let short = Batch { rewards: &rows.rewards[1..], ..rows.view() };
    assert!(matches!(learner.update(&[short]), Err(MLError::Shape { what: "rewards", .. })));
    let outside = Batch { actions: &[0, 1, 2, 5], ..rows.view() };
    assert!(matches!(learner.update(&[outside]), Err(MLError::Action(_))));
    assert!(matches!(learner.update(&[]), Err(MLError::NotEnoughData { .. })));
    assert_eq!(bits(&learner.state()), before);
    assert_eq!(learner.counts().updates + learner.counts().skipped, 0);
}

/// candle's forward and ours agree, so a program may train with either.
#[test]
fn candle_runs_the_same_network() {
    for (head, c51_atoms, quantiles) in
        [(Head::Exposure, 0, 0), (Head::Branching, 0, 0), (Head::Branching, 51, 0), (Head::Factored, 0, 32)]
    {
        let mut settings = settings(head);
        (settings.network.c51_atoms, settings.network.quantiles) = (c51_atoms, quantiles);
        let mut network = QNetwork::new(&settings.network, STATE_DIM, 3);
        let rows = Rows::new(33, head, 8);
        let states = Tensor::from_slice(&rows.states, (33, STATE_DIM), &Device::Cpu).unwrap();
        let want: Vec<f64> = network
            .forward(&states)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_dtype(DType::F64)
            .unwrap()
            .to_vec1()
            .unwrap();
        let mut q = vec![0.0; 33 * head.n_outputs()];
        network.q_values(&rows.states, &mut q).unwrap();
        assert_close("q", &q, &want, 2e-6);
        assert!(network.q_values(&rows.states[1..], &mut q).is_err());

        let mut snapshot = Snapshot::default();
        network.write(&mut snapshot, "online.");
        let read = QNetwork::from_snapshot(&settings.network, STATE_DIM, &snapshot, "online.").unwrap();
        assert_eq!(read.parameters(), network.parameters());
    }
    let layout = MlpLayout::new(MlpShape {
        state_dim: 1,
        hidden: vec![],
        head: Head::Exposure.into(),
        dueling: false,
        returns: ReturnModel::Mean,
    });
    assert!(QNetwork::with_parameters(layout, vec![0.0; 3]).is_err());
}
