//! `foxhunt walk-forward`: several folds, several seeds, one verdict.

use foxhunt::MLError;
use foxhunt::engine_choice::{build_engine, memory_plan};
use foxhunt::evaluation::Evaluation;
use foxhunt::trainer::Prepared;
use foxhunt::walk_forward::{Progress, WalkForward, WalkForwardOutcome};
use foxhunt_core::Settings;
use foxhunt_market::BarSeries;

use super::finish;
use crate::args::WalkForwardArgs;
use crate::data::{DataNote, Source};
use crate::report::{self, Subject};
use crate::signals::Signals;
use crate::{console, exit, resolve};

pub(crate) fn run(args: &WalkForwardArgs) -> anyhow::Result<u8> {
    let settings = resolve::settings(&args.settings)?;
    if args.show_settings {
        console::line(&format!("# memory of one run beside the bars: {}", memory_plan(&settings, 0)));
        console::line(settings.to_toml()?.trim_end());
        return Ok(exit::OK);
    }
    let source = Source::to_keep(args.file.as_deref())?;
    let loaded = finish::load(&source, &settings)?;
    let bars = loaded.bars.clone();
    let walk = WalkForward::new(&settings, loaded.bars).map_err(|error| source.named(error))?;
    let note = DataNote { source, report: loaded.report };
    let run = walk.run_folder();
    run.write_json(&run.paths().data_report(), &note)?;
    finish(walk, bars, &note)
}

/// Runs what is not done, prints the tables and writes the report; or stops on a signal and says how to go on.
pub(super) fn finish(walk: WalkForward<'static>, bars: BarSeries, note: &DataNote) -> anyhow::Result<u8> {
    let signals = Signals::install()?;
    let settings = walk.settings().clone();
    let folder = walk.run_folder().paths().folder().to_path_buf();
    // Told once, not by every run.
    let told = std::sync::Once::new();
    let build = |settings: &Settings, prepared: &Prepared| {
        let built = build_engine(settings, prepared)?;
        if let Some(notice) = &built.notice {
            told.call_once(|| console::notice(&format!("note: {notice}")));
        }
        Ok(built)
    };
    let outcome = match walk.with(&build, &signals, &tell).run() {
        Err(MLError::Interrupted) => {
            console::notice(&format!("stopped and saved; go on with: foxhunt resume {}", folder.display()));
            return Ok(signals.exit_code());
        }
        result => result.map_err(|error| note.source.named(error))?,
    };
    let evaluation = Evaluation {
        windows: vec![outcome.seeds[outcome.median].evaluation.clone()],
        verdict: Some(outcome.verdict.clone()),
    };
    console::line(&foxhunt_report::table::walk_forward(&outcome));
    console::line("");
    console::line(&foxhunt_report::table::summary(&evaluation));
    write_report(&settings, bars, note, &outcome, &evaluation)?;
    console::line(&format!("\nreport  {}", outcome.run.report_html().display()));
    Ok(exit::OK)
}

fn write_report(
    settings: &Settings,
    bars: BarSeries,
    note: &DataNote,
    outcome: &WalkForwardOutcome,
    evaluation: &Evaluation,
) -> anyhow::Result<()> {
    let folder = outcome.run.folder();
    let title = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    // The first fold's market: its tick size is the one the baselines went by.
    let first = Settings {
        split: foxhunt_core::settings::SplitSettings {
            windows: Some(outcome.folds[0].windows.windows()),
            ..settings.split.clone()
        },
        ..settings.clone()
    };
    let market = Prepared::fit(bars, &first)?.market;
    let median = outcome.seeds[outcome.median].seed;
    let shown = format!(
        "Figures and plots of the window are of seed {median}, the median of {} seeds by final equity; the verdict \
         is on the mean of all.",
        outcome.seeds.len()
    );
    let stitched =
        "Each fold starts flat and is closed with costs; the next one goes on with the money there is.";
    let subject = Subject {
        title: &title,
        engine: outcome.results.first().map_or("", |result| &result.engine),
        settings,
        market: &market,
        note,
        evaluation,
        walk_forward: Some(outcome),
    };
    report::write(folder, &subject, &[], &[shown, stitched.to_owned()])
}

fn tell(progress: Progress) {
    match progress {
        Progress::Starting { folder, runs, parallel } => {
            console::notice(&format!("walk-forward {}: {runs} runs, {parallel} at a time", folder.display()))
        }
        Progress::Done { done, runs, result, before } => {
            let net = foxhunt_report::number::or_reason(&result.test.net_return, |v| {
                format!("{} %", foxhunt_report::number::percent(v))
            });
            let before = if before { ", done before" } else { "" };
            console::notice(&format!(
                "{done}/{runs}: fold {} seed {}: test net {net} after {} epochs{before}",
                result.fold.number, result.seed, result.epochs
            ));
        }
        Progress::Judging => console::notice("judging the stitched test windows"),
    }
}
