//! The `foxhunt` command: what was typed, what it means, what runs. It only connects the parts.

mod args;
mod commands;
mod console;
mod data;
mod endpoint;
mod exit;
mod pace;
mod progress;
mod report;
mod resolve;
mod signals;
mod threads;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("FOXHUNT_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(console::interactive())
        .init();

    let result =
        signals::outlive_file_limits().and_then(|()| threads::start()).and_then(|()| match &cli.command {
            Command::Train(args) => commands::train::run(args),
            Command::Resume(args) => commands::resume::run(args),
            Command::Evaluate(args) => commands::evaluate::run(args),
            Command::Inspect(args) => commands::inspect::run(args),
            Command::WalkForward(args) => commands::walk_forward::run(args),
            Command::Lookahead(args) => commands::lookahead::run(args),
            Command::Export(args) => commands::export::run(args),
            Command::Doctor(args) => commands::doctor::run(args),
            Command::Bench(args) => commands::bench::run(args),
            Command::Completions { shell } => commands::shell::completions(*shell),
            Command::Man { out } => commands::shell::man(out.as_deref()),
        });
    let code = result.unwrap_or_else(|error| {
        console::notice(&format!("error: {}", causes(&error)));
        exit::code_of(&error)
    });
    exit::code(if code == exit::OK && console::output_lost() { exit::FAILED } else { code })
}

/// The causes of an error in one line. Many of our errors tell their cause themselves, so a cause whose text is
/// already there is left out.
fn causes(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut text, cause| {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
        text
    })
}
