//! Action selection and routing against the CPU twin, and their frequencies.

use foxhunt_core::{Head, Philox};
use foxhunt_cuda::DeviceBuffer;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_ops::select_actions::cuda::{ActionKernels, Decisions, DeviceRouter};
use foxhunt_ops::select_actions::{
    Explore, Router, batch_route_exposure_to_factored, select_actions, select_actions_branching,
    select_actions_routed,
};

use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 3] = [
    ("actions_ten_million_equal_the_twin", parity),
    ("actions_frequencies_pass_chi_square", frequencies),
    ("actions_every_exposure_is_routed_as_the_twin_does", routing),
];

fn hash(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

/// Values with many ties; some are NaN or infinite, some rows are NaN throughout.
fn q_value(i: u64, width: u64) -> f32 {
    let h = hash(i);
    if hash((i / width) | (1 << 62)).is_multiple_of(61) {
        return f32::NAN;
    }
    match h % 40 {
        0 => f32::NAN,
        1 => [f32::INFINITY, f32::NEG_INFINITY][(h >> 40) as usize % 2],
        2 => -0.0,
        _ => ((h >> 20) % 9) as f32 - 4.0,
    }
}

/// A third of the rows forbid nothing, a third about half of all, some forbid all.
fn mask_value(i: u64, width: u64) -> u8 {
    let row = hash((i / width) | (1 << 61));
    match row % 9 {
        0..3 => 1,
        3 => 0,
        4 => u8::from(hash(i | 1 << 60).is_multiple_of(16)) * 7,
        _ => u8::from(hash(i | 1 << 60).is_multiple_of(2)),
    }
}

/// Router inputs near their boundaries, NaN included.
fn router_value(i: u64, k: u64) -> f32 {
    let h = hash(i | (k + 1) << 56);
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, f32::NAN, 0.499_999_97, 1.500_000_1, 2.000_000_2][h as usize % 11]
}

struct Outputs {
    actions: DeviceBuffer<u32>,
    fell_back: DeviceBuffer<u64>,
}

/// 10^7 decisions over the three heads: equal actions and equal numbers of fallbacks, with masks, NaN rows and ties,
/// greedy, sometimes random and always random.
fn parity(gpu: &Gpu) {
    let s = &gpu.stream;
    let kernels = ActionKernels::new(s, Cache::user().as_ref()).unwrap();
    let n: usize = if gpu.small { 1111 } else { 420_001 };
    let mut total = 0;
    for (head, width) in [(Head::Exposure, 5_u64), (Head::Factored, 45), (Head::Branching, 11)] {
        let values =
            |f: fn(u64, u64) -> f32| (0..n as u64 * width).map(|i| f(i, width)).collect::<Vec<f32>>();
        let q = values(q_value);
        let mask: Vec<u8> = (0..n as u64 * width).map(|i| mask_value(i, width)).collect();
        let inputs: Vec<Vec<f32>> =
            (0..4).map(|k| (0..n as u64).map(|i| router_value(i, k)).collect()).collect();
        let device_q = s.upload_new("q", &q).unwrap();
        let device_mask = s.upload_new("mask", &mask).unwrap();
        let device_inputs: Vec<_> = inputs.iter().map(|v| s.upload_new("router", v).unwrap()).collect();
        let one = s.upload_new("median", &[1.0_f32]).unwrap();
        for (turn, epsilon) in [0.0_f32, 0.1, 1.0].into_iter().enumerate() {
            for masked in [false, true] {
                let explore = Explore {
                    philox: Philox::new(77),
                    vector_step: turn as u64 | 5 << 33,
                    first_env: u32::MAX - 100,
                    epsilon,
                };
                let mut out =
                    Outputs { actions: s.zeros("actions", n).unwrap(), fell_back: s.zeros("n", 1).unwrap() };
                let decisions = Decisions { q: &device_q, mask: masked.then_some(&device_mask), n };
                let (actions, fell_back) = (&mut out.actions, &mut out.fell_back);
                kernels.select_actions(s, head, &decisions, &explore, actions, fell_back).unwrap();
                let legal = masked.then_some(&mask[..]);
                let mut want = vec![0; n];
                let count = match head {
                    Head::Branching => select_actions_branching(&q, legal, &explore, &mut want),
                    _ => select_actions(&q, width as usize, legal, &explore, &mut want),
                };
                let at = format!("{head:?}, epsilon {epsilon}, masked {masked}");
                assert!(s.download(&out.actions).unwrap() == want, "{at}");
                assert_eq!(s.download(&out.fell_back).unwrap(), [u64::from(count)], "{at}");
                total += n;
                if head != Head::Exposure {
                    continue;
                }
                let router = DeviceRouter {
                    spread: &device_inputs[0],
                    median_spread: &one,
                    volatility: &device_inputs[2],
                    median_volatility: &device_inputs[3],
                };
                let (actions, fell_back) = (&mut out.actions, &mut out.fell_back);
                kernels.select_actions_routed(s, &decisions, &explore, &router, actions, fell_back).unwrap();
                let router = Router {
                    spread: &inputs[0],
                    median_spread: &[1.0],
                    volatility: &inputs[2],
                    median_volatility: &inputs[3],
                };
                let again = select_actions_routed(&q, legal, &explore, &router, &mut want);
                assert!(s.download(&out.actions).unwrap() == want, "routed, {at}");
                assert_eq!(s.download(&out.fell_back).unwrap(), [u64::from(count + again)], "routed, {at}");
                total += n;
            }
        }
    }
    println!("       {total} decisions equal");
    assert!(gpu.small || total >= 10_000_000);
}

