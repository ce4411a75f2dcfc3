//! `foxhunt resume`: goes on with a run that was stopped or killed, to the same end.

use std::fs;

use anyhow::{Context as _, bail};
use foxhunt::checkpoint::CheckpointStore;
use foxhunt::engine_choice::build_engine;
use foxhunt::run_folder::RunPaths;
use foxhunt::walk_forward::WalkForward;
use foxhunt::{MLError, Trainer};
use foxhunt_core::{Settings, SettingsError};

use super::{finish, walk_forward};
use crate::args::ResumeArgs;
use crate::data::{DataNote, Source};
use crate::resolve::UsageError;
use crate::signals::Signals;
use crate::watch::Watch;

pub(crate) fn run(args: &ResumeArgs) -> anyhow::Result<u8> {
    let paths = RunPaths::new(&args.run);
    if !paths.folder().is_dir() {
        bail!("{}: no such run folder", args.run.display());
    }
    if WalkForward::is_in(&args.run) {
        if let Some(flag) = given(args) {
            return Err(UsageError::NotForWalkForward { flag }.into());
        }
        let settings = read_settings(&paths)?;
        let mut note = read_note(&paths)?;
        if let Some(file) = &args.file {
            note.source = Source::of(Some(file));
        }
        let loaded = note.source.load(&settings.data)?;
        finish::announce(&note.source, &loaded.report);
        let bars = loaded.bars.clone();
        let walk = WalkForward::resume(&args.run, loaded.bars).map_err(|error| note.source.named(error))?;
        return walk_forward::finish(walk, bars, &note);
    }
    // Killed in its first moment a run may lack any of its files; then this is all that matters.
    if CheckpointStore::new(paths.checkpoints(), 1).list()?.is_empty() {
        return Err(MLError::RunNotBegun { path: args.run.clone() }.into());
    }
    let mut settings = read_settings(&paths)?;
    let changed = change(&mut settings, args);
    settings.validate()?;
    let watch = Watch::open(&args.watch)?;
    let mut note = read_note(&paths)?;
    if let Some(file) = &args.file {
        note.source = Source::of(Some(file));
    }
    let loaded = note.source.load(&settings.data)?;
    finish::announce(&note.source, &loaded.report);

    let changed = changed.then_some(&settings);
    Trainer::check_resume(&args.run, &loaded.bars, changed).map_err(|error| note.source.named(error))?;
    finish::announce_memory(&settings, loaded.bars.len());
    let signals = Signals::install()?;
    let trainer = Trainer::resume_with(&args.run, loaded.bars, changed, &|settings, prepared| {
        build_engine(settings, prepared)
    })
    .map_err(|error| note.source.named(error))?;
    let trainer = watch.hang_on(trainer)?.stop_on(signals.clone());
    finish::train_and_report(trainer, &note, &signals)
}

/// Lays the flags over the settings of the run; whether there were any.
fn change(settings: &mut Settings, args: &ResumeArgs) -> bool {
    if let Some(device) = args.device {
        settings.run.device = device.into();
    }
    if let Some(epochs) = args.epochs {
        settings.training.epochs = epochs;
    }
    if let Some(threads) = args.threads {
        settings.run.threads = threads;
    }
    args.device.is_some() || args.epochs.is_some() || args.threads.is_some()
}

/// A flag that is for single runs alone, if there was one.
fn given(args: &ResumeArgs) -> Option<&'static str> {
    let flags = [
        ("--device", args.device.is_some()),
        ("--epochs", args.epochs.is_some()),
        ("--threads", args.threads.is_some()),
        ("--metrics-addr", args.watch.metrics_addr.is_some()),
        ("--tensorboard", args.watch.tensorboard),
    ];
    flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
}

fn read_settings(paths: &RunPaths) -> anyhow::Result<Settings> {
    let path = paths.settings();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let checked = || -> Result<Settings, SettingsError> {
        let settings = Settings::from_toml(&text)?;
        settings.validate()?;
        Ok(settings)
    };
    checked().with_context(|| format!("{}", path.display()))
}

fn read_note(paths: &RunPaths) -> anyhow::Result<DataNote> {
    let path = paths.data_report();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a data report", path.display()))
}
