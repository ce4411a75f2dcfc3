//! One row of a text file into a bar.

use std::path::Path;

use super::blocks::{Lines, MAX_LINE};
use super::fields::{FieldBuffer, Fields};
use crate::bars::{PRICES, check_bar};
use crate::error::MarketError;
use crate::load::chunk::{Chunk, FileContext, RawBar};
use crate::load::header::{PriceColumns, SpreadColumn, TimeColumns};
use crate::load::number::{NumberFault, parse_number};
use crate::load::symbols::Symbols;
use crate::load::time::{TimeFault, TimeReader};

/// Characters of a value shown in an error.
const SHOWN: usize = 64;

const ZERO: &str = "a zero byte, which no text has; the file is damaged, or none of text, Parquet and DBN";
const RETURN: &str =
    "a carriage return inside the line; other lines end with a line feed, and all must end alike";
const FEED: &str =
    "a line feed inside the line; other lines end with a carriage return, and all must end alike";

/// Everything needed to parse rows, shared by all threads.
pub(super) struct RowParser<'a> {
    pub(super) file: FileContext<'a>,
    pub(super) separator: u8,
    pub(super) terminator: u8,
    pub(super) decimal_comma: bool,
    pub(super) time: &'a TimeReader,
    /// The symbol kept, where the file names symbols.
    pub(super) wanted: Option<&'a [u8]>,
}

impl RowParser<'_> {
    /// Parses whole lines: the bars, the other symbols met and how many rows were theirs.
    pub(super) fn parse(&self, data: &[u8], first_row: u64) -> Result<(Chunk, Symbols, u64), MarketError> {
        // A bar takes 40 bytes of text or more; less only costs a reallocation.
        let mut chunk = Chunk::new(self.file.layout, data.len() / 40);
        let mut others = Symbols::default();
        let mut other_rows = 0;
        let mut buffer = FieldBuffer::new(self.separator, self.terminator);
        let path = self.file.path;
        for (row, line) in Lines::new(data, self.terminator, first_row) {
            if line.len() > MAX_LINE {
                let error = MarketError::LineTooLong { path: path.into(), row, limit: MAX_LINE };
                return Err(explained(error, path, row, line, self.terminator));
            }
            if line.trim_ascii_start().is_empty() {
                continue;
            }
            let fields = split_checked(&self.file, &mut buffer, row, line)
                .map_err(|error| explained(error, path, row, line, self.terminator))?;
            if let (Some(wanted), Some(column)) = (self.wanted, self.file.layout.symbol) {
                let symbol = fields.get(column).trim_ascii();
                if symbol != wanted {
                    if symbol.is_empty() {
                        let place = self.file.place(row, self.file.layout.names[column].clone());
                        return Err(MarketError::MissingValue { place, value: String::new() });
                    }
                    others.add(symbol);
                    other_rows += 1;
                    continue;
                }
            }
            let bar =
                self.bar(row, &fields).map_err(|error| explained(error, path, row, line, self.terminator))?;
            chunk.push(&self.file, row, bar)?;
        }
        // In a column that is not read it would pass for text.
        if let Some(lines) = lines_to_zero(data, self.terminator) {
            return Err(zero_byte(path, first_row + lines));
        }
        Ok((chunk, others, other_rows))
    }

    #[inline]
    fn bar(&self, row: u64, fields: &Fields<'_>) -> Result<RawBar, MarketError> {
        let layout = self.file.layout;
        let time = match layout.time {
            TimeColumns::One(column) => {
                let text = fields.get(column);
                self.time.parse(text).map_err(|fault| self.time_error(row, text, fault))?
            }
            TimeColumns::Pair { date, time } => {
                let (date, clock) = (fields.get(date), fields.get(time));
                self.time.parse_pair(date, clock).map_err(|fault| {
                    let both = [date.trim_ascii(), clock.trim_ascii()].join(&b' ');
                    self.time_error(row, &both, fault)
                })?
            }
        };
        let (prices, mid_spread) = match layout.prices {
            PriceColumns::Plain(columns) => (self.four(row, fields, columns)?, None),
            PriceColumns::BidAsk { bid, ask } => {
                let bid = self.side(row, fields, bid)?;
                let ask = self.side(row, fields, ask)?;
                let mid = std::array::from_fn(|i| 0.5 * (bid[i] + ask[i]));
                (mid, Some(ask[3] - bid[3]))
            }
        };
        let volume = match layout.volume {
            Some(column) => Some(self.number(row, fields, column)?),
            None => None,
        };
        let spread = match (layout.spread, mid_spread) {
            (SpreadColumn::None, _) => None,
            (SpreadColumn::Column(column), _) => Some(self.number(row, fields, column)?),
            (SpreadColumn::Difference { .. }, Some(spread)) => Some(spread),
            (SpreadColumn::Difference { bid, ask }, None) => {
                Some(self.number(row, fields, ask)? - self.number(row, fields, bid)?)
            }
        };
        Ok(RawBar { time, prices, volume, spread })
    }

    #[inline]
    fn four(&self, row: u64, fields: &Fields<'_>, columns: [usize; 4]) -> Result<[f64; 4], MarketError> {
        let mut prices = [0.0; 4];
        for (price, column) in prices.iter_mut().zip(columns) {
            *price = self.number(row, fields, column)?;
        }
        Ok(prices)
    }

    /// The prices of one side of the quotes, which must be a bar of their own.
    fn side(&self, row: u64, fields: &Fields<'_>, columns: [usize; 4]) -> Result<[f64; 4], MarketError> {
        let prices = self.four(row, fields, columns)?;
        check_bar(prices, None, None).map_err(|broken| {
            let which = PRICES.iter().position(|c| *c == broken.column()).unwrap_or(0);
            broken.into_error(self.file.place(row, self.file.layout.names[columns[which]].clone()))
        })?;
        Ok(prices)
    }

    #[inline]
    fn number(&self, row: u64, fields: &Fields<'_>, column: usize) -> Result<f64, MarketError> {
        let text = fields.get(column);
        parse_number(text, self.decimal_comma)
            .map_err(|fault| number_error(&self.file, row, column, text, fault))
    }

    #[cold]
    fn time_error(&self, row: u64, text: &[u8], fault: TimeFault) -> MarketError {
        fault.into_error(self.file.place(row, self.file.layout.time_name()), value_text(text))
    }
}

