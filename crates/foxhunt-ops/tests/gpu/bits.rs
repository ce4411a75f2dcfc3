//! Random numbers and powers on the device against Rust, bit by bit.

use foxhunt_core::{Philox, Purpose};
use foxhunt_cuda::nvrtc::{Program, compile, target_of};
use foxhunt_cuda::{COMMON_CUH, Launch, Module, PHILOX_CUH};
use foxhunt_ops::power::{POWER_CUH, exp_portable, ln_portable, pow_portable, weight_portable};
use foxhunt_ops::priority_tree::random_bits;

use crate::twin::bits;
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 4] = [
    ("bits_philox", philox),
    ("bits_powers", powers),
    ("bits_logarithms", logarithms),
    ("bits_exponentials", exponentials),
];

const SOURCE: &str = r#"
#include "common.cuh"
#include "philox.cuh"
#include "power.cuh"
extern "C" __global__ void draw(u64 seed, u64 step, u64* out, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = philox_u64(seed, 4, i, step);
}
extern "C" __global__ void raise(const float* x, const float* y, float a, float* power, float* weight, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  power[i] = pow_portable(x[i], a);
  weight[i] = weight_portable(fminf(x[i], y[i]), log2_portable((double)fmaxf(x[i], y[i])), a);
}
extern "C" __global__ void logarithm(const double* x, double* y, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = ln_portable(x[i]);
}
extern "C" __global__ void exponential(const double* x, double* y, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = exp_portable(x[i]);
}
"#;

fn module(gpu: &Gpu) -> std::sync::Arc<Module> {
    let program = Program::new("bits_test.cu", SOURCE)
        .header("common.cuh", COMMON_CUH)
        .header("philox.cuh", PHILOX_CUH)
        .header("power.cuh", POWER_CUH);
    let image = compile(&program, &target_of(gpu.device.info().compute_capability), None).unwrap();
    Module::load(&gpu.device, &image).unwrap()
}

/// Case E02: the same (seed, purpose, stream, step) gives the same words on both engines.
fn philox(gpu: &Gpu) {
    let draw = module(gpu).kernel("draw").unwrap();
    let n = 10_000_u32;
    for (seed, step) in [(0, 0), (7, 1), (u64::MAX, u64::MAX - 3), (0x1234_5678_9abc_def0, 1 << 40)] {
        let out = gpu.stream.zeros::<u64>("words", n as usize).unwrap();
        let launch = Launch::new(&draw, n.div_ceil(256), 256).value(seed).value(step).buffer(&out).value(n);
        // SAFETY: draw(u64, u64, u64*, u32) over n words.
        unsafe { launch.launch(&gpu.stream).unwrap() };
        let philox = Philox::new(seed);
        for (i, word) in gpu.stream.download(&out).unwrap().into_iter().enumerate() {
            assert_eq!(word, random_bits(&philox, step, i as u32), "stream {i}");
        }
    }
    assert_eq!(Purpose::Replay as u32, 4, "the kernels write this number out");
}

/// Powers and weights are the same bits, over all magnitudes, subnormal numbers included.
fn powers(gpu: &Gpu) {
    let raise = module(gpu).kernel("raise").unwrap();
    let n = if gpu.small { 4096 } else { 1 << 20 };
    let mut draws = bits(9);
    let mut x: Vec<f32> = (0..n).map(|_| f32::from_bits(1 + draws.next_below(0x7f7f_fffe))).collect();
    let y: Vec<f32> = (0..n).map(|_| f32::from_bits(0x3f80_0000 + draws.next_below(0x2000_0000))).collect();
    x[..4].copy_from_slice(&[f32::from_bits(1), f32::MAX, 1.0, f32::MIN_POSITIVE]);
    let device = [&x, &y].map(|v| gpu.stream.upload_new("x", v.as_slice()).unwrap());
    for a in [0.0, 0.25, 0.6, 1.0_f32, 0.123_456_79] {
        let out = [0; 2].map(|_| gpu.stream.zeros::<f32>("result", n).unwrap());
        let launch = Launch::new(&raise, (n as u32).div_ceil(256), 256)
            .buffer(&device[0])
            .buffer(&device[1])
            .value(a)
            .buffer(&out[0])
            .buffer(&out[1])
            .value(n as u32);
        // SAFETY: raise(float*, float*, float, float*, float*, u32), all of n floats.
        unsafe { launch.launch(&gpu.stream).unwrap() };
        let [power, weight] = out.map(|o| gpu.stream.download(&o).unwrap());
        for i in 0..n {
            assert_eq!(power[i].to_bits(), pow_portable(x[i], a).to_bits(), "{}^{a}", x[i]);
            let want = weight_portable(x[i].min(y[i]), x[i].max(y[i]), a);
            assert_eq!(weight[i].to_bits(), want.to_bits(), "weight of {} and {} at {a}", x[i], y[i]);
        }
    }
}

/// Logarithms of ratios near one, of any magnitude, and of everything that is no positive number.
fn logarithms(gpu: &Gpu) {
    let n = if gpu.small { 4096 } else { 1 << 20 };
    let mut draws = bits(10);
    let mut x: Vec<f64> = (0..n)
        .map(
            |i| if i % 2 == 0 { 0.5 + draws.next_f64() } else { (draws.next_f64() * 2100.0 - 1080.0).exp2() },
        )
        .collect();
    let special =
        [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-320, f64::MIN_POSITIVE];
    x[..special.len()].copy_from_slice(&special);
    compare(gpu, "logarithm", ln_portable, &x);
}

/// Exponentials over the whole range, most where a softmax has its mass, and past both ends.
fn exponentials(gpu: &Gpu) {
    let n = if gpu.small { 4096 } else { 1 << 20 };
    let mut draws = bits(11);
    let mut x: Vec<f64> =
        (0..n).map(|i| (draws.next_f64() - 0.5) * if i % 4 == 0 { 1500.0 } else { 60.0 }).collect();
    let special = [0.0, -0.0, 690.0, -690.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-320];
    x[..special.len()].copy_from_slice(&special);
    compare(gpu, "exponential", exp_portable, &x);
}

/// One function of f64 on the device against its twin, bit by bit; a NaN is as good as another.
fn compare(gpu: &Gpu, symbol: &'static str, twin: fn(f64) -> f64, x: &[f64]) {
    let kernel = module(gpu).kernel(symbol).unwrap();
    let n = x.len();
    let (from, to) = (gpu.stream.upload_new("x", x).unwrap(), gpu.stream.zeros::<f64>("y", n).unwrap());
    let launch =
        Launch::new(&kernel, (n as u32).div_ceil(256), 256).buffer(&from).buffer(&to).value(n as u32);
    // SAFETY: logarithm and exponential (double*, double*, u32), both of n values.
    unsafe { launch.launch(&gpu.stream).unwrap() };
    for (x, y) in x.iter().zip(gpu.stream.download(&to).unwrap()) {
        let want = twin(*x);
        assert!(
            y.to_bits() == want.to_bits() || y.is_nan() && want.is_nan(),
            "{symbol} {x}: {y}, not {want}"
        );
    }
}
