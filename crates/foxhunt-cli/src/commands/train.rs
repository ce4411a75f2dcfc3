//! `foxhunt train`: bars in, a trained and tested policy out.

use foxhunt::Trainer;
use foxhunt::engine_choice::memory_plan;

use super::finish;
use crate::args::TrainArgs;
use crate::data::{DataNote, Source};
use crate::signals::Signals;
use crate::watch::Watch;
use crate::{console, exit, resolve};

pub(crate) fn run(args: &TrainArgs) -> anyhow::Result<u8> {
    let settings = resolve::settings(&args.settings)?;
    if args.show_settings {
        console::line(&format!("# memory beside the bars: {}", memory_plan(&settings, 0)));
        console::line(settings.to_toml()?.trim_end());
        return Ok(exit::OK);
    }
    let watch = Watch::open(&args.watch)?;
    let source = Source::to_keep(args.file.as_deref())?;
    let loaded = finish::load(&source, &settings)?;

    finish::announce_memory(&settings, loaded.bars.len());
    let signals = Signals::install()?;
    let trainer = Trainer::new(&settings, loaded.bars).map_err(|error| source.named(error))?;
    let trainer = watch.hang_on(trainer)?.stop_on(signals.clone());
    let run = trainer.run_folder();
    let note = DataNote { source, report: loaded.report };
    run.write_json(&run.paths().data_report(), &note)?;
    finish::train_and_report(trainer, &note, &signals)
}