/// Line ends before the first zero byte.
pub(super) fn lines_to_zero(data: &[u8], terminator: u8) -> Option<u64> {
    // Most data has none, and this is the fast way to know.
    let before = data.contains(&0).then(|| data.iter().take_while(|&&b| b != 0));
    Some(before?.filter(|&&b| b == terminator).count() as u64)
}

/// The error for a zero byte.
#[cold]
pub(super) fn zero_byte(path: &Path, row: u64) -> MarketError {
    MarketError::StrayByte { path: path.into(), row, what: ZERO }
}

/// The end of a line that a file with `terminator` has no use for.
pub(super) fn other_line_end(terminator: u8) -> (u8, &'static str) {
    if terminator == b'\n' { (b'\r', RETURN) } else { (b'\n', FEED) }
}

/// `error` of a line, or the byte in the line that made it one.
#[cold]
pub(super) fn explained(
    error: MarketError,
    path: &Path,
    row: u64,
    line: &[u8],
    terminator: u8,
) -> MarketError {
    if line.contains(&0) {
        return zero_byte(path, row);
    }
    check_line_end(path, row, line, terminator).err().unwrap_or(error)
}

/// Refuses a line that holds the end of another line.
#[cold]
pub(super) fn check_line_end(path: &Path, row: u64, line: &[u8], terminator: u8) -> Result<(), MarketError> {
    let (other, what) = other_line_end(terminator);
    let mut quotes = 0;
    // A quoted text may hold it.
    let stray = line.trim_ascii().iter().any(|&byte| {
        quotes += usize::from(byte == b'"');
        byte == other && quotes % 2 == 0
    });
    if stray { Err(MarketError::StrayByte { path: path.into(), row, what }) } else { Ok(()) }
}

/// The error for a number that was refused.
#[cold]
pub(in crate::load) fn number_error(
    file: &FileContext<'_>,
    row: u64,
    column: usize,
    text: &[u8],
    fault: NumberFault,
) -> MarketError {
    let place = file.place(row, file.layout.names.get(column).cloned().unwrap_or_default());
    let value = value_text(text);
    match fault {
        NumberFault::Missing => MarketError::MissingValue { place, value },
        NumberFault::NotFinite => MarketError::NotFinite { place, value },
        NumberFault::Comma => MarketError::DecimalComma { place, value },
        NumberFault::NotANumber => MarketError::NotANumber { place, value },
    }
}

/// Splits a line and compares its number of fields with the header; blank fields at the end may be surplus.
#[inline]
pub(super) fn split_checked<'a>(
    file: &FileContext<'_>,
    buffer: &'a mut FieldBuffer,
    row: u64,
    line: &'a [u8],
) -> Result<Fields<'a>, MarketError> {
    let separator = buffer.separator();
    let Some(fields) = buffer.split(line) else {
        return Err(MarketError::UnclosedQuote { path: file.path.into(), row });
    };
    let (expected, found) = (file.layout.names.len(), fields.len());
    if found != expected {
        let surplus_blank =
            found > expected && (expected..found).all(|i| fields.get(i).trim_ascii().is_empty());
        if !surplus_blank {
            let hint = if found > expected && separator == b',' {
                "; if `,` is the decimal mark, the file needs another separator or quotes"
            } else {
                ""
            };
            return Err(MarketError::FieldCount { path: file.path.into(), row, expected, found, hint });
        }
    }
    Ok(fields)
}

/// A symbol as text.
pub(in crate::load) fn symbol_text(
    file: &FileContext<'_>,
    row: u64,
    text: &[u8],
) -> Result<String, MarketError> {
    let place = || {
        let name = file.layout.symbol.and_then(|index| file.layout.names.get(index));
        file.place(row, name.cloned().unwrap_or_default())
    };
    match std::str::from_utf8(text).map(str::trim) {
        Ok("") => Err(MarketError::MissingValue { place: place(), value: String::new() }),
        Ok(symbol) => Ok(symbol.to_owned()),
        Err(_) => Err(MarketError::InvalidUtf8 { place: place(), value: value_text(text) }),
    }
}

/// A value for an error: trimmed, shortened, with replacement characters for what is not UTF-8.
pub(in crate::load) fn value_text(text: &[u8]) -> String {
    let text = text.trim_ascii();
    let mut shown = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN)]).into_owned();
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.truncate(end);
        shown.push_str("...");
    }
    shown
}
