//! Text in blocks that end at line ends.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::row::other_line_end;
use crate::error::MarketError;
use crate::load::source::Source;

/// Bytes read at a time.
const BLOCK: usize = 8 << 20;

/// Longest line accepted, bytes. A bar has a few hundred at most.
pub(super) const MAX_LINE: usize = 1 << 20;

/// Reads a source block by block.
pub(super) struct Blocks {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    damaged: Box<dyn Fn(&std::io::Error) -> MarketError + Send>,
    carry: Vec<u8>,
    terminator: Option<u8>,
    ended: bool,
}

impl Blocks {
    pub(super) fn new(path: &Path, source: Source) -> Self {
        Self {
            path: path.into(),
            damaged: Box::new(source.damage_report(path)),
            reader: source.reader,
            carry: Vec::new(),
            terminator: None,
            ended: false,
        }
    }

    /// The byte lines end with, known after the first block: a line feed, or a carriage return where there is none.
    pub(super) fn terminator(&self) -> u8 {
        self.terminator.unwrap_or(b'\n')
    }

    /// The next block, ending behind a line end or with the file. The row of an error counts from the block's first.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, MarketError> {
        if self.ended {
            return Ok(None);
        }
        let mut block = std::mem::take(&mut self.carry);
        let wanted = BLOCK.saturating_sub(block.len());
        block
            .try_reserve_exact(wanted)
            .map_err(|_| (self.damaged)(&std::io::ErrorKind::OutOfMemory.into()))?;
        let read =
            (&mut self.reader).take(wanted as u64).read_to_end(&mut block).map_err(|e| (self.damaged)(&e))?;
        if read < wanted {
            self.ended = true;
        }
        let terminator = *self.terminator.get_or_insert_with(|| {
            if !block.contains(&b'\n') && block.contains(&b'\r') { b'\r' } else { b'\n' }
        });
        if self.ended {
            return Ok((!block.is_empty()).then_some(block));
        }
        match block.iter().rposition(|&b| b == terminator) {
            Some(last) => {
                self.carry = block.split_off(last + 1);
                Ok(Some(block))
            }
            None => {
                let path = self.path.clone();
                let (other, what) = other_line_end(terminator);
                Err(match block.contains(&other) {
                    true => MarketError::StrayByte { path, row: 1, what },
                    false => MarketError::LineTooLong { path, row: 1, limit: MAX_LINE },
                })
            }
        }
    }
}

/// Lines of a block with their numbers, without line ends.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    total: usize,
    last_len: usize,
    terminator: u8,
    row: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(data: &'a [u8], terminator: u8, first_row: u64) -> Self {
        Self { rest: data, total: data.len(), last_len: 0, terminator, row: first_row }
    }

    /// Bytes of all lines taken so far, line ends included.
    pub(super) fn consumed(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Bytes of the last line taken, line end included.
    pub(super) fn last_len(&self) -> usize {
        self.last_len
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&b| b == self.terminator);
        let (line, after) = match end {
            Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        self.last_len = self.rest.len() - after.len();
        self.rest = after;
        let row = self.row;
        self.row += 1;
        Some((row, line.strip_suffix(b"\r").unwrap_or(line)))
    }
}
