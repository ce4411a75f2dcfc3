//! `foxhunt evaluate`: a trained policy on a later file, same costs, same fills, nothing fitted again.

use anyhow::{Context as _, bail};
use foxhunt::Policy;
use foxhunt::evaluation::{decisions, evaluate_windows};
use foxhunt::run_folder::RunPaths;
use foxhunt::trainer::{EvaluationReport, NeverStop};
use foxhunt_ops::env_step::EnvParams;

use super::finish::{self, announce};
use crate::args::EvaluateArgs;
use crate::data::{DataNote, Source};
use crate::pace::Pace;
use crate::report::{self, Subject};
use crate::{console, exit, resolve};

pub(crate) fn run(args: &EvaluateArgs) -> anyhow::Result<u8> {
    if let Some(folder) = args.report.as_ref().filter(|folder| RunPaths::new(folder).settings().exists()) {
        bail!("--report {}: it is a run's folder, which has a report of its training", folder.display());
    }
    let mut policy = Policy::load(&args.run)?;
    let mut settings = policy.settings().clone();
    // Repairs and symbol belong to the file trained on; the rest of the reading rules stays unless overridden.
    settings.data.repair.clear();
    settings.data.symbol = None;
    resolve::apply_data(&mut settings.data, &args.data);
    // Fills go by the tick size of training, not by what a later file suggests.
    if policy.tick_size().is_none() && settings.execution.tick_size.is_none() {
        console::notice(
            "note: this policy was saved without its tick size; it is read off the file evaluated",
        );
    }
    settings.execution.tick_size = policy.tick_size().or(settings.execution.tick_size);
    let source = Source::of(Some(&args.file));
    let loaded = source.load(&settings.data)?;
    announce(&source, &loaded.report);

    let note = DataNote { source, report: loaded.report };
    let market = policy.market(loaded.bars).map_err(|error| note.source.named(error))?;
    let bars = market.first_bar..market.len();
    let mut far = EvaluationReport { decisions: 0, of: decisions([&bars]) };
    let mut pace = Pace::lines();
    let mut evaluation = evaluate_windows(
        &market,
        &[("file", bars)],
        &EnvParams::new(&settings),
        &settings.evaluation,
        settings.run.seed,
        &NeverStop,
        &mut |state, bar| {
            let decision = policy.act(&market, state, bar);
            far.decisions += 1;
            if let Some(far) = pace.told(&far) {
                console::notice(&format!("evaluation: {far}"));
            }
            decision
        },
    )?;

    evaluation.verdict = finish::recorded(&args.run, &market, policy.settings(), &evaluation)?;

    if args.json {
        console::line(&serde_json::to_string(&evaluation)?);
    } else {
        console::line(&foxhunt_report::table::summary(&evaluation));
    }
    if let Some(folder) = &args.report {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make folder {}", folder.display()))?;
        let title = format!("{} on {}", args.run.display(), note.report.file);
        let subject = Subject {
            title: &title,
            engine: "cpu",
            settings: &settings,
            market: &market,
            note: &note,
            evaluation: &evaluation,
            walk_forward: None,
        };
        report::write(folder, &subject, &[], &[])?;
        console::notice(&format!("report {}", folder.join("report.html").display()));
    }
    Ok(exit::OK)
}
