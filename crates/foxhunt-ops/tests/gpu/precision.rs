//! Tensor-core products: how far from f64 each mode may be, and what must not change with it.

use foxhunt_core::record::FaultKind;
use foxhunt_core::settings::Precision;
use foxhunt_core::{Head, ReturnModel};
use foxhunt_ops::acting_pass;
use foxhunt_ops::gpu_learner::{GpuLearner, GpuLearnerConfig};
use foxhunt_ops::learner::LearnerState;
use foxhunt_ops::mlp::MlpLayout;
use foxhunt_ops::ring::BatchBuffers;

use crate::learner::{cache, config, rows, same, upload};
use crate::{Gpu, Test, oracle};

pub(crate) const TESTS: [Test; 9] = [
    ("precision_q_values_are_as_close_to_f64_as_the_format", q_values),
    ("precision_of_few_rows_is_that_of_many", few_rows),
    ("precision_of_a_linear_gradient_is_the_format_s", linear_gradient),
    ("precision_gradients_are_close_to_f64", gradients),
    ("precision_gives_the_same_bits_again_and_in_a_graph", repeats),
    ("precision_hides_nothing_that_is_not_finite", skips),
    ("precision_of_sub_batches_is_that_of_one", sub_batches),
    ("precision_of_every_rule_is_close_to_f32", rules),
    ("precision_follows_its_parameters", follows),
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

/// Rows of a batch whose passes are those of whole networks where there are such; the last tile is not full.
fn large(precision: Precision) -> usize {
    if precision == Precision::Tf32x3 { 4100 } else { 1100 }
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
                let whole_networks = gpu.device.info().compute_capability == (9, 0);
                for (mode, precision) in Precision::ALL.into_iter().enumerate() {
                    let mut learner = learner(gpu, &config, precision);
                    let mut q = gpu.stream.zeros("q", [n, layout.n_outputs()]).unwrap();
                    learner.q_values(&gpu.stream, &on_device, n, &mut q).unwrap();
                    let got = gpu.stream.download(&q).unwrap();
                    let error = distance(&got, want);
                    let bound = rounding(precision) * (4 * layout.layers().len()) as f64;
                    assert!(error < bound, "{precision:?} {head:?} {dueling} {n}: {error:e}, not {bound:e}");
                    worst[mode] = worst[mode].max(error);
                    if whole_networks && matches!(precision, Precision::Tf32 | Precision::Bf16) {
                        let few = n.div_ceil(3);
                        learner.q_values(&gpu.stream, &on_device, few, &mut q).unwrap();
                        let again = gpu.stream.download(&q).unwrap();
                        same(&again, &got, "the same rows among fewer");
                    }
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

/// Few rows are dealt to clusters, in as many ways as there are widths of layers, kinds of heads and rows that do not come out even.
fn few_rows(gpu: &Gpu) {
    type Case<'a> = (usize, &'a [usize], Head, bool, ReturnModel, &'a [usize]);
    let mean = ReturnModel::Mean;
    let cases: [Case<'_>; 9] = [
        (51, &[256, 256], Head::Factored, true, mean, &[1, 64, 300, 1024, 4080]),
        (51, &[64; 8], Head::Factored, true, mean, &[300]),
        (19, &[128, 128], Head::Exposure, true, ReturnModel::Quantiles { n: 10 }, &[500]),
        (51, &[256, 256], Head::Exposure, true, ReturnModel::Quantiles { n: 8 }, &[64]),
        (7, &[64], Head::Exposure, true, mean, &[300]),
        (130, &[128, 128, 128], Head::Branching, true, mean, &[1024]),
        (33, &[256], Head::Factored, false, mean, &[300]),
        (64, &[64, 64], Head::Branching, true, mean, &[1900]),
        (1, &[128, 128], Head::Exposure, false, mean, &[64]),
    ];
    let (mut worst, mut on_clusters) = ([0.0_f64; 3], 0);
    for (state_dim, hidden, head, dueling, returns, rooms) in cases {
        let mut config = config(state_dim, hidden, head, dueling);
        config.shape.returns = returns;
        config.learner.batch = 1;
        for &room in if gpu.small { &[40, 500] } else { rooms } {
            config.acting_rows = room;
            let states = rows(&config, room, 7).states;
            let on_device = gpu.stream.upload_new("states", &states).unwrap();
            let layout = MlpLayout::new(config.shape.clone());
            let give = |learner: &mut GpuLearner, n: usize| {
                let mut q = gpu.stream.zeros("q", [room, layout.n_outputs()]).unwrap();
                learner.q_values(&gpu.stream, &on_device, n, &mut q).unwrap();
                gpu.stream.download(&q).unwrap()
            };
            let want = if returns.is_mean() {
                oracle::q_values(&layout, &layout.init(3), &states)
            } else {
                let plain = give(&mut learner(gpu, &config, Precision::F32), room);
                plain.into_iter().map(f64::from).collect()
            };
            for (mode, precision) in TENSOR.into_iter().enumerate() {
                let mut learner = learner(gpu, &config, precision);
                let all = give(&mut learner, room);
                let error = distance(&all, &want);
                let bound = rounding(precision) * (4 * layout.layers().len()) as f64;
                assert!(error < bound, "{precision:?} {head:?} {hidden:?} {room}: {error:e}, not {bound:e}");
                worst[mode] = worst[mode].max(error);
                let processors = gpu.device.info().multiprocessors;
                let here = acting_pass::cuda::program(precision, &layout, room, processors).is_some();
                on_clusters += usize::from(here);
                let kernels = learner.resources().unwrap();
                let has = kernels.iter().any(|(symbol, _)| symbol == "acting_pass");
                let hopper = gpu.device.info().compute_capability == (9, 0);
                assert_eq!(has, here && hopper, "{precision:?} {hidden:?} {room}");
                // Layer by layer, as tf32x3 goes otherwise, tiles are chosen by the rows of a call.
                if precision == Precision::Tf32x3 && !here {
                    continue;
                }
                not_finite_rows(&states, state_dim, &all, &mut |states| {
                    let on_device = gpu.stream.upload_new("states", states).unwrap();
                    let mut q = gpu.stream.zeros("q", [room, layout.n_outputs()]).unwrap();
                    learner.q_values(&gpu.stream, &on_device, room, &mut q).unwrap();
                    gpu.stream.download(&q).unwrap()
                });
                for few in [1, room / 3, room - 1] {
                    let (few, end) = (few.max(1), few.max(1) * layout.n_outputs());
                    let again = give(&mut learner, few);
                    // The same bits among others, and rows behind them are left alone.
                    let blank = vec![0.0; all.len() - end];
                    let name = format!("{few} of {room} rows, {precision:?} {hidden:?}");
                    same(&again, &[&all[..end], &blank].concat(), &name);
                }
            }
        }
    }
    if gpu.device.info().compute_capability == (9, 0) {
        assert!(on_clusters >= 18, "{on_clusters} on clusters");
    }
    println!("       largest relative error of Q-values, tf32x3 / tf32 / bf16: {}", told(&worst));
}

/// Q-values of a row with a value that is not finite are not finite, and those of the others what they were.
fn not_finite_rows(
    states: &[f32],
    state_dim: usize,
    clean: &[f32],
    give: &mut dyn FnMut(&[f32]) -> Vec<f32>,
) {
    let rows = states.len() / state_dim;
    let width = clean.len() / rows;
    let mut bad = states.to_vec();
    let spoiled = [(0, f32::NAN), (rows / 2, f32::INFINITY), (rows - 1, f32::NAN)];
    for (row, value) in spoiled {
        bad[row * state_dim + row % state_dim] = value;
    }
    for (row, (got, want)) in give(&bad).chunks(width).zip(clean.chunks(width)).enumerate() {
        if spoiled.iter().any(|(of, _)| *of == row) {
            assert!(got.iter().all(|q| !q.is_finite()), "row {row} of {rows}: {got:?}");
        } else {
            same(got, want, &format!("row {row} of {rows} beside one that is not finite"));
        }
    }
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
    let nets: [(usize, &[usize], usize); 6] = [
        (51, &[256, 256], 300),
        (51, &[256, 128], 200),
        (9, &[33, 65, 17], 33),
        (51, &[64], 5000),
        (7, &[200, 33, 250], 1500),
        (100, &[256], 1024),
    ];
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
        for (n, (kind, poison)) in
            [40, large(precision)].into_iter().flat_map(|n| cases.map(|case| (n, case)))
        {
            let mut config = config(9, &[33, 17], Head::Branching, true);
            config.learner.batch = n;
            let mut learner = learner(gpu, &config, precision);
            let (mut bad, mut state) = (rows(&config, n, 2), state(learner.layout()));
            // Units that are on, so that nothing is behind a relu, and every input counts.
            bad.states.iter_mut().chain(&mut bad.next_states).for_each(|x| *x = x.abs() + 0.1);
            poison(&mut bad, &mut state);
            learner.upload_state(&gpu.stream, &state).unwrap();
            learner.update(&gpu.stream, &[upload(gpu, &bad, 9)]).unwrap();
            gpu.stream.synchronise().unwrap();
            let faults = learner.drain_faults().faults;
            assert!(faults.iter().any(|fault| fault.kind == kind), "{precision:?} {kind:?} {n}: {faults:?}");
            assert_eq!(gpu.stream.download(learner.gate()).unwrap(), [1], "{precision:?} {kind:?} {n}");
            let (after, counts) = learner.download_state(&gpu.stream).unwrap();
            assert_eq!((counts.updates, counts.skipped), (0, 1));
            same(&after.online, &state.online, "online");
            same(&after.m, &state.m, "m");
        }
    }
}

/// Sub-batches, whose last tiles are not full, give the gradient of all their rows.
fn sub_batches(gpu: &Gpu) {
    for precision in Precision::ALL {
        for (hidden, head) in [(&[96, 256][..], Head::Factored), (&[40, 24, 16], Head::Branching)] {
            let mut config = config(51, hidden, head, true);
            let n = large(precision);
            (config.learner.batch, config.learner.accumulation) = (n, 2);
            let layout = MlpLayout::new(config.shape.clone());
            let (start, mut all) = (state(&layout), rows(&config, 2 * n, 13));
            let ties = oracle::update(&layout, &start.online, &start.target, &all).margins;
            for (weight, margin) in all.weights.iter_mut().zip(&ties) {
                *weight = if *margin < 4e-6 { 0.0 } else { *weight };
            }
            let want = oracle::update(&layout, &start.online, &start.target, &all);
            let batches = [0, n].map(|first| upload(gpu, &part(&all, first, n, 51), 51));
            let mut learner = learner(gpu, &config, precision);
            learner.update(&gpu.stream, &batches).unwrap();
            let error = distance(&gpu.stream.download(learner.gradient()).unwrap(), &want.gradient);
            let layers = layout.layers().len() as f64;
            let share = 2.0 * layers * rounding(precision) * (layers + layout.n_outputs() as f64);
            let exact = matches!(precision, Precision::F32 | Precision::Tf32x3);
            let bound = if exact { 1e-6 } else { share.sqrt() };
            assert!(error < bound, "{precision:?} {head:?}: gradient off by {error:e}, not {bound:e}");
        }
    }
}

fn part(all: &BatchBuffers, first: usize, n: usize, state_dim: usize) -> BatchBuffers {
    let mut out = BatchBuffers::new(n, state_dim);
    let (states, rows) = (first * state_dim..(first + n) * state_dim, first..first + n);
    out.states = all.states[states.clone()].to_vec();
    out.next_states = all.next_states[states].to_vec();
    out.rewards = all.rewards[rows.clone()].to_vec();
    out.actions = all.actions[rows.clone()].to_vec();
    out.terminated = all.terminated[rows.clone()].to_vec();
    out.discounts = all.discounts[rows.clone()].to_vec();
    out.weights = all.weights[rows.clone()].to_vec();
    out.indices = all.indices[rows.clone()].to_vec();
    out.generations = all.generations[rows].to_vec();
    out
}

/// What targets are made from, and what heads give, in the modes that round against f32, whose bits are the CPU's.
fn rules(gpu: &Gpu) {
    type Rule = fn(&mut GpuLearnerConfig);
    let all: [(&str, Rule); 5] = [
        ("largest", |c| c.learner.double = false),
        ("Munchausen", |c| (c.learner.munchausen, c.learner.double) = (true, false)),
        ("quantiles", |c| c.shape.returns = ReturnModel::Quantiles { n: 32 }),
        ("quantiles, largest", |c| {
            (c.shape.returns, c.learner.double) = (ReturnModel::Quantiles { n: 32 }, false);
        }),
        ("plain head", |c| c.shape.dueling = false),
    ];
    for (name, rule) in all {
        let mut config = config(51, &[72, 40], Head::Exposure, true);
        config.learner.batch = 4100;
        config.acting_rows = 3100;
        rule(&mut config);
        let batch = rows(&config, 4100, 17);
        let on_device = upload(gpu, &batch, 51);
        let give = |precision| {
            let mut learner = learner(gpu, &config, precision);
            let mut q = gpu.stream.zeros("q", [3100, learner.layout().n_outputs()]).unwrap();
            learner.q_values(&gpu.stream, &on_device.states, 3100, &mut q).unwrap();
            learner.update(&gpu.stream, std::slice::from_ref(&on_device)).unwrap();
            let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<_>>();
            let gradient = wide(gpu.stream.download(learner.gradient()).unwrap());
            (wide(gpu.stream.download(&q).unwrap()), gradient)
        };
        let (want_q, want) = give(Precision::F32);
        for precision in TENSOR {
            let (q, gradient) = give(precision);
            let narrow = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect::<Vec<_>>();
            let layout = MlpLayout::new(config.shape.clone());
            let layers = layout.layers().len() as f64;
            // Each pair of outputs of a row may change places.
            let share = 2.0 * layers * rounding(precision) * (layers + layout.head().n_out as f64);
            let (off, bound) = (distance(&narrow(q), &want_q), rounding(precision).max(1e-6) * 4.0 * layers);
            assert!(off < bound, "{precision:?} {name}: Q-values off by {off:e}, not {bound:e}");
            let (off, bound) = (distance(&narrow(gradient), &want), share.sqrt().min(0.5));
            assert!(off < bound, "{precision:?} {name}: gradient off by {off:e}, not {bound:e}");
        }
    }
}

/// Whatever parameters a learner takes up or goes back to, it acts and learns by them: it stays equal to one that never had
/// others. In large batches with many rows to act on, and in small ones with few.
fn follows(gpu: &Gpu) {
    for precision in TENSOR {
        follows_with(gpu, precision, &[96, 64], large(precision), 4000);
        follows_with(gpu, precision, &[256, 256], 64, 1000);
    }
}

fn follows_with(gpu: &Gpu, precision: Precision, hidden: &[usize], rows_of_batch: usize, acting_rows: usize) {
    let s = &gpu.stream;
    let mut config = config(51, hidden, Head::Factored, true);
    config.learner.batch = rows_of_batch;
    config.acting_rows = acting_rows;
    let batch = [upload(gpu, &rows(&config, rows_of_batch, 19), 51)];
    let states = s.upload_new("states", &rows(&config, 130, 23).states).unwrap();
    let act = |learner: &mut GpuLearner| {
        let mut q = s.zeros("q", [130, learner.layout().n_outputs()]).unwrap();
        learner.q_values(s, &states, 130, &mut q).unwrap();
        s.download(&q).unwrap()
    };
    let mut fresh = learner(gpu, &config, precision);
    let before = act(&mut fresh);
    fresh.update(s, &batch).unwrap();
    let (after, learned) = (act(&mut fresh), fresh.download_state(s).unwrap().0);
    assert!(before != after, "{precision:?} {hidden:?}: an update changes what is done");
    let mut given = learner(gpu, &config, precision);
    given.upload_state(s, &learned).unwrap();
    same(&act(&mut given), &after, "given what another learned");
    for way in ["rolled back", "uploaded"] {
        let mut other = learner(gpu, &config, precision);
        let start = other.download_state(s).unwrap().0;
        other.keep_good_copy(s).unwrap();
        for _ in 0..3 {
            other.update(s, &batch).unwrap();
        }
        if way == "uploaded" {
            other.upload_state(s, &start).unwrap();
        } else {
            assert!(other.roll_back(s).unwrap());
        }
        same(&act(&mut other), &before, way);
        // Counts stay, so the learning rate is set back with them.
        other.set_progress(s, &Default::default(), &Default::default()).unwrap();
        other.update(s, &batch).unwrap();
        same(&other.download_state(s).unwrap().0.online, &learned.online, way);
        same(&act(&mut other), &after, way);
    }
}
