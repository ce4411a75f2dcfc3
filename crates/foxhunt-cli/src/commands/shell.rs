//! `foxhunt completions` and `foxhunt man`: what a shell and `man` want to know, made from the command line itself.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;
use crate::{console, exit};

pub(crate) fn completions(shell: Shell) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "foxhunt", &mut text);
    console::verbatim(&text);
    Ok(exit::OK)
}

pub(crate) fn man(out: Option<&Path>) -> anyhow::Result<u8> {
    let Some(folder) = out else {
        let mut text = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut text).context("cannot make the manual page")?;
        console::verbatim(&text);
        return Ok(exit::OK);
    };
    let failed = || format!("cannot write manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(failed)?;
    Ok(exit::OK)
}
