//! The four action functions: equal to the CPU over random inputs with masks, ties and rows of NaN.

use candle_core::{Device, Tensor};
use foxhunt::MLError;
use foxhunt::actions::{
    Explore, RouterTensors, batch_route_exposure_to_factored, select_actions, select_actions_branching,
    select_actions_routed,
};
use foxhunt::candle_cuda::action_counts;
use foxhunt_core::Philox;

use crate::{cuda, hash, integers, only_launches, small};

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

/// A third of the rows forbid nothing, some forbid all, the others about half.
fn mask_value(i: u64, width: u64) -> u8 {
    match hash((i / width) | (1 << 61)) % 9 {
        0..3 => 1,
        3 => 0,
        _ => u8::from(hash(i | 1 << 60).is_multiple_of(2)),
    }
}

/// Router inputs near their boundaries, NaN included.
fn router_value(i: u64, k: u64) -> f32 {
    let h = hash(i | (k + 1) << 56);
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, f32::NAN, 0.499_999_97, 1.500_000_1, 2.000_000_2][h as usize % 11]
}

struct Inputs {
    q: [Tensor; 3],
    masks: [Tensor; 3],
    router: [Tensor; 4],
    one: Tensor,
    exposures: Tensor,
}

const WIDTHS: [usize; 3] = [5, 45, 11];

impl Inputs {
    fn new(n: usize, device: &Device) -> Self {
        let (rows, tensor) =
            (n as u64, |values: Vec<f32>, shape: &[usize]| Tensor::from_vec(values, shape, device).unwrap());
        let q = |width: usize| {
            tensor((0..rows * width as u64).map(|i| q_value(i, width as u64)).collect(), &[n, width])
        };
        let mask = |width: usize| {
            let values: Vec<u8> = (0..rows * width as u64).map(|i| mask_value(i, width as u64)).collect();
            Tensor::from_vec(values, (n, width), device).unwrap()
        };
        let exposures: Vec<u32> = (0..rows).map(|i| (hash(i | 1 << 59) % 5) as u32).collect();
        Self {
            q: WIDTHS.map(q),
            masks: WIDTHS.map(mask),
            router: [0, 1, 2, 3].map(|k| tensor((0..rows).map(|i| router_value(i, k)).collect(), &[n])),
            one: tensor(vec![1.0], &[1]),
            exposures: Tensor::from_vec(exposures, n, device).unwrap(),
        }
    }

    fn router(&self, scalar_median: bool) -> RouterTensors<'_> {
        let [spread, median_spread, volatility, median_volatility] = &self.router;
        let median_spread = if scalar_median { &self.one } else { median_spread };
        RouterTensors { spread, median_spread, volatility, median_volatility }
    }

    /// The actions of all four functions, in an order of their own.
    fn run(&self, explore: &Explore, masked: bool, scalar_median: bool) -> Vec<Tensor> {
        let mask = |k: usize| masked.then_some(&self.masks[k]);
        let router = self.router(scalar_median);
        vec![
            select_actions(&self.q[0], mask(0), explore).unwrap(),
            select_actions(&self.q[1], mask(1), explore).unwrap(),
            select_actions_branching(&self.q[2], mask(2), explore).unwrap(),
            select_actions_routed(&self.q[0], mask(0), explore, &router).unwrap(),
            batch_route_exposure_to_factored(&self.exposures, &router).unwrap(),
        ]
    }
}

#[test]
fn actions_equal_the_cpu() {
    let Some(device) = cuda() else { return };
    let mut decisions = 0;
    for n in if small() { vec![1, 33, 500] } else { vec![1, 31, 32, 33, 257, 200_003] } {
        let (here, there) = (Inputs::new(n, &Device::Cpu), Inputs::new(n, &device));
        for (turn, epsilon) in [0.0_f32, 0.1, 1.0].into_iter().enumerate() {
            let explore = Explore {
                philox: Philox::new(9),
                vector_step: turn as u64 | 3 << 33,
                first_env: u32::MAX - 50,
                epsilon,
            };
            for masked in [false, true] {
                let want = here.run(&explore, masked, turn == 1);
                // Kernels are compiled and memory is taken at the first call on a device.
                let got = there.run(&explore, masked, turn == 1);
                for (k, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!(got.device().same_device(&device));
                    assert!(
                        integers(got) == integers(want),
                        "function {k}, n {n}, epsilon {epsilon}, {masked}"
                    );
                    decisions += n;
                }
                only_launches("five calls", 5, || drop(there.run(&explore, masked, turn == 1)));
            }
        }
    }
    println!("{decisions} actions compared");
    let counts = action_counts(&device).unwrap();
    assert!(counts.fell_back > 0, "{counts:?}");
}

/// Views into larger tensors and transposed ones are read in their own order.
#[test]
fn strided_q_values() {
    let Some(device) = cuda() else { return };
    let run = |device: &Device| {
        let wide = Tensor::from_vec((0..640).map(|i| q_value(i, 8)).collect::<Vec<f32>>(), (80, 8), device);
        let wide = wide.unwrap();
        let columns = wide.narrow(1, 2, 5).unwrap().narrow(0, 7, 60).unwrap();
        let turned = wide.narrow(0, 11, 5).unwrap().t().unwrap();
        let below = wide.narrow(0, 3, 70).unwrap().reshape((112, 5)).unwrap();
        [columns, turned, below].map(|q| integers(&select_actions(&q, None, &Explore::greedy()).unwrap()))
    };
    assert_eq!(run(&device), run(&Device::Cpu));
}

/// What does not fit is refused by name before anything is queued; a bad exposure is seen and counted on the device.
#[test]
fn what_does_not_fit_is_refused() {
    let Some(device) = cuda() else { return };
    let there = Inputs::new(33, &device);
    let here = Inputs::new(33, &Device::Cpu);
    let explore = Explore::greedy();
    only_launches("refusals", 0, || {
        let refused = select_actions(&there.q[2], None, &explore);
        assert!(matches!(refused, Err(MLError::Shape { what: "q", .. })));
        let refused = select_actions(&there.q[0], Some(&there.masks[1]), &explore);
        assert!(matches!(refused, Err(MLError::Shape { what: "mask", .. })));
        let refused = select_actions(&there.q[0], Some(&here.masks[0]), &explore);
        assert!(matches!(refused, Err(MLError::DeviceMismatch { what: "mask", .. })));
        let refused = select_actions_routed(&there.q[0], None, &explore, &here.router(false));
        assert!(matches!(refused, Err(MLError::DeviceMismatch { what: "spread", .. })));
        let refused = batch_route_exposure_to_factored(&there.one, &there.router(false));
        assert!(matches!(refused, Err(MLError::DType { what: "exposures", .. })));
        let other = Tensor::from_vec(vec![1.0_f32; 7], 7, &Device::Cpu).unwrap();
        let router = RouterTensors { spread: &other, ..there.router(false) };
        let refused = batch_route_exposure_to_factored(&there.exposures, &router);
        assert!(matches!(refused, Err(MLError::Shape { what: "spread", .. })));
    });
    let before = action_counts(&device).unwrap().bad_exposures;
    let bad = Tensor::from_vec(vec![4_u32, 5, u32::MAX], 3, &device).unwrap();
    let one = &there.one;
    let router = RouterTensors { spread: one, median_spread: one, volatility: one, median_volatility: one };
    let routed = integers(&batch_route_exposure_to_factored(&bad, &router).unwrap());
    assert!(routed[0] / 9 == 4 && routed[1..] == [u32::MAX, u32::MAX], "{routed:?}");
    assert_eq!(action_counts(&device).unwrap().bad_exposures, before + 2);
}
