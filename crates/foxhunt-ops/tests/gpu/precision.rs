//! Tensor-core products: how far from f64 each mode may be, and what must not change with it.

use foxhunt_core::Head;
use foxhunt_core::record::FaultKind;
use foxhunt_core::settings::Precision;
use foxhunt_ops::gpu_learner::{GpuLearner, GpuLearnerConfig};
use foxhunt_ops::learner::LearnerState;
use foxhunt_ops::mlp::MlpLayout;
use foxhunt_ops::ring::BatchBuffers;

use crate::learner::{cache, config, rows, same, upload};
use crate::{Gpu, Test, oracle};

pub(crate) const TESTS: [Test; 5] = [
    ("precision_q_values_are_as_close_to_f64_as_the_format", q_values),
    ("precision_of_a_linear_gradient_is_the_format_s", linear_gradient),
    ("precision_gradients_are_close_to_f64", gradients),
    ("precision_gives_the_same_bits_again_and_in_a_graph", repeats),
    ("precision_hides_nothing_that_is_not_finite", skips),
];

const TENSOR: [Precision; 3] = [Precision::Tf32x3, Precision::Tf32, Precision::Bf16];
const HEADS: [Head; 3] = [Head::Exposure, Head::Factored, Head::Branching];

/// Largest relative error of rounding one value to the format; of `tf32x3`, whose parts hold 22 bits, what f32 sums add.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::F32 | Precision::Tf32x3 => f64::from(2.0_f32.powi(-22)),
        Precision::Tf32 => f64::from(2.0_f32.powi(-11)),
        Precision::Bf16 => f64::from(2.0_f32.powi(-8)),
    }
}

fn state(layout: &MlpLayout) -> LearnerState {
    let zero = vec![0.0; layout.len()];
    LearnerState { online: layout.init(3), target: layout.init(4), m: zero.clone(), v: zero, adam_t: 0 }
}

fn learner(gpu: &Gpu, config: &GpuLearnerConfig, precision: Precision) -> GpuLearner {
    let mut config = config.clone();
    config.learner.precision = precision;
    let mut learner = GpuLearner::new(&gpu.stream, &config, Some(&cache())).unwrap();
    let state = state(learner.layout());
    learner.upload_state(&gpu.stream, &state).unwrap();
    learner
}

fn told(errors: &[f64]) -> String {
    errors.iter().map(|error| format!("{error:.1e}")).collect::<Vec<_>>().join(" / ")
}

/// Relative error in the 2-norm.
fn distance(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let (mut error, mut size) = (0.0, 0.0);
    for (got, want) in got.iter().zip(want) {
        error += (f64::from(*got) - want).powi(2);
        size += want.powi(2);
    }
    assert!(size > 0.0);
    (error / size).sqrt()
}

/// A layer rounds both factors of each product, and what it gives is rounded again by the next: 2 roundings a layer, all in
/// one direction at worst. Dueling heads subtract a mean, which at most doubles it.
fn q_values(gpu: &Gpu) {
    let sizes: &[usize] = if gpu.small { &[1, 33] } else { &[1, 33, 1000, 8192] };
    let mut worst = [0.0_f64; 4];
    for head in HEADS {
        for dueling in [false, true] {
            let hidden: &[usize] = if gpu.small { &[33, 17] } else { &[256, 256] };
            let mut config = config(51, hidden, head, dueling);
            config.learner.batch = 1;
            config.acting_rows = 8192;
            let states = rows(&config, *sizes.last().unwrap(), 7).states;
            let layout = MlpLayout::new(config.shape.clone());
            let want = oracle::q_values(&layout, &layout.init(3), &states);
            let on_device = gpu.stream.upload_new("states", &states).unwrap();
            for &n in sizes {
                let want = &want[..n * layout.n_outputs()];
                let mut plain = Vec::new();
                for (mode, precision) in Precision::ALL.into_iter().enumerate() {
                    let mut learner = learner(gpu, &config, precision);
                    let mut q = gpu.stream.zeros("q", [n, layout.n_outputs()]).unwrap();
                    learner.q_values(&gpu.stream, &on_device, n, &mut q).unwrap();
                    let got = gpu.stream.download(&q).unwrap();
                    let error = distance(&got, want);
                    let bound = rounding(precision) * (4 * layout.layers().len()) as f64;
                    assert!(error < bound, "{precision:?} {head:?} {dueling} {n}: {error:e}, not {bound:e}");
                    worst[mode] = worst[mode].max(error);
                    match precision {
                        Precision::F32 => plain = got,
                        _ => assert!(
                            n == 1 || got != plain,
                            "{precision:?} {head:?} {dueling} {n} changes nothing"
                        ),
                    }
                }
            }
        }
    }
    println!("       largest relative error of Q-values, f32 / tf32x3 / tf32 / bf16: {}", told(&worst));
}

