//! Does a written file compute what our own network computes?

use std::fs;
use std::path::Path;

use foxhunt_core::{Head, Philox, Purpose};
use foxhunt_market::normaliser::NORMALISED_BOUND;
use rayon::prelude::*;
use serde::Serialize;

use super::Format;
use super::onnx::Graph;
use crate::checkpoint::state_file;
use crate::learner::QNetwork;
use crate::policy::flat;
use crate::{MLError, Policy};

/// States that [`check`] compares by.
pub const CHECKED_STATES: usize = 10_000;
/// Largest difference of a Q-value that is none: absolute, or a share of the largest |Q| of its state where that is above
/// 1, because all of them are sums of the same terms. It leaves room for sums in f32 in another order, and for nothing
/// else.
pub const TOLERANCE: f64 = 1e-5;
/// States a task.
const BLOCK: usize = 100;

/// How far a file is from our own network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Parity {
    /// States compared.
    pub states: u64,
    /// Largest difference of a Q-value.
    pub max_error: f64,
    /// Largest difference of a Q-value over `max(1, largest |Q| of its state)`.
    pub max_scaled_error: f64,
    /// States with the same greedy decision in every branch.
    pub same_argmax: u64,
    /// States with another decision, but where the two best Q-values are closer than [`TOLERANCE`]: no rounding could tell
    /// them apart.
    pub ties: u64,
}

impl Parity {
    /// Whether there is no difference: every Q-value within [`TOLERANCE`], every decision the same or a tie.
    #[must_use]
    pub fn holds(&self) -> bool {
        // A NaN is no parity.
        self.max_scaled_error <= TOLERANCE && self.same_argmax + self.ties == self.states
    }

    fn merge(self, other: Self) -> Self {
        // `f64::max` drops a NaN.
        let largest = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
        Self {
            states: self.states + other.states,
            max_error: largest(self.max_error, other.max_error),
            max_scaled_error: largest(self.max_scaled_error, other.max_scaled_error),
            same_argmax: self.same_argmax + other.same_argmax,
            ties: self.ties + other.ties,
        }
    }
}

/// States to compare by, f32 `[n, state_dim]`, always the same ones: normal numbers of a spread that changes from state
/// to state (a quarter, one, four), within the bounds of a normalised feature.
#[must_use]
pub fn check_states(n: usize, state_dim: usize) -> Vec<f32> {
    let mut stream = Philox::new(1).stream(Purpose::Synthetic, 8, 0);
    let mut value = |i: usize| {
        let spread = [0.25, 1.0, 4.0][i / state_dim % 3];
        (spread * stream.next_normal()).clamp(-NORMALISED_BOUND, NORMALISED_BOUND) as f32
    };
    (0..n * state_dim).map(&mut value).collect()
}

/// Reads `path` back and compares what it computes with `policy` on [`CHECKED_STATES`] states: for ONNX the graph as
/// written, worked out in f64; for safetensors the network of the arrays as written.
///
/// # Errors
/// [`MLError::Io`] when it cannot be read, and [`MLError::Checkpoint`] when it is no such file.
pub fn check(policy: &Policy, format: Format, path: &Path) -> Result<Parity, MLError> {
    let unfit = |reason: String| MLError::Checkpoint { path: path.to_path_buf(), reason };
    let layout = policy.layout();
    let (state_dim, n_outputs, head) =
        (layout.shape().state_dim, layout.n_outputs(), policy.settings().network.head);
    let own = QNetwork::with_parameters(layout.clone(), policy.parameters().to_vec())?;
    let other = match format {
        Format::Onnx => {
            let bytes = fs::read(path).map_err(|source| MLError::Io {
                action: "read",
                path: path.to_path_buf(),
                source,
            })?;
            Written::Graph(Graph::decode(&bytes).map_err(unfit)?)
        }
        Format::Safetensors => {
            let (arrays, _) = state_file::read(path)
                .map_err(|fault| MLError::CheckpointFile { path: path.to_path_buf(), fault })?;
            let parameters = flat(layout, &arrays).map_err(unfit)?;
            Written::Network(Box::new(QNetwork::with_parameters(layout.clone(), parameters)?))
        }
    };
    check_states(CHECKED_STATES, state_dim)
        .par_chunks(BLOCK * state_dim)
        .map_init(
            || (own.clone(), other.clone()),
            |(own, other), states| {
                let want = q_values(own, states)?;
                let got = match other {
                    Written::Graph(graph) => graph.q_values(states, state_dim).map_err(unfit)?,
                    Written::Network(network) => q_values(network, states)?,
                };
                if got.len() != want.len() {
                    return Err(unfit(format!("it gives {} Q-values, not {}", got.len(), want.len())));
                }
                let rows = want.chunks(n_outputs).zip(got.chunks(n_outputs));
                Ok(rows.map(|(w, g)| compare(head, w, g)).fold(Parity::default(), Parity::merge))
            },
        )
        .try_reduce(Parity::default, |a, b| Ok(a.merge(b)))
}

/// What was written, as it is read back.
#[derive(Clone)]
enum Written {
    Graph(Graph),
    Network(Box<QNetwork>),
}

fn q_values(network: &mut QNetwork, states: &[f32]) -> Result<Vec<f64>, MLError> {
    let layout = network.layout();
    let mut q = vec![0.0; states.len() / layout.shape().state_dim * layout.n_outputs()];
    network.q_values(states, &mut q)?;
    Ok(q.iter().map(|&q| f64::from(q)).collect())
}

/// One row of Q-values beside another.
fn compare(head: Head, want: &[f64], got: &[f64]) -> Parity {
    let mut row = Parity { states: 1, ..Parity::default() };
    let scale = want.iter().fold(1.0, |scale: f64, q| scale.max(q.abs()));
    for (w, g) in want.iter().zip(got) {
        let error = (w - g).abs();
        row = row.merge(Parity { max_error: error, max_scaled_error: error / scale, ..Parity::default() });
    }
    let mut start = 0;
    let (mut same, mut tied) = (true, true);
    for &len in head.branches() {
        let branch = start..start + len;
        let (a, b) = (argmax(&want[branch.clone()]), argmax(&got[branch.clone()]));
        same &= a == b;
        let best = want[branch.start + a];
        tied &= a == b || best - want[branch.start + b] <= TOLERANCE * scale;
        start += len;
    }
    row.same_argmax = u64::from(same);
    row.ties = u64::from(!same && tied);
    row
}

/// The first of the largest.
fn argmax(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}
