//! Parquet files: only the columns needed, row groups in parallel.
//!
//! Types are those of the file's columns; the Arrow schema some writers embed beside them is not looked at, because the
//! two can disagree about the unit of a time (case G16). Rows are numbered from 1 through the whole file.

mod columns;
mod footer;
mod format;
mod pages;
mod thrift;

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use rayon::prelude::*;

use self::footer::Footer;
use super::caught::{caught, decoding};
use super::chunk::{Chunk, FileContext, RawBar};
use super::header::{Layout, PriceColumns, SpreadColumn, TimeColumns};
use super::symbols::{SymbolRule, Symbols};
use super::{RawFile, Request};
use crate::bars::{PRICES, check_bar};
use crate::error::MarketError;
use columns::{Numbers, Texts, TimeSource, Times};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 1 << 15;

/// Reads a Parquet file. The decoder panics on some damaged files; that is an error like any other damage.
pub(super) fn read(request: &Request<'_>) -> Result<RawFile, MarketError> {
    caught(|| read_whole(request)).unwrap_or_else(|reason| Err(corrupt(request.path, 0, &reason)))
}

fn read_whole(request: &Request<'_>) -> Result<RawFile, MarketError> {
    let path = request.path;
    let file = open(path)?;
    let footer = footer::look(&file);
    match footer.map_err(|source| MarketError::Io { action: "read", path: path.into(), source })? {
        Footer::Bounded => {}
        Footer::Encrypted => {
            let reason = "it is an encrypted Parquet file; decrypt it first".to_owned();
            return Err(MarketError::UnknownFormat { path: path.into(), reason });
        }
        Footer::Unbounded => {
            let offset = file.metadata().map_or(0, |m| m.len());
            return Err(corrupt(
                path,
                offset,
                &"the footer cannot be read: it ends too soon, or a field is a list of booleans or not of its type",
            ));
        }
    }
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = decoding(|| ArrowReaderMetadata::load(&file, options)).map_err(|e| {
        let offset = file.metadata().map_or(0, |m| m.len());
        corrupt(path, offset, &e)
    })?;

    let names: Vec<String> = metadata.schema().fields().iter().map(|f| f.name().trim().to_owned()).collect();
    let layout = Layout::resolve(path, &names)?;
    let context = FileContext { path, layout: &layout, order: request.order };
    let group_rows: Vec<u64> =
        metadata.metadata().row_groups().iter().map(|g| u64::try_from(g.num_rows()).unwrap_or(0)).collect();
    let reader = Reader { context, metadata: &metadata, needed: layout.used() };
    reader.check_types()?;
    reader.check_extents(file.metadata().map_or(0, |m| m.len()))?;

    // The first row settles how times are written and which symbol is meant.
    let Some(first_group) = group_rows.iter().position(|&rows| rows > 0) else {
        return Err(MarketError::NoRows { path: path.into() });
    };
    let first = decoding(|| Ok::<_, MarketError>(reader.batches(first_group, 1)?.next().transpose()))?
        .map_err(|e| reader.group_error(first_group, &e))?
        .ok_or_else(|| MarketError::NoRows { path: path.into() })?;
    let times = TimeSource::settle(&reader.context, &reader.picked(&first), request.timezone)?;
    let first_symbol = match layout.symbol {
        None => None,
        Some(column) => {
            let picked = reader.picked(&first);
            let texts = Texts::new(&reader.context, &picked, column)?;
            let text = texts.get(&reader.context, 0, 1)?;
            Some(super::text::symbol_text(&reader.context, 1, text.as_bytes())?)
        }
    };
    let rule = SymbolRule::new(path, request.symbol, first_symbol.is_some(), first_symbol)?;

    // Some row groups at a time, so that the decoded but not yet appended ones stay few.
    let at_once = rayon::current_num_threads() * 2;
    let mut first_rows = Vec::with_capacity(group_rows.len());
    let mut next_row = 1;
    for rows in &group_rows {
        first_rows.push(next_row);
        next_row += rows;
    }
    let groups: Vec<usize> = (0..group_rows.len()).collect();
    let mut chunk = Chunk::new(&layout, 0);
    let mut others = Symbols::default();
    let mut other_rows = 0;
    for window in groups.chunks(at_once) {
        let parsed: Vec<Result<Group, MarketError>> = window
            .par_iter()
            .map(|&group| {
                let (first_row, rows) = (first_rows[group], group_rows[group]);
                decoding(|| reader.group(group, first_row, rows, &times, &rule, request.decimal_comma))
            })
            .collect();
        for group in parsed {
            let group = group?;
            others.merge(&group.others);
            other_rows += group.other_rows;
            chunk.append(&reader.context, group.chunk)?;
        }
    }
    rule.finish(path, chunk.len(), others)?;
    let format = format!("Parquet, {} row groups", group_rows.len());
    let (time_format, local_times) = (times.describe(), times.is_local());
    Ok(RawFile { format, time_format, local_times, symbol: rule.wanted, other_rows, chunk, layout })
}

