//! How fast files load, and how much memory that takes.
//!
//! Writes one file of `ROWS` bars (default ten million) as CSV and as Parquet to a temporary folder and loads each in a
//! process of its own, because a peak is a property of a process. Prints seconds, the peak resident size, and its ratio
//! to the final arrays. Run in release:
//!
//! ```text
//! cargo run --release -p foxhunt-market --example load_speed [ROWS]
//! ```

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, TimestampNanosecondArray};
use foxhunt_core::settings::DataSettings;
use foxhunt_market::load;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

const GROUP_ROWS: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next() {
        Some(flag) if flag == "--load" => measure(Path::new(&arguments.next().ok_or("--load needs a file")?)),
        rows => {
            let rows: usize = rows.map_or(Ok(10_000_000), |text| text.parse())?;
            let folder = tempfile::tempdir()?;
            for (name, write) in [("bars.csv", write_csv as Writer), ("bars.parquet", write_parquet)] {
                let path = folder.path().join(name);
                write(&path, rows)?;
                println!("{name}: {rows} rows, {:.1} MB", std::fs::metadata(&path)?.len() as f64 / 1e6);
                let status = Command::new(std::env::current_exe()?).arg("--load").arg(&path).status()?;
                if !status.success() {
                    return Err(format!("loading {name} failed").into());
                }
            }
            Ok(())
        }
    }
}

type Writer = fn(&Path, usize) -> Result<(), Box<dyn Error>>;

fn measure(path: &Path) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let loaded = load(path, &DataSettings::default())?;
    let seconds = start.elapsed().as_secs_f64();
    let columns = 5 + usize::from(loaded.bars.volume.is_some()) + usize::from(loaded.bars.spread.is_some());
    let arrays = (loaded.bars.len() * columns * 8) as f64;
    let peak = peak_bytes().unwrap_or(f64::NAN);
    println!(
        "  loaded {} bars in {seconds:.2} s on {} threads ({:.2} s of processor time); peak {:.0} MB = {:.2} x the arrays of {:.0} MB",
        loaded.bars.len(),
        std::thread::available_parallelism()?,
        processor_seconds().unwrap_or(f64::NAN),
        peak / 1e6,
        peak / arrays,
        arrays / 1e6,
    );
    Ok(())
}

/// The largest resident size this process has had (Linux).
fn peak_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// Seconds of processor time of this process (Linux, whose clock tick is a hundredth of a second).
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let field = |n: usize| after_name.split_whitespace().nth(n)?.parse::<f64>().ok();
    Some((field(11)? + field(12)?) / 100.0)
}

/// Bar `t` of a deterministic wave: five decimals, one minute apart.
fn bar(t: usize) -> (i64, [f64; 4], f64) {
    let price = |t: usize| {
        let wave = (t as f64 * 0.001).sin() * 5_000.0 + (t as f64 * 0.37).sin() * 20.0;
        100_000 + wave as i64
    };
    let (open, close) = (price(t), price(t + 1));
    let (high, low) = (open.max(close) + (t % 7) as i64, open.min(close) - (t % 5) as i64);
    let scaled = [open, high, low, close].map(|units| units as f64 / 1e5);
    (1_000_000_000 + 60 * t as i64, scaled, (1_000 + t * 7919 % 100_000) as f64)
}

fn write_csv(path: &Path, rows: usize) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    writeln!(out, "time,open,high,low,close,volume")?;
    for t in 0..rows {
        let (seconds, [open, high, low, close], volume) = bar(t);
        let time = jiff::Timestamp::from_second(seconds)?;
        writeln!(out, "{time},{open:.5},{high:.5},{low:.5},{close:.5},{volume}")?;
    }
    out.flush()?;
    Ok(())
}

fn write_parquet(path: &Path, rows: usize) -> Result<(), Box<dyn Error>> {
    let mut writer: Option<ArrowWriter<File>> = None;
    let mut first = 0;
    while first < rows {
        let last = (first + GROUP_ROWS).min(rows);
        let bars: Vec<_> = (first..last).map(bar).collect();
        let time = TimestampNanosecondArray::from_iter_values(bars.iter().map(|b| b.0 * 1_000_000_000));
        let column = |pick: fn(&(i64, [f64; 4], f64)) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(bars.iter().map(pick)))
        };
        let batch = RecordBatch::try_from_iter([
            ("time", Arc::new(time.with_timezone("UTC")) as ArrayRef),
            ("open", column(|b| b.1[0])),
            ("high", column(|b| b.1[1])),
            ("low", column(|b| b.1[2])),
            ("close", column(|b| b.1[3])),
            ("volume", column(|b| b.2)),
        ])?;
        if writer.is_none() {
            let properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_max_row_group_row_count(Some(GROUP_ROWS))
                .build();
            writer = Some(ArrowWriter::try_new(File::create(path)?, batch.schema(), Some(properties))?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&batch)?;
        }
        first = last;
    }
    if let Some(writer) = writer {
        writer.close()?;
    }
    Ok(())
}
