//! The CPU twin of an update.

use foxhunt_core::record::{Fault, FaultKind};
use foxhunt_core::settings::{GuardSettings, LearnerSettings, TargetUpdate};
use rayon::prelude::*;

use super::block::{Block, Nets, block_rows};
use super::{Batch, LearnerCounts, LearnerState, MAX_CLIP_NORM, UpdateReport};
use crate::adam::{
    AdamParams, AdamScale, adam_step, clip_coefficient, global_norm, hard_sync, hard_sync_due, polyak,
};
use crate::guard::{CollapseCounter, check, count_non_finite};
use crate::mlp::{MlpLayout, Network, PackedWeights, parameter_gradient};
use crate::noise::{NoiseSource, Pass};
use crate::td_loss::{TargetRule, TdLossParams, TdLossSums};

/// The optimiser and the rules of an update; the two networks belong to the caller.
#[derive(Debug)]
pub struct CpuUpdate {
    m: Vec<f32>,
    v: Vec<f32>,
    adam_t: u64,
    counts: LearnerCounts,
    settings: LearnerSettings,
    guard: GuardSettings,
    gradient: Vec<f32>,
    blocks: Vec<Block>,
    noise: Option<Noise>,
    losses: Vec<f32>,
    td: Vec<f32>,
    faults: Vec<Fault>,
}

/// The noise of an update, and the weights drawn with it.
#[derive(Debug)]
struct Noise {
    source: NoiseSource,
    online: Network,
    beside: Network,
    target: Network,
}

impl Noise {
    fn new(layout: &MlpLayout, seed: u64) -> Self {
        let source = NoiseSource::new(layout, seed);
        let drawn = Network::new(layout.means(), vec![0.0; layout.n_weights()]);
        Self { source, beside: drawn.clone(), target: drawn.clone(), online: drawn }
    }

    /// Draws the weights of update number `tried` among those tried, 0 for the first.
    fn draw(&mut self, rule: TargetRule, tried: u64, online: &Network, target: &Network) {
        let Self { source, online: o, beside, target: t } = self;
        let beside_of = if rule.asks_target() { target } else { online };
        let draw = |pass, of: &Network, to: &mut Network| {
            source.weights(pass, tried, of.parameters(), to.parameters_mut());
            to.pack();
        };
        draw(Pass::Online, online, o);
        if rule.asks_online() || rule.asks_target() {
            draw(Pass::Beside, beside_of, beside);
        }
        draw(Pass::Target, target, t);
    }
}

/// Weights of a packed network.
fn weights(network: &Network) -> (&[f32], &PackedWeights) {
    let (_, parameters, packed) = network.parts();
    (parameters, packed)
}

