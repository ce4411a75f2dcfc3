//! The CUDA engine against the CPU engine: the same bits, whatever the settings; and no waiting between two reports.
//!
//! Without a device these tests print SKIP; with `FOXHUNT_REQUIRE_GPU=1` a missing device fails them.
#![allow(clippy::print_stderr)]

mod memory;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foxhunt::cpu_engine::CpuEngine;
use foxhunt::cuda_engine::{CudaEngine, CudaOptions};
use foxhunt::engine::{ArrayData, Engine};
use foxhunt::trainer::{MetricsLine, Prepared, TrainOutcome};
use foxhunt::{MLError, Policy, Settings, Trainer};
use foxhunt_core::settings::{NanPolicy, Precision, ReplayKind, ReplayStorage, TargetUpdate};
use foxhunt_core::{Head, LinearSchedule};
use foxhunt_cuda::nvrtc::{Cache, Nvrtc};
use foxhunt_cuda::{Device, driver_calls};

use crate::support::{assert_same_bits, bars, metrics, newest, tiny};

/// One test at a time: driver calls are counted for the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// The device, or the word that there is none.
pub(crate) fn device() -> Option<(MutexGuard<'static, ()>, Arc<Device>)> {
    match Nvrtc::get().and_then(|_| Device::open(0)) {
        Ok(device) => Some((TURN.lock().unwrap_or_else(PoisonError::into_inner), device)),
        Err(error) => {
            assert!(std::env::var_os("FOXHUNT_REQUIRE_GPU").is_none_or(|v| v != "1"), "{error}");
            eprintln!("SKIP: {error}");
            None
        }
    }
}

fn options() -> CudaOptions {
    CudaOptions { cache: Cache::user(), ..CudaOptions::default() }
}

pub(crate) fn settings() -> Settings {
    tiny("unused".as_ref())
}

fn cpu(settings: &Settings) -> CpuEngine {
    let Prepared { market, split, .. } = Prepared::fit(bars(1), settings).unwrap();
    CpuEngine::new(settings, market, split.train).unwrap()
}

fn cuda(settings: &Settings, device: &Arc<Device>, options: &CudaOptions) -> (CudaEngine, Option<String>) {
    let Prepared { market, split, .. } = Prepared::fit(bars(1), settings).unwrap();
    let built = CudaEngine::build(settings, market, split.train, device, options).unwrap();
    (built.engine, built.notice)
}

/// A whole run on the CPU or on a device, and its rollbacks.
fn train(settings: &Settings, on_device: Option<&Arc<Device>>) -> (TrainOutcome, u64) {
    let build = |settings: &Settings, prepared: &Prepared| {
        let (market, train) = (prepared.market.clone(), prepared.split.train.clone());
        let engine: Box<dyn Engine> = match on_device {
            Some(device) => Box::new(CudaEngine::build(settings, market, train, device, &options())?.engine),
            None => Box::new(CpuEngine::new(settings, market, train)?),
        };
        Ok(foxhunt::engine_choice::BuiltEngine { engine, notice: None })
    };
    let outcome = Trainer::with_engine(settings, bars(1), &build).unwrap().run().unwrap();
    let rollbacks = |line: &MetricsLine| match line {
        MetricsLine::Epoch(report) => report.rollbacks,
        _ => 0,
    };
    let rollbacks = metrics(&outcome.run).iter().map(rollbacks).sum();
    (outcome, rollbacks)
}

/// Some epochs of uneven chunks: everything that can be told is the same to the bit at every report.
pub(crate) fn same_work(settings: &Settings, device: &Arc<Device>, context: &str) {
    let (mut a, mut b) = (cpu(settings), cuda(settings, device, &options()).0);
    assert_same_bits(&b.snapshot().unwrap(), &a.snapshot().unwrap(), &format!("{context}: at the start"));
    for (epoch, (steps, updates)) in [(40, 1), (1, 7), (24, 33), (9, 20)].into_iter().enumerate() {
        let context = format!("{context}, epoch {epoch}");
        for engine in [&mut a as &mut dyn Engine, &mut b] {
            engine.collect(steps).unwrap();
            engine.update(updates).unwrap();
        }
        assert_same_bits(&b.snapshot().unwrap(), &a.snapshot().unwrap(), &format!("{context}: unreported"));
        assert_eq!(b.drain().unwrap(), a.drain().unwrap(), "{context}");
        assert_eq!(b.status(), a.status(), "{context}");
        assert_same_bits(&b.snapshot().unwrap(), &a.snapshot().unwrap(), &context);
    }
}