/// Epsilon 0, 0.1 and 1 give the frequencies they say, by chi-square.
fn frequencies(gpu: &Gpu) {
    let s = &gpu.stream;
    let kernels = ActionKernels::new(s, Cache::user().as_ref()).unwrap();
    let n: usize = if gpu.small { 4096 } else { 1 << 20 };
    for (head, width, joint) in [(Head::Exposure, 5, 5), (Head::Factored, 45, 45), (Head::Branching, 11, 45)]
    {
        // The largest value is at index 3 of every branch of five, else 1.
        let best = if head == Head::Factored { 3 * 9 } else { 3 };
        let mut row = vec![0.0_f32; width];
        row[best] = 1.0;
        let greedy = match head {
            Head::Branching => 3 * 9,
            _ => best,
        };
        let q = s.upload_new("q", &row.repeat(n)).unwrap();
        for epsilon in [0.0_f32, 0.1, 1.0] {
            let explore = Explore { philox: Philox::new(3), vector_step: 9, first_env: 0, epsilon };
            let (mut actions, mut fell_back) = (s.zeros("actions", n).unwrap(), s.zeros("n", 1).unwrap());
            let decisions = Decisions { q: &q, mask: None, n };
            kernels.select_actions(s, head, &decisions, &explore, &mut actions, &mut fell_back).unwrap();
            let mut counts = vec![0_u64; joint];
            s.download(&actions).unwrap().iter().for_each(|&a| counts[a as usize] += 1);
            let uniform = f64::from(epsilon) / joint as f64;
            let mut chi = 0.0;
            for (action, &count) in counts.iter().enumerate() {
                let p = uniform + if action == greedy { 1.0 - f64::from(epsilon) } else { 0.0 };
                if p == 0.0 {
                    assert_eq!(count, 0);
                } else {
                    chi += (count as f64 - n as f64 * p).powi(2) / (n as f64 * p);
                }
            }
            let dof = joint as f64 - 1.0;
            println!("       {head:?} epsilon {epsilon}: chi-square per degree of freedom {:.3}", chi / dof);
            assert!(chi / dof < 1.0 + 4.0 * (2.0 / dof).sqrt(), "{head:?} epsilon {epsilon}: {chi}");
        }
    }
}

/// All five exposures under every pair of router inputs; an exposure out of range is counted.
fn routing(gpu: &Gpu) {
    let s = &gpu.stream;
    let kernels = ActionKernels::new(s, Cache::user().as_ref()).unwrap();
    let n: usize = if gpu.small { 1000 } else { 1_000_003 };
    let mut exposures: Vec<u32> = (0..n as u32).map(|i| i % 5).collect();
    let inputs: Vec<Vec<f32>> = (0..4).map(|k| (0..n as u64).map(|i| router_value(i, k)).collect()).collect();
    let device: Vec<_> = inputs.iter().map(|v| s.upload_new("router", v).unwrap()).collect();
    let router = DeviceRouter {
        spread: &device[0],
        median_spread: &device[1],
        volatility: &device[2],
        median_volatility: &device[3],
    };
    let host = Router {
        spread: &inputs[0],
        median_spread: &inputs[1],
        volatility: &inputs[2],
        median_volatility: &inputs[3],
    };
    let mut want = vec![0; n];
    batch_route_exposure_to_factored(&exposures, &host, &mut want).unwrap();
    let (mut actions, mut bad) = (s.zeros("actions", n).unwrap(), s.zeros("bad", 1).unwrap());
    let on_device = s.upload_new("exposures", &exposures).unwrap();
    kernels.batch_route_exposure_to_factored(s, &on_device, &router, &mut actions, &mut bad).unwrap();
    assert!(s.download(&actions).unwrap() == want);
    assert_eq!(s.download(&bad).unwrap(), [0]);
    assert!((0..45).all(|action| want.contains(&action)), "every action occurs");
    (exposures[3], exposures[n - 1]) = (5, u32::MAX);
    let on_device = s.upload_new("exposures", &exposures).unwrap();
    kernels.batch_route_exposure_to_factored(s, &on_device, &router, &mut actions, &mut bad).unwrap();
    assert_eq!(s.download(&bad).unwrap(), [2]);
    assert_eq!(s.download(&actions).unwrap()[3], u32::MAX);
    let short = s.zeros::<f32>("short", 2).unwrap();
    let router = DeviceRouter { spread: &short, ..router };
    assert!(
        kernels.batch_route_exposure_to_factored(s, &on_device, &router, &mut actions, &mut bad).is_err()
    );
}
