//! Text files: header, separator and rows.
//!
//! The content streams through blocks of a few megabytes. A block is cut at line ends into pieces that are parsed in
//! parallel while the next block is read, so a file is never in memory as a whole.

mod blocks;
mod fields;
mod row;

pub(super) use row::{number_error, symbol_text, value_text};

use rayon::prelude::*;

use super::chunk::{Chunk, FileContext};
use super::header::{Layout, TimeColumns};
use super::source::{Compression, Source};
use super::symbols::{SymbolRule, Symbols};
use super::time::TimeReader;
use super::{RawFile, Request};
use crate::error::{MarketError, Place};
use blocks::{Blocks, Lines, MAX_LINE};
use fields::FieldBuffer;
use row::RowParser;

/// Bytes worth a piece of their own.
const MIN_PIECE: usize = 1 << 17;

/// Separators tried, the least ambiguous first.
const SEPARATORS: [u8; 3] = [b';', b'\t', b','];

/// Reads a text file.
pub(super) fn read(request: &Request<'_>, source: Source) -> Result<RawFile, MarketError> {
    let path = request.path;
    let (compression, file_bytes) = (source.compression, source.file_bytes);
    let mut blocks = Blocks::new(path, source);
    let Some(first) = blocks.next()? else { return Err(MarketError::NoRows { path: path.into() }) };
    let terminator = blocks.terminator();
    if first.starts_with(&[0xff, 0xfe]) || first.starts_with(&[0xfe, 0xff]) {
        let reason = "it is UTF-16 text; save it as UTF-8".into();
        return Err(MarketError::UnknownFormat { path: path.into(), reason });
    }
    // Before the header is looked for: most files with one are no text at all.
    if let Some(lines) = row::lines_to_zero(&first, terminator) {
        return Err(row::zero_byte(path, 1 + lines));
    }
    let opening = Opening::read(request, &first, terminator)?;
    let file = FileContext { path, layout: &opening.layout, order: request.order };

    // The first data row settles how times are written and which symbol is meant.
    let mut lines = Lines::new(&first[opening.data_start..], terminator, opening.first_row);
    let Some((row, line)) = lines.find(|(_, line)| !line.trim_ascii().is_empty()) else {
        return match blocks.next()? {
            None => Err(MarketError::NoRows { path: path.into() }),
            Some(_) => Err(MarketError::UnknownFormat {
                path: path.into(),
                reason: "it begins with megabytes of blank lines".into(),
            }),
        };
    };
    let mut buffer = FieldBuffer::new(opening.separator, terminator);
    let explained = |error| row::explained(error, path, row, line, terminator);
    let fields = row::split_checked(&file, &mut buffer, row, line).map_err(explained)?;
    let (time_text, time_column) = match opening.layout.time {
        TimeColumns::One(index) => (fields.get(index), index),
        TimeColumns::Pair { date, .. } => (fields.get(date), date),
    };
    let time = TimeReader::probe(time_text, request.timezone)?.map_err(|fault| {
        let name = opening.layout.names[time_column].clone();
        explained(fault.into_error(file.place(row, name), row::value_text(time_text)))
    })?;
    let first_symbol = match opening.layout.symbol.map(|index| fields.get(index)) {
        None => None,
        Some(text) => Some(row::symbol_text(&file, row, text).map_err(explained)?),
    };
    let rule = SymbolRule::new(path, request.symbol, first_symbol.is_some(), first_symbol)?;

    let parser = RowParser {
        file,
        separator: opening.separator,
        terminator,
        decimal_comma: request.decimal_comma,
        time: &time,
        wanted: rule.wanted.as_deref().map(str::as_bytes),
    };
    let mut chunk = Chunk::new(&opening.layout, 0);
    let mut others = Symbols::default();
    let mut other_rows = 0;
    let mut block = first;
    let mut start = opening.data_start;
    let mut next_row = opening.first_row;
    let mut estimated = compression != Compression::None;
    loop {
        let data = &block[start..];
        let (parsed, following) = rayon::join(|| parse_block(&parser, data, next_row), || blocks.next());
        let (pieces, lines) = parsed?;
        for piece in pieces {
            others.merge(&piece.others);
            other_rows += piece.other_rows;
            chunk.append(&file, piece.chunk)?;
        }
        if !estimated && !data.is_empty() {
            // Reserving once keeps the arrays from being copied as they grow.
            let total = chunk.len() as f64 * (file_bytes as f64 / data.len() as f64) * 1.02;
            chunk.reserve((total as usize).saturating_sub(chunk.len()));
            estimated = true;
        }
        next_row += lines;
        match following {
            Ok(Some(next)) => (block, start) = (next, 0),
            Ok(None) => break,
            Err(MarketError::LineTooLong { path, limit, .. }) => {
                return Err(MarketError::LineTooLong { path, row: next_row, limit });
            }
            Err(MarketError::StrayByte { path, what, .. }) => {
                return Err(MarketError::StrayByte { path, row: next_row, what });
            }
            Err(other) => return Err(other),
        }
    }
    rule.finish(path, chunk.len(), others)?;

    let format = format!(
        "{}, separator {}{}",
        opening.what,
        match opening.separator {
            b'\t' => "tab".to_owned(),
            other => format!("`{}`", char::from(other)),
        },
        if compression == Compression::None { String::new() } else { format!(", {}", compression.name()) },
    );
    Ok(RawFile {
        format,
        time_format: time.describe(),
        local_times: time.is_local(),
        symbol: rule.wanted,
        other_rows,
        chunk,
        layout: opening.layout,
    })
}

