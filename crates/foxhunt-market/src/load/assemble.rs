//! Rows in file order into a series: sorting, repetitions, stamps at the close, gaps, report.

use foxhunt_core::settings::{DataSettings, Repair, StampAt};
use rayon::prelude::*;

use super::chunk::{Chunk, FileContext, repeats};
use super::header::{PriceColumns, SpreadColumn};
use super::{DataReport, Loaded, RawFile, Repairs, Request};
use crate::bars::{BarArrays, BarSeries, time_text};
use crate::error::MarketError;
use crate::sessions::Sessions;

pub(super) fn assemble(
    request: &Request<'_>,
    settings: &DataSettings,
    file_bytes: u64,
    raw: RawFile,
) -> Result<Loaded, MarketError> {
    let RawFile { format, time_format, local_times, symbol, other_rows, mut chunk, layout } = raw;
    let rows_read = chunk.rows_read;
    if rows_read == 0 {
        return Err(MarketError::NoRows { path: request.path.into() });
    }
    let mut repaired = Repairs { duplicates: chunk.duplicates, ..Repairs::default() };
    if request.order.sort {
        let file = FileContext { path: request.path, layout: &layout, order: request.order };
        repaired.unsorted = sort(&mut chunk);
        repaired.duplicates += drop_repetitions(&file, &mut chunk)?;
    }
    let mut arrays = chunk.arrays;
    shrink(&mut arrays);
    let mut bars = BarSeries::from_checked(symbol, arrays)?;
    if settings.stamp == StampAt::Close {
        for time in &mut bars.time {
            *time = time.saturating_sub(bars.bar_ns);
        }
    }
    let mut sessions = Sessions::observe(&bars.time, bars.bar_ns);
    if settings.repair.contains(&Repair::Gaps) {
        let fills = sessions.fillable(&bars.time);
        repaired.gaps = fill(&mut bars, &fills);
        if repaired.gaps > 0 {
            sessions = Sessions::observe(&bars.time, bars.bar_ns);
        }
    }

    let last = bars.len() - 1;
    let (gaps, hash) = rayon::join(|| sessions.summary(&bars.time), || bars.data_hash());
    let report = DataReport {
        file: request.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        file_bytes,
        format,
        columns: layout.mapping(),
        ignored_columns: layout.ignored(),
        time_format,
        symbol: bars.symbol.clone(),
        rows_read,
        rows_of_other_symbols: other_rows,
        rows_kept: bars.len() as u64,
        repaired,
        gaps,
        first: time_text(bars.time[0]),
        last: time_text(bars.time[last]),
        bar_seconds: bars.bar_ns as f64 / 1e9,
        bars_per_year: bars.bars_per_year(0..bars.len()).unwrap_or(0.0),
        tick_size: bars.tick_size,
        hash,
        assumptions: assumptions(settings, local_times, &layout.prices, layout.spread, &bars),
    };
    Ok(Loaded { bars, report })
}

fn assumptions(
    settings: &DataSettings,
    local_times: bool,
    prices: &PriceColumns,
    spread: SpreadColumn,
    bars: &BarSeries,
) -> Vec<String> {
    let mut notes = Vec::new();
    if local_times {
        notes.push(format!("times carry no offset and are read as {}", settings.timezone));
    }
    notes.push(match settings.stamp {
        StampAt::Open => "a time names the open of its bar".into(),
        StampAt::Close => "a time names the close of its bar and was shifted back by one bar".into(),
    });
    if matches!(prices, PriceColumns::BidAsk { .. }) {
        notes.push("prices are the mid of bid and ask".into());
    }
    notes.push(match spread {
        SpreadColumn::None => "no spread in the file: fills use execution.half_spread_bps".into(),
        _ => "fills use half of the file's spread at the close of the deciding bar".into(),
    });
    notes.push(match bars.volume {
        None => "no volume in the file: no fill is limited by it".into(),
        Some(_) => "IoC fills can be limited by the file's volume (execution.limit_to_volume)".into(),
    });
    if !bars.made.is_empty() {
        notes.push("bars made to fill gaps are looked at like any other, but no order fills in them".into());
    }
    notes.push("a decision at a bar's close fills at the next bar's open at the earliest".into());
    notes
}

