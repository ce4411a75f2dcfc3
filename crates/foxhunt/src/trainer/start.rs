//! How a run begins: from settings and bars, or from a run folder.

use std::path::{Path, PathBuf};

use foxhunt_core::Settings;
use foxhunt_core::settings::CheckpointSettings;
use foxhunt_market::BarSeries;

use super::chunk::Chunks;
use super::save::split_best;
use super::{
    Clock, MetricsWriter, NeverStop, Prepared, StartReport, StopReason, Trainer, TrainerState, Warning,
};
use crate::MLError;
use crate::checkpoint::{CheckpointFault, CheckpointStore, LoadOutcome, Manifest};
use crate::engine_choice::{BuiltEngine, build_engine, memory_plan};
use crate::ledger::{Entry, Ledger};
use crate::replay::stored_capacity;
use crate::run_folder::{RunFolder, RunPaths, read_settings};

/// What the ledger calls a training run.
pub(super) const COMMAND: &str = "train";
/// Settings that may change when a run is resumed, for people.
pub(crate) const FREE_KEYS: &str = "training.epochs, training.patience, checkpoint.*, replay.storage, run.device, \
                                    run.threads and run.dir";

/// Makes the engine of a run; [`build_engine`] unless a caller brings its own.
pub type EngineBuilder<'b, 'a> = dyn Fn(&Settings, &Prepared) -> Result<BuiltEngine<'a>, MLError> + 'b;

impl<'a> Trainer<'a> {
    /// Checks the settings, divides and normalises the bars, builds the engine and makes the run folder.
    ///
    /// # Errors
    /// [`MLError::Settings`], [`MLError::HostMemory`] when the [plan](crate::memory_plan) is larger than what is free,
    /// [`MLError::Market`], [`MLError::DeviceUnavailable`], or [`MLError::Io`] and
    /// [`MLError::WriteFailed`] when the folder cannot be written.
    pub fn new(settings: &Settings, bars: BarSeries) -> Result<Self, MLError> {
        Self::with_engine(settings, bars, &|settings, prepared| build_engine(settings, prepared))
    }

