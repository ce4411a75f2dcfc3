//! What a network says of the return of an action: its mean, or its distribution.

use crate::settings::NetworkSettings;

/// How an output of the network is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ReturnModel {
    /// The mean: one Q-value an action.
    #[default]
    Mean,
    /// C51 (arXiv 1707.06887): logits of a distribution over fixed returns, evenly spaced from `v_min` to `v_max`.
    Categorical {
        /// Returns, at least 2.
        atoms: usize,
        /// The lowest.
        v_min: f64,
        /// The highest.
        v_max: f64,
    },
    /// QR-DQN (arXiv 1710.10044): the returns at the midpoints of equal shares of probability.
    Quantiles {
        /// Shares, at least 2.
        n: usize,
    },
}

impl ReturnModel {
    /// Largest number of atoms or quantiles.
    pub const MAX_ATOMS: usize = 256;

    /// Outputs of the network an action.
    #[must_use]
    pub const fn atoms(&self) -> usize {
        match self {
            Self::Mean => 1,
            Self::Categorical { atoms, .. } => *atoms,
            Self::Quantiles { n } => *n,
        }
    }

    /// Whether an output is a Q-value.
    #[must_use]
    pub const fn is_mean(&self) -> bool {
        matches!(self, Self::Mean)
    }
}

impl NetworkSettings {
    /// What the network says of the return of an action.
    #[must_use]
    pub fn returns(&self) -> ReturnModel {
        let [v_min, v_max] = self.c51_range;
        match (self.c51_atoms, self.quantiles) {
            (0, 0) => ReturnModel::Mean,
            (0, n) => ReturnModel::Quantiles { n },
            (atoms, _) => ReturnModel::Categorical { atoms, v_min, v_max },
        }
    }
}
