//! Databento DBN files of an OHLCV schema, versions 1 to 3.
//!
//! Prices are whole numbers of 1e-9 (case G18). The records' sizes are added up and compared with the bytes there are,
//! because the decoder takes the end of a file in the middle of a record for the end of the data (case G21).

use std::io::{Cursor, Read};
use std::path::Path;

use dbn::decode::dbn::{MetadataDecoder, RecordDecoder};
use dbn::{OhlcvMsg, Record, RecordHeader, UNDEF_PRICE, VersionUpgradePolicy};

use super::chunk::{Chunk, FileContext, RawBar};
use super::header::Layout;
use super::source::{Compression, Source};
use super::symbols::{SymbolRule, Symbols};
use super::{RawFile, Request};
use crate::bars::PRICES;
use crate::error::MarketError;

/// `DBN`, the version, and the length of what follows.
const PRELUDE: usize = 8;

/// Most metadata accepted, bytes.
const MAX_METADATA: usize = 256 << 20;

pub(super) fn read(request: &Request<'_>, mut source: Source) -> Result<RawFile, MarketError> {
    let path = request.path;
    let damage = source.damage_report(path);
    let compression = source.compression;
    let unknown = |reason: String| MarketError::UnknownFormat { path: path.into(), reason };

    let header = read_header(path, &mut *source.reader, &damage)?;
    let version = header[3];
    let metadata = MetadataDecoder::with_upgrade_policy(Cursor::new(&header), VersionUpgradePolicy::AsIs)
        .decode()
        .map_err(|e| corrupt(path, 0, format!("metadata: {e}")))?;
    match metadata.schema {
        Some(schema) if !schema.as_str().starts_with("ohlcv") => {
            return Err(unknown(format!("DBN schema {} holds no bars; ask for an ohlcv schema", schema.as_str())));
        }
        _ => {}
    }
    let symbol_map = metadata.symbol_map().map_err(|e| corrupt(path, 0, format!("symbol mappings: {e}")))?;

    let names =
        ["ts_event", "open", "high", "low", "close", "volume"].map(str::to_owned);
    let layout = Layout::resolve(path, &names)?;
    let file = FileContext { path, layout: &layout, order: request.order };

    let mut reader = Tracked { reader: source.reader, bytes: header.len() as u64, error: None };
    let mut decoder = RecordDecoder::with_version(&mut reader, version, VersionUpgradePolicy::AsIs, metadata.ts_out)
        .map_err(|e| corrupt(path, 0, e.to_string()))?;
    let mut chunk = Chunk::new(&layout, 0);
    let mut rule: Option<SymbolRule> = None;
    let mut others = Symbols::default();
    let mut other_rows = 0;
    let mut row = 0;
    let mut position = header.len() as u64;
    let ended = loop {
        let record = match decoder.decode_ref() {
            Ok(Some(record)) => record,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.to_string()),
        };
        position += record.record_size() as u64;
        row += 1;
        let Some(bar) = record.get::<OhlcvMsg>() else {
            // System, error and mapping messages come with live captures and hold no bar.
            continue;
        };
        let RecordHeader { instrument_id, ts_event, .. } = bar.hd;
        let symbol = match symbol_map.get_for_ts(ts_event, instrument_id) {
            Some(symbol) => symbol.clone(),
            None => instrument_id.to_string(),
        };
        let rule = match &rule {
            Some(rule) => rule,
            None => rule.insert(SymbolRule::new(path, request.symbol, true, Some(symbol.clone()))?),
        };
        if rule.wanted.as_deref() != Some(symbol.as_str()) {
            others.add(symbol.as_bytes());
            other_rows += 1;
            continue;
        }
        let time = i64::try_from(ts_event).map_err(|_| MarketError::BadTime {
            place: file.place(row, names[0].clone()),
            value: ts_event.to_string(),
            reason: "outside the years 1678 to 2261".into(),
        })?;
        let mut prices = [0.0; 4];
        for ((price, raw), column) in
            prices.iter_mut().zip([bar.open, bar.high, bar.low, bar.close]).zip(PRICES)
        {
            if raw == UNDEF_PRICE {
                let place = file.place(row, column.name().into());
                return Err(MarketError::MissingValue { place, value: "UNDEF_PRICE".into() });
            }
            *price = raw as f64 / 1e9;
        }
        chunk.push(&file, row, RawBar { time, prices, volume: Some(bar.volume as f64), spread: None })?;
    };
    drop(decoder);
    if let Some(error) = &reader.error {
        return Err(damage(error));
    }
    if let Err(reason) = ended {
        return Err(corrupt(path, position, reason));
    }
    if position != reader.bytes {
        let reason = format!("the last record is incomplete: {} of its bytes are there", reader.bytes - position);
        return Err(corrupt(path, position, reason));
    }
    let Some(rule) = rule else { return Err(MarketError::NoRows { path: path.into() }) };
    rule.finish(path, chunk.len(), others)?;

    let schema = metadata.schema.map_or("of several schemas", |s| s.as_str());
    let format = format!(
        "DBN version {version}, {schema}{}",
        if compression == Compression::None { String::new() } else { format!(", {}", compression.name()) }
    );
    Ok(RawFile {
        format,
        time_format: "nanoseconds since 1970".into(),
        local_times: false,
        symbol: rule.wanted,
        other_rows,
        chunk,
        layout,
    })
}

/// Everything before the first record. Read whole, so that the decoder never meets a short read in it.
fn read_header(
    path: &Path,
    reader: &mut dyn Read,
    damage: &impl Fn(&std::io::Error) -> MarketError,
) -> Result<Vec<u8>, MarketError> {
    let mut header = Vec::new();
    reader.take(PRELUDE as u64).read_to_end(&mut header).map_err(|e| damage(&e))?;
    let Some(length) = header.get(4..PRELUDE).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else {
        return Err(corrupt(path, header.len() as u64, "the file ends in its first bytes".into()));
    };
    let length = length as usize;
    if length > MAX_METADATA {
        return Err(corrupt(path, 4, format!("metadata of {length} bytes")));
    }
    reader.take(length as u64).read_to_end(&mut header).map_err(|e| damage(&e))?;
    if header.len() < PRELUDE + length {
        return Err(corrupt(path, header.len() as u64, "the file ends in its metadata".into()));
    }
    Ok(header)
}

/// Offsets are of the decompressed content.
fn corrupt(path: &Path, offset: u64, reason: String) -> MarketError {
    MarketError::Corrupt { path: path.into(), format: "DBN", offset, reason }
}

/// Counts what was read and keeps the first error: the decoder takes an early end for a proper one.
struct Tracked {
    reader: Box<dyn Read + Send>,
    bytes: u64,
    error: Option<std::io::Error>,
}

impl Read for Tracked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.reader.read(buffer) {
            Ok(read) => {
                self.bytes += read as u64;
                Ok(read)
            }
            Err(error) => {
                let told = std::io::Error::new(error.kind(), error.to_string());
                self.error.get_or_insert(error);
                Err(told)
            }
        }
    }
}