#[test]
fn every_head_and_kind_of_replay_gives_the_same_bits() {
    let Some((_turn, device)) = device() else { return };
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for kind in [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased] {
            for storage in [ReplayStorage::Compact, ReplayStorage::Rows] {
                let mut s = settings();
                (s.network.head, s.replay.kind, s.replay.resort_every) = (head, kind, 3);
                (s.replay.storage, s.replay.capacity) = (storage, 200);
                same_work(&s, &device, &format!("{head:?} {kind:?} {storage:?}"));
            }
        }
    }
}

/// In a chain many vector steps are one launch, or, with whole rows, Q-values are made beside the insert of the step ahead, and nothing comes of it: chains give
/// the bits of single steps, in the modes that go to tensor cores too, for which there is no CPU engine to compare with.
#[test]
fn chains_of_steps_give_the_bits_of_single_ones() {
    let Some((_turn, device)) = device() else { return };
    for precision in Precision::ALL {
        if precision != Precision::F32 && device.info().compute_capability.0 < 8 {
            eprintln!("SKIP {}: no such tensor cores", precision.name());
            continue;
        }
        // Of clusters with 8 rows, with 40, the last of which is not full, and as many as need no clusters.
        for (n_envs, storage) in [60, 1000, 4400]
            .into_iter()
            .flat_map(|n| [ReplayStorage::Rows, ReplayStorage::Compact].map(|storage| (n, storage)))
        {
            let mut s = settings();
            (s.env.n_envs, s.network.hidden, s.learner.precision) = (n_envs, vec![256, 256], precision);
            (s.replay.capacity, s.exploration.epsilon) = (1 << 18, LinearSchedule::constant(0.1));
            s.replay.storage = storage;
            let (mut chain, mut single) = (cuda(&s, &device, &options()).0, cuda(&s, &device, &options()).0);
            for round in 0..3 {
                chain.collect(21).unwrap();
                for _ in 0..21 {
                    single.collect(1).unwrap();
                }
                for engine in [&mut chain, &mut single] {
                    engine.update(5).unwrap();
                }
                let context = format!("{} {n_envs} {storage:?}, round {round}", precision.name());
                assert_same_bits(&chain.snapshot().unwrap(), &single.snapshot().unwrap(), &context);
            }
        }
    }
}

/// Rows stored whole and compact lead to the same weights, though only compact ones leave by many vector steps in one launch.
#[test]
fn either_form_of_rows_leads_to_the_same_weights() {
    let Some((_turn, device)) = device() else { return };
    for (precision, n_envs) in [(Precision::Tf32x3, 1000), (Precision::Tf32, 60), (Precision::Bf16, 4000)] {
        if device.info().compute_capability.0 < 8 {
            eprintln!("SKIP {}: no such tensor cores", precision.name());
            continue;
        }
        let parameters = [ReplayStorage::Rows, ReplayStorage::Compact].map(|storage| {
            let mut s = settings();
            (s.env.n_envs, s.network.hidden, s.learner.precision) = (n_envs, vec![256, 256], precision);
            (s.replay.capacity, s.exploration.epsilon) = (1 << 18, LinearSchedule::constant(0.1));
            s.replay.storage = storage;
            let mut engine = cuda(&s, &device, &options()).0;
            for _ in 0..2 {
                engine.collect(25).unwrap();
                engine.update(5).unwrap();
            }
            engine.parameters().unwrap()
        });
        assert_same_bits(&parameters[0], &parameters[1], &format!("{} {n_envs}", precision.name()));
    }
}

/// Networks whose heads are distributions, acted by their expectations, with what the loss meets on its way.
#[test]
fn distributions_give_the_same_bits() {
    let Some((_turn, device)) = device() else { return };
    for (c51_atoms, quantiles) in [(51, 0), (7, 0), (0, 32), (0, 5)] {
        for head in [Head::Exposure, Head::Factored, Head::Branching] {
            for (dueling, double, accumulation) in [(true, true, 1), (false, false, 2)] {
                let mut s = settings();
                (s.network.head, s.network.dueling) = (head, dueling);
                (s.network.c51_atoms, s.network.quantiles) = (c51_atoms, quantiles);
                (s.learner.double, s.learner.accumulation) = (double, accumulation);
                s.replay.kind = ReplayKind::Proportional;
                let context = format!("{head:?} {c51_atoms} atoms {quantiles} quantiles dueling {dueling}");
                same_work(&s, &device, &context);
            }
        }
    }
}