    /// As [`Trainer::new`], with an engine of the caller's making.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn with_engine(
        settings: &Settings,
        bars: BarSeries,
        build: &EngineBuilder<'_, 'a>,
    ) -> Result<Self, MLError> {
        settings.validate()?;
        memory_plan(settings, bars.len()).check()?;
        let prepared = Prepared::fit(bars, settings)?;
        let built = build(settings, &prepared)?;
        let run = RunFolder::create(settings)?;
        let ledger = Ledger::in_folder(&settings.run.dir);
        let trainer = Self::assemble(settings.clone(), prepared, built, run, TrainerState::default())?;
        Ok(Self { ledger: Some(ledger), ..trainer })
    }

    /// As [`Trainer::with_engine`], in a run folder of that name and as [`Trainer::part_of_one_try`].
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn in_folder(
        folder: &Path,
        settings: &Settings,
        bars: BarSeries,
        build: &EngineBuilder<'_, 'a>,
    ) -> Result<Self, MLError> {
        settings.validate()?;
        memory_plan(settings, bars.len()).check()?;
        let prepared = Prepared::fit(bars, settings)?;
        let built = build(settings, &prepared)?;
        let run = RunFolder::create_at(folder, settings)?;
        Self::assemble(settings.clone(), prepared, built, run, TrainerState::default())
    }

    /// Goes on with the run in `folder` from its newest usable checkpoint, on the same bars.
    ///
    /// # Errors
    /// [`MLError::RunNotBegun`], [`MLError::NoUsableCheckpoint`], [`MLError::RunLocked`], [`MLError::CheckpointFile`]
    /// when the bars are not the ones trained on, and the errors of [`Trainer::new`].
    pub fn resume(folder: &Path, bars: BarSeries) -> Result<Self, MLError> {
        Self::resume_with(folder, bars, None, &|settings, prepared| build_engine(settings, prepared))
    }

    /// As [`Trainer::resume`], with settings to change and an engine of the caller's making. Only
    /// `training.epochs`, `training.patience`, `checkpoint.*`, `replay.storage`, `run.device`, `run.threads` and `run.dir`
    /// may differ from the settings the run was started with, whether they are given or stand in its `settings.toml`,
    /// which tells afterwards what the run goes by.
    ///
    /// # Errors
    /// As [`Trainer::resume`], [`MLError::SettingsChanged`] when another key differs, and [`MLError::Checkpoint`] when
    /// fewer epochs are asked for than are done.
    pub fn resume_with(
        folder: &Path,
        bars: BarSeries,
        changed: Option<&Settings>,
        build: &EngineBuilder<'_, 'a>,
    ) -> Result<Self, MLError> {
        let run = RunFolder::open(folder)?;
        let store = CheckpointStore::new(run.paths().checkpoints(), 1);
        if store.list()?.is_empty() {
            return Err(MLError::RunNotBegun { path: folder.to_path_buf() });
        }
        let written = run.settings()?;
        // Before the checkpoint is read, which is the first large piece of memory that is taken.
        if let Some(settings) = &written {
            memory_plan(settings, bars.len()).check()?;
        }
        let LoadOutcome { mut checkpoint, skipped } = store.load_newest()?;
        let stored = stored_capacity(&checkpoint.snapshot);
        let manifest = checkpoint.manifest;
        let going_on = GoingOn { path: &checkpoint.path, manifest: &manifest, data_hash: bars.data_hash() };
        let settings = going_on.settings(changed.or(written.as_ref()), stored)?;
        let prepared = Prepared::with_normaliser(bars, &settings, manifest.normaliser)?;
        let best = split_best(&mut checkpoint.snapshot).map_err(|error| in_file(error, &checkpoint.path))?;
        let mut built = build(&settings, &prepared)?;
        built.engine.restore(&checkpoint.snapshot).map_err(|error| in_file(error, &checkpoint.path))?;
        if written.as_ref() != Some(&settings) {
            run.rewrite_settings(&settings)?;
        }

        let stale = run.stale_lock().map(str::to_owned);
        let ledger = Ledger::in_folder(folder.parent().unwrap_or(Path::new(".")));
        let mut trainer = Self::assemble(settings, prepared, built, run, manifest.trainer)?;
        trainer.ledger = Some(ledger);
        trainer.best = best;
        trainer.resumed = true;
        trainer.saved = Some((trainer.state.number(), checkpoint.path));
        trainer.early_warnings.extend(stale.map(|pid| Warning::StaleLock { pid }));
        trainer
            .early_warnings
            .extend(skipped.into_iter().map(|(path, fault)| Warning::CheckpointSkipped { path, fault }));
        // The policy folder may be ahead of the checkpoint, or gone.
        trainer.save_policy()?;
        trainer.reopen_if_extended();
        Ok(trainer)
    }

    /// Whether the run in `folder` would go on as asked, as far as its newest manifest tells: what [`Trainer::resume_with`]
    /// refuses before it takes memory. Nothing is locked or changed.
    ///
    /// # Errors
    /// As [`Trainer::resume_with`].
    pub fn check_resume(folder: &Path, bars: &BarSeries, changed: Option<&Settings>) -> Result<(), MLError> {
        let paths = RunPaths::new(folder);
        let written = read_settings(&paths)?;
        let (path, manifest) = CheckpointStore::new(paths.checkpoints(), 1).newest_manifest()?;
        let going_on = GoingOn { path: &path, manifest: &manifest, data_hash: bars.data_hash() };
        going_on.settings(changed.or(written.as_ref()), None).map(drop)
    }

    /// Leaves the ledger alone: this run is one of many that are one try together.
    #[must_use]
    pub fn part_of_one_try(self) -> Self {
        Self { ledger: None, ..self }
    }

    fn assemble(
        settings: Settings,
        prepared: Prepared,
        built: BuiltEngine<'a>,
        run: RunFolder,
        state: TrainerState,
    ) -> Result<Self, MLError> {
        let store = CheckpointStore::new(run.paths().checkpoints(), settings.checkpoint.keep);
        store.prepare()?;
        let metrics = MetricsWriter::open(&run.paths().metrics(), state.epoch)?;
        let fallback = built.notice.map(|reason| Warning::EngineFallback { reason });
        Ok(Self {
            chunks: Chunks::of(&settings, built.engine.chunk_scale()),
            settings,
            prepared,
            engine: built.engine,
            run,
            store,
            state,
            best: None,
            metrics,
            observers: Vec::new(),
            stop: Box::new(NeverStop),
            resumed: false,
            early_warnings: fallback.into_iter().collect(),
            saved: None,
            ledger: None,
            clock: Clock::new(),
            large_loss_warned: None,
            divergence_warned: None,
        })
    }

    /// A run that ended goes on when its limits were raised; its test split has been seen then.
    fn reopen_if_extended(&mut self) {
        let Some(reason) = self.state.stopped else { return };
        if self.reason_to_stop().is_none() || reason == StopReason::Interrupted {
            self.state.stopped = None;
            self.early_warnings.push(Warning::TestSeenBefore);
        }
    }

    /// Tells everyone what is about to run, and saves the start, so that there is always something to resume.
    pub(super) fn begin(&mut self) -> Result<(), MLError> {
        let start = StartReport {
            engine: self.engine.name(),
            epoch: self.state.epoch,
            resumed: self.resumed,
            done: self.engine.status(),
            epochs: self.settings.training.epochs,
            run: self.run.paths().clone(),
        };
        self.tell(|observer| observer.on_start(&start));
        for warning in std::mem::take(&mut self.early_warnings) {
            self.warn(warning);
        }
        self.clock = Clock::new();
        if let (Some(ledger), false) = (&self.ledger, self.resumed) {
            ledger.append(&Entry::now(COMMAND, &self.prepared.data_hash, &self.settings, None))?;
        }
        self.save()
    }
}

