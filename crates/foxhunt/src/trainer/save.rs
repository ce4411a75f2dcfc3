//! Saving from within the loop: checkpoints, the best policy, and the final evaluation of the latter.

use std::time::Instant;

use foxhunt_core::settings::SaveFailure;

use super::prepare::TEST;
use super::{CheckpointReport, EvaluationReport, Prepared, Trainer, Warning};
use crate::MLError;
use crate::checkpoint::{Manifest, settings_hash, state_file};
use crate::engine::{Array, ArrayData, Snapshot};
use crate::evaluation::{Evaluation, Verdict, estimate};
use crate::ledger::Entry;
use crate::policy::Policy;

/// In a checkpoint, the best policy's arrays carry this before their names.
const BEST: &str = "best.";

impl Trainer<'_> {
    /// Saves a checkpoint of right now, unless the last one already is that. What a failure means, the settings say.
    pub(super) fn save(&mut self) -> Result<(), MLError> {
        self.save_or(self.settings.checkpoint.on_failure)
    }

    /// As [`Trainer::save`]; what a failure means, the caller says.
    pub(super) fn save_or(&mut self, on_failure: SaveFailure) -> Result<(), MLError> {
        let number = self.state.number();
        if self.saved.as_ref().is_some_and(|(saved, _)| *saved == number) {
            return Ok(());
        }
        let start = Instant::now();
        let mut snapshot = self.engine.snapshot()?;
        if let Some(best) = &self.best {
            join_best(&mut snapshot, best);
        }
        let manifest = Manifest {
            engine: self.engine.name().to_owned(),
            settings: self.settings.clone(),
            settings_hash: settings_hash(&self.settings),
            data_hash: self.prepared.data_hash.clone(),
            status: self.engine.status(),
            trainer: self.state.clone(),
            normaliser: self.prepared.market.normaliser.clone(),
            state_bytes: 0,
            state_blake3: String::new(),
        };
        match self.store.save(number, manifest, &snapshot) {
            Ok(path) => {
                self.saved = Some((number, path.clone()));
                let report = CheckpointReport {
                    epoch: self.state.epoch,
                    path,
                    bytes: state_file::payload_bytes(&snapshot),
                    wall_s: start.elapsed().as_secs_f64(),
                };
                self.tell(|observer| observer.on_checkpoint(&report));
                Ok(())
            }
            Err(error) => self.answer_save_failure(on_failure, error),
        }
    }

    /// Makes the current policy the best one, in memory and on the disk.
    pub(super) fn keep_best(&mut self) -> Result<(), MLError> {
        self.best = Some(self.engine.parameters()?);
        match self.save_policy() {
            Err(error) => self.answer_save_failure(self.settings.checkpoint.on_failure, error),
            Ok(()) => Ok(()),
        }
    }

    /// Writes the best policy so far to the run's policy folder.
    pub(super) fn save_policy(&self) -> Result<(), MLError> {
        let Some(best) = &self.best else { return Ok(()) };
        self.policy(best)?.save(&self.run.paths().policy())
    }

    fn policy(&self, parameters: &Snapshot) -> Result<Policy, MLError> {
        let market = &self.prepared.market;
        Policy::new(&self.settings, market.normaliser.clone(), Some(market.tick_size), parameters)
    }

    fn answer_save_failure(&mut self, on_failure: SaveFailure, error: MLError) -> Result<(), MLError> {
        match on_failure {
            SaveFailure::Stop => Err(error),
            SaveFailure::Continue => {
                self.warn(Warning::CheckpointLost { reason: error.to_string() });
                Ok(())
            }
        }
    }

    /// Runs the best policy, or the last one where no validation gave a score, and its baselines on every window.
    pub(super) fn evaluate_best(&mut self) -> Result<Evaluation, MLError> {
        let parameters = match &self.best {
            Some(best) => best.clone(),
            None => self.engine.parameters()?,
        };
        let mut policy = self.policy(&parameters)?;
        if self.best.is_none() {
            // What is judged is what is kept.
            policy.save(&self.run.paths().policy())?;
        }
        let Self { settings, prepared, stop, observers, .. } = self;
        let mut told = |report: &EvaluationReport| {
            observers.iter_mut().for_each(|observer| observer.on_evaluation(report));
        };
        let mut evaluation =
            super::prepare::evaluate(settings, prepared, &mut policy, stop.as_ref(), &mut told)?;
        evaluation.verdict = self.verdict(&evaluation)?;
        Ok(evaluation)
    }

    /// Tells the ledger what the test window gave, and judges that by all that was tried; none for a run that is part of
    /// one try.
    fn verdict(&self, evaluation: &Evaluation) -> Result<Option<Verdict>, MLError> {
        let (Some(ledger), Some(test)) = (&self.ledger, evaluation.window(TEST)) else { return Ok(None) };
        let Prepared { market, data_hash, .. } = &self.prepared;
        let equity = &test.agent.backtest.equity;
        let time = &market.bars.time[test.bars.clone()];
        let risk_free = self.settings.evaluation.risk_free_rate;
        let ratio = estimate(equity, time, risk_free).ok();
        ledger.append(&Entry::now(super::start::COMMAND, data_hash, &self.settings, ratio))?;
        let tried = ledger.tried(data_hash, &self.settings)?;
        Ok(Some(Verdict::of("test window", equity, time, risk_free, &tried)))
    }
}

fn join_best(snapshot: &mut Snapshot, best: &Snapshot) {
    snapshot.arrays.extend(best.arrays.iter().map(|(name, array)| (format!("{BEST}{name}"), array.clone())));
}

/// Takes the best policy's arrays out of a loaded snapshot.
///
/// # Errors
/// [`MLError::Checkpoint`] naming an array that no policy can have.
pub(super) fn split_best(snapshot: &mut Snapshot) -> Result<Option<Snapshot>, MLError> {
    let best: Vec<(String, Array)> =
        snapshot.arrays.extract_if(.., |name, _| name.starts_with(BEST)).collect();
    let arrays = best.into_iter().map(|(name, array)| (name[BEST.len()..].to_owned(), array));
    let best = Snapshot { arrays: arrays.collect() };
    for (name, array) in &best.arrays {
        let finite = matches!(&array.data, ArrayData::F32(values) if values.iter().all(|v| v.is_finite()));
        if !finite {
            let reason = format!("{BEST}{name} is not f32 or holds a value that is not finite");
            return Err(MLError::Checkpoint { path: "policy".into(), reason });
        }
    }
    Ok((!best.arrays.is_empty()).then_some(best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_best_policy_that_is_none_is_refused_by_name() {
        let of = |data| {
            let arrays = [("best.a".to_owned(), Array { shape: vec![2], data }), ("b".to_owned(), whole())];
            Snapshot { arrays: arrays.into() }
        };
        let mut good = of(ArrayData::F32(vec![1.0, -2.0]));
        assert_eq!(split_best(&mut good).unwrap().unwrap().arrays.len(), 1);
        assert_eq!((good.arrays.len(), split_best(&mut good).unwrap()), (1, None));
        for bad in
            [ArrayData::F32(vec![1.0, f32::NAN]), ArrayData::F32(vec![f32::INFINITY, 0.0]), whole().data]
        {
            let error = split_best(&mut of(bad)).unwrap_err().to_string();
            assert!(error.contains("best.a"), "{error}");
        }
    }

    fn whole() -> Array {
        Array { shape: vec![2], data: ArrayData::U32(vec![1, 2]) }
    }
}
