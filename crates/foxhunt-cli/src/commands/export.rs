//! `foxhunt export`: a policy as one file for other programs.

use foxhunt::Policy;
use foxhunt::export::{self, Format, Parity};

use crate::args::ExportArgs;
use crate::{console, exit};

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<u8> {
    let policy = Policy::load(&args.run)?;
    let named = args.out.as_deref().and_then(Format::of);
    let format = args.format.map(Format::from).or(named).unwrap_or(Format::Onnx);
    let out = args.out.clone().unwrap_or_else(|| args.run.join("export").with_extension(format.extension()));
    // A name that says nothing is no surprise where the format was asked for.
    let unsaid = named.is_none() && args.format.is_none() && args.out.is_some();
    if unsaid || named.is_some_and(|named| named != format) {
        let (out, format) = (out.display(), format.extension());
        console::notice(&format!("note: {out} is written as {format}, which its name does not end in"));
    }
    export::export(&policy, format, &out)?;
    console::line(&out.display().to_string());
    if !args.check {
        return Ok(exit::OK);
    }
    let parity = export::check(&policy, format, &out)?;
    console::line(&told(&parity));
    Ok(if parity.holds() { exit::OK } else { exit::FAILED })
}

fn told(parity: &Parity) -> String {
    format!(
        "{}: max error {:.3e} over {} states ({:.3e} of the largest |Q|, {:.0e} allowed), same decision in {}, tied in {}",
        if parity.holds() { "same" } else { "different" },
        parity.max_error,
        parity.states,
        parity.max_scaled_error,
        export::TOLERANCE,
        parity.same_argmax,
        parity.ties,
    )
}
