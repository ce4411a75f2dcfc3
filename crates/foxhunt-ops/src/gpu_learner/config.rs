//! What a learner on the device is made from, and what it will take.

use foxhunt_core::ReturnModel;
use foxhunt_core::settings::{GuardSettings, LearnerSettings, Precision};

use super::memory;
use crate::error::OpError;
use crate::mlp::{MlpLayout, MlpShape};

/// Most faults the host can be behind before the rest is only counted.
pub(crate) const FAULTS: usize = 4096;

/// What a learner is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuLearnerConfig {
    /// The network.
    pub shape: MlpShape,
    /// Targets, loss, optimiser; `batch` and `accumulation` rows an update.
    pub learner: LearnerSettings,
    /// The guard's thresholds.
    pub guard: GuardSettings,
    /// What the scales of noisy layers begin as, times the root of their inputs ([`crate::noise`]); none without noise.
    pub noise: Option<f32>,
    /// Seed of the noise.
    pub seed: u64,
    /// Most rows of one call of `q_values`, up to 65,536; 0 for none.
    pub acting_rows: usize,
    /// Lets a kernel begin while the one before ends (compute capability 9.0 and up). Same results.
    pub programmatic: bool,
}

impl GpuLearnerConfig {
    /// The default settings with this network.
    #[must_use]
    pub fn new(shape: MlpShape) -> Self {
        Self {
            shape,
            learner: LearnerSettings::default(),
            guard: GuardSettings::default(),
            noise: None,
            seed: 0,
            acting_rows: 0,
            programmatic: true,
        }
    }

    /// Where each parameter lies.
    #[must_use]
    pub fn layout(&self) -> MlpLayout {
        MlpLayout::with_noise(self.shape.clone(), self.noise)
    }

    /// Device bytes it will take, to print before they are taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        memory::bytes(self, &self.layout())
    }

    /// Rows of an update.
    #[must_use]
    pub fn rows_total(&self) -> usize {
        self.learner.batch.saturating_mul(self.learner.accumulation)
    }

    pub(super) fn check(&self, compute_capability: (u32, u32)) -> Result<(), OpError> {
        if self.learner.precision != Precision::F32 && compute_capability.0 < 8 {
            return Err(OpError::InvalidArgument {
                what: "learner.precision",
                value: self.learner.precision.name().to_owned(),
                rule: "f32 on a device of compute capability below 8.0",
            });
        }
        if self.learner.munchausen && !self.shape.returns.is_mean() {
            return Err(OpError::InvalidArgument {
                what: "learner.munchausen",
                value: "true".to_owned(),
                rule: "false beside a distribution of the return",
            });
        }
        let within = |what, value: usize, range: std::ops::RangeInclusive<usize>, rule| {
            if range.contains(&value) {
                return Ok(());
            }
            Err(OpError::InvalidArgument { what, value: value.to_string(), rule })
        };
        within("state_dim", self.shape.state_dim, 1..=4096, "from 1 to 4096 on a GPU")?;
        within("hidden layers", self.shape.hidden.len(), 0..=8, "at most 8")?;
        for &units in &self.shape.hidden {
            within("hidden units", units, 1..=4096, "from 1 to 4096")?;
        }
        // Actions; with distributions each is as many outputs of the network as it has atoms.
        let outputs = self.shape.head.n_outputs() + usize::from(self.shape.dueling);
        within("outputs", outputs, 1..=46, "at most 46, the value included, on a GPU")?;
        let atoms = self.shape.returns.atoms();
        within("atoms", atoms, 1..=ReturnModel::MAX_ATOMS, "at most 256 on a GPU")?;
        within("batch", self.learner.batch, 1..=1 << 16, "from 1 to 65536")?;
        within("accumulation", self.learner.accumulation, 1..=1024, "from 1 to 1024")?;
        within("acting_rows", self.acting_rows, 0..=1 << 16, "at most 65536")
    }
}
