//! The one error type of the crate, and the place in a file an error points at.
//!
//! A refused value says where it stands, what it was and why it is refused. Nothing here decides what is refused.

use std::fmt;
use std::path::PathBuf;

/// A value's place: a row and column of a file, or a bar of arrays given by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file; none for arrays.
    pub file: Option<PathBuf>,
    /// In text the line, in binary files the record, both from 1; in arrays the bar, from 0.
    pub row: u64,
    /// The column as the file names it.
    pub column: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: row {}, column {}", file.display(), self.row, self.column),
            None => write!(f, "bar {}, column {}", self.row, self.column),
        }
    }
}

/// What can go wrong from a bar file to a prepared market.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarketError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path is a directory, pipe, socket or device.
    #[error("{} is {kind}, not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The file is of no kind that is read, or of a kind with a content that is not.
    #[error("{}: {reason}", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// A binary or compressed file is cut off or damaged; no part of it is used.
    #[error("{}: {format} is cut off or damaged at byte {offset}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Which format.
        format: &'static str,
        /// How far reading came, bytes; of the file, or of its decompressed content where `reason` says so.
        offset: u64,
        /// What the decoder says.
        reason: String,
    },
    /// The file holds no data row.
    #[error("{}: 0 rows", path.display())]
    NoRows {
        /// The file.
        path: PathBuf,
    },
    /// Fewer bars than the work needs.
    #[error("needs at least {need} rows, has {have}")]
    TooFewRows {
        /// Bars needed.
        need: usize,
        /// Bars there are.
        have: usize,
    },
    /// A line longer than any bar.
    #[error("{}: row {row} is longer than {limit} bytes; this is no bar file", path.display())]
    LineTooLong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        row: u64,
        /// The longest line read, bytes.
        limit: usize,
    },
    /// A line holds a byte that no line of such a file can hold.
    #[error("{}: row {row} holds {what}", path.display())]
    StrayByte {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        row: u64,
        /// The byte, and what it means.
        what: &'static str,
    },
    /// No header line, and not one of the header-less layouts known.
    #[error("{}: no header: the first line is `{line}`; name the columns (time, open, high, low, close)", path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
        /// Its first line, shortened.
        line: String,
    },
    /// Required columns are missing.
    #[error("{}: no column for {}; the columns found are: {}", path.display(), missing.join(", "), listed(found))]
    MissingColumns {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        missing: Vec<String>,
        /// The columns of the file.
        found: Vec<String>,
    },
    /// Two columns could be the same thing.
    #[error("{}: columns `{first}` and `{second}` could both be the {role}; keep one", path.display())]
    TwoColumns {
        /// The file.
        path: PathBuf,
        /// What both could be.
        role: &'static str,
        /// One column.
        first: String,
        /// The other.
        second: String,
    },
    /// A column has a type that cannot be read as what it is needed for.
    #[error("{}: column {column} has type {found}, which cannot be read as {wanted}", path.display())]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// What it is needed as.
        wanted: &'static str,
    },
    /// Bars of several symbols and none selected.
    #[error("{}: holds {} symbols ({}); select one with `symbol`", path.display(), symbols.len(), symbols.join(", "))]
    SeveralSymbols {
        /// The file.
        path: PathBuf,
        /// The symbols, in order of appearance.
        symbols: Vec<String>,
    },
    /// The symbol selected is not in the file.
    #[error("{}: no symbol {symbol}; found: {}", path.display(), found.join(", "))]
    UnknownSymbol {
        /// The file.
        path: PathBuf,
        /// The symbol selected.
        symbol: String,
        /// The symbols there are, in order of appearance.
        found: Vec<String>,
    },
    /// A symbol was selected from a file that does not name symbols.
    #[error("{}: symbol {symbol} is selected, but the file has no symbol column", path.display())]
    NoSymbolColumn {
        /// The file.
        path: PathBuf,
        /// The symbol selected.
        symbol: String,
    },
    /// A row has another number of fields than the header.
    #[error("{}: row {row} has {found} fields, the header has {expected}{hint}", path.display())]
    FieldCount {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        row: u64,
        /// Fields of the header.
        expected: usize,
        /// Fields of the row.
        found: usize,
        /// A guess at the reason, or nothing.
        hint: &'static str,
    },
    /// A quoted field does not end on its line.
    #[error("{}: row {row}: a quoted field does not end on this line", path.display())]
    UnclosedQuote {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        row: u64,
    },
    /// Text that is not UTF-8 where text is needed.
    #[error("{place}: not UTF-8 text: {value}")]
    InvalidUtf8 {
        /// Where.
        place: Place,
        /// The text, with replacement characters.
        value: String,
    },
    /// A value is missing.
    #[error("{place}: missing value `{value}`")]
    MissingValue {
        /// Where.
        place: Place,
        /// How the file writes it.
        value: String,
    },
    /// A value is no number.
    #[error("{place}: `{value}` is not a number")]
    NotANumber {
        /// Where.
        place: Place,
        /// The value.
        value: String,
    },
    /// A number written with a comma, without the option that allows it.
    #[error("{place}: `{value}` has a comma; for decimal commas set `decimal_comma`")]
    DecimalComma {
        /// Where.
        place: Place,
        /// The value.
        value: String,
    },
    /// A NaN or an infinity.
    #[error("{place}: `{value}` is not finite")]
    NotFinite {
        /// Where.
        place: Place,
        /// The value.
        value: String,
    },
    /// A price that is zero or negative (case F35).
    #[error("{place}: price {value} is not positive, so it has no log return")]
    NotPositive {
        /// Where.
        place: Place,
        /// The price.
        value: f64,
    },
    /// A volume or spread below zero.
    #[error("{place}: {value} is negative")]
    Negative {
        /// Where.
        place: Place,
        /// The value.
        value: f64,
    },
    /// A spread that cannot be in price units.
    #[error(
        "{place}: spread {value} is more than a tenth of the price {price}; it must be in price units, not points"
    )]
    SpreadTooLarge {
        /// Where.
        place: Place,
        /// The spread.
        value: f64,
        /// The close.
        price: f64,
    },
    /// The high is below the open or close.
    #[error("{place}: high {value} is below the {other} {bound}")]
    HighTooLow {
        /// Where.
        place: Place,
        /// The high.
        value: f64,
        /// `open` or `close`.
        other: &'static str,
        /// The price it is below.
        bound: f64,
    },
    /// The low is above the open or close.
    #[error("{place}: low {value} is above the {other} {bound}")]
    LowTooHigh {
        /// Where.
        place: Place,
        /// The low.
        value: f64,
        /// `open` or `close`.
        other: &'static str,
        /// The price it is above.
        bound: f64,
    },
    /// A time that cannot be read.
    #[error("{place}: `{value}` is not a time: {reason}")]
    BadTime {
        /// Where.
        place: Place,
        /// The value.
        value: String,
        /// Why.
        reason: String,
    },
    /// Epochs change their unit inside the file.
    #[error("{place}: `{value}` looks like {now}, but the file began in {was}")]
    TimeUnitChanged {
        /// Where.
        place: Place,
        /// The value.
        value: String,
        /// The unit of the first row.
        was: &'static str,
        /// The unit of this row.
        now: &'static str,
    },
    /// A local time skipped when clocks went forward.
    #[error("{place}: {value} does not exist in {zone}: clocks skipped it")]
    TimeSkipped {
        /// Where.
        place: Place,
        /// The local time.
        value: String,
        /// The zone.
        zone: String,
    },
    /// A local time that happened twice when clocks went back.
    #[error("{place}: {value} happened twice in {zone}; write times with an offset or in UTC")]
    TimeAmbiguous {
        /// Where.
        place: Place,
        /// The local time.
        value: String,
        /// The zone.
        zone: String,
    },
    /// A zone that is not in the time zone database.
    #[error("time zone `{zone}` is not known")]
    UnknownTimezone {
        /// The zone.
        zone: String,
    },
    /// A price step larger than any price: no resting order could ever fill.
    #[error("a tick size of {tick_size} is above the highest price, {highest}")]
    TickSize {
        /// The tick size, price units.
        tick_size: f64,
        /// The highest price of the bars.
        highest: f64,
    },
    /// A row is earlier than the one before it.
    #[error("{place}: {time} is earlier than {previous} before it{hint}")]
    Unsorted {
        /// Where.
        place: Place,
        /// The time, UTC.
        time: String,
        /// The time before it, UTC.
        previous: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A row repeats another in every value.
    #[error("{place}: {time} repeats row {first_row} exactly; `repair` can drop `duplicates`")]
    Duplicate {
        /// Where.
        place: Place,
        /// The time, UTC.
        time: String,
        /// The row repeated.
        first_row: u64,
    },
    /// A row has the time of another with other values; refused always.
    #[error("{place}: {time} is also row {first_row}, but with {first_value} instead of {value}")]
    Conflict {
        /// Where; the column is the first that differs.
        place: Place,
        /// The time, UTC.
        time: String,
        /// The other row.
        first_row: u64,
        /// The value here.
        value: f64,
        /// The value there.
        first_value: f64,
    },
    /// Arrays of different lengths.
    #[error("array {column} has {len} values, time has {expected}")]
    Lengths {
        /// Which array.
        column: &'static str,
        /// Its length.
        len: usize,
        /// The length of the time array.
        expected: usize,
    },
    /// An argument outside its range.
    #[error("{what} = {value} is refused: it must be {rule}")]
    InvalidArgument {
        /// Which argument.
        what: &'static str,
        /// The value given.
        value: String,
        /// What would be accepted.
        rule: &'static str,
    },
}

/// Columns named in an error.
const LISTED: usize = 16;
/// Characters of each.
const LISTED_CHARS: usize = 24;

/// Names for an error, of which a file that is no bar file may have any number of any length.
fn listed(names: &[String]) -> String {
    let short = |name: &String| match name.char_indices().nth(LISTED_CHARS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.clone(),
    };
    let mut list = names.iter().take(LISTED).map(short).collect::<Vec<_>>().join(", ");
    if let Some(more) = names.len().checked_sub(LISTED).filter(|&more| more > 0) {
        list += &format!(" and {more} more");
    }
    list
}