/// Whatever engine and form of rows a snapshot comes from, every other goes on from it to the same bits.
#[test]
fn engines_go_on_from_each_others_rows() {
    let Some((_turn, device)) = device() else { return };
    let of = |storage| {
        let mut s = settings();
        (s.replay.storage, s.replay.capacity) = (storage, 150);
        s
    };
    let (rows, compact) = (of(ReplayStorage::Rows), of(ReplayStorage::Compact));
    for from in [&rows, &compact] {
        let (mut donor, _) = cuda(from, &device, &options());
        donor.collect(70).unwrap();
        donor.update(13).unwrap();
        let saved = donor.snapshot().unwrap();
        donor.collect(11).unwrap();
        donor.update(17).unwrap();
        // Rows are compared whole, as places with equal features are equal places.
        let mut judge = cpu(&rows);
        judge.restore(&donor.snapshot().unwrap()).unwrap();
        let want = judge.snapshot().unwrap();
        for to in [&rows, &compact] {
            let (mut on_cpu, mut on_cuda) = (cpu(to), cuda(to, &device, &options()).0);
            for engine in [&mut on_cpu as &mut dyn Engine, &mut on_cuda] {
                engine.restore(&saved).unwrap();
                engine.collect(11).unwrap();
                engine.update(17).unwrap();
                judge.restore(&engine.snapshot().unwrap()).unwrap();
                let (from, to) = (from.replay.storage, to.replay.storage);
                let context = format!("{from:?} to {to:?}, {}", engine.name());
                assert_same_bits(&judge.snapshot().unwrap(), &want, &context);
            }
        }
    }
}

fn bytes_of(data: &ArrayData) -> usize {
    match data {
        ArrayData::F32(v) => 4 * v.len(),
        ArrayData::U32(v) => 4 * v.len(),
        ArrayData::F64(v) => 8 * v.len(),
        ArrayData::U64(v) => 8 * v.len(),
    }
}

/// A checkpoint holds the rows once in host memory, and a block of them.
#[cfg(target_os = "linux")]
#[test]
fn a_checkpoint_copies_the_rows_once() {
    let Some((_turn, device)) = device() else { return };
    for storage in [ReplayStorage::Rows, ReplayStorage::Compact] {
        let mut s = settings();
        (s.replay.storage, s.replay.capacity, s.env.n_envs) = (storage, 1 << 20, 4096);
        let (mut engine, _) = cuda(&s, &device, &options());
        engine.collect(300).unwrap();
        let small = engine.snapshot().unwrap();
        drop(small);
        let status = |key: &str| {
            let text = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = text.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
        };
        // Starts the high-water mark again.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = status("VmRSS:");
        let snapshot = engine.snapshot().unwrap();
        let peak = status("VmHWM:").saturating_sub(before);
        let saved: usize = snapshot.arrays.values().map(|a| bytes_of(&a.data)).sum();
        let stored = foxhunt::memory_plan::plan(&s, 900);
        eprintln!("{storage:?}: {saved} bytes saved, {peak} more at the peak; planned {stored}");
        assert!(saved > (1 << 20) * if storage == ReplayStorage::Rows { 428 } else { 36 });
        assert!((peak as usize) < saved + saved / 8 + (64 << 20), "{storage:?}: {peak} for {saved}");
    }
}

/// The host stays at most two calls ahead of the device, waits for nothing else, and counts what it waits for.
#[test]
fn the_host_does_not_run_far_ahead() {
    let Some((_turn, device)) = device() else { return };
    let mut s = settings();
    (s.network.hidden, s.learner.batch, s.replay.capacity) = (vec![512, 512], 1024, 4096);
    s.env.n_envs = 512;
    let (mut engine, _) = cuda(&s, &device, &options());
    engine.collect(256).unwrap();
    engine.update(256).unwrap();
    engine.drain().unwrap();
    let before = driver_calls();
    for call in 1..=12_u64 {
        engine.update(256).unwrap();
        let (queued, done) = (256 * call, engine.status().updates - 256);
        assert!(done + 2 * 256 >= queued, "{done} of {queued} updates are done");
    }
    let calls = driver_calls() - before;
    assert_eq!((calls.synchronisations, calls.copies_to_host, calls.allocations), (0, 0, 0), "{calls:?}");
    assert!((1..=12).contains(&calls.pacing_waits), "{calls:?}");
    assert_eq!(engine.drain().unwrap().updates, 12 * 256);
}

