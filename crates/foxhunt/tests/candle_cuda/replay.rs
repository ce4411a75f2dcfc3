//! The replay buffer: the same calls on both devices give the same indices, weights, rows and priorities.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use foxhunt::MLError;
use foxhunt::replay::{Experience, GpuBatch, GpuReplayBuffer, GpuReplayBufferConfig, ReplayBufferType};
use parking_lot::Mutex;

use crate::{bits, cuda, hash, integers, only_launches, small};

const DIM: usize = 9;

fn config(capacity: usize) -> GpuReplayBufferConfig {
    GpuReplayBufferConfig {
        capacity,
        state_dim: DIM,
        alpha: 0.6,
        beta_start: 0.4,
        beta_max: 1.0,
        beta_annealing_steps: 20,
        epsilon: 1e-3,
    }
}

fn buffers(capacity: usize, device: &Device) -> [GpuReplayBuffer; 2] {
    [&Device::Cpu, device]
        .map(|device| GpuReplayBuffer::with_seed_and_resort(config(capacity), device, 7, 3).unwrap())
}

fn value(i: u64, salt: u64) -> f32 {
    (hash(i | salt << 40) >> 40) as f32 / 2_097_152.0 - 4.0
}

/// Rows of which some are not finite.
fn insert(buffer: &mut GpuReplayBuffer, n: usize, salt: u64) {
    let device = buffer.device();
    let column = |width: usize, salt: u64| -> Vec<f32> {
        (0..(n * width) as u64)
            .map(|i| if hash(i ^ salt) % 301 == 0 { f32::NAN } else { value(i, salt) })
            .collect()
    };
    let rows = |salt| Tensor::from_vec(column(DIM, salt), (n, DIM), &device).unwrap();
    let actions: Vec<u32> = (0..n as u64).map(|i| (hash(i | salt << 33) % 45) as u32).collect();
    let dones: Vec<u8> = (0..n as u64).map(|i| (hash(i ^ salt << 9) % 3) as u8).collect();
    let dones = Tensor::from_vec(dones, n, &device).unwrap();
    buffer
        .insert_batch(
            &rows(salt),
            &rows(salt + 1),
            &Tensor::from_vec(actions, n, &device).unwrap(),
            &Tensor::from_vec(column(1, salt + 2), n, &device).unwrap(),
            &dones,
        )
        .unwrap();
}

fn draw(buffer: &mut GpuReplayBuffer, by_rank: bool, batch: usize) -> GpuBatch {
    if by_rank { buffer.sample_rank_based(batch) } else { buffer.sample_proportional(batch) }.unwrap()
}

fn same_batch(got: &GpuBatch, want: &GpuBatch, what: &str) {
    assert!(integers(&got.indices) == integers(&want.indices), "indices, {what}");
    assert!(bits(&got.weights) == bits(&want.weights), "weights, {what}");
    assert!(integers(&got.actions) == integers(&want.actions), "actions, {what}");
    for (name, got, want) in [
        ("states", &got.states, &want.states),
        ("next_states", &got.next_states, &want.next_states),
        ("rewards", &got.rewards, &want.rewards),
        ("dones", &got.dones, &want.dones),
    ] {
        assert_eq!((got.dims(), got.dtype()), (want.dims(), want.dtype()));
        assert!(bits(got) == bits(want), "{name}, {what}");
    }
}