/// Without hidden layers and without bootstrap nothing turns on a rounding error: the gradient is a product of TD errors
/// with inputs, each off by a few roundings; a TD error is a difference, here of values of about one size.
fn linear_gradient(gpu: &Gpu) {
    for head in HEADS {
        for dueling in [false, true] {
            let mut config = config(51, &[], head, dueling);
            config.learner.batch = if gpu.small { 33 } else { 500 };
            let mut batch = rows(&config, config.learner.batch, 5);
            batch.terminated.fill(1.0);
            for precision in Precision::ALL {
                let (loss, gradient, want) = one_update(gpu, &config, precision, &batch);
                let (error, bound) = (distance(&gradient, &want.gradient), 8.0 * rounding(precision));
                assert!(error < bound, "{precision:?} {head:?} {dueling}: gradient off by {error:e}");
                let error = (f64::from(loss) - want.loss).abs() / want.loss;
                assert!(error < bound, "{precision:?} {head:?} {dueling}: loss off by {error:e}");
            }
        }
    }
}

/// Loss and gradient of one update on the device and in f64.
fn one_update(
    gpu: &Gpu,
    config: &GpuLearnerConfig,
    precision: Precision,
    batch: &BatchBuffers,
) -> (f32, Vec<f32>, oracle::Oracle) {
    let mut learner = learner(gpu, config, precision);
    let state = state(learner.layout());
    let want = oracle::update(learner.layout(), &state.online, &state.target, batch);
    learner.update(&gpu.stream, &[upload(gpu, batch, config.shape.state_dim)]).unwrap();
    let gradient = gpu.stream.download(learner.gradient()).unwrap();
    (learner.live().unwrap().guard.raw_loss, gradient, want)
}

/// Rounding turns decisions: a unit that is as good as 0 falls on the other side of its relu, and two next actions that are
/// as good as equal change places. A decision with a relative error e turns in a share e of the cases at most (densities
/// at a tie are below one), of L layers of units and n_outputs - 1 rivals for the best action, e = 2 L u. Each turned
/// case is wrong by its whole size, so the relative error of the gradient is at most the root of that share. In f32 and
/// tf32x3 rows with a tie are left out of the batch, and what remains is the rounding of sums.
fn gradients(gpu: &Gpu) {
    let batches: &[usize] = if gpu.small { &[64] } else { &[64, 256, 1024, 8192] };
    let mut worst = [[0.0_f64; 2]; 4];
    for head in HEADS {
        for dueling in [false, true] {
            for &n in batches {
                let wide = head == Head::Factored && dueling && !gpu.small;
                let hidden: &[usize] = if wide { &[256, 256] } else { &[64, 32] };
                let mut config = config(51, hidden, head, dueling);
                config.learner.batch = n;
                let layout = MlpLayout::new(config.shape.clone());
                let (start, mut batch) = (state(&layout), rows(&config, n, 11));
                let ties = oracle::update(&layout, &start.online, &start.target, &batch).margins;
                for (weight, margin) in batch.weights.iter_mut().zip(&ties) {
                    *weight = if *margin < 4e-6 { 0.0 } else { *weight };
                }
                assert!(batch.weights.iter().filter(|w| **w == 0.0).count() * 10 < n);
                for (mode, precision) in Precision::ALL.into_iter().enumerate() {
                    let (loss, gradient, want) = one_update(gpu, &config, precision, &batch);
                    let loss_error = (f64::from(loss) - want.loss).abs() / want.loss;
                    let error = distance(&gradient, &want.gradient);
                    let layers = layout.layers().len() as f64;
                    let share = 2.0 * layers * rounding(precision) * (layers + layout.n_outputs() as f64);
                    let exact = matches!(precision, Precision::F32 | Precision::Tf32x3);
                    let bound = if exact { 1e-6 } else { share.sqrt() };
                    let what = format!("{precision:?} {head:?} {dueling} batch {n}");
                    assert!(error < bound, "{what}: gradient off by {error:e}, not {bound:e}");
                    assert!(loss_error < bound, "{what}: loss off by {loss_error:e}, not {bound:e}");
                    worst[mode] = [worst[mode][0].max(loss_error), worst[mode][1].max(error)];
                }
            }
        }
    }
    println!(
        "       largest relative error, f32 / tf32x3 / tf32 / bf16: loss {}",
        told(&worst.map(|w| w[0]))
    );
    println!("       gradient {}", told(&worst.map(|w| w[1])));
    let [plain, split] = [worst[0][1], worst[1][1]];
    assert!(split < 1.5 * plain, "tf32x3 is off by {split:e}, f32 by {plain:e}");
}

