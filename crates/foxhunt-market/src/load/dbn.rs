//! Databento DBN files of an OHLCV schema, versions 1 to 3.
//!
//! Prices are whole numbers of 1e-9 (case G18). The `dbn` crate reads the metadata; the records are read here, because
//! its decoder takes the end of a file in the middle of a record for the end of the data (case G21), and asserts the
//! alignment of records whose length is damaged.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use dbn::decode::dbn::MetadataDecoder;
use dbn::{RType, UNDEF_PRICE, VersionUpgradePolicy, rtype};

use super::chunk::{Chunk, FileContext, RawBar};
use super::header::Layout;
use super::source::{Compression, Source};
use super::symbols::{SymbolRule, Symbols};
use super::{RawFile, Request};
use crate::bars::PRICES;
use crate::error::MarketError;

/// `DBN`, the version, and the length of what follows.
const PRELUDE: usize = 8;

/// Bytes of a record's header, and of the longest record: its length is a byte, in words of four.
const HEADER: usize = 16;
const MAX_RECORD: usize = 255 * 4;

/// Most metadata accepted, bytes.
const MAX_METADATA: usize = 256 << 20;

pub(super) fn read(request: &Request<'_>, mut source: Source) -> Result<RawFile, MarketError> {
    let path = request.path;
    let damage = source.damage_report(path);
    let compression = source.compression;
    let unknown = |reason: String| MarketError::UnknownFormat { path: path.into(), reason };

    let header = read_header(path, &mut *source.reader, &damage)?;
    let version = header[3];
    if !(1..=3).contains(&version) {
        return Err(unknown(format!("DBN version {version} is not read, only 1 to 3")));
    }
    let metadata = MetadataDecoder::with_upgrade_policy(Cursor::new(&header), VersionUpgradePolicy::AsIs)
        .decode()
        .map_err(|e| corrupt(path, 0, format!("metadata: {e}")))?;
    match metadata.schema {
        Some(schema) if !schema.as_str().starts_with("ohlcv") => {
            return Err(unknown(format!(
                "DBN schema {} holds no bars; ask for an ohlcv schema",
                schema.as_str()
            )));
        }
        _ => {}
    }
    let symbol_map = metadata.symbol_map().map_err(|e| corrupt(path, 0, format!("symbol mappings: {e}")))?;

    let names = ["ts_event", "open", "high", "low", "close", "volume"].map(str::to_owned);
    let layout = Layout::resolve(path, &names)?;
    let file = FileContext { path, layout: &layout, order: request.order };

    let mut reader = BufReader::with_capacity(1 << 16, source.reader);
    let mut chunk = Chunk::new(&layout, 0);
    let mut rule: Option<SymbolRule> = None;
    let mut others = Symbols::default();
    let mut other_rows = 0;
    let mut row = 0;
    let mut position = header.len() as u64;
    let mut buffer = [0_u8; MAX_RECORD];
    loop {
        if reader.fill_buf().map_err(|e| damage(&e))?.is_empty() {
            break;
        }
        let record = next_record(path, &mut reader, &mut buffer, position, &damage)?;
        position += record.len() as u64;
        row += 1;
        let Some(bar) = Ohlcv::from_record(record) else {
            // System, error and mapping messages come with live captures and hold no bar. Anything else does not
            // belong here.
            if is_message(record[1]) {
                continue;
            }
            return Err(corrupt(
                path,
                position,
                format!("record {row} is of type {:#04x}, not a bar", record[1]),
            ));
        };
        let symbol = match symbol_map.get_for_ts(bar.ts_event, bar.instrument_id) {
            Some(symbol) => symbol.clone(),
            None => bar.instrument_id.to_string(),
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
        let time = i64::try_from(bar.ts_event).map_err(|_| MarketError::BadTime {
            place: file.place(row, names[0].clone()),
            value: bar.ts_event.to_string(),
            reason: "outside the years 1678 to 2261".into(),
        })?;
        let mut prices = [0.0; 4];
        for ((price, raw), column) in prices.iter_mut().zip(bar.prices).zip(PRICES) {
            if raw == UNDEF_PRICE {
                let place = file.place(row, column.name().into());
                return Err(MarketError::MissingValue { place, value: "UNDEF_PRICE".into() });
            }
            *price = raw as f64 / 1e9;
        }
        chunk.push(&file, row, RawBar { time, prices, volume: Some(bar.volume as f64), spread: None })?;
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

/// Reads one whole record: its first byte is its length in words of four bytes.
fn next_record<'a>(
    path: &Path,
    reader: &mut impl Read,
    buffer: &'a mut [u8; MAX_RECORD],
    position: u64,
    damage: &impl Fn(&std::io::Error) -> MarketError,
) -> Result<&'a [u8], MarketError> {
    let mut filled = 0;
    let mut wanted = 1;
    while filled < wanted {
        match reader.read(&mut buffer[filled..wanted]) {
            Ok(0) => {
                let reason = format!("the last record is incomplete: {filled} of {wanted} bytes");
                return Err(corrupt(path, position, reason));
            }
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damage(&error)),
        }
        wanted = usize::from(buffer[0]) * 4;
        if wanted < HEADER {
            return Err(corrupt(path, position, format!("a record of {wanted} bytes")));
        }
    }
    Ok(&buffer[..wanted])
}

/// The fields of an OHLCV record that are used.
struct Ohlcv {
    instrument_id: u32,
    ts_event: u64,
    prices: [i64; 4],
    volume: u64,
}

impl Ohlcv {
    /// Header: length u8, type u8, publisher u16, instrument u32, time u64; then open, high, low, close i64, volume
    /// u64; all little-endian. A send time may follow.
    fn from_record(record: &[u8]) -> Option<Self> {
        const TYPES: [u8; 6] = [
            rtype::OHLCV_DEPRECATED,
            rtype::OHLCV_1S,
            rtype::OHLCV_1M,
            rtype::OHLCV_1H,
            rtype::OHLCV_1D,
            rtype::OHLCV_EOD,
        ];
        if !TYPES.contains(record.get(1)?) {
            return None;
        }
        let word = |at: usize| record.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let price = |at: usize| word(at).map(u64::cast_signed);
        Some(Self {
            instrument_id: u32::from_le_bytes(record.get(4..8)?.try_into().ok()?),
            ts_event: word(8)?,
            prices: [price(16)?, price(24)?, price(32)?, price(40)?],
            volume: word(48)?,
        })
    }
}

fn is_message(kind: u8) -> bool {
    matches!(RType::try_from(kind), Ok(RType::System | RType::Error | RType::SymbolMapping))
}
