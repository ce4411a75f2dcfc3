//! Settings: lines `--set KEY=VALUE`, then a settings file. What is accepted must be able to train.

#![no_main]

#[path = "../../crates/foxhunt-cli/src/args.rs"]
#[allow(dead_code)]
mod args;
#[path = "../../crates/foxhunt-cli/src/resolve.rs"]
#[allow(dead_code)]
mod resolve;

/// The name that `args` asks for; no socket is opened here.
mod endpoint {
    pub(crate) fn address(text: &str) -> Result<std::net::SocketAddr, std::net::AddrParseError> {
        text.parse()
    }
}

use std::fs;
use std::sync::OnceLock;

use args::{DataArgs, SettingsArgs};
use foxhunt::cpu_engine::CpuEngine;
use foxhunt::engine::Engine as _;
use foxhunt::trainer::{Prepared, warm_up_steps};
use foxhunt::{BarSeries, Settings, ledger, memory_plan};
use foxhunt_fuzz::{bars, folder, prepare};
use libfuzzer_sys::fuzz_target;

/// Largest run that is tried, bytes beside the program.
const LARGEST: u64 = 64 << 20;

fuzz_target!(init: prepare(), |data: &[u8]| {
    let Ok(mut text) = std::str::from_utf8(data) else { return };
    let mut set = Vec::new();
    while let Some(rest) = text.strip_prefix("--set ") {
        let (given, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        set.push(given.to_owned());
        text = rest;
    }
    let config = folder().join("settings.toml");
    fs::write(&config, text).expect("a file in memory");
    let data = DataArgs { symbol: None, timezone: None, repair: None, decimal_comma: false };
    let args = SettingsArgs { config: Some(config), set, seed: None, device: None, epochs: None, out: None, data };
    match resolve::settings(&args) {
        Ok(settings) => accepted(settings),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fn accepted(mut settings: Settings) {
    settings.validate().expect("checked before");
    // A path that is no TOML text cannot be here: it came out of one.
    let written = settings.to_toml().expect("settings are text");
    assert_eq!(Settings::from_toml(&written).as_ref(), Ok(&settings), "{written}");
    let json = serde_json::to_string(&settings).expect("settings are plain data");
    assert_eq!(serde_json::from_str::<Settings>(&json).expect("written above"), settings);
    let _ = (ledger::config_hash(&settings), warm_up_steps(&settings));

    static BARS: OnceLock<BarSeries> = OnceLock::new();
    let bars = BARS.get_or_init(bars).clone();
    settings.run.threads = 1;
    let plan = memory_plan::plan(&settings, bars.len());
    let _ = plan.to_string();
    let Ok(Prepared { market, split, .. }) = Prepared::fit(bars, &settings) else { return };
    let program = plan.parts.iter().find(|part| part.name == "program").map_or(0, |part| part.bytes);
    if plan.host_bytes() - program > LARGEST || settings.validate_for_cpu().is_err() {
        return;
    }
    let Ok(mut engine) = CpuEngine::new(&settings, market, split.train) else { return };
    engine.collect(2).expect("two steps");
    // An error is fine where two steps do not fill a batch.
    let _ = engine.update(1);
    engine.drain().expect("counts");
    let saved = engine.snapshot().expect("a copy");
    engine.restore(&saved).expect("its own snapshot");
}
