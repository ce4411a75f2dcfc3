//! Bars under construction: a run of rows of one file, checked as they are pushed.
//!
//! The order of rows is checked here unless they are to be sorted later ([`super::assemble`]).

use std::path::Path;

use super::header::Layout;
use crate::bars::{BarArrays, Column, check_bar, time_text};
use crate::error::{MarketError, Place};

/// How rows out of order and repeated rows are treated while reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderRule {
    /// Rows are sorted afterwards; then their numbers are kept and nothing is checked here.
    pub(super) sort: bool,
    /// Exact repetitions of the row before are dropped and counted.
    pub(super) drop_duplicates: bool,
}

/// What every row of a file is checked with and named by.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileContext<'a> {
    pub(super) path: &'a Path,
    pub(super) layout: &'a Layout,
    pub(super) order: OrderRule,
}

impl FileContext<'_> {
    pub(super) fn place(&self, row: u64, column: String) -> Place {
        Place { file: Some(self.path.into()), row, column }
    }
}

/// The values of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RawBar {
    pub(super) time: i64,
    /// Open, high, low, close.
    pub(super) prices: [f64; 4],
    pub(super) volume: Option<f64>,
    pub(super) spread: Option<f64>,
}

impl RawBar {
    /// The first column in which two bars of the same time differ, with both values.
    pub(super) fn difference(&self, other: &Self) -> Option<(Column, f64, f64)> {
        let mine = self.columns();
        let theirs = other.columns();
        mine.into_iter()
            .zip(theirs)
            .find(|((_, a), (_, b))| a.to_bits() != b.to_bits())
            .map(|((column, a), (_, b))| (column, a, b))
    }

    fn columns(&self) -> [(Column, f64); 6] {
        let [open, high, low, close] = self.prices;
        [
            (Column::Open, open),
            (Column::High, high),
            (Column::Low, low),
            (Column::Close, close),
            (Column::Volume, self.volume.unwrap_or(0.0)),
            (Column::Spread, self.spread.unwrap_or(0.0)),
        ]
    }
}

/// Rows in file order.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    pub(super) arrays: BarArrays,
    /// Row numbers, kept only where rows are sorted later.
    pub(super) rows: Vec<u64>,
    first_row: u64,
    last_row: u64,
    pub(super) rows_read: u64,
    pub(super) duplicates: u64,
}

impl Chunk {
    pub(super) fn new(layout: &Layout, capacity: usize) -> Self {
        let column = || Vec::with_capacity(capacity);
        let has_spread = layout.spread != super::header::SpreadColumn::None;
        Self {
            arrays: BarArrays {
                time: Vec::with_capacity(capacity),
                open: column(),
                high: column(),
                low: column(),
                close: column(),
                volume: layout.volume.is_some().then(column),
                spread: has_spread.then(column),
            },
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.arrays.time.len()
    }

    pub(super) fn reserve(&mut self, more: usize) {
        let a = &mut self.arrays;
        a.time.reserve_exact(more);
        for column in [&mut a.open, &mut a.high, &mut a.low, &mut a.close] {
            column.reserve_exact(more);
        }
        for column in [&mut a.volume, &mut a.spread].into_iter().flatten() {
            column.reserve_exact(more);
        }
    }

    pub(super) fn bar(&self, index: usize) -> RawBar {
        let a = &self.arrays;
        RawBar {
            time: a.time[index],
            prices: [a.open[index], a.high[index], a.low[index], a.close[index]],
            volume: a.volume.as_ref().map(|v| v[index]),
            spread: a.spread.as_ref().map(|v| v[index]),
        }
    }

    /// Checks and adds one row.
    #[inline]
    pub(super) fn push(&mut self, file: &FileContext<'_>, row: u64, bar: RawBar) -> Result<(), MarketError> {
        self.rows_read += 1;
        if let Err(broken) = check_bar(bar.prices, bar.volume, bar.spread) {
            return Err(broken.into_error(file.place(row, file.layout.name_of(broken.column()))));
        }
        if file.order.sort {
            self.rows.push(row);
        } else if let Some(&previous) = self.arrays.time.last()
            && bar.time <= previous
            && !follows(file, (self.last_row, &self.bar(self.len() - 1)), (row, &bar))?
        {
            self.duplicates += 1;
            return Ok(());
        }
        if self.arrays.time.is_empty() {
            self.first_row = row;
        }
        self.last_row = row;
        let a = &mut self.arrays;
        a.time.push(bar.time);
        a.open.push(bar.prices[0]);
        a.high.push(bar.prices[1]);
        a.low.push(bar.prices[2]);
        a.close.push(bar.prices[3]);
        if let (Some(column), Some(value)) = (&mut a.volume, bar.volume) {
            column.push(value);
        }
        if let (Some(column), Some(value)) = (&mut a.spread, bar.spread) {
            column.push(value);
        }
        Ok(())
    }

    /// Adds the rows that follow in the file.
    pub(super) fn append(&mut self, file: &FileContext<'_>, next: Self) -> Result<(), MarketError> {
        self.rows_read += next.rows_read;
        self.duplicates += next.duplicates;
        let mut skip = 0;
        if next.len() > 0 {
            if self.len() == 0 {
                self.first_row = next.first_row;
            } else if !file.order.sort {
                let last = (self.last_row, &self.bar(self.len() - 1));
                if !follows(file, last, (next.first_row, &next.bar(0)))? {
                    self.duplicates += 1;
                    skip = 1;
                }
            }
            self.last_row = next.last_row;
        }
        let (a, b) = (&mut self.arrays, next.arrays);
        a.time.extend_from_slice(&b.time[skip..]);
        for (mine, theirs) in
            [(&mut a.open, &b.open), (&mut a.high, &b.high), (&mut a.low, &b.low), (&mut a.close, &b.close)]
        {
            mine.extend_from_slice(&theirs[skip..]);
        }
        for (mine, theirs) in [(&mut a.volume, &b.volume), (&mut a.spread, &b.spread)] {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                mine.extend_from_slice(&theirs[skip..]);
            }
        }
        self.rows.extend_from_slice(&next.rows);
        Ok(())
    }
}

/// Whether a row may follow another: false for an exact repetition that is to be dropped.
fn follows(
    file: &FileContext<'_>,
    (first_row, first): (u64, &RawBar),
    (row, bar): (u64, &RawBar),
) -> Result<bool, MarketError> {
    if bar.time > first.time {
        return Ok(true);
    }
    if bar.time < first.time {
        return Err(MarketError::Unsorted {
            place: file.place(row, file.layout.time_name()),
            time: time_text(bar.time),
            previous: time_text(first.time),
            hint: "; `repair` can sort `unsorted` rows",
        });
    }
    repeats(file, (first_row, first), (row, bar))?;
    Ok(false)
}

/// Checks that two rows of the same time are equal and that such rows are to be dropped.
pub(super) fn repeats(
    file: &FileContext<'_>,
    (first_row, first): (u64, &RawBar),
    (row, bar): (u64, &RawBar),
) -> Result<(), MarketError> {
    if let Some((column, value, first_value)) = bar.difference(first) {
        let place = file.place(row, file.layout.name_of(column));
        return Err(MarketError::Conflict {
            place,
            time: time_text(bar.time),
            first_row,
            value,
            first_value,
        });
    }
    if file.order.drop_duplicates {
        return Ok(());
    }
    Err(MarketError::Duplicate {
        place: file.place(row, file.layout.time_name()),
        time: time_text(bar.time),
        first_row,
    })
}