/// Inserts past the end, draws of both kinds in turn, and priorities from TD errors of which some are not finite.
#[test]
fn replay_equals_the_cpu() {
    let Some(device) = cuda() else { return };
    let sizes: &[(usize, usize, usize)] = match small() {
        true => &[(1, 3, 5), (1000, 400, 33)],
        false => &[(1, 3, 5), (3, 2, 31), (1000, 400, 256), ((1 << 17) + 1, 50_000, 8192)],
    };
    for &(capacity, rows, batch) in sizes {
        let [mut here, mut there] = buffers(capacity, &device);
        for turn in 0..12_u64 {
            for buffer in [&mut here, &mut there] {
                insert(buffer, rows, turn * 10 + 1);
            }
            let by_rank = turn % 3 == 2;
            let (want, got) = (draw(&mut here, by_rank, batch), draw(&mut there, by_rank, batch));
            let what = format!("capacity {capacity}, turn {turn}");
            same_batch(&got, &want, &what);
            let td: Vec<f32> = (0..batch as u64)
                .map(|b| if hash(b ^ turn) % 50 == 0 { f32::NAN } else { value(b, turn + 500) })
                .collect();
            let td = |device: &Device| Tensor::from_vec(td.clone(), batch, device).unwrap();
            here.update_priorities_gpu(&want.indices, &td(&Device::Cpu)).unwrap();
            there.update_priorities_gpu(&got.indices, &td(&device)).unwrap();
        }
        let (want, got) = (here.memory().unwrap(), there.host_copy().unwrap());
        let saved = |memory: &foxhunt::replay::ReplayMemory| memory.priorities().unwrap().save();
        assert!(saved(&got) == saved(want), "priorities of capacity {capacity}");
        assert!(got.rows() == want.rows(), "rows of capacity {capacity}");
        assert_eq!(there.counters().unwrap(), here.counters().unwrap());
        assert_eq!(there.len(), here.len());
    }
}

/// Nothing waits, copies or allocates: an insert, a draw of either kind and an update are launches alone.
#[test]
fn replay_makes_no_costly_driver_call() {
    let Some(device) = cuda() else { return };
    let [_, mut buffer] = buffers(1000, &device);
    // Memory is taken at the first call of each kind and size.
    let fill = |buffer: &mut GpuReplayBuffer, salt| insert(buffer, 200, salt);
    fill(&mut buffer, 1);
    let td = Tensor::ones(64, DType::F32, &device).unwrap();
    let step = |buffer: &mut GpuReplayBuffer, by_rank| {
        let batch = draw(buffer, by_rank, 64);
        buffer.update_priorities_gpu(&batch.indices, &td).unwrap();
    };
    step(&mut buffer, false);
    only_launches("ten inserts, draws and updates", 30, || {
        for salt in 2..12 {
            fill(&mut buffer, salt);
            step(&mut buffer, false);
        }
    });
    step(&mut buffer, true);
    let before = foxhunt_cuda::driver_calls();
    (0..10).for_each(|_| step(&mut buffer, true));
    let made = foxhunt_cuda::driver_calls() - before;
    let launches = foxhunt_cuda::DriverCalls { launches: made.launches, ..Default::default() };
    assert_eq!(made, launches, "draws by rank");
}

/// Candle's own operations may write what is inserted and use what is drawn, with nothing between.
#[test]
fn replay_among_operations_of_candle() {
    let Some(device) = cuda() else { return };
    let [_, mut buffer] = buffers(512, &device);
    for turn in 0..40 {
        let x = Tensor::full(turn as f32, (64, DIM), &device).unwrap();
        let states = (x.sqr().unwrap() + 1.0).unwrap();
        let rewards = states.mean(1).unwrap();
        let actions = Tensor::zeros(64, DType::U32, &device).unwrap();
        let dones = Tensor::zeros(64, DType::F32, &device).unwrap();
        buffer.insert_batch(&states, &(&states * 2.0).unwrap(), &actions, &rewards, &dones).unwrap();
        drop((x, states, rewards));
        let batch = buffer.sample_proportional(128).unwrap();
        // Every value of a row is its reward, twice that in its next state.
        let spread = batch.states.broadcast_sub(&batch.rewards.unsqueeze(1).unwrap()).unwrap();
        let next = (&batch.next_states - (&batch.states * 2.0).unwrap()).unwrap();
        let wrong =
            (spread.abs().unwrap().sum_all().unwrap() + next.abs().unwrap().sum_all().unwrap()).unwrap();
        buffer.update_priorities_gpu(&batch.indices, &batch.rewards).unwrap();
        drop(batch);
        // Means of equal values are exact here: 9 times a small integer over 9.
        assert!(wrong.to_scalar::<f32>().unwrap() < 1e-2, "turn {turn}");
    }
}

