//! The CPU twins put together as the GPU memory is, and the rows and errors both are fed with.

use foxhunt_core::{LinearSchedule, Philox, Purpose};
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_cuda::{DeviceBuffer, Stream};
use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig, GpuSampling};
use foxhunt_ops::priority_tree::cuda::DeviceUpdate;
use foxhunt_ops::priority_tree::{PriorityParams, PriorityTree, random_bits};
use foxhunt_ops::rank_sampler::RankSampler;
use foxhunt_ops::ring::cuda::{DeviceBatch, DeviceRows};
use foxhunt_ops::ring::{BatchBuffers, Ring, Rows, uniform_slot};

use crate::Gpu;

/// Rows in host memory.
#[derive(Default)]
pub(crate) struct HostRows {
    pub(crate) states: Vec<f32>,
    pub(crate) next_states: Vec<f32>,
    pub(crate) actions: Vec<u32>,
    pub(crate) rewards: Vec<f32>,
    pub(crate) terminated: Vec<f32>,
    pub(crate) discounts: Vec<f32>,
}

impl HostRows {
    pub(crate) fn view(&self) -> Rows<'_> {
        Rows {
            states: &self.states,
            next_states: &self.next_states,
            actions: &self.actions,
            rewards: &self.rewards,
            terminated: &self.terminated,
            discounts: &self.discounts,
        }
    }
}

fn hash(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

/// `n` rows that depend on `salt`; about one in `bad_every` holds a value that is not finite (0: none).
pub(crate) fn rows(n: usize, state_dim: usize, salt: u64, bad_every: u64) -> HostRows {
    let value = |i: u64| (hash(i) >> 40) as f32 * (1.0 / 8_388_608.0) - 1.0;
    let mut out = HostRows::default();
    for r in 0..n as u64 {
        let id = salt << 32 | r;
        let base = hash(id) << 8;
        out.states.extend((0..state_dim as u64).map(|j| value(base + j)));
        out.next_states.extend((0..state_dim as u64).map(|j| value(base + 100_000 + j)));
        out.actions.push((hash(id + 1) % 45) as u32);
        out.rewards.push(value(base + 1));
        out.terminated.push(f32::from(u8::from(hash(id + 2).is_multiple_of(50))));
        out.discounts.push(0.99);
        let h = hash(id + 3);
        if bad_every > 0 && h.is_multiple_of(bad_every) {
            let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][(h >> 32) as usize % 3];
            let last = out.states.len() - 1;
            match (h >> 40) % 5 {
                0 => out.states[last - (h >> 48) as usize % state_dim] = bad,
                1 => out.next_states[last] = bad,
                2 => *out.rewards.last_mut().unwrap() = bad,
                3 => *out.terminated.last_mut().unwrap() = bad,
                _ => *out.discounts.last_mut().unwrap() = bad,
            }
        }
    }
    out
}

/// TD errors over many decades; `wild` adds NaN, infinities, zeros, and values above the cap.
pub(crate) fn td_errors(n: usize, salt: u64, wild: bool) -> Vec<f32> {
    (0..n as u64)
        .map(|b| {
            let h = hash(salt << 32 | b | 1 << 63);
            let x = ((h >> 40) as f32 * (30.0 / 16_777_216.0) - 20.0).exp2();
            match h % 61 {
                0 if wild => f32::NAN,
                1 if wild => f32::INFINITY,
                2 if wild => f32::NEG_INFINITY,
                3 if wild => 1e30,
                4 if wild => -0.0,
                5 if wild => f32::from_bits(3),
                k => {
                    if k % 2 == 0 {
                        x
                    } else {
                        -x
                    }
                }
            }
        })
        .collect()
}

/// Slots below `len`, many of them repeated.
pub(crate) fn slots(n: usize, len: usize, salt: u64) -> Vec<u32> {
    (0..n as u64)
        .map(|b| {
            let h = hash(salt << 32 | b | 1 << 62);
            let range = if h.is_multiple_of(4) { len.min(97) } else { len };
            ((h >> 8) % range as u64) as u32
        })
        .collect()
}

