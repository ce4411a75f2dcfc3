//! The training loop, written once over [`Engine`].
//!
//! An epoch is `collect` vector steps, then `updates_per_epoch` updates, then the work of an epoch boundary: one
//! readback, the guard's policy, validation, early stop, checkpoint. The loop knows no network, no environment and
//! no file format; it knows where it stands ([`TrainerState`]) and what comes next. A request to stop is looked at
//! between chunks of an epoch and at every bar of a backtest: a chunk is finished, a backtest dropped, everything is
//! saved, and resuming goes on from there to the same bits.

mod chunk;
mod early_stop;
mod guard_policy;
mod metrics;
mod observer;
mod outcome;
mod prepare;
mod save;
mod start;
mod state;
#[cfg(test)]
mod tests;

pub use crate::stop::{NeverStop, StopSignal};
pub use early_stop::{AverageQ, Best, EarlyStop};
pub use metrics::{MetricsLine, MetricsWriter, read_metrics};
pub use observer::{
    CheckpointReport, EpochReport, EvaluationReport, StartReport, TrainObserver, ValidationReport, Warning,
};
pub use outcome::{StopReason, TrainOutcome};
pub use prepare::{Prepared, warm_up_steps};
pub use start::EngineBuilder;
pub(crate) use start::FREE_KEYS;
pub use state::TrainerState;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use foxhunt_core::Settings;
use foxhunt_core::record::EpochStats;
use foxhunt_core::settings::SaveFailure;

use self::chunk::Chunks;
use crate::MLError;
use crate::checkpoint::{CheckpointNumber, CheckpointStore};
use crate::engine::{Engine, Snapshot};
use crate::ledger::Ledger;
use crate::run_folder::RunFolder;

/// Epochs between two warnings of one rate-limited kind.
const WARNING_INTERVAL: u64 = 10;

/// One training run.
pub struct Trainer<'a> {
    settings: Settings,
    prepared: Prepared,
    engine: Box<dyn Engine + 'a>,
    run: RunFolder,
    store: CheckpointStore,
    state: TrainerState,
    /// Parameters of the best policy so far.
    best: Option<Snapshot>,
    metrics: MetricsWriter,
    observers: Vec<Box<dyn TrainObserver + 'a>>,
    stop: Box<dyn StopSignal + 'a>,
    resumed: bool,
    /// Warnings from before anyone could listen.
    early_warnings: Vec<Warning>,
    /// The last checkpoint saved or loaded; the same point is never saved twice (case E09).
    saved: Option<(CheckpointNumber, PathBuf)>,
    /// Where this run is one of the configurations tried; none for a fold, which is part of one.
    ledger: Option<Ledger>,
    chunks: Chunks,
    clock: Clock,
    large_loss_warned: Option<u64>,
    divergence_warned: Option<u64>,
}

/// Wall-clock time and work of the current epoch in this process.
struct Clock {
    start: Instant,
    vector_steps: u64,
    updates: u64,
    rollbacks: u64,
}

impl Clock {
    fn new() -> Self {
        Self { start: Instant::now(), vector_steps: 0, updates: 0, rollbacks: 0 }
    }

    fn next_epoch(&mut self) {
        *self = Self { start: self.start, ..Self::new() };
    }
}

fn rate(count: u64, time: Duration) -> Option<f64> {
    let rate = count as f64 / time.as_secs_f64();
    (count > 0 && rate.is_finite()).then_some(rate)
}

impl<'a> Trainer<'a> {
    /// Adds a listener.
    #[must_use]
    pub fn observe(mut self, observer: impl TrainObserver + 'a) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Sets what can ask the run to stop.
    #[must_use]
    pub fn stop_on(mut self, signal: impl StopSignal + 'a) -> Self {
        self.stop = Box::new(signal);
        self
    }

    /// Name of the engine that runs.
    #[must_use]
    pub fn engine_name(&self) -> &'static str {
        self.engine.name()
    }

    /// The settings of the run.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The market and how it is divided.
    #[must_use]
    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// The folder of the run.
    #[must_use]
    pub fn run_folder(&self) -> &RunFolder {
        &self.run
    }

    /// Where the loop stands.
    #[must_use]
    pub fn state(&self) -> &TrainerState {
        &self.state
    }