impl CpuUpdate {
    /// The start for networks of `layout`; the noise of a noisy one is that of `seed`.
    #[must_use]
    pub fn new(layout: &MlpLayout, settings: &LearnerSettings, guard: &GuardSettings, seed: u64) -> Self {
        let n = layout.len();
        Self {
            m: vec![0.0; n],
            v: vec![0.0; n],
            adam_t: 0,
            counts: LearnerCounts::default(),
            settings: settings.clone(),
            guard: guard.clone(),
            gradient: vec![0.0; n],
            blocks: Vec::new(),
            noise: layout.is_noisy().then(|| Noise::new(layout, seed)),
            losses: Vec::new(),
            td: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Counts of updates.
    #[must_use]
    pub fn counts(&self) -> LearnerCounts {
        self.counts
    }

    /// Takes up other counts.
    pub fn set_counts(&mut self, counts: LearnerCounts) {
        self.counts = counts;
    }

    /// Learning rate of the next update.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.settings.learning_rate.at(self.counts.updates)
    }

    /// The gradient of the last update before clipping; stale when its inputs were refused.
    #[must_use]
    pub fn gradient(&self) -> &[f32] {
        &self.gradient
    }

    /// Everything an update changes, copied.
    #[must_use]
    pub fn state(&self, online: &Network, target: &Network) -> LearnerState {
        LearnerState {
            online: online.parameters().to_vec(),
            target: target.parameters().to_vec(),
            m: self.m.clone(),
            v: self.v.clone(),
            adam_t: self.adam_t,
        }
    }

    /// Goes back to a state of the same layout; the counts stay.
    ///
    /// # Panics
    /// When it is of another layout.
    pub fn set_state(&mut self, state: &LearnerState, online: &mut Network, target: &mut Network) {
        online.parameters_mut().copy_from_slice(&state.online);
        target.parameters_mut().copy_from_slice(&state.target);
        self.m.copy_from_slice(&state.m);
        self.v.copy_from_slice(&state.v);
        self.adam_t = state.adam_t;
    }

    /// One update; see the [module](super).
    ///
    /// # Panics
    /// Without rows, when slices do not fit each other, or for an action outside the head.
    pub fn run(
        &mut self,
        online: &mut Network,
        target: &mut Network,
        batches: &[Batch<'_>],
    ) -> UpdateReport<'_> {
        let rows_total: usize = batches.iter().map(|batch| batch.actions.len()).sum();
        assert!(rows_total > 0, "an update has rows");
        let step = self.counts.updates + self.counts.skipped + 1;
        self.find_bad_inputs(batches, step);
        let (loss, norm, td_error) = if self.faults.is_empty() {
            self.gradients(online, target, batches, rows_total, step)
        } else {
            (f64::NAN, f64::NAN, f64::NAN)
        };

        let learning_rate = self.learning_rate();
        let collapse_threshold = (learning_rate * self.guard.collapse_multiplier) as f32;
        let warmup = self.counts.updates < self.guard.collapse_warmup;
        let loss_threshold = self.guard.loss_threshold as f32;
        let words = check(loss as f32, norm as f32, collapse_threshold, loss_threshold, warmup, step);
        let mut collapse = CollapseCounter { in_row: self.counts.collapsed_in_row };
        collapse.observe(&words, self.guard.collapse_patience);
        self.counts.collapsed_in_row = collapse.in_row;

        let clip = clip_coefficient(norm, self.settings.clip_norm.min(MAX_CLIP_NORM));
        let mut non_finite_parameters = Vec::new();
        let applied = match clip {
            Some(clip) if !words.halt_nan && self.faults.is_empty() => {
                self.apply(online, target, learning_rate, clip);
                true
            }
            _ => {
                non_finite_parameters = self.note_skip(online.layout(), loss as f32, norm as f32, step);
                false
            }
        };
        UpdateReport {
            applied,
            loss: loss as f32,
            grad_norm: norm as f32,
            td_error,
            learning_rate,
            guard: words,
            td: &self.td,
            faults: &self.faults,
            non_finite_parameters,
        }
    }

    /// Counts what is not finite before any of it can be lost in a relu or an argmax (case C12).
    fn find_bad_inputs(&mut self, batches: &[Batch<'_>], step: u64) {
        self.faults.clear();
        let (mut states, mut rewards) = (0, 0);
        for batch in batches {
            states += count_non_finite(batch.states) + count_non_finite(batch.next_states);
            rewards += count_non_finite(batch.rewards) + count_non_finite(batch.terminated);
        }
        for (kind, count) in [(FaultKind::NonFiniteState, states), (FaultKind::NonFiniteReward, rewards)] {
            if count > 0 {
                self.faults.push(Fault { step, kind, count });
            }
        }
        self.td.clear();
    }

    /// Fills gradient and TD errors; gives loss, gradient norm and mean |TD error|.
    fn gradients(
        &mut self,
        online: &mut Network,
        target: &mut Network,
        batches: &[Batch<'_>],
        rows_total: usize,
        step: u64,
    ) -> (f64, f64, f64) {
        let rule = TargetRule::of(&self.settings);
        let tried = step - 1;
        if self.noise.is_none() {
            rayon::join(|| online.pack(), || target.pack());
        }
        let (online, target) = (&*online, &*target);
        let layout = online.layout();
        let (online, beside, target) = match &mut self.noise {
            Some(noise) => {
                noise.draw(rule, tried, online, target);
                (&noise.online, &noise.beside, &noise.target)
            }
            None => (online, online, target),
        };
        let nets = Nets { online: weights(online), beside: weights(beside), target: weights(target) };
        let n_weights = layout.n_weights();
        let params = TdLossParams {
            head: layout.shape().head,
            rule,
            huber_delta: self.settings.huber_delta as f32,
            rows_total,
        };
        let (mut loss, mut td_error, mut non_finite) = (0.0, 0.0, 0);
        let filled = batches.iter().filter(|batch| !batch.actions.is_empty());
        for (b, batch) in filled.enumerate() {
            let block_rows = block_rows(batch.actions.len());
            let n_blocks = batch.actions.len().div_ceil(block_rows);
            self.blocks.retain(|block| block.capacity() == block_rows);
            self.blocks
                .resize_with(n_blocks.max(self.blocks.len()), || Block::new(layout, block_rows, params.rule));
            let blocks = &mut self.blocks[..n_blocks];
            blocks.par_iter_mut().with_max_len(1).enumerate().for_each(|(i, block)| {
                block.run(layout, &nets, &params, batch, i * block_rows);
            });
            let first = self.td.len();
            self.losses.clear();
            for block in &*blocks {
                self.losses.extend_from_slice(block.losses());
                self.td.extend_from_slice(block.td());
            }
            let sums = TdLossSums::of(&self.losses, &self.td[first..]);
            loss += sums.weighted_loss;
            td_error += sums.td_error;
            non_finite += sums.non_finite;
            let parts: Vec<_> = blocks.iter().map(Block::gradient_part).collect();
            parameter_gradient(layout, &parts, &mut self.gradient[..n_weights], b > 0);
        }
        if let Some(noise) = &self.noise {
            noise.source.scale_gradient(Pass::Online, tried, &mut self.gradient);
        }
        if non_finite > 0 {
            self.faults.push(Fault { step, kind: FaultKind::NonFiniteTdError, count: non_finite });
        }
        let rows = rows_total as f64;
        (loss / rows, global_norm(&self.gradient), td_error / rows)
    }

    fn apply(&mut self, online: &mut Network, target: &mut Network, learning_rate: f64, clip: f64) {
        let s = &self.settings;
        let params = AdamParams { beta1: s.adam_beta1, beta2: s.adam_beta2, epsilon: s.adam_epsilon };
        self.adam_t += 1;
        let scale = AdamScale::new(&params, self.adam_t, learning_rate, clip);
        adam_step(&scale, online.parameters_mut(), &mut self.m, &mut self.v, &self.gradient);
        self.counts.updates += 1;
        self.counts.skipped_in_row = 0;
        if let TargetUpdate::Polyak { tau } = s.target {
            polyak(target.parameters_mut(), online.parameters(), tau as f32);
        } else if hard_sync_due(s.target, self.counts.updates) {
            hard_sync(target.parameters_mut(), online.parameters());
        }
    }

    /// Records a skipped update; names the parameters whose gradient is not finite.
    fn note_skip(&mut self, layout: &MlpLayout, loss: f32, norm: f32, step: u64) -> Vec<String> {
        self.counts.skipped += 1;
        self.counts.skipped_in_row += 1;
        let inputs_were_bad = self
            .faults
            .iter()
            .any(|fault| matches!(fault.kind, FaultKind::NonFiniteState | FaultKind::NonFiniteReward));
        if inputs_were_bad {
            return Vec::new();
        }
        for (kind, value) in [(FaultKind::NonFiniteLoss, loss), (FaultKind::NonFiniteGradNorm, norm)] {
            if !value.is_finite() {
                self.faults.push(Fault { step, kind, count: 1 });
            }
        }
        let bad = |range: std::ops::Range<usize>| count_non_finite(&self.gradient[range]) > 0;
        layout.parameters().iter().filter(|p| bad(p.range())).map(|p| p.name.clone()).collect()
    }
}