struct Group {
    chunk: Chunk,
    others: Symbols,
    other_rows: u64,
}

/// A batch with the file's column numbers of its arrays.
struct Picked<'a> {
    batch: &'a RecordBatch,
    needed: &'a [usize],
}

struct Reader<'a> {
    context: FileContext<'a>,
    metadata: &'a ArrowReaderMetadata,
    /// Column numbers, ascending.
    needed: Vec<usize>,
}

impl Reader<'_> {
    fn picked<'b>(&'b self, batch: &'b RecordBatch) -> Picked<'b> {
        Picked { batch, needed: &self.needed }
    }

    /// Refuses columns of a type that cannot be read, before any is read.
    fn check_types(&self) -> Result<(), MarketError> {
        let layout = self.context.layout;
        let fields = self.metadata.schema().fields();
        let mut numbers = match layout.prices {
            PriceColumns::Plain(columns) => columns.to_vec(),
            PriceColumns::BidAsk { bid, ask } => [bid, ask].concat(),
        };
        numbers.extend(layout.volume);
        match layout.spread {
            SpreadColumn::None => {}
            SpreadColumn::Column(column) => numbers.push(column),
            SpreadColumn::Difference { bid, ask } => numbers.extend([bid, ask]),
        }
        for column in numbers {
            if !Numbers::readable(fields[column].data_type()) {
                return Err(self.type_error(column, "a number"));
            }
        }
        let time_columns = match layout.time {
            TimeColumns::One(column) => vec![column],
            TimeColumns::Pair { date, time } => vec![date, time],
        };
        for column in time_columns {
            if !Times::readable(fields[column].data_type()) {
                return Err(self.type_error(column, "a time"));
            }
        }
        match layout.symbol {
            Some(column) if !Texts::readable(fields[column].data_type()) => {
                Err(self.type_error(column, "a symbol"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses columns that the footer puts outside the file, which the decoder would not survive, and more bytes of columns that
    /// are read than the file has: row groups would share them, and looking through them take as many times as long.
    fn check_extents(&self, file_bytes: u64) -> Result<(), MarketError> {
        let (mask, mut read) = (self.mask(), 0_u64);
        for (index, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let inside = group.num_rows() >= 0
                && group.columns().iter().all(|column| {
                    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
                    let (Ok(start), Ok(length)) =
                        (u64::try_from(start), u64::try_from(column.compressed_size()))
                    else {
                        return false;
                    };
                    column.data_page_offset() >= 0
                        && start.checked_add(length).is_some_and(|end| end <= file_bytes)
                });
            if !inside {
                return Err(self.group_error(index, &"the footer names bytes outside the file"));
            }
            let leaves = group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
            read = leaves.fold(read, |read, (_, column)| read.saturating_add(column.byte_range().1));
            if read > file_bytes {
                return Err(self.group_error(index, &"the footer gives row groups the same bytes"));
            }
        }
        Ok(())
    }

    /// The columns that are read.
    fn mask(&self) -> ProjectionMask {
        ProjectionMask::roots(self.metadata.parquet_schema(), self.needed.iter().copied())
    }

    /// Refuses pages whose headers would keep the decoder busy. Their columns must be inside the file.
    fn check_pages(&self, file: &File, group: usize, mask: &ProjectionMask) -> Result<(), MarketError> {
        let path = self.context.path;
        for (leaf, column) in self.metadata.metadata().row_group(group).columns().iter().enumerate() {
            if !mask.leaf_included(leaf) {
                continue;
            }
            let (start, length) = column.byte_range();
            let unbounded = pages::unbounded(file, start..start + length)
                .map_err(|source| MarketError::Io { action: "read", path: path.into(), source })?;
            if let Some(offset) = unbounded {
                let reason = "the header of a page cannot be read: it ends too soon, or a field is a list of booleans or \
                              not of its type; or the page ends behind its column";
                return Err(corrupt(path, offset, &reason));
            }
        }
        Ok(())
    }

    fn type_error(&self, column: usize, wanted: &'static str) -> MarketError {
        MarketError::ColumnType {
            path: self.context.path.into(),
            column: self.context.layout.names[column].clone(),
            found: self.metadata.schema().fields()[column].data_type().to_string(),
            wanted,
        }
    }

    fn batches(&self, group: usize, rows: usize) -> Result<ParquetRecordBatchReader, MarketError> {
        // A file handle of its own: handles that are clones share one position.
        let file = open(self.context.path)?;
        let mask = self.mask();
        self.check_pages(&file, group, &mask)?;
        ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(mask)
            .with_row_groups(vec![group])
            .with_batch_size(rows)
            .build()
            .map_err(|e| self.group_error(group, &e))
    }

    fn group_error(&self, group: usize, error: &impl std::fmt::Display) -> MarketError {
        let offset = self
            .metadata
            .metadata()
            .row_groups()
            .get(group)
            .and_then(|g| g.columns().first())
            .and_then(|c| u64::try_from(c.data_page_offset()).ok())
            .unwrap_or(0);
        corrupt(self.context.path, offset, error)
    }

    fn group(
        &self,
        group: usize,
        first_row: u64,
        rows: u64,
        times: &TimeSource,
        rule: &SymbolRule,
        decimal_comma: bool,
    ) -> Result<Group, MarketError> {
        // The row count of a damaged file can be anything, so no more than this is reserved on its word.
        let capacity = if rule.wanted.is_some() { 0 } else { rows.min(1 << 22) as usize };
        let mut result = Group {
            chunk: Chunk::new(self.context.layout, capacity),
            others: Symbols::default(),
            other_rows: 0,
        };
        let mut row = first_row;
        for batch in self.batches(group, BATCH_ROWS)? {
            let batch = batch.map_err(|e| self.group_error(group, &e))?;
            self.batch(&batch, row, times, rule, decimal_comma, &mut result)?;
            row += batch.num_rows() as u64;
        }
        if row - first_row != rows {
            let reason = format!("row group {group} holds {} rows, not {rows}", row - first_row);
            return Err(self.group_error(group, &reason));
        }
        Ok(result)
    }

    fn batch(
        &self,
        batch: &RecordBatch,
        first_row: u64,
        times: &TimeSource,
        rule: &SymbolRule,
        decimal_comma: bool,
        result: &mut Group,
    ) -> Result<(), MarketError> {
        let (file, layout) = (&self.context, self.context.layout);
        let picked = self.picked(batch);
        let numbers = |column: usize| Numbers::new(file, &picked, column, decimal_comma);
        let four = |columns: [usize; 4]| -> Result<[Numbers<'_>; 4], MarketError> {
            let [open, high, low, close] = columns;
            Ok([numbers(open)?, numbers(high)?, numbers(low)?, numbers(close)?])
        };
        let (first_side, second_side) = match layout.prices {
            PriceColumns::Plain(columns) => (four(columns)?, None),
            PriceColumns::BidAsk { bid, ask } => (four(bid)?, Some(four(ask)?)),
        };
        let volume = layout.volume.map(numbers).transpose()?;
        let spread = match layout.spread {
            SpreadColumn::None => None,
            SpreadColumn::Column(column) => Some((numbers(column)?, None)),
            SpreadColumn::Difference { bid, ask } => Some((numbers(ask)?, Some(numbers(bid)?))),
        };
        let symbols = layout.symbol.map(|column| Texts::new(file, &picked, column)).transpose()?;
        let times = times.of_batch(file, &picked)?;

        for index in 0..batch.num_rows() {
            let row = first_row + index as u64;
            if let (Some(texts), Some(wanted)) = (&symbols, &rule.wanted) {
                let symbol = texts.get(file, index, row)?.trim();
                if symbol != wanted {
                    result.others.add(symbol.as_bytes());
                    result.other_rows += 1;
                    continue;
                }
            }
            let time = times.get(file, index, row)?;
            let prices = match &second_side {
                None => four_values(file, &first_side, index, row)?,
                Some(ask) => {
                    let bid = side(file, &first_side, index, row)?;
                    let ask = side(file, ask, index, row)?;
                    std::array::from_fn(|i| 0.5 * (bid[i] + ask[i]))
                }
            };
            let volume = volume.as_ref().map(|v| v.get(file, index, row)).transpose()?;
            let spread = match &spread {
                None => None,
                Some((one, None)) => Some(one.get(file, index, row)?),
                Some((ask, Some(bid))) => Some(ask.get(file, index, row)? - bid.get(file, index, row)?),
            };
            result.chunk.push(file, row, RawBar { time, prices, volume, spread })?;
        }
        Ok(())
    }
}

fn four_values(
    file: &FileContext<'_>,
    columns: &[Numbers<'_>; 4],
    index: usize,
    row: u64,
) -> Result<[f64; 4], MarketError> {
    let mut prices = [0.0; 4];
    for (price, column) in prices.iter_mut().zip(columns) {
        *price = column.get(file, index, row)?;
    }
    Ok(prices)
}

/// The prices of one side of the quotes, which must be a bar of their own.
fn side(
    file: &FileContext<'_>,
    columns: &[Numbers<'_>; 4],
    index: usize,
    row: u64,
) -> Result<[f64; 4], MarketError> {
    let prices = four_values(file, columns, index, row)?;
    check_bar(prices, None, None).map_err(|broken| {
        let which = PRICES.iter().position(|c| *c == broken.column()).unwrap_or(0);
        broken.into_error(file.place(row, columns[which].name().into()))
    })?;
    Ok(prices)
}

fn open(path: &Path) -> Result<File, MarketError> {
    File::open(path).map_err(|source| MarketError::Io { action: "open", path: path.into(), source })
}

fn corrupt(path: &Path, offset: u64, error: &impl std::fmt::Display) -> MarketError {
    MarketError::Corrupt { path: path.into(), format: "Parquet", offset, reason: error.to_string() }
}
