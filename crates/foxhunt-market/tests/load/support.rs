//! Temporary files and the samples.

use std::path::{Path, PathBuf};

use foxhunt_core::settings::DataSettings;
use foxhunt_market::{Loaded, MarketError, load};

/// A file that goes with its folder.
pub(crate) struct Temporary {
    _folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> Temporary {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    Temporary { _folder: folder, path }
}

pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(name)
}

pub(crate) fn eurusd() -> PathBuf {
    sample("eurusd_1h_2017_ask.csv")
}

pub(crate) fn stocks() -> PathBuf {
    sample("us_stocks_1d_2000_2013.csv.gz")
}

pub(crate) fn load_plain(path: &Path) -> Result<Loaded, MarketError> {
    load(path, &DataSettings::default())
}

pub(crate) fn load_text(content: impl AsRef<[u8]>) -> Result<Loaded, MarketError> {
    load_plain(&file("bars.csv", content).path)
}

pub(crate) fn load_text_with(
    content: impl AsRef<[u8]>,
    settings: &DataSettings,
) -> Result<Loaded, MarketError> {
    load(&file("bars.csv", content).path, settings)
}

/// The error of a text file, which must be one.
pub(crate) fn refused(content: impl AsRef<[u8]>) -> MarketError {
    load_text(content).expect_err("the file should be refused")
}

/// A header and rows of minute bars: `time,open,high,low,close,volume`, prices 100, 101, ...
pub(crate) fn minutes(n_rows: usize) -> String {
    let mut text = String::from("time,open,high,low,close,volume\n");
    for t in 0..n_rows {
        text += &minute(t);
        text.push('\n');
    }
    text
}

pub(crate) fn minute(t: usize) -> String {
    let price = 100 + t;
    format!("2024-01-02 {:02}:{:02}:00,{price},{price}.5,{}.5,{price},10", t / 60 % 24, t % 60, price - 1)
}