#[test]
fn every_kind_of_learner_gives_the_same_bits() {
    let Some((_turn, device)) = device() else { return };
    type Change = (&'static str, fn(&mut Settings));
    let changes: [Change; 9] = [
        ("plain, one step", |s| {
            (s.network.dueling, s.learner.double, s.learner.n_step) = (false, false, 1);
        }),
        ("hard target", |s| s.learner.target = TargetUpdate::Hard { every: 7 }),
        ("three sub-batches", |s| s.learner.accumulation = 3),
        ("one layer", |s| s.network.hidden = vec![33]),
        ("three layers", |s| s.network.hidden = vec![40, 7, 65]),
        ("everything clipped", |s| s.learner.clip_norm = 1e-3),
        ("large batch", |s| (s.learner.batch, s.replay.capacity, s.env.n_envs) = (300, 700, 50)),
        ("one environment", |s| s.env.n_envs = 1),
        ("costs and ruin", |s| {
            (s.execution.taker_fee_bps, s.env.max_leverage, s.env.ruin_fraction) = (30.0, 5.0, 0.9);
        }),
    ];
    for (what, change) in changes {
        let mut s = settings();
        change(&mut s);
        s.validate().unwrap();
        same_work(&s, &device, what);
    }
}

/// Bars made to fill a gap fill no order, and bars whose features are not finite are reported and not stored, on both
/// engines alike.
#[test]
fn made_bars_and_dead_features_are_the_same() {
    let Some((_turn, device)) = device() else { return };
    let s = settings();
    let Prepared { market, split, .. } = Prepared::fit(bars(1), &s).unwrap();
    let mut dirty = (*market).clone();
    dirty.bars.made = (0..dirty.len()).map(|bar| bar % 5 == 0).collect();
    for bar in split.train.clone().step_by(11) {
        dirty.features[bar * 48 + 5] = f32::NAN;
    }
    let dirty = Arc::new(dirty);
    let mut a = CpuEngine::new(&s, dirty.clone(), split.train.clone()).unwrap();
    let mut b = CudaEngine::build(&s, dirty, split.train, &device, &options()).unwrap().engine;
    for engine in [&mut a as &mut dyn Engine, &mut b] {
        engine.collect(60).unwrap();
        engine.update(20).unwrap();
    }
    let (stats, want) = (b.drain().unwrap(), a.drain().unwrap());
    assert_eq!(stats, want);
    let refused = |kind| stats.faults.iter().any(|fault| fault.kind == kind);
    assert!(refused(foxhunt_core::record::FaultKind::NonFiniteState));
    let sent: u64 = stats.orders.iter().sum();
    let filled: u64 = stats.fills.iter().sum();
    assert!(filled > 0 && filled * 10 < sent * 9, "{filled} of {sent} orders filled");
    assert_same_bits(&b.snapshot().unwrap(), &a.snapshot().unwrap(), "dirty market");
}

/// A loss that overflows is skipped whole, on both engines alike, and training goes on.
#[test]
fn skipped_updates_are_the_same_and_change_nothing() {
    let Some((_turn, device)) = device() else { return };
    for kind in [ReplayKind::Proportional, ReplayKind::RankBased] {
        let mut s = settings();
        s.replay.kind = kind;
        s.env.reward_scale = 1e30;
        s.learner.huber_delta = 1e30;
        s.guard.max_skips_in_row = 1_000_000;
        same_work(&s, &device, &format!("overflow {kind:?}"));
        let (mut engine, _) = cuda(&s, &device, &options());
        engine.collect(40).unwrap();
        let before = engine.parameters().unwrap();
        engine.update(12).unwrap();
        let stats = engine.drain().unwrap();
        assert!(stats.skipped_updates > 0, "{stats:?}");
        assert_eq!(stats.skipped_updates + stats.updates, 12);
        assert!(stats.faults.len() as u64 >= stats.skipped_updates);
        if stats.updates == 0 {
            assert_same_bits(&engine.parameters().unwrap(), &before, "nothing was applied");
        }
    }
}

#[test]
fn a_rollback_goes_back_to_the_same_copy() {
    let Some((_turn, device)) = device() else { return };
    let mut s = settings();
    s.guard.nan_policy = NanPolicy::Rollback;
    let (mut a, mut b) = (cpu(&s), cuda(&s, &device, &options()).0);
    for engine in [&mut a as &mut dyn Engine, &mut b] {
        engine.collect(40).unwrap();
        engine.update(5).unwrap();
        engine.keep_good_copy().unwrap();
        engine.update(5).unwrap();
        engine.roll_back().unwrap();
        engine.update(3).unwrap();
    }
    assert_same_bits(&b.snapshot().unwrap(), &a.snapshot().unwrap(), "rolled back");
    // Without a copy a rollback goes to the start.
    s.guard.nan_policy = NanPolicy::Skip;
    let (mut a, mut b) = (cpu(&s), cuda(&s, &device, &options()).0);
    for engine in [&mut a as &mut dyn Engine, &mut b] {
        engine.collect(40).unwrap();
        engine.update(5).unwrap();
        engine.roll_back().unwrap();
    }
    assert_same_bits(&b.parameters().unwrap(), &a.parameters().unwrap(), "to the start");
}

/// Cases E02 and E07: either engine goes on from the other's snapshot as if nothing had happened.
#[test]
fn engines_go_on_from_each_other() {
    let Some((_turn, device)) = device() else { return };
    for kind in [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased] {
        let mut s = settings();
        (s.replay.kind, s.replay.resort_every) = (kind, 5);
        let mut straight = cpu(&s);
        let (mut first, _) = cuda(&s, &device, &options());
        for engine in [&mut straight as &mut dyn Engine, &mut first] {
            engine.collect(40).unwrap();
            engine.update(13).unwrap();
        }
        let saved = first.snapshot().unwrap();
        let mut on_cpu = cpu(&s);
        let (mut on_cuda, _) = cuda(&s, &device, &options());
        on_cpu.restore(&saved).unwrap();
        on_cuda.restore(&saved).unwrap();
        assert_same_bits(&on_cuda.snapshot().unwrap(), &saved, "just restored");
        for engine in [&mut straight as &mut dyn Engine, &mut first, &mut on_cpu, &mut on_cuda] {
            engine.collect(11).unwrap();
            engine.update(17).unwrap();
        }
        let want = straight.snapshot().unwrap();
        assert_same_bits(&first.snapshot().unwrap(), &want, "never stopped");
        assert_same_bits(&on_cpu.snapshot().unwrap(), &want, "gone on by the CPU");
        assert_same_bits(&on_cuda.snapshot().unwrap(), &want, "gone on by the GPU");
    }
}

/// A snapshot with any one array missing, cut or of another type is refused, and the engine is as it was.
#[test]
fn a_snapshot_that_does_not_fit_changes_nothing_on_the_device() {
    let Some((_turn, device)) = device() else { return };
    let (mut donor, _) = cuda(&settings(), &device, &options());
    donor.collect(40).unwrap();
    donor.update(3).unwrap();
    let whole = donor.snapshot().unwrap();
    let (mut target, _) = cuda(&settings(), &device, &options());
    target.collect(10).unwrap();
    let before = target.snapshot().unwrap();
    for name in whole.arrays.keys().filter(|name| *name != "replay.rng") {
        let mut missing = whole.clone();
        missing.arrays.remove(name);
        let error = target.restore(&missing).err().unwrap_or_else(|| panic!("accepted without {name}"));
        assert!(matches!(error, MLError::Checkpoint { .. }), "{name}: {error}");
        let mut cut = whole.clone();
        match &mut cut.arrays.get_mut(name).unwrap().data {
            ArrayData::F32(v) => drop(v.pop()),
            ArrayData::F64(v) => drop(v.pop()),
            ArrayData::U32(v) => drop(v.pop()),
            ArrayData::U64(v) => drop(v.pop()),
        }
        if !matches!(&whole.arrays[name].data, ArrayData::U64(v) if v.is_empty()) {
            assert!(target.restore(&cut).is_err(), "{name} cut off");
        }
        assert_same_bits(&target.snapshot().unwrap(), &before, name);
    }
}

/// Between two reports nothing waits, copies to the host or allocates, and one call does many steps.
#[test]
fn the_hot_path_neither_waits_nor_copies_nor_allocates() {
    let Some((_turn, device)) = device() else { return };
    for (kind, resort_every, noisy) in [
        (ReplayKind::Proportional, 1, false),
        (ReplayKind::RankBased, 256, false),
        (ReplayKind::Uniform, 1, false),
        (ReplayKind::Proportional, 1, true),
    ] {
        let mut s = settings();
        (s.replay.kind, s.replay.resort_every, s.network.noisy) = (kind, resort_every, noisy);
        let (mut engine, _) = cuda(&s, &device, &options());
        // The first round captures.
        for _ in 0..2 {
            engine.collect(256).unwrap();
            engine.update(256).unwrap();
            engine.drain().unwrap();
        }
        let before = driver_calls();
        engine.collect(256).unwrap();
        engine.update(256).unwrap();
        let status = engine.status();
        let calls = driver_calls() - before;
        assert_eq!(
            (calls.synchronisations, calls.copies_to_host, calls.allocations),
            (0, 0, 0),
            "{kind:?} {calls:?}"
        );
        assert!(calls.graph_launches >= 2, "{calls:?}");
        if kind != ReplayKind::RankBased {
            assert_eq!(calls.launches, 0, "{calls:?}");
            assert!(calls.graph_launches <= 2, "256 updates are one call: {calls:?}");
        }
        assert!(status.updates >= 512, "pinned words are read: {status:?}");
        let stats = engine.drain().unwrap();
        assert_eq!((stats.updates, stats.env_steps), (256, 256 * 3));
    }
}

#[test]
fn too_few_rows_are_an_error_on_the_device() {
    let Some((_turn, device)) = device() else { return };
    let (mut engine, _) = cuda(&settings(), &device, &options());
    engine.collect(2).unwrap();
    match engine.update(1) {
        Err(MLError::NotEnoughData { have, need: 8 }) => assert!(have < 8),
        other => panic!("{other:?}"),
    }
}

/// Settings under which some updates overflow and are rolled back, and others are applied; found on the CPU.
fn some_roll_back(dir: &std::path::Path) -> (Settings, TrainOutcome, u64) {
    let mut s = tiny(dir);
    s.guard.nan_policy = NanPolicy::Rollback;
    s.guard.max_skips_in_row = 1_000;
    s.learner.huber_delta = 1e30;
    for scale in [3e20, 1e21, 2e21, 4e21, 8e21] {
        s.env.reward_scale = scale;
        let (outcome, rollbacks) = train(&s, None);
        if rollbacks > 3 && outcome.updates > 3 {
            return (s, outcome, rollbacks);
        }
    }
    panic!("no scale made some updates overflow and left others");
}

/// Every update counts once, whether it was applied or rolled back, on the reference too.
#[test]
fn rolled_back_updates_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let (settings, outcome, rollbacks) = some_roll_back(dir.path());
    let tried = settings.training.epochs * u64::from(settings.training.updates_per_epoch);
    assert_eq!(outcome.updates + rollbacks, tried);
}