/// One seed, one result: learners of one state, one of them in a captured graph, stay equal.
fn repeats(gpu: &Gpu) {
    let s = &gpu.stream;
    let nets: [(usize, &[usize], usize); 3] =
        [(51, &[256, 256], 300), (9, &[33, 65, 17], 33), (51, &[64], 5000)];
    for precision in TENSOR {
        for (state_dim, hidden, n) in nets {
            if gpu.small && n != 33 {
                continue;
            }
            let mut config = config(state_dim, hidden, Head::Branching, true);
            config.learner.batch = n;
            let batches: Vec<_> =
                (0..3).map(|salt| [upload(gpu, &rows(&config, n, salt), state_dim)]).collect();
            let mut all = Vec::new();
            for way in 0..3 {
                let mut learner = learner(gpu, &config, precision);
                learner.set_programmatic(way != 1);
                let mut updates =
                    |s: &foxhunt_cuda::Stream| batches.iter().try_for_each(|b| learner.update(s, b));
                if way == 2 {
                    let mut graph = s.capture(&mut updates).unwrap();
                    graph.launch(s).unwrap();
                    s.synchronise().unwrap();
                } else {
                    updates(s).unwrap();
                }
                let (state, counts) = learner.download_state(s).unwrap();
                assert_eq!(counts.updates, 3);
                all.push((state, s.download(learner.td_errors()).unwrap()));
            }
            for (state, td) in &all[1..] {
                same(&state.online, &all[0].0.online, "online");
                same(&state.m, &all[0].0.m, "m");
                same(td, &all[0].1, "td");
            }
        }
    }
}

/// Whatever is not finite is seen in every mode, changes nothing and closes the gate; so is what overflows in rounding.
fn skips(gpu: &Gpu) {
    type Poison = fn(&mut BatchBuffers, &mut LearnerState);
    let cases: [(FaultKind, Poison); 8] = [
        (FaultKind::NonFiniteState, |rows, _| rows.states[3] = f32::NAN),
        (FaultKind::NonFiniteTdError, |rows, _| rows.discounts.fill(f32::NAN)),
        (FaultKind::NonFiniteTdError, |_, state| state.target[0] = f32::from_bits(0x7fff_ffff)),
        (FaultKind::NonFiniteTdError, |_, state| state.online[0] = f32::from_bits(0xffff_ffff)),
        (FaultKind::NonFiniteTdError, |_, state| state.online[0] = f32::INFINITY),
        (FaultKind::NonFiniteTdError, |_, state| state.target[0] = f32::MAX),
        (FaultKind::NonFiniteLoss, |rows, _| rows.weights[0] = f32::INFINITY),
        (FaultKind::NonFiniteLoss, |rows, _| rows.weights.fill(3e38)),
    ];
    for precision in TENSOR {
        for (kind, poison) in cases {
            let mut config = config(9, &[33, 17], Head::Branching, true);
            config.learner.batch = 40;
            let mut learner = learner(gpu, &config, precision);
            let (mut bad, mut state) = (rows(&config, 40, 2), state(learner.layout()));
            // Units that are on, so that nothing is behind a relu, and every input counts.
            bad.states.iter_mut().chain(&mut bad.next_states).for_each(|x| *x = x.abs() + 0.1);
            poison(&mut bad, &mut state);
            learner.upload_state(&gpu.stream, &state).unwrap();
            learner.update(&gpu.stream, &[upload(gpu, &bad, 9)]).unwrap();
            gpu.stream.synchronise().unwrap();
            let faults = learner.drain_faults().faults;
            assert!(faults.iter().any(|fault| fault.kind == kind), "{precision:?} {kind:?}: {faults:?}");
            assert_eq!(gpu.stream.download(learner.gate()).unwrap(), [1], "{precision:?} {kind:?}");
            let (after, counts) = learner.download_state(&gpu.stream).unwrap();
            assert_eq!((counts.updates, counts.skipped), (0, 1));
            same(&after.online, &state.online, "online");
            same(&after.m, &state.m, "m");
        }
    }
}
