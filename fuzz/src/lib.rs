//! What the fuzz targets share: a folder in memory, a quiet word for panics that are answered, the smallest run, and
//! what must hold of every bar file that is accepted or refused.
//!
//! A target ends by a panic when something does not hold. Nothing here makes inputs.

use std::fs;
use std::ops::Range;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use foxhunt_core::Settings;
use foxhunt_core::settings::{DataSettings, ExecutionSettings};
use foxhunt_market::features::first_bar;
use foxhunt_market::{
    BarArrays, BarSeries, Loaded, Market, MarketError, Normalise, inspect, load, panic_is_caught,
};

/// Longest error text, bytes: a file must not be able to fill a terminal.
const MAX_ERROR_BYTES: usize = 8192;

/// Makes a process ready to fuzz in. Panics of decoders that loading answers are no finding.
pub fn prepare() {
    let ending = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !panic_is_caught() {
            ending(info);
        }
    }));
    // One thread, so that an input takes the same way every time; already set when a target asks twice.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
}

/// A folder of this process, in memory where the system has such a place.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let folder = parent.join(format!("foxhunt-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the files of one input");
        folder
    })
}

/// Settings of the smallest run.
pub fn tiny() -> Settings {
    let mut settings = Settings::from_toml(include_str!("../tiny.toml")).expect("a settings file of ours");
    settings.run.dir = folder().join("runs");
    settings
}

/// The first 900 bars of the bundled sample.
pub fn bars() -> BarSeries {
    let sample = include_str!("../../samples/eurusd_1h_2017_ask.csv");
    let cut: Vec<&str> = sample.lines().take(901).collect();
    read(cut.join("\n").as_bytes(), &DataSettings::default()).expect("the sample loads").bars
}

/// Loads `content` as a file called `bars`.
///
/// # Errors
/// As [`load`], judged by what must hold of an error.
pub fn read(content: &[u8], settings: &DataSettings) -> Result<Loaded, MarketError> {
    let path = folder().join("bars");
    fs::write(&path, content).expect("a file in memory");
    let result = load(&path, settings);
    match &result {
        Ok(loaded) => accepted(loaded),
        Err(error) => refused(error),
    }
    result
}

/// An error is one short text that names the file.
fn refused(error: &MarketError) {
    let text = error.to_string();
    assert!(text.len() <= MAX_ERROR_BYTES, "an error of {} bytes", text.len());
    // Who asks for a series knows what it asked for; the command line puts the file's name before it.
    let named = text.contains("bars") || matches!(error, MarketError::TooFewRows { .. });
    assert!(named, "no file is named: {text}");
}

/// Accepted bars obey every rule, every row of the file is accounted for, and what comes next can use them.
fn accepted(loaded: &Loaded) {
    let (bars, report) = (&loaded.bars, &loaded.report);
    let arrays = BarArrays {
        time: bars.time.clone(),
        open: bars.open.clone(),
        high: bars.high.clone(),
        low: bars.low.clone(),
        close: bars.close.clone(),
        volume: bars.volume.clone(),
        spread: bars.spread.clone(),
    };
    BarSeries::from_arrays(bars.symbol.clone(), arrays).expect("accepted bars obey the rules");
    let repaired = report.repaired;
    assert_eq!(report.rows_read - repaired.duplicates + repaired.gaps, report.rows_kept, "rows are lost");
    assert_eq!(report.rows_kept, bars.len() as u64);
    assert!(bars.tick_size > 0.0 && bars.tick_size.is_finite(), "tick size {}", bars.tick_size);
    assert!(bars.bar_ns > 0, "bars of {} ns", bars.bar_ns);
    let _ = inspect(loaded);

    let execution = ExecutionSettings { volatility_window: 2, median_window: 2, ..Default::default() };
    let usable: Range<usize> = first_bar(&execution)..bars.len();
    if usable.len() < 2 {
        return;
    }
    let market = Market::prepare(bars.clone(), &execution, Normalise::FitOn(usable)).expect("enough bars");
    for bar in 0..market.len() {
        assert!(market.feature_row(bar).iter().all(|value| value.is_finite()), "features of bar {bar}");
    }
}
