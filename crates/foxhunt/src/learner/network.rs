//! A Q-network in host memory: a layout, its parameters, and forward passes without a graph.

use std::path::PathBuf;

use candle_core::{Device, Tensor};
use foxhunt_core::ActionSpace;
use foxhunt_core::settings::NetworkSettings;
use foxhunt_ops::mlp::{MlpLayout, MlpShape, Network};

use super::reference;
use crate::MLError;
use crate::engine::{Array, ArrayData, Snapshot};

/// A multi-layer perceptron over states; see [`foxhunt_ops::mlp`] for the arithmetic and the layout.
#[derive(Clone, Debug)]
pub struct QNetwork {
    core: Network,
}

impl QNetwork {
    /// A network with the initial parameters of `seed`.
    #[must_use]
    pub fn new(settings: &NetworkSettings, state_dim: usize, seed: u64) -> Self {
        Self::for_actions(settings, state_dim, settings.head.into(), seed)
    }

    /// The same for another action space than that of the settings.
    #[must_use]
    pub fn for_actions(settings: &NetworkSettings, state_dim: usize, head: ActionSpace, seed: u64) -> Self {
        let noise = settings.noisy.then_some(settings.noisy_sigma as f32);
        let layout = MlpLayout::with_noise(MlpShape::of(settings, state_dim, head), noise);
        let parameters = layout.init(seed);
        Self { core: Network::new(layout, parameters) }
    }

    /// A network with the parameters of `snapshot`, named as [`QNetwork::write`] names them.
    ///
    /// # Errors
    /// [`MLError::Checkpoint`] when an array is missing or has another shape or type.
    pub fn from_snapshot(
        settings: &NetworkSettings,
        state_dim: usize,
        snapshot: &Snapshot,
        prefix: &str,
    ) -> Result<Self, MLError> {
        let mut network = Self::new(settings, state_dim, 0);
        let parameters = read_flat(network.layout(), snapshot, prefix)?;
        network.core.parameters_mut().copy_from_slice(&parameters);
        Ok(network)
    }

    /// A network of `layout` with the flat `parameters`, f32 `[layout.len()]`.
    ///
    /// # Errors
    /// [`MLError::Shape`] for another number of parameters.
    pub fn with_parameters(layout: MlpLayout, parameters: Vec<f32>) -> Result<Self, MLError> {
        if parameters.len() != layout.len() {
            let expected = format!("[{}]", layout.len());
            return Err(MLError::Shape { what: "parameters", got: vec![parameters.len()], expected });
        }
        Ok(Self { core: Network::new(layout, parameters) })
    }

    /// A network of `layout` whose parameters are to come.
    pub(super) fn zeros(layout: MlpLayout) -> Self {
        let parameters = vec![0.0; layout.len()];
        Self { core: Network::new(layout, parameters) }
    }

    /// Where each parameter lies.
    #[must_use]
    pub fn layout(&self) -> &MlpLayout {
        self.core.layout()
    }

    /// The flat parameter array.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        self.core.parameters()
    }

    /// The network without names and tensors.
    pub(super) fn core(&self) -> &Network {
        &self.core
    }

    /// As [`QNetwork::core`], to be changed.
    pub(super) fn core_mut(&mut self) -> &mut Network {
        &mut self.core
    }

    /// Adds every parameter to `snapshot` as `{prefix}{name}`, for example `online.layer0.weight`.
    pub fn write(&self, snapshot: &mut Snapshot, prefix: &str) {
        write_flat(self.layout(), self.parameters(), snapshot, prefix);
    }

    /// Q-values of `states`, f32 `[B, state_dim]`, into `q`, f32 `[B, n_outputs]`; no graph is kept. For the
    /// branching head a row holds 5 exposures, 3 order types, 3 urgencies. A NaN in a state gives NaN Q-values. Noisy layers
    /// answer by their means.
    ///
    /// # Errors
    /// [`MLError::Shape`] when the slices do not fit each other.
    pub fn q_values(&mut self, states: &[f32], q: &mut [f32]) -> Result<(), MLError> {
        let (state_dim, width) = (self.layout().shape().state_dim, self.layout().n_outputs());
        let rows = q.len() / width;
        if q.len() != rows * width || states.len() != rows * state_dim {
            return Err(MLError::Shape {
                what: "states",
                got: vec![states.len()],
                expected: format!("{state_dim} values for each of {} / {width} rows of Q-values", q.len()),
            });
        }
        self.core.q_values(states, q);
        Ok(())
    }

    /// Q-values of `states`, f32 `[B, state_dim]` on the CPU, as a tensor `[B, n_outputs]`, by candle. The parameters
    /// enter as constants, of noisy layers the means; use [`reference::forward`] with a `Var` for gradients.
    ///
    /// # Errors
    /// [`MLError::Tensor`] for a tensor that does not fit.
    pub fn forward(&self, states: &Tensor) -> Result<Tensor, MLError> {
        let parameters = Tensor::from_slice(self.parameters(), self.layout().len(), &Device::Cpu)?;
        Ok(reference::forward(self.layout(), &parameters, states)?)
    }
}

/// Adds the parts of a flat array to `snapshot`, one array a parameter.
pub(super) fn write_flat(layout: &MlpLayout, flat: &[f32], snapshot: &mut Snapshot, prefix: &str) {
    for parameter in layout.parameters() {
        let data = ArrayData::F32(flat[parameter.range()].to_vec());
        let array = Array { shape: parameter.shape.clone(), data };
        snapshot.arrays.insert(format!("{prefix}{}", parameter.name), array);
    }
}

/// Puts a flat array together again.
pub(super) fn read_flat(layout: &MlpLayout, snapshot: &Snapshot, prefix: &str) -> Result<Vec<f32>, MLError> {
    let mut flat = Vec::with_capacity(layout.len());
    for parameter in layout.parameters() {
        let name = format!("{prefix}{}", parameter.name);
        match snapshot.arrays.get(&name) {
            Some(Array { shape, data: ArrayData::F32(values) })
                if *shape == parameter.shape && values.len() == parameter.len() =>
            {
                flat.extend_from_slice(values);
            }
            Some(array) => {
                let (got, want) = (&array.shape, &parameter.shape);
                return Err(unfit(format!("array {name} has shape {got:?}, expected f32 {want:?}")));
            }
            None => return Err(unfit(format!("array {name} is missing"))),
        }
    }
    Ok(flat)
}

pub(super) fn unfit(reason: String) -> MLError {
    MLError::Checkpoint { path: PathBuf::from("snapshot"), reason }
}
