//! `foxhunt inspect`: what is understood of a bar file.

use foxhunt_core::settings::DataSettings;

use crate::args::InspectArgs;
use crate::data::Source;
use crate::{console, exit, resolve};

pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<u8> {
    let mut settings = DataSettings::default();
    resolve::apply_data(&mut settings, &args.data);
    let loaded = Source::of(args.file.as_deref()).load(&settings)?;
    let inspection = foxhunt_market::inspect(&loaded);
    let text = if args.json {
        serde_json::to_string_pretty(&inspection)?
    } else {
        inspection.to_string().trim_end().to_owned()
    };
    console::line(&text);
    Ok(exit::OK)
}