/// What a GPU cannot say at once it counts; what it can it refuses.
#[test]
fn refused_and_counted() {
    let Some(device) = cuda() else { return };
    let [mut here, mut there] = buffers(100, &device);
    assert!(matches!(there.sample_proportional(1), Err(MLError::NotEnoughData { have: 0, need: 1 })));
    assert_eq!(there.sample_proportional(0).unwrap().states.dims(), [0, DIM]);
    insert(&mut there, 10, 1);
    insert(&mut here, 10, 1);
    let indices = Tensor::from_vec(vec![0_u32, 99, 3], 3, &device).unwrap();
    let td = Tensor::from_vec(vec![1.0_f32, 1.0, f32::NAN], 3, &device).unwrap();
    let report = there.update_reported(&indices, &td).unwrap();
    assert_eq!((report.applied, report.refused), (1, 1));
    assert_eq!(there.counters().unwrap().out_of_range_updates, 1);
    assert!(matches!(there.update_priorities_gpu(&td, &td), Err(MLError::DType { what: "indices", .. })));
    let short = td.narrow(0, 0, 2).unwrap();
    let refused = there.update_priorities_gpu(&indices, &short);
    assert!(matches!(refused, Err(MLError::Shape { what: "td_errors", .. })));
    let far = draw(&mut there, false, 4);
    let refused = here.update_priorities_gpu(&far.indices, &far.rewards);
    assert!(matches!(refused, Err(MLError::DeviceMismatch { what: "indices", .. })));
    let absurd = GpuReplayBuffer::new(GpuReplayBufferConfig { state_dim: 4096, ..config(1 << 30) }, &device);
    match absurd {
        Err(MLError::GpuMemoryError { requested, free, .. }) => assert!(requested > free),
        other => panic!("{:?}", other.map(|buffer| buffer.len())),
    }
    // Every row offered is refused: there is nothing to draw, which the device finds out.
    let [_, mut empty] = buffers(10, &device);
    let bad = Tensor::full(f32::NAN, (4, DIM), &device).unwrap();
    let (four, zero) =
        (Tensor::zeros(4, DType::U32, &device).unwrap(), Tensor::zeros(4, DType::F32, &device).unwrap());
    empty.insert_batch(&bad, &bad, &four, &zero, &zero).unwrap();
    assert_eq!(integers(&draw(&mut empty, false, 3).indices), [u32::MAX; 3]);
    let counters = empty.counters().unwrap();
    assert_eq!((counters.refused_states, counters.empty_samples), (4, 1));
}

/// The face of all kinds: batches stay tensors.
#[test]
fn behind_the_common_face() {
    let Some(device) = cuda() else { return };
    let [here, there] =
        buffers(50, &device).map(|b| ReplayBufferType::GpuPrioritized(Arc::new(Mutex::new(b))));
    let experience = |id: u32| {
        let state = vec![id as f32; DIM];
        Experience { next_state: state.clone(), state, action: id % 45, reward: id as f32, done: id % 2 == 1 }
    };
    let rows: Vec<Experience> = (0..70).map(experience).collect();
    for replay in [&here, &there] {
        let report = replay.add_batch(&rows).unwrap();
        assert_eq!((report.accepted, report.written, report.first_slot), (70, 50, 20));
        replay.add(Experience { reward: f32::NAN, ..experience(1) }).unwrap();
        assert_eq!((replay.len(), replay.dropped().unwrap()), (50, 1));
        let report = replay.update_priorities(&[3, 4], &[100.0, f32::INFINITY]).unwrap();
        assert_eq!((report.applied, report.refused), (1, 1));
    }
    let (want, got) = (here.sample(64).unwrap(), there.sample(64).unwrap());
    assert!(got.indices.is_empty() && got.weights.is_empty() && got.experiences.is_empty());
    let (want, got) = (want.gpu_batch.unwrap(), got.gpu_batch.unwrap());
    same_batch(&got, &want, "behind the common face");
    there.update_priorities_gpu(&got.indices, &got.rewards).unwrap();
}
