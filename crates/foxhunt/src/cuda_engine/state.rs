//! Snapshots of an engine on a device: the same arrays as the CPU engine's, so that either goes on from the other's.

use foxhunt_ops::collect;
use foxhunt_ops::learner::Progress as LearnerProgress;

use super::CudaEngine;
use super::store::Store;
use crate::MLError;
use crate::engine::arrays::misfit;
use crate::engine::progress::Progress;
use crate::engine::{Snapshot, collect_arrays};
use crate::learner::state as learner_arrays;
use crate::replay::{check_actions, device};

impl CudaEngine {
    pub(super) fn save(&mut self) -> Result<Snapshot, MLError> {
        let progress = self.progress()?;
        let mut snapshot = match &self.store {
            Store::Device(replay) => {
                device::save(replay, &self.stream, &self.settings.replay, self.settings.run.seed)?
            }
            Store::Host(host) => host.memory.snapshot(),
        };
        let layout = self.learner.layout();
        let (state, counts) = self.learner.download_state(&self.stream)?;
        learner_arrays::write(layout, &state, &counts, &mut snapshot);
        collect_arrays::save(self.collector.save(&self.stream)?, &mut snapshot);
        progress.save(&mut snapshot);
        if let Some(good) = self.learner.download_good_copy(&self.stream)? {
            learner_arrays::write_good(layout, &good, &mut snapshot);
        }
        Ok(snapshot)
    }

    /// Everything that can refuse comes before the first change.
    pub(super) fn load(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        check_actions(snapshot, self.settings.network.head.n_actions())?;
        let layout = self.learner.layout();
        let collected = collect_arrays::load(self.collector.config(), snapshot)?;
        collected.check(self.collector.config(), &self.market).map_err(|error| misfit(error.to_string()))?;
        if collected.tally.faults.len() > collect::MAX_FAULTS {
            return Err(misfit(format!("collect.faults lists more than {} refusals", collect::MAX_FAULTS)));
        }
        let progress = Progress::load(snapshot)?;
        let (state, counts) = learner_arrays::read(layout, snapshot)?;
        let good = match self.learner.keeps_good_copy() {
            true => Some(learner_arrays::read_good(layout, snapshot)?),
            false => None,
        };
        match &mut self.store {
            Store::Device(replay) => {
                device::restore(replay, &self.stream, &self.settings.replay, snapshot, &self.source)?;
            }
            Store::Host(host) => {
                host.memory.restore_from(snapshot, &self.source)?;
            }
        }
        self.collector.load(&self.stream, &collected)?;
        self.learner.upload_state(&self.stream, &state)?;
        if let Some(good) = good {
            self.learner.upload_good_copy(&self.stream, &good)?;
        }
        let status = progress.status;
        self.known = LearnerProgress {
            counts,
            longest_skipped_row: status.longest_skipped_row,
            longest_collapsed_row: status.longest_collapsed_row,
        };
        self.learner.set_progress(&self.stream, &self.known, &progress.sums)?;
        self.learner.drain_faults();
        self.faults = progress.faults;
        self.faults_lost = progress.faults_lost;
        self.filled = false;
        Ok(())
    }
}
