//! `foxhunt lookahead`: does anything a decision sees, or any fill, know the future?

use foxhunt::Policy;
use foxhunt::lookahead::{Subject, check};

use super::finish::announce;
use crate::args::LookaheadArgs;
use crate::data::Source;
use crate::signals::Signals;
use crate::{console, exit, resolve};

pub(crate) fn run(args: &LookaheadArgs) -> anyhow::Result<u8> {
    let policy = args.policy.as_deref().map(Policy::load).transpose()?;
    let mut settings = resolve::settings(&args.settings)?;
    if let Some(policy) = &policy {
        // What the policy was made for decides; the data section is about the file given here.
        settings = foxhunt::Settings { data: settings.data, ..policy.settings().clone() };
    }
    let source = Source::of(args.file.as_deref());
    let loaded = source.load(&settings.data)?;
    announce(&source, &loaded.report);
    let signals = Signals::install()?;
    let subject = Subject {
        settings: &settings,
        bars: &loaded.bars,
        policy: policy.as_ref(),
        cuts: args.cuts,
        plant: args.plant.map(Into::into),
    };
    let report = match check(&subject, &signals) {
        Err(foxhunt::MLError::Interrupted) => return Ok(signals.exit_code()),
        result => result.map_err(|error| source.named(error))?,
    };
    if args.json {
        console::line(&serde_json::to_string(&report)?);
    } else {
        console::line(&foxhunt_report::lookahead::text(&report));
    }
    Ok(if report.passed() { exit::OK } else { exit::FAILED })
}