    /// Trains to the end, or until a stop is requested.
    ///
    /// # Errors
    /// [`MLError::Halted`] by the guard, [`MLError::WriteFailed`] and [`MLError::Io`] when nothing can be saved, and
    /// whatever the engine reports. A requested stop is no error: see [`StopReason::Interrupted`].
    pub fn run(mut self) -> Result<TrainOutcome, MLError> {
        self.begin()?;
        while self.state.stopped.is_none() {
            if !self.state.validating {
                if !(self.warm_up()? && self.collect()? && self.update()?) {
                    return self.interrupted();
                }
                self.close_epoch()?;
            }
            if !self.validate_if_due()? {
                return self.interrupted();
            }
            self.state.stopped = self.reason_to_stop();
            self.save_if_due()?;
        }
        self.finish()
    }

    /// Fills the replay memory for the first update. False when a stop was requested.
    fn warm_up(&mut self) -> Result<bool, MLError> {
        let steps = warm_up_steps(&self.settings);
        while self.state.warmed_up < steps {
            if self.stop.stop_requested() {
                return Ok(false);
            }
            let chunk = (steps - self.state.warmed_up).min(u64::from(self.chunks.vector_steps)) as u32;
            self.collect_chunk(chunk)?;
            self.state.warmed_up += u64::from(chunk);
        }
        Ok(true)
    }

    /// The first half of an epoch. False when a stop was requested.
    fn collect(&mut self) -> Result<bool, MLError> {
        while self.state.collected < self.settings.training.collect {
            if self.stop.stop_requested() {
                return Ok(false);
            }
            let chunk = (self.settings.training.collect - self.state.collected).min(self.chunks.vector_steps);
            self.collect_chunk(chunk)?;
            self.state.collected += chunk;
        }
        Ok(true)
    }

    fn collect_chunk(&mut self, chunk: u32) -> Result<(), MLError> {
        self.engine.collect(chunk)?;
        self.clock.vector_steps += u64::from(chunk);
        Ok(())
    }

    /// The second half of an epoch. False when a stop was requested.
    fn update(&mut self) -> Result<bool, MLError> {
        while self.state.updated < self.settings.training.updates_per_epoch {
            if self.stop.stop_requested() {
                return Ok(false);
            }
            let left = self.settings.training.updates_per_epoch - self.state.updated;
            let chunk = left.min(self.chunks.updates);
            let done = self.engine.update(chunk)?;
            self.clock.updates += u64::from(done);
            self.state.updated += done;
            self.answer_guard()?;
        }
        Ok(true)
    }

    /// The one readback of an epoch, and what follows from it.
    fn close_epoch(&mut self) -> Result<(), MLError> {
        let stats = self.engine.drain()?;
        let worked = self.engine.take_work_times()?;
        self.answer_guard()?;
        self.state.epoch += 1;
        self.state.validating = true;
        self.keep_good_copy(&stats)?;
        if let Some(rule) = self.settings.monitor.average_q_stop {
            self.state.average_q.observe(rule, stats.max_q);
        }
        let env_steps = self.clock.vector_steps * self.settings.env.n_envs as u64;
        let report = EpochReport {
            epoch: self.state.epoch,
            epochs: self.settings.training.epochs,
            wall_s: self.clock.start.elapsed().as_secs_f64(),
            env_steps_per_s: rate(env_steps, worked.collecting),
            updates_per_s: rate(self.clock.updates, worked.updating),
            rollbacks: self.clock.rollbacks,
            stats,
        };
        self.clock.next_epoch();
        self.tell(|observer| observer.on_epoch(&report));
        self.warn_of(&report.stats);
        Ok(())
    }

    /// Every `validate_every` epochs, and after the last one: a greedy backtest on the validation split. False when a
    /// stop was requested.
    fn validate_if_due(&mut self) -> Result<bool, MLError> {
        let training = &self.settings.training;
        let epoch = self.state.epoch;
        let last = epoch >= training.epochs || self.average_q_exhausted();
        if !last && !epoch.is_multiple_of(training.validate_every) {
            self.state.end_epoch();
            return Ok(true);
        }
        let Prepared { market, split, .. } = &self.prepared;
        let backtest = match self.engine.evaluate(market, split.validation.clone(), self.stop.as_ref()) {
            Err(MLError::Interrupted) => return Ok(false),
            result => result?,
        };
        self.state.end_epoch();
        // The log return is floored, which would make a very bad score of a NaN.
        let sound = backtest.final_equity().is_finite();
        let net_log_return = sound.then(|| backtest.net_log_return()).filter(|value| value.is_finite());
        let best = self.state.early_stop.observe(epoch, net_log_return);
        if best {
            self.keep_best()?;
        }
        let report = ValidationReport {
            epoch,
            net_log_return,
            turnover: Some(backtest.turnover()).filter(|turnover| turnover.is_finite()),
            fills: backtest.fills.len() as u64,
            best,
            without_progress: self.state.early_stop.without_progress,
        };
        self.tell(|observer| observer.on_validation(&report));
        Ok(true)
    }