struct Piece {
    chunk: Chunk,
    others: Symbols,
    other_rows: u64,
}

/// Parses a block in parallel: the pieces in file order and the number of lines, or the first error in file order.
fn parse_block(
    parser: &RowParser<'_>,
    data: &[u8],
    first_row: u64,
) -> Result<(Vec<Piece>, u64), MarketError> {
    let n_pieces = (data.len() / MIN_PIECE).clamp(1, rayon::current_num_threads() * 4);
    let mut pieces = Vec::with_capacity(n_pieces);
    let mut rest = data;
    for left in (1..=n_pieces).rev() {
        let target = rest.len() / left;
        let end = rest[target..]
            .iter()
            .position(|&b| b == parser.terminator)
            .map_or(rest.len(), |offset| target + offset + 1);
        let (piece, after) = if left == 1 { (rest, &rest[rest.len()..]) } else { rest.split_at(end) };
        pieces.push(piece);
        rest = after;
    }
    // Each piece has to know its first line's number.
    let counts: Vec<u64> = pieces.par_iter().map(|piece| count_lines(piece, parser.terminator)).collect();
    let mut lines = 0;
    let numbered: Vec<(&[u8], u64)> = pieces
        .into_iter()
        .zip(counts)
        .map(|(piece, count)| {
            lines += count;
            (piece, first_row + lines - count)
        })
        .collect();
    let parsed: Vec<Result<Piece, MarketError>> = numbered
        .into_par_iter()
        .map(|(piece, row)| {
            parser.parse(piece, row).map(|(chunk, others, other_rows)| Piece { chunk, others, other_rows })
        })
        .collect();
    Ok((parsed.into_iter().collect::<Result<_, _>>()?, lines))
}

fn count_lines(data: &[u8], terminator: u8) -> u64 {
    // Sums of bytes in short runs are what the compiler turns into vector code.
    let in_run = |run: &[u8]| run.iter().fold(0_u8, |sum, &b| sum.wrapping_add(u8::from(b == terminator)));
    data.chunks(192).map(|run| u64::from(in_run(run))).sum()
}

/// What stands before the first data row.
struct Opening {
    layout: Layout,
    separator: u8,
    /// Bytes of the first block before the data.
    data_start: usize,
    /// Line number of the data's first line.
    first_row: u64,
    what: &'static str,
}

impl Opening {
    fn read(request: &Request<'_>, block: &[u8], terminator: u8) -> Result<Self, MarketError> {
        let path = request.path;
        let bom = if block.starts_with(&[0xef, 0xbb, 0xbf]) { 3 } else { 0 };
        let mut lines = Lines::new(&block[bom..], terminator, 1);
        let mut told_separator = None;
        let (row, line) = loop {
            let Some((row, line)) = lines.next() else {
                return Err(MarketError::NoRows { path: path.into() });
            };
            if line.len() > MAX_LINE {
                let error = MarketError::LineTooLong { path: path.into(), row, limit: MAX_LINE };
                return Err(row::explained(error, path, row, line, terminator));
            }
            // Spreadsheets announce the separator in a line of its own.
            match line.trim_ascii_end() {
                [b's' | b'S', b'e' | b'E', b'p' | b'P', b'=', separator] => told_separator = Some(*separator),
                blank if blank.trim_ascii().is_empty() => {}
                _ => break (row, line),
            }
        };
        // It would be part of a name, and a bar behind it lost.
        row::check_line_end(path, row, line, terminator)?;
        let after = bom + lines.consumed();

        let mut first_error = None;
        for separator in candidates(line, told_separator) {
            let mut buffer = FieldBuffer::new(separator, terminator);
            let fields =
                buffer.split(line).ok_or_else(|| MarketError::UnclosedQuote { path: path.into(), row })?;
            let mut names = Vec::with_capacity(fields.len());
            for index in 0..fields.len() {
                let Ok(name) = std::str::from_utf8(fields.get(index)) else {
                    let place = Place { file: Some(path.into()), row, column: format!("{}", index + 1) };
                    let value = row::value_text(fields.get(index));
                    return Err(MarketError::InvalidUtf8 { place, value });
                };
                names.push(name.trim().to_owned());
            }
            let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
            if let Some((layout, what)) = Layout::headerless(&borrowed) {
                let data_start = after - lines.last_len();
                return Ok(Self { layout, separator, data_start, first_row: row, what });
            }
            match Layout::resolve(path, &names) {
                Ok(layout) => {
                    let what = "text with header";
                    return Ok(Self { layout, separator, data_start: after, first_row: row + 1, what });
                }
                Err(error) => {
                    let no_header =
                        names.iter().all(|n| !n.starts_with(|c: char| c.is_alphabetic() || c == '<'));
                    let error = if no_header && matches!(error, MarketError::MissingColumns { .. }) {
                        MarketError::NoHeader { path: path.into(), line: row::value_text(line) }
                    } else {
                        error
                    };
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| MarketError::NoRows { path: path.into() }))
    }
}

/// Separators in the order to try them: the announced one, else by how often they occur.
fn candidates(line: &[u8], told: Option<u8>) -> Vec<u8> {
    if let Some(told) = told {
        return vec![told];
    }
    let count = |separator: u8| line.iter().filter(|&&b| b == separator).count();
    let mut separators = SEPARATORS;
    separators.sort_by_key(|&s| std::cmp::Reverse(count(s)));
    separators.to_vec()
}