pub(crate) fn config(capacity: usize, state_dim: usize) -> GpuReplayConfig {
    GpuReplayConfig {
        beta_steps: 50,
        seed: 0x1234_5678_9abc_def0,
        ..GpuReplayConfig::new(capacity, state_dim)
    }
}

/// A GPU memory and its CPU twins.
pub(crate) struct Pair<'g> {
    pub(crate) stream: &'g Stream,
    pub(crate) gpu: GpuPrioritizedReplay,
    pub(crate) ring: Ring,
    pub(crate) tree: PriorityTree,
    pub(crate) ranks: Option<RankSampler>,
    pub(crate) step: u64,
    philox: Philox,
    beta: LinearSchedule,
}

impl<'g> Pair<'g> {
    pub(crate) fn new(gpu: &'g Gpu, config: GpuReplayConfig) -> Self {
        let params = PriorityParams { alpha: config.alpha, epsilon: config.epsilon };
        let ranks = match config.sampling {
            GpuSampling::Uniform | GpuSampling::Proportional => None,
            GpuSampling::RankBased { resort_every } => {
                Some(RankSampler::new(config.capacity, config.alpha, resort_every).unwrap())
            }
        };
        Self {
            stream: &gpu.stream,
            gpu: GpuPrioritizedReplay::new(&gpu.stream, config, Cache::user().as_ref()).unwrap(),
            ring: Ring::new(config.capacity, config.state_dim).unwrap(),
            tree: PriorityTree::new(config.capacity, params).unwrap(),
            ranks,
            step: 0,
            philox: Philox::new(config.seed),
            beta: LinearSchedule { start: config.beta_start, end: config.beta_end, steps: config.beta_steps },
        }
    }

    pub(crate) fn insert(&mut self, rows: &HostRows) {
        let n = rows.actions.len();
        let mut device = DeviceRows::zeros(self.stream, n, self.gpu.config().state_dim).unwrap();
        device.upload(self.stream, &rows.view()).unwrap();
        self.gpu.insert(self.stream, &device, n).unwrap();
        let report = self.ring.insert(&rows.view()).unwrap();
        self.tree.insert(report.first_slot, report.written);
    }

    /// Samples on both sides and compares every field to the bit.
    pub(crate) fn sample(&mut self, batch: usize) -> (DeviceBatch, BatchBuffers) {
        let s = self.gpu.config().state_dim;
        let mut device = DeviceBatch::zeros(self.stream, batch, s).unwrap();
        for field in [&mut device.states, &mut device.next_states, &mut device.rewards, &mut device.weights] {
            self.stream.fill(field, 0xA5).unwrap(); // so that an element nobody writes shows
        }
        self.gpu.sample(self.stream, &mut device).unwrap();
        let mut host = BatchBuffers::new(batch, s);
        let beta = self.beta.at(self.step) as f32;
        let (slots, weights) = (&mut host.indices, &mut host.weights);
        match &mut self.ranks {
            Some(ranks) => {
                ranks.sample(&self.tree, &self.philox, self.step, beta, slots, weights).unwrap();
            }
            None if self.gpu.config().sampling == GpuSampling::Uniform => {
                for (b, slot) in (0_u32..).zip(slots) {
                    *slot = uniform_slot(random_bits(&self.philox, self.step, b), self.ring.len());
                }
                weights.fill(1.0);
            }
            None => self.tree.sample(&self.philox, self.step, beta, slots, weights).unwrap(),
        }
        self.ring.gather(&mut host).unwrap();
        let got = device.download(self.stream).unwrap();
        let at =
            |b: usize| format!("capacity {} batch {batch} row {b} step {}", self.gpu.capacity(), self.step);
        for b in 0..batch {
            assert_eq!(got.indices[b], host.indices[b], "index, {}", at(b));
            assert_eq!(got.weights[b].to_bits(), host.weights[b].to_bits(), "weight, {}", at(b));
            assert_eq!(got.actions[b], host.actions[b], "action, {}", at(b));
            assert_eq!(got.generations[b], host.generations[b], "generation, {}", at(b));
        }
        assert!(got == host, "gathered fields differ, {}", at(0));
        self.step += 1;
        (device, host)
    }

