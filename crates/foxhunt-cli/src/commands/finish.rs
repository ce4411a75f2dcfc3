//! What training commands share: the line about the data, the run itself, the table at its end.

use std::path::Path;

use anyhow::Context as _;
use foxhunt::Trainer;
use foxhunt::engine_choice::memory_plan;
use foxhunt::evaluation::{Evaluation, Verdict, estimate};
use foxhunt::ledger::{Entry, Ledger};
use foxhunt::trainer::{StopReason, TrainOutcome};
use foxhunt_core::Settings;
use foxhunt_market::{DataReport, Loaded, Market, inspect};

use crate::data::{DataNote, Source};
use crate::report::{self, Subject};
use crate::signals::Signals;
use crate::{console, exit};

/// Loads the bars, tells what they are, and warns of what looks wrong with them.
pub(super) fn load(source: &Source, settings: &Settings) -> anyhow::Result<Loaded> {
    let loaded = source.load(&settings.data)?;
    announce(source, &loaded.report);
    for warning in inspect(&loaded).warnings {
        console::notice(&format!("warning: {warning}"));
    }
    Ok(loaded)
}

/// One line about the bars.
pub(super) fn announce(source: &Source, report: &DataReport) {
    console::notice(&format!(
        "{}: {} bars, {} to {}",
        source.name(),
        report.rows_kept,
        report.first,
        report.last
    ));
}

/// One line about the memory that a run over `n_bars` bars will take.
pub(super) fn announce_memory(settings: &Settings, n_bars: usize) {
    console::notice(&format!("memory: {} planned", memory_plan(settings, n_bars)));
}

/// Runs to the end, prints the table and writes the report; or saves on a signal and says how to go on.
pub(super) fn train_and_report(
    trainer: Trainer<'_>,
    note: &DataNote,
    signals: &Signals,
) -> anyhow::Result<u8> {
    let settings = trainer.settings().clone();
    let market = trainer.prepared().market.clone();
    let engine = trainer.engine_name();
    let outcome = trainer.run()?;
    let folder = outcome.run.folder();
    if outcome.stop_reason == StopReason::Interrupted {
        console::notice(&format!(
            "stopped after {} epochs and saved; go on with: foxhunt resume {}",
            outcome.epochs,
            folder.display()
        ));
        return Ok(signals.exit_code());
    }

    let evaluation = outcome.evaluation.as_ref().context("a finished run has no evaluation")?;
    console::notice(&told(&outcome));
    console::line(&foxhunt_report::table::summary(evaluation));
    let title = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    report::write(
        folder,
        &Subject {
            title: &title,
            engine,
            settings: &settings,
            market: &market,
            note,
            evaluation,
            walk_forward: None,
        },
        &report::training_points(&outcome.run.metrics())?,
        &[told(&outcome), format!("Planned memory: {}.", memory_plan(&settings, market.len()))],
    )?;
    console::line(&format!(
        "\npolicy  {}\nreport  {}",
        outcome.run.policy().display(),
        outcome.run.report_html().display()
    ));
    Ok(exit::OK)
}

/// Tells the ledger beside the run in `run` what its policy gave on other bars, and judges that by all that was tried on
/// them; none where there is no ledger.
pub(super) fn recorded(
    run: &Path,
    market: &Market,
    settings: &Settings,
    evaluation: &Evaluation,
) -> anyhow::Result<Option<Verdict>> {
    let ledger = run.ancestors().skip(1).take(4).map(Ledger::in_folder).find(|ledger| ledger.path().exists());
    let (Some(ledger), Some(window)) = (ledger, evaluation.windows.first()) else { return Ok(None) };
    let (equity, time) = (&window.agent.backtest.equity, &market.bars.time[window.bars.clone()]);
    let data_hash = market.bars.data_hash();
    let risk_free = settings.evaluation.risk_free_rate;
    let ratio = estimate(equity, time, risk_free).ok();
    ledger.append(&Entry::now("evaluate", &data_hash, settings, ratio))?;
    let tried = ledger.tried(&data_hash, settings)?;
    Ok(Some(Verdict::of("all bars of the file", equity, time, risk_free, &tried)))
}

/// How training ended, in a sentence.
fn told(outcome: &TrainOutcome) -> String {
    let why = match outcome.stop_reason {
        StopReason::Completed => "after its last epoch",
        StopReason::EarlyStop => "early, because validation made no further progress",
        StopReason::AverageQ => "early, because the mean of max-Q stood still",
        StopReason::Interrupted => "on request",
    };
    let best = outcome.best_validation.map_or_else(
        || "No validation gave a best policy.".to_owned(),
        |best| format!("The policy is the one of epoch {}, the best on validation.", best.epoch),
    );
    format!(
        "Training ended {why}: {} epochs, {} env steps, {} updates. {best}",
        outcome.epochs, outcome.env_steps, outcome.updates
    )
}