    fn reason_to_stop(&self) -> Option<StopReason> {
        if self.state.early_stop.exhausted(self.settings.training.patience) {
            Some(StopReason::EarlyStop)
        } else if self.average_q_exhausted() {
            Some(StopReason::AverageQ)
        } else if self.state.epoch >= self.settings.training.epochs {
            Some(StopReason::Completed)
        } else {
            None
        }
    }

    fn average_q_exhausted(&self) -> bool {
        let rule = self.settings.monitor.average_q_stop;
        rule.is_some_and(|rule| self.state.average_q.exhausted(rule))
    }

    fn save_if_due(&mut self) -> Result<(), MLError> {
        let due = self.state.epoch.is_multiple_of(self.settings.checkpoint.every_epochs);
        if due || self.state.stopped.is_some() { self.save() } else { Ok(()) }
    }

    /// Who asked to stop is told that everything is saved, and no later save can make up for one that fails.
    fn interrupted(mut self) -> Result<TrainOutcome, MLError> {
        self.save_or(SaveFailure::Stop)?;
        self.outcome(StopReason::Interrupted, None)
    }

    /// The test split is looked at here, once. Who is stopped here has a finished run to resume, which looks again.
    fn finish(mut self) -> Result<TrainOutcome, MLError> {
        self.save()?;
        let evaluation = match self.evaluate_best() {
            Err(MLError::Interrupted) => return self.interrupted(),
            result => result?,
        };
        let reason = self.state.stopped.unwrap_or(StopReason::Completed);
        self.outcome(reason, Some(evaluation))
    }

    fn outcome(
        mut self,
        stop_reason: StopReason,
        evaluation: Option<crate::evaluation::Evaluation>,
    ) -> Result<TrainOutcome, MLError> {
        let status = self.engine.status();
        let outcome = TrainOutcome {
            stop_reason,
            epochs: self.state.epoch,
            updates: status.updates,
            env_steps: status.env_steps,
            best_validation: self.state.early_stop.best,
            evaluation,
            checkpoint: self.saved.take().map(|(_, path)| path),
            run: self.run.paths().clone(),
        };
        self.tell(|observer| observer.on_finish(&outcome));
        Ok(outcome)
    }

    fn tell(&mut self, mut message: impl FnMut(&mut dyn TrainObserver)) {
        message(&mut self.metrics);
        for observer in &mut self.observers {
            message(observer.as_mut());
        }
        if let Some(error) = self.metrics.take_error() {
            let lost = Warning::MetricsLost { reason: error.to_string() };
            for observer in &mut self.observers {
                observer.on_warning(&lost);
            }
        }
    }

    fn warn(&mut self, warning: Warning) {
        self.tell(|observer| observer.on_warning(&warning));
    }

    fn warn_of(&mut self, stats: &EpochStats) {
        use foxhunt_core::record::FaultKind::{NonFiniteReward, NonFiniteState};
        let epoch = self.state.epoch;
        if stats.skipped_updates > 0 {
            self.warn(Warning::SkippedUpdates { epoch, count: stats.skipped_updates });
        }
        let refused = stats
            .faults
            .iter()
            .filter(|fault| matches!(fault.kind, NonFiniteReward | NonFiniteState))
            .map(|fault| u64::from(fault.count))
            .sum();
        if refused > 0 {
            self.warn(Warning::RefusedTransitions { epoch, count: refused });
        }
        if stats.fallback_decisions > 0 {
            self.warn(Warning::Fallbacks { epoch, decisions: stats.fallback_decisions });
        }
        let due = |last: Option<u64>| last.is_none_or(|last| epoch >= last + WARNING_INTERVAL);
        if stats.loss_clipped_updates > 0 && due(self.large_loss_warned) {
            self.large_loss_warned = Some(epoch);
            self.warn(Warning::LargeLoss { epoch, updates: stats.loss_clipped_updates });
        }
        if stats.q_diverged && due(self.divergence_warned) {
            self.divergence_warned = Some(epoch);
            self.warn(Warning::Diverged { epoch });
        }
    }
}