/// What a run goes on from, before any array of it is looked at.
struct GoingOn<'a> {
    path: &'a Path,
    manifest: &'a Manifest,
    /// Of the bars given.
    data_hash: String,
}

impl GoingOn<'_> {
    /// The settings to go on with when `asked` are asked for and the memory saved has room for `stored` rows.
    fn settings(&self, asked: Option<&Settings>, stored: Option<usize>) -> Result<Settings, MLError> {
        let Manifest { settings: begun, trainer, data_hash, .. } = self.manifest;
        let mut kept = begun.clone();
        // A memory that was shrunk to fit a device stays as large as it is, wherever it goes.
        kept.replay.capacity = stored.unwrap_or(usize::MAX).min(begun.replay.capacity);
        let settings = match asked {
            None => kept,
            Some(asked) => {
                let mut asked = asked.clone();
                if stored.is_none() || asked.replay.capacity == begun.replay.capacity {
                    asked.replay.capacity = kept.replay.capacity;
                }
                merge(self.path, &kept, &asked)?
            }
        };
        let (epochs, done) = (settings.training.epochs, trainer.epoch);
        if epochs < done {
            let reason = format!("{done} epochs are done, so training.epochs cannot become {epochs}");
            return Err(MLError::Checkpoint { path: self.path.to_path_buf(), reason });
        }
        settings.validate()?;
        if self.data_hash != *data_hash {
            let reason = "the bars are not the ones this run was trained on".to_owned();
            let fault = CheckpointFault::Foreign { reason };
            return Err(MLError::CheckpointFile { path: self.path.to_path_buf(), fault });
        }
        Ok(settings)
    }
}

/// `changed`, if it differs from `kept` only in keys that change no result already reached: [`FREE_KEYS`].
fn merge(path: &Path, kept: &Settings, changed: &Settings) -> Result<Settings, MLError> {
    let mut merged = kept.clone();
    merged.training.epochs = changed.training.epochs;
    merged.training.patience = changed.training.patience;
    merged.checkpoint = CheckpointSettings { ..changed.checkpoint.clone() };
    merged.replay.storage = changed.replay.storage;
    merged.run.device = changed.run.device;
    merged.run.threads = changed.run.threads;
    merged.run.dir = PathBuf::clone(&changed.run.dir);
    if merged == *changed {
        return Ok(merged);
    }
    Err(MLError::SettingsChanged { path: path.to_path_buf(), changes: merged.differences(changed) })
}

/// The error of a snapshot that does not fit, with the file it came from in front of the part that refused it.
fn in_file(error: MLError, file: &Path) -> MLError {
    match error {
        MLError::Checkpoint { path, reason } => {
            MLError::Checkpoint { path: file.to_path_buf(), reason: format!("{}: {reason}", path.display()) }
        }
        other => other,
    }
}
