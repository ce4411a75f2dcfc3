//! A look through the footer of a Parquet file before the decoder gets it.
//!
//! The decoder counts one by one through the elements of a list that it does not know, as many as the list says it has,
//! and takes none of their bytes where they are booleans: five bytes keep it busy for seconds. No field of a footer holds
//! such a list, so here there may be none but an empty one. What fields mean is not known here, and pages are not looked
//! at.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

/// What ends a file, behind the four bytes of the footer's length.
const MAGIC: &[u8; 4] = b"PAR1";
/// Values inside values; the decoder goes as deep.
const DEPTH: u32 = 64;

/// Whether the footer is a Thrift struct (compact protocol) that is all there, without lists of booleans. What has no
/// footer to look at is left to the decoder.
pub(super) fn is_bounded(mut file: &File) -> io::Result<bool> {
    let mut tail = [0; 8];
    let Ok(end) = file.seek(SeekFrom::End(-8)) else { return Ok(true) };
    file.read_exact(&mut tail)?;
    let [a, b, c, d, magic @ ..] = tail;
    let bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    if magic != *MAGIC || bytes > end {
        return Ok(true);
    }
    file.seek(SeekFrom::Start(end - bytes))?;
    let mut footer = Vec::new();
    file.take(bytes).read_to_end(&mut footer)?;
    Ok(Compact(&footer).value(STRUCT, DEPTH).is_some())
}

/// The type of a struct's value; the others stand in [`Compact::value`].
const STRUCT: u8 = 12;

/// Bytes not yet walked over. Each walk is none when they end too soon or cannot be.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn value(&mut self, kind: u8, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // A boolean of a field is its type.
            1 | 2 => Some(()),
            3 => self.skip(1),
            4..=6 => self.varint().map(drop),
            7 => self.skip(8),
            8 => self.varint().and_then(|bytes| self.skip(bytes)),
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.elements(count, &[head & 15], depth)
            }
            11 => match self.varint()? {
                0 => Some(()),
                count => {
                    let kinds = self.byte()?;
                    self.elements(count, &[kinds >> 4, kinds & 15], depth)
                }
            },
            STRUCT => loop {
                let head = self.byte()?;
                if head & 15 == 0 {
                    return Some(());
                }
                // The field's number, where it is not told by its distance from the one before.
                if head >> 4 == 0 {
                    self.varint()?;
                }
                self.value(head & 15, depth)?;
            },
            13 => self.skip(16),
            _ => None,
        }
    }

    /// `count` times a value of each of `kinds`, which all take bytes.
    fn elements(&mut self, count: u64, kinds: &[u8], depth: u32) -> Option<()> {
        if count > 0 && kinds.iter().any(|kind| matches!(kind, 1 | 2)) {
            return None;
        }
        for _ in 0..count {
            for &kind in kinds {
                self.value(kind, depth)?;
            }
        }
        Some(())
    }
}
