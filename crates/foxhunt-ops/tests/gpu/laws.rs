//! Frequencies against exact probabilities, and determinism.

use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig, GpuSampling};
use foxhunt_ops::priority_tree::{mass, mass_scale};
use foxhunt_ops::rank_sampler::rank_mass;
use foxhunt_ops::ring::cuda::{DeviceBatch, DeviceRows};

use crate::twin::{Upload, config, rows, td_errors};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 3] = [
    ("laws_proportional_chi_square_and_ks", proportional),
    ("laws_rank_chi_square_and_ks", rank),
    ("laws_two_runs_same_bits_two_seeds_differ", determinism),
];

fn filled(gpu: &Gpu, config: GpuReplayConfig) -> GpuPrioritizedReplay {
    let s = &gpu.stream;
    let mut replay = GpuPrioritizedReplay::new(s, config, None).unwrap();
    let n = config.capacity;
    let mut device = DeviceRows::zeros(s, n, config.state_dim).unwrap();
    device.upload(s, &rows(n, config.state_dim, 1, 0).view()).unwrap();
    replay.insert(s, &device, n).unwrap();
    let all: Vec<u32> = (0..n as u32).collect();
    // Priorities within a factor of some hundred, so that every row is drawn often enough to count.
    let td: Vec<f32> = td_errors(n, 3, false).iter().map(|x| x.abs().log2().abs() + 0.1).collect();
    let upload = Upload::new(s, &all, &td);
    replay.update(s, &upload.update(), n).unwrap();
    replay
}

/// Draws `batch` rows at a time and tests the counts. Draws within a batch are stratified, so they spread less than
/// independent ones: one row is taken from each batch for the laws, at a position that moves.
fn check(gpu: &Gpu, replay: &mut GpuPrioritizedReplay, probabilities: &[f64], draws: usize) {
    let s = &gpu.stream;
    let batch = 64;
    let mut out = DeviceBatch::zeros(s, batch, replay.config().state_dim).unwrap();
    let mut all = vec![0_u64; probabilities.len()];
    let mut samples = Vec::with_capacity(draws);
    let mut draw = foxhunt_ops_draw();
    for _ in 0..draws {
        replay.sample(s, &mut out).unwrap();
        let indices = s.download(&out.indices).unwrap();
        indices.iter().for_each(|&i| all[i as usize] += 1);
        // A position of its own for each batch makes this an independent draw from the whole law.
        samples.push(indices[draw.next_below(batch as u32) as usize]);
    }
    // Kolmogorov-Smirnov of the independent draws against the exact distribution in slot order.
    let mut cumulative = vec![0.0; probabilities.len() + 1];
    for (i, p) in probabilities.iter().enumerate() {
        cumulative[i + 1] = cumulative[i] + p;
    }
    samples.sort_unstable();
    let n = samples.len() as f64;
    let distance = samples
        .iter()
        .enumerate()
        .map(|(k, &slot)| {
            let (below, upto) = (cumulative[slot as usize], cumulative[slot as usize + 1]);
            ((k as f64 / n) - upto).max(below - ((k + 1) as f64 / n))
        })
        .fold(0.0, f64::max);
    // 1.63 / sqrt(n) is the 1 % point for a continuous law and conservative for a discrete one.
    assert!(distance < 1.63 / n.sqrt(), "KS distance {distance} over {n} draws");
    // Chi-square over all draws; stratification only lowers it, so the upper bound is what can fail.
    let total = (draws * batch) as f64;
    let chi: f64 =
        all.iter().zip(probabilities).map(|(&c, p)| (c as f64 - total * p).powi(2) / (total * p)).sum();
    let dof = probabilities.len() as f64 - 1.0;
    println!(
        "       KS {distance:.4} of {:.4}, chi-square per degree of freedom {:.3}",
        1.63 / n.sqrt(),
        chi / dof
    );
    assert!(chi / dof < 1.0 + 4.0 * (2.0 / dof).sqrt(), "chi-square per degree of freedom {}", chi / dof);
    assert!(all.iter().all(|&c| c > 0), "a row with mass was never drawn");
}

fn foxhunt_ops_draw() -> foxhunt_core::philox::PhiloxStream {
    crate::twin::bits(77)
}

fn normalised(masses: Vec<u64>) -> Vec<f64> {
    let total: u64 = masses.iter().sum();
    masses.iter().map(|&w| w as f64 / total as f64).collect()
}

/// 10,000 independent draws pass KS at 1 %, all draws pass chi-square, against p / sum p in f64.
fn proportional(gpu: &Gpu) {
    let n = 300;
    let mut replay = filled(gpu, config(n, 1));
    let scale = mass_scale(n);
    let masses = replay.priorities(&gpu.stream).unwrap().iter().map(|&p| mass(p, scale)).collect();
    check(gpu, &mut replay, &normalised(masses), if gpu.small { 500 } else { 10_000 });
}

/// The same for rank^-alpha over the order.
fn rank(gpu: &Gpu) {
    let n = 300;
    let sampling = GpuSampling::RankBased { resort_every: 1 };
    let mut replay = filled(gpu, GpuReplayConfig { sampling, ..config(n, 1) });
    let mut order: Vec<u32> = (0..n as u32).collect();
    let p = replay.priorities(&gpu.stream).unwrap();
    order.sort_by(|&a, &b| p[b as usize].total_cmp(&p[a as usize]).then(a.cmp(&b)));
    let mut masses = vec![0; n];
    for (r, &slot) in order.iter().enumerate() {
        masses[slot as usize] = rank_mass(r as u64 + 1, f64::from(replay.config().alpha), n);
    }
    check(gpu, &mut replay, &normalised(masses), if gpu.small { 500 } else { 10_000 });
}

/// Case A32: same seed same bits, run to run and with and without overlapping launches; another seed differs.
fn determinism(gpu: &Gpu) {
    let s = &gpu.stream;
    let capacity = if gpu.small { 1000 } else { 250_000 };
    let run = |seed, programmatic| {
        let mut replay = filled(gpu, GpuReplayConfig { seed, programmatic, ..config(capacity, 5) });
        let mut out = DeviceBatch::zeros(s, 4096, 5).unwrap();
        for k in 0..20 {
            replay.sample(s, &mut out).unwrap();
            let td = s.upload_new("td", &td_errors(4096, k, true)).unwrap();
            let indices = s.upload_new("i", &s.download(&out.indices).unwrap()).unwrap();
            let update = foxhunt_ops::priority_tree::cuda::DeviceUpdate {
                indices: &indices,
                td_errors: &td,
                generations: Some(&out.generations),
                gate: None,
            };
            replay.update(s, &update, 4096).unwrap();
        }
        replay.sample(s, &mut out).unwrap();
        (out.download(s).unwrap(), replay.save(s).unwrap())
    };
    let first = run(5, true);
    assert!(first == run(5, true), "two runs differ");
    assert!(first == run(5, false), "overlap changes results");
    assert!(first.0.indices != run(6, true).0.indices, "two seeds agree");
}
