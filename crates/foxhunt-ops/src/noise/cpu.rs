//! The CPU twin of the noise.

use foxhunt_core::{Philox, Purpose};

use super::normal::factor_of;
use super::{Pass, linears};
use crate::mlp::{Layer, MlpLayout};

/// Draws the noise of one seed for one layout.
#[derive(Clone, Debug)]
pub struct NoiseSource {
    philox: Philox,
    linears: Vec<Layer>,
    n: usize,
}

/// The factors of one layer.
struct Factors {
    inputs: Vec<f32>,
    outputs: Vec<f32>,
}

impl NoiseSource {
    /// The noise of `seed` on the layers of `layout`.
    #[must_use]
    pub fn new(layout: &MlpLayout, seed: u64) -> Self {
        Self { philox: Philox::new(seed), linears: linears(layout), n: layout.n_weights() }
    }

    /// Writes the drawn weights of `pass` at `step` to `out`, f32 `[n]`, from the means and scales of `parameters`, f32
    /// `[2 n]`.
    ///
    /// # Panics
    /// When the slices are not of the layout's lengths.
    pub fn weights(&self, pass: Pass, step: u64, parameters: &[f32], out: &mut [f32]) {
        let (means, scales) = parameters.split_at(self.n);
        assert!(
            scales.len() == self.n && out.len() == self.n,
            "means, scales and drawn weights of one layout"
        );
        self.each(pass, step, |at, noise| out[at] = means[at] + scales[at] * noise);
    }

    /// Writes the scales' gradient behind that of the means: `gradient` is f32 `[2 n]`, its first half that of the drawn
    /// weights of `pass` at `step`.
    ///
    /// # Panics
    /// When the slice is not of the layout's length.
    pub fn scale_gradient(&self, pass: Pass, step: u64, gradient: &mut [f32]) {
        let (of_means, of_scales) = gradient.split_at_mut(self.n);
        assert_eq!(of_scales.len(), self.n, "a gradient of this layout");
        self.each(pass, step, |at, noise| of_scales[at] = of_means[at] * noise);
    }

    /// Calls `f` with every place in the flat array and its noise.
    fn each(&self, pass: Pass, step: u64, mut f: impl FnMut(usize, f32)) {
        for (k, layer) in self.linears.iter().enumerate() {
            let Factors { inputs, outputs } = self.factors(k, layer, pass, step);
            for (o, &g) in outputs.iter().enumerate() {
                let row = layer.weight + o * layer.n_in;
                for (i, &x) in inputs.iter().enumerate() {
                    f(row + i, g * x);
                }
                f(layer.bias + o, g);
            }
        }
    }

    fn factors(&self, k: usize, layer: &Layer, pass: Pass, step: u64) -> Factors {
        let side = |side: u32, n: usize| {
            let stream = k as u32 | side << 8 | (pass as u32) << 16;
            let block = |b: usize| self.philox.block(Purpose::Noise, stream, step, b as u32);
            let mut factors: Vec<f32> = (0..n.div_ceil(4)).flat_map(block).map(factor_of).collect();
            factors.truncate(n);
            factors
        };
        Factors { inputs: side(0, layer.n_in), outputs: side(1, layer.n_out) }
    }
}