/// The rollback policy through the trainer: where each rollback begins is the same, so the runs end alike.
#[test]
fn runs_that_roll_back_end_alike() {
    let Some((_turn, device)) = device() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (settings, on_cpu, rollbacks) = some_roll_back(dir.path());
    let (on_cuda, rollbacks_there) = train(&settings, Some(&device));
    assert_eq!((on_cuda.updates, rollbacks_there), (on_cpu.updates, rollbacks));
    let (a, b) = (newest(&on_cpu.run), newest(&on_cuda.run));
    assert_same_bits(&b.snapshot, &a.snapshot, "last checkpoint");
}

/// Whole runs: the same checkpoint, the same policy, the same verdict; a second seed gives another.
#[test]
fn whole_runs_end_in_the_same_policy() {
    let Some((_turn, device)) = device() else { return };
    let mut policies = Vec::new();
    for seed in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let mut s = tiny(dir.path());
        s.run.seed = seed;
        s.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.1, steps: 100 };
        let ((on_cpu, _), (on_cuda, _)) = (train(&s, None), train(&s, Some(&device)));
        let (a, b) = (newest(&on_cpu.run), newest(&on_cuda.run));
        assert_same_bits(&b.snapshot, &a.snapshot, "last checkpoint");
        assert_eq!(on_cpu.evaluation, on_cuda.evaluation);
        let policy = Policy::load(on_cuda.run.folder()).unwrap().parameters().to_vec();
        assert_eq!(policy, Policy::load(on_cpu.run.folder()).unwrap().parameters());
        policies.push(policy);
    }
    assert_ne!(policies[0], policies[1]);
}
