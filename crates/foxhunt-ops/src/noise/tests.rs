//! Noise against its distribution, its addresses, and the paper's formulas.

use foxhunt_core::{Head, Philox, Purpose, ReturnModel};

use super::normal::{factor_of, normal_of};
use super::*;
use crate::mlp::MlpShape;

const NOISE: f32 = 0.5;

fn layout(dueling: bool) -> MlpLayout {
    let (hidden, returns) = (vec![9, 6], ReturnModel::Mean);
    let shape = MlpShape { state_dim: 7, hidden, head: Head::Branching.into(), dueling, returns };
    MlpLayout::with_noise(shape, Some(NOISE))
}

/// The noise itself: what scales of 1 give to means of 0.
fn noise(layout: &MlpLayout, seed: u64, pass: Pass, step: u64) -> Vec<f32> {
    let n = layout.n_weights();
    let parameters = [vec![0.0; n], vec![1.0; n]].concat();
    let mut out = vec![0.0; n];
    NoiseSource::new(layout, seed).weights(pass, step, &parameters, &mut out);
    out
}

/// Quantiles that are known: both ends, the middle, and published values of the normal table.
#[test]
fn normal_numbers_are_quantiles() {
    let word = |p: f64| (p * 4_294_967_296.0 - 0.5).round() as u32;
    for (p, want) in
        [(0.5, 0.0), (0.841_344_746_068_542_9, 1.0), (0.975, 1.959_963_984_540_054), (0.001, -3.090_232_306)]
    {
        // A word is 2.3e-10 of p wide, which is at most 1e-7 of x out here.
        assert!((normal_of(word(p)) - want).abs() < 1e-7, "at {p}: {}", normal_of(word(p)));
    }
    assert!((normal_of(0) + 6.337_957_754_553_79).abs() < 1e-10, "{}", normal_of(0));
    for word in [0, 1, 12_345, 300_000_000, 2_000_000_000] {
        assert!((normal_of(word) + normal_of(!word)).abs() < 1e-9, "{word} and its mirror");
    }
    let mut before = f64::NEG_INFINITY;
    for i in 0..100_000_u32 {
        let x = normal_of(i * 42_949);
        assert!(x >= before, "{i}");
        before = x;
    }
}

/// Mean, variance and fourth moment of a million draws within five standard errors; a factor is the signed root.
#[test]
fn draws_are_standard_normal() {
    let mut stream = Philox::new(5).stream(Purpose::Noise, 0, 0);
    let n = 1_000_000;
    let mut sums = [0.0; 4];
    for _ in 0..n {
        let word = stream.next_u32();
        let x = normal_of(word);
        sums.iter_mut().enumerate().for_each(|(k, sum)| *sum += x.powi(k as i32 + 1));
        let f = f64::from(factor_of(word));
        assert!((f * f.abs() - x).abs() < 1e-6 * x.abs().max(1e-3));
    }
    let within =
        |got: f64, want: f64, variance: f64| (got - want).abs() < 5.0 * (variance / f64::from(n)).sqrt();
    let [mean, square, cube, fourth] = sums.map(|sum| sum / f64::from(n));
    assert!(within(mean, 0.0, 1.0) && within(square, 1.0, 2.0), "{mean} {square}");
    assert!(within(cube, 0.0, 15.0) && within(fourth, 3.0, 96.0), "{cube} {fourth}");
}

/// Scales begin at sigma_0 over the root of their layer's inputs, and means as without noise.
#[test]
fn scales_begin_as_in_the_paper() {
    for dueling in [false, true] {
        let layout = layout(dueling);
        let (n, values) = (layout.n_weights(), layout.init(3));
        assert_eq!((layout.len(), values.len()), (2 * n, 2 * n));
        assert_eq!(values[..n], layout.means().init(3));
        assert_eq!(layout.means().layers(), layout.layers());
        for parameter in layout.parameters().iter().filter(|p| p.offset >= n) {
            assert!(parameter.name.ends_with("_sigma"), "{}", parameter.name);
            let want = NOISE / (parameter.fan_in as f32).sqrt();
            assert!(values[parameter.range()].iter().all(|&v| v == want), "{}", parameter.name);
        }
    }
}

/// Every weight's noise is the product of its output's and its input's factor, a bias's that of its output; each side of
/// each layer is drawn at its own address.
#[test]
fn noise_is_factorised_by_layer() {
    for dueling in [false, true] {
        let layout = layout(dueling);
        let all = noise(&layout, 9, Pass::Beside, 1 << 33);
        let of = linears(&layout);
        assert_eq!(of.len(), if dueling { 4 } else { 3 });
        assert_eq!(of.iter().map(|l| l.n_out * (l.n_in + 1)).sum::<usize>(), layout.n_weights());
        for (k, layer) in of.iter().enumerate() {
            let factor = |side: u32, i: usize| {
                let stream = k as u32 | side << 8 | 1 << 16;
                factor_of(Philox::new(9).block(Purpose::Noise, stream, 1 << 33, i as u32 / 4)[i % 4])
            };
            for o in 0..layer.n_out {
                assert_eq!(all[layer.bias + o], factor(1, o));
                for i in 0..layer.n_in {
                    assert_eq!(all[layer.weight + o * layer.n_in + i], factor(1, o) * factor(0, i));
                }
            }
        }
    }
}

/// Case E02: seed, pass and step each give other noise, and the same ones the same.
#[test]
fn every_part_of_the_address_matters() {
    let layout = layout(true);
    let base = noise(&layout, 1, Pass::Online, 4);
    assert_eq!(base, noise(&layout, 1, Pass::Online, 4));
    let mut seen = vec![base];
    for (seed, pass, step) in [
        (2, Pass::Online, 4),
        (1, Pass::Beside, 4),
        (1, Pass::Target, 4),
        (1, Pass::Acting, 4),
        (1, Pass::Online, 5),
        (1, Pass::Online, 4 | 1 << 40),
    ] {
        let other = noise(&layout, seed, pass, step);
        for before in &seen {
            assert!(before.iter().zip(&other).all(|(a, b)| a != b), "{seed} {pass:?} {step}");
        }
        seen.push(other);
    }
}

/// `dL/dsigma` by central differences in f64 of a function of the drawn weights.
#[test]
fn the_gradient_of_scales_is_that_of_the_drawn_weights() {
    let layout = layout(true);
    let n = layout.n_weights();
    let parameters = layout.init(2);
    let eps = noise(&layout, 7, Pass::Online, 3);
    let power = |i: usize| 0.3 + (i % 5) as f64 * 0.1;
    let loss = |at: usize, by: f64| -> f64 {
        (0..n)
            .map(|i| {
                let scale = f64::from(parameters[n + i]) + if i == at { by } else { 0.0 };
                let w = f64::from(parameters[i]) + scale * f64::from(eps[i]);
                power(i) * w * w
            })
            .sum()
    };
    let source = NoiseSource::new(&layout, 7);
    let mut drawn = vec![0.0; n];
    source.weights(Pass::Online, 3, &parameters, &mut drawn);
    let mut gradient = vec![0.0; 2 * n];
    for i in 0..n {
        gradient[i] = (2.0 * power(i) * f64::from(drawn[i])) as f32;
    }
    source.scale_gradient(Pass::Online, 3, &mut gradient);
    for i in 0..n {
        let slope = (loss(i, 1e-4) - loss(i, -1e-4)) / 2e-4;
        assert!((f64::from(gradient[n + i]) - slope).abs() < 1e-6, "{i}: {} and {slope}", gradient[n + i]);
    }
}