    pub(crate) fn update(&mut self, slots: &[u32], td: &[f32]) {
        let device = Upload::new(self.stream, slots, td);
        self.gpu.update(self.stream, &device.update(), slots.len()).unwrap();
        if self.gpu.config().sampling != GpuSampling::Uniform {
            self.tree.update(slots, td).unwrap();
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.note_update();
        }
    }

    /// Leaves, maximum, counters and sums are those of the twins.
    pub(crate) fn same_state(&self) {
        let counters = self.gpu.counters(self.stream).unwrap();
        assert_eq!(counters.len, self.ring.len());
        assert_eq!(counters.inserted, self.ring.inserted());
        assert_eq!(counters.refused_rewards, self.ring.refused_rewards());
        assert_eq!(counters.refused_states, self.ring.refused_states());
        assert_eq!(counters.refused, self.tree.refused());
        assert_eq!(counters.capped, self.tree.capped());
        assert_eq!(counters.max_priority.to_bits(), self.tree.max_priority().to_bits());
        assert_eq!(counters.samples, self.step);
        let got = self.gpu.priorities(self.stream).unwrap();
        for (slot, p) in got.iter().enumerate() {
            assert_eq!(p.to_bits(), self.tree.priority(slot).to_bits(), "priority of slot {slot}");
        }
        assert_eq!(self.gpu.wrong_sums(self.stream).unwrap(), 0, "sums differ from their children");
    }
}

/// Every stored row, word by word.
pub(crate) fn same_rows(pair: &Pair<'_>, slots: &[u32]) {
    let state_dim = pair.gpu.config().state_dim;
    let mut host = BatchBuffers::new(slots.len(), state_dim);
    host.indices.copy_from_slice(slots);
    pair.ring.gather(&mut host).unwrap();
    let layout = pair.ring.layout();
    let words = pair.gpu.rows(pair.stream, 0..pair.ring.len()).unwrap();
    for (b, &slot) in slots.iter().enumerate() {
        let row = &words[slot as usize * layout.stride()..][..layout.used()];
        let state = |from: usize| row[from..from + state_dim].iter().map(|w| f32::from_bits(*w));
        assert!(
            state(0).eq(host.states[b * state_dim..][..state_dim].iter().copied()),
            "state of slot {slot}"
        );
        let next = &host.next_states[b * state_dim..][..state_dim];
        assert!(state(layout.next_state()).eq(next.iter().copied()), "next state of slot {slot}");
        let want = [
            host.actions[b],
            host.rewards[b].to_bits(),
            host.terminated[b].to_bits(),
            host.discounts[b].to_bits(),
        ];
        assert_eq!(row[layout.action()..], want, "slot {slot}");
    }
}

/// An update's arguments on the device.
pub(crate) struct Upload {
    pub(crate) indices: DeviceBuffer<u32>,
    pub(crate) td: DeviceBuffer<f32>,
}

impl Upload {
    pub(crate) fn new(stream: &Stream, slots: &[u32], td: &[f32]) -> Self {
        Self {
            indices: stream.upload_new("slots", slots).unwrap(),
            td: stream.upload_new("td errors", td).unwrap(),
        }
    }

    pub(crate) fn update(&self) -> DeviceUpdate<'_> {
        DeviceUpdate { indices: &self.indices, td_errors: &self.td, generations: None, gate: None }
    }
}

/// A uniform draw stream for tests.
pub(crate) fn bits(seed: u64) -> foxhunt_core::philox::PhiloxStream {
    Philox::new(seed).stream(Purpose::Bootstrap, 0, 0)
}
