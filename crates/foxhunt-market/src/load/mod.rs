//! Bar files into checked bars: text (plain, gzip, zstd), Parquet, Databento DBN.
//!
//! What kind a file is is told by its content, not its name. A bad row is an error naming file, row, column and value;
//! nothing is filled or dropped unless a repair of that name is asked for, and then it is counted in the
//! [`DataReport`]. Look-backs are not known here: whether there are bars enough to work with is checked where
//! features are made.

mod assemble;
mod caught;
mod chunk;
mod dbn;
mod header;
mod number;
mod parquet;
mod report;
mod source;
mod symbols;
mod text;
mod time;

pub use caught::panic_is_caught;
pub use report::{DataReport, Loaded, Repairs};

use std::path::Path;

use foxhunt_core::settings::{DataSettings, Repair};

use crate::error::MarketError;
use chunk::{Chunk, OrderRule};
use header::Layout;
use source::{Content, Source};

/// What a reader is asked for.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    path: &'a Path,
    symbol: Option<&'a str>,
    timezone: &'a str,
    decimal_comma: bool,
    order: OrderRule,
}

/// What a reader found: rows in file order, checked one by one.
struct RawFile {
    format: String,
    time_format: String,
    /// Times carry no offset.
    local_times: bool,
    symbol: Option<String>,
    /// Rows of symbols not selected.
    other_rows: u64,
    chunk: Chunk,
    layout: Layout,
}

/// Whether `zone` is a name of the time zone database.
///
/// # Errors
/// [`MarketError::UnknownTimezone`].
pub fn check_timezone(zone: &str) -> Result<(), MarketError> {
    time::find_zone(zone).map(|_| ())
}

/// Reads a bar file.
///
/// # Errors
/// Everything [`MarketError`] has for files; the first fault in file order as far as one thread can tell.
pub fn load(path: &Path, settings: &DataSettings) -> Result<Loaded, MarketError> {
    let source = Source::open(path)?;
    let file_bytes = source.file_bytes;
    let request = Request {
        path,
        symbol: settings.symbol.as_deref(),
        timezone: &settings.timezone,
        decimal_comma: settings.decimal_comma,
        order: OrderRule {
            sort: settings.repair.contains(&Repair::Unsorted),
            drop_duplicates: settings.repair.contains(&Repair::Duplicates),
        },
    };
    // A wrong zone is an error even where no time needs it.
    check_timezone(&settings.timezone)?;
    let raw = match source.content {
        Content::Text => text::read(&request, source)?,
        Content::Parquet => parquet::read(&request)?,
        Content::Dbn => dbn::read(&request, source)?,
    };
    assemble::assemble(&request, settings, file_bytes, raw)
}