/// Sorts rows by time, equal times in file order; returns how many stood behind a later time.
fn sort(chunk: &mut Chunk) -> u64 {
    let time = &chunk.arrays.time;
    let mut latest = i64::MIN;
    let out_of_place = time.iter().filter(|&&t| {
        let late = t < latest;
        latest = latest.max(t);
        late
    });
    let out_of_place = out_of_place.count() as u64;
    if out_of_place == 0 {
        return 0;
    }
    let mut order: Vec<usize> = (0..time.len()).collect();
    order.par_sort_by_key(|&row| time[row]);
    let BarArrays { time, open, high, low, close, volume, spread } = &mut chunk.arrays;
    *time = order.iter().map(|&row| time[row]).collect();
    for column in [open, high, low, close].into_iter().chain(volume).chain(spread) {
        *column = order.iter().map(|&row| column[row]).collect();
    }
    chunk.rows = order.iter().map(|&row| chunk.rows[row]).collect();
    out_of_place
}

/// Drops rows of sorted times that repeat the row before; returns how many.
fn drop_repetitions(file: &FileContext<'_>, chunk: &mut Chunk) -> Result<u64, MarketError> {
    let mut keep = vec![true; chunk.len()];
    let mut dropped = 0;
    let mut kept = 0;
    for (row, flag) in keep.iter_mut().enumerate().skip(1) {
        if chunk.arrays.time[row] == chunk.arrays.time[kept] {
            repeats(file, (chunk.rows[kept], &chunk.bar(kept)), (chunk.rows[row], &chunk.bar(row)))?;
            *flag = false;
            dropped += 1;
        } else {
            kept = row;
        }
    }
    if dropped > 0 {
        let BarArrays { time, open, high, low, close, volume, spread } = &mut chunk.arrays;
        retain(time, &keep);
        for column in [open, high, low, close].into_iter().chain(volume).chain(spread) {
            retain(column, &keep);
        }
    }
    Ok(dropped)
}

fn retain<T>(column: &mut Vec<T>, keep: &[bool]) {
    let mut flags = keep.iter();
    column.retain(|_| *flags.next().unwrap_or(&true));
}

fn shrink(arrays: &mut BarArrays) {
    let BarArrays { time, open, high, low, close, volume, spread } = arrays;
    time.shrink_to_fit();
    for column in [open, high, low, close].into_iter().chain(volume).chain(spread) {
        column.shrink_to_fit();
    }
}

/// Puts flat bars of zero volume behind bars: `fills` is (bar, how many), by bar.
fn fill(bars: &mut BarSeries, fills: &[(usize, u64)]) -> u64 {
    let total: u64 = fills.iter().map(|&(_, count)| count).sum();
    if total == 0 {
        return 0;
    }
    let close = bars.close.clone();
    let spread = bars.spread.clone();
    let starts = bars.time.clone();
    let step = bars.bar_ns;
    bars.made = vec![false; starts.len()];
    insert(&mut bars.made, fills, |_, _| true);
    insert(&mut bars.time, fills, |bar, n| starts[bar] + step * n as i64);
    for column in [&mut bars.open, &mut bars.high, &mut bars.low, &mut bars.close] {
        insert(column, fills, |bar, _| close[bar]);
    }
    if let Some(column) = &mut bars.volume {
        insert(column, fills, |_, _| 0.0);
    }
    if let (Some(column), Some(values)) = (&mut bars.spread, &spread) {
        insert(column, fills, |bar, _| values[bar]);
    }
    total
}

/// `value(bar, n)` is the n-th new value behind a bar, n from 1.
fn insert<T: Copy>(column: &mut Vec<T>, fills: &[(usize, u64)], value: impl Fn(usize, u64) -> T) {
    let total: u64 = fills.iter().map(|&(_, count)| count).sum();
    let mut filled = Vec::with_capacity(column.len() + total as usize);
    let mut done = 0;
    for &(bar, count) in fills {
        filled.extend_from_slice(&column[done..=bar]);
        filled.extend((1..=count).map(|n| value(bar, n)));
        done = bar + 1;
    }
    filled.extend_from_slice(&column[done..]);
    *column = filled;
}
