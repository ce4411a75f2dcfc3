//! A network in host memory: a layout, its parameters, and what makes them fast to use.

use super::{Forward, MlpLayout, PackedWeights};

/// Parameters with their packed weights, which are made anew when the parameters have changed.
#[derive(Clone, Debug)]
pub struct Network {
    layout: MlpLayout,
    parameters: Vec<f32>,
    weights: PackedWeights,
    fresh: bool,
    forward: Forward,
}

impl Network {
    /// A network of `layout` with the flat `parameters`, f32 `[layout.len()]`.
    ///
    /// # Panics
    /// For another number of parameters.
    #[must_use]
    pub fn new(layout: MlpLayout, parameters: Vec<f32>) -> Self {
        assert_eq!(parameters.len(), layout.len(), "parameters of this layout");
        let weights = PackedWeights::new(&layout, true);
        Self { layout, parameters, weights, fresh: false, forward: Forward::default() }
    }

    /// Where each parameter lies.
    #[must_use]
    pub fn layout(&self) -> &MlpLayout {
        &self.layout
    }

    /// The flat parameter array.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The flat parameter array, to be changed.
    pub fn parameters_mut(&mut self) -> &mut [f32] {
        self.fresh = false;
        &mut self.parameters
    }

    /// Packs the weights anew if the parameters have changed.
    pub fn pack(&mut self) {
        if !self.fresh {
            self.weights.pack(&self.layout, &self.parameters[..self.layout.n_weights()]);
            self.fresh = true;
        }
    }

    /// Layout, parameters and weights; the weights are those of the last [`Network::pack`].
    #[must_use]
    pub fn parts(&self) -> (&MlpLayout, &[f32], &PackedWeights) {
        (&self.layout, &self.parameters, &self.weights)
    }

    /// Without noise, whatever the layout: q-values of `states`, f32 `[B, state_dim]`, into `q`, f32 `[B, n_outputs]`; see [`Forward::q_values`].
    ///
    /// # Panics
    /// When the slices do not fit each other.
    pub fn q_values(&mut self, states: &[f32], q: &mut [f32]) {
        self.pack();
        self.forward.q_values(&self.layout, &self.parameters, &self.weights, states, q);
    }
}
