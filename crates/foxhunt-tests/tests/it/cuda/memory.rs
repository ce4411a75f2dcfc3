//! Memory that runs out, of the device and of the host: training goes on, or the reason is told.

use foxhunt::MLError;
use foxhunt::cuda_engine::{CudaEngine, CudaOptions};
use foxhunt::engine::Engine;
use foxhunt::engine_choice::{build_engine, open_device};
use foxhunt::trainer::Prepared;
use foxhunt_core::settings::{Device, MemoryFallback, ReplayStorage};
use foxhunt_cuda::driver_calls;

use super::{cpu, cuda, device, options, settings};
use crate::support::{assert_same_bits, bars};

/// Memory that runs out although the plan fitted, first while an engine starts, then while it captures: the replay memory
/// goes where the settings say, graphs get shorter, and training goes on to the same bits.
#[test]
fn memory_that_runs_out_all_the_same_stops_nothing() {
    let Some((_turn, device)) = device() else { return };
    let mut s = settings();
    (s.replay.storage, s.replay.capacity) = (ReplayStorage::Rows, 1 << 19);
    let (probe, _) = cuda(&s, &device, &options());
    let planned = probe.device_bytes();
    drop(probe);
    let stream = device.stream().unwrap();
    let mut reference = cpu(&s);
    reference.collect(40).unwrap();
    reference.update(20).unwrap();
    let want = reference.snapshot().unwrap();

    let (free, _) = device.memory().unwrap();
    let hog = stream.zeros::<u8>("hog", (free - planned) as usize).unwrap();
    let limited = CudaOptions { memory_limit: Some(planned), ..options() };
    let (mut host, notice) = cuda(&s, &device, &limited);
    assert!(!host.replay_on_device(), "it fitted to the byte");
    assert!(notice.as_deref().is_some_and(|told| told.contains("host memory")), "{notice:?}");
    host.collect(40).unwrap();
    host.update(20).unwrap();
    assert_same_bits(&host.snapshot().unwrap(), &want, "rows in host memory");
    drop(host);

    let mut shrinking = s.clone();
    shrinking.replay.memory_fallback = MemoryFallback::Shrink;
    let (small, notice) = cuda(&shrinking, &device, &limited);
    assert!(small.replay_on_device());
    assert!(notice.as_deref().is_some_and(|told| told.contains("rows instead of")), "{notice:?}");
    drop((small, hog));

    // All code is there, then nothing is left for graphs.
    let (mut engine, notice) = cuda(&s, &device, &options());
    let mut reference = cpu(&s);
    assert!(notice.is_none());
    let mut hogs = Vec::new();
    for (steps, updates) in [(15, 1), (260, 260)] {
        for engine in [&mut engine as &mut dyn Engine, &mut reference] {
            engine.collect(steps).unwrap();
            engine.update(updates).unwrap();
        }
        if hogs.is_empty() {
            let (free, _) = device.memory().unwrap();
            hogs.push(stream.zeros::<u8>("hog", (free - (8 << 20)) as usize).unwrap());
            while let Ok(more) = stream.zeros::<u8>("hog", 1 << 20) {
                hogs.push(more);
            }
        }
    }
    drop(hogs);
    let want = reference.snapshot().unwrap();
    assert_same_bits(&engine.snapshot().unwrap(), &want, "no memory for graphs");
}

/// Pinned memory that runs out anywhere in the start is told by name and leaves nothing behind; a run that may choose
/// goes on with the CPU engine, and with memory again the device is as good as before.
#[test]
fn pinned_memory_that_cannot_be_had_is_told() {
    let Some((_turn, device)) = device() else { return };
    let mut s = settings();
    let prepared = Prepared::fit(bars(1), &s).unwrap();
    let (mut limit, mut refused) = (0, 0);
    let mut engine = loop {
        device.limit_pinned(limit);
        let before = driver_calls();
        let (market, train) = (prepared.market.clone(), prepared.split.train.clone());
        match CudaEngine::build(&s, market, train, &device, &options()) {
            Ok(built) => break built.engine,
            Err(MLError::DeviceUnavailable { reason, .. }) => {
                assert!(reason.starts_with("cannot pin ") && reason.contains(" bytes "), "{reason}");
                let made = driver_calls() - before;
                assert_eq!(made.allocations, made.frees, "after {limit} pinned bytes");
            }
            Err(other) => panic!("{other}"),
        }
        refused += 1;
        limit = 2 * limit + 8;
    };
    assert!(refused > 1, "no pinned memory was asked for");
    let mut reference = cpu(&s);
    for engine in [&mut engine as &mut dyn Engine, &mut reference] {
        engine.collect(40).unwrap();
        engine.update(20).unwrap();
    }
    assert_same_bits(&engine.snapshot().unwrap(), &reference.snapshot().unwrap(), "after refusals");
    drop(engine);

    let shared = open_device().unwrap();
    shared.limit_pinned(0);
    s.run.device = Device::Cuda;
    let error = build_engine(&s, &prepared).err().unwrap().to_string();
    assert!(error.contains("device cuda is not available: cannot pin "), "{error}");
    s.run.device = Device::Auto;
    let built = build_engine(&s, &prepared).unwrap();
    assert_eq!(built.engine.name(), "cpu");
    assert!(built.notice.is_some_and(|told| told.contains("CPU engine: cannot pin ")));
    shared.limit_pinned(u64::MAX);
    assert_eq!(build_engine(&s, &prepared).unwrap().engine.name(), "cuda");
}

/// Issue: a replay memory that does not fit goes where the settings say, and training goes on.
#[test]
fn a_device_that_is_too_small_falls_back_and_goes_on() {
    let Some((_turn, device)) = device() else { return };
    let mut s = settings();
    s.replay.capacity = 4096;
    let (whole, notice) = cuda(&s, &device, &options());
    assert!(notice.is_none() && whole.replay_on_device());
    let config = foxhunt_ops::gpu_replay::GpuReplayConfig::new(4096, foxhunt_market::STATE_DIM);
    let rows = foxhunt_ops::gpu_replay::GpuReplayConfig { storage: s.replay.storage, ..config }.bytes();
    let fixed = whole.device_bytes() - rows;
    drop(whole);

    let limited = CudaOptions { memory_limit: Some(fixed + rows - 1), ..options() };
    let (mut host, notice) = cuda(&s, &device, &limited);
    assert!(!host.replay_on_device());
    assert!(notice.unwrap().contains("host memory"));
    let mut reference = cpu(&s);
    for engine in [&mut reference as &mut dyn Engine, &mut host] {
        engine.collect(40).unwrap();
        engine.update(20).unwrap();
    }
    assert_same_bits(&host.snapshot().unwrap(), &reference.snapshot().unwrap(), "rows in host memory");

    s.replay.memory_fallback = MemoryFallback::Shrink;
    let (mut small, notice) = cuda(&s, &device, &limited);
    assert!(small.replay_on_device() && notice.unwrap().contains("2048 rows"));
    small.collect(40).unwrap();
    small.update(20).unwrap();
    let stats = small.drain().unwrap();
    assert_eq!((stats.updates, stats.replay_capacity), (20, 2048));

    s.replay.memory_fallback = MemoryFallback::Error;
    let Prepared { market, split, .. } = Prepared::fit(bars(1), &s).unwrap();
    match CudaEngine::build(&s, market, split.train, &device, &limited) {
        Err(MLError::GpuMemoryError { requested, free, .. }) => {
            assert_eq!((requested, free), (rows, rows - 1))
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it fitted"),
    }
}
