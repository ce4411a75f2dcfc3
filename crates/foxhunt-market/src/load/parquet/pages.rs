//! A look at the headers of a column's pages before the decoder gets them.
//!
//! They are structs like the footer, and looked through for the same reason ([`super::thrift`]). What the pages hold is
//! not read here.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use super::format::PAGE_HEADER;
use super::thrift::{Compact, STOP};

/// The field of a header that tells how many bytes of the file follow it.
const PAGE_BYTES: i16 = 3;
/// Bytes read for a header at first; one with statistics of long texts takes more.
const FIRST_READ: u64 = 1 << 10;
/// Bytes of the longest header.
const LONGEST: u64 = 16 << 20;

/// Where in `column`, a range of the file, the first page begins that does not stay inside it, or whose header is not
/// all there, has a field of another type than the format's, or a list of booleans.
pub(super) fn unbounded(mut file: &File, column: Range<u64>) -> io::Result<Option<u64>> {
    let mut at = column.start;
    let mut head = Vec::new();
    while at < column.end {
        let left = column.end - at;
        let mut most = FIRST_READ;
        let page = loop {
            file.seek(SeekFrom::Start(at))?;
            head.clear();
            file.take(most.min(left)).read_to_end(&mut head)?;
            match page_bytes(&head) {
                None if most < left.min(LONGEST) => most = LONGEST.min(most * 16),
                page => break page,
            }
        };
        match page {
            Some(bytes) if bytes <= left => at += bytes,
            _ => return Ok(Some(at)),
        }
    }
    Ok(None)
}

/// Bytes of the page that begins with `head`, its header among them. None where the header goes on behind or cannot be.
fn page_bytes(head: &[u8]) -> Option<u64> {
    let mut walk = Compact(head);
    let mut number = 0;
    let mut body = None;
    loop {
        let told = walk.field(&mut number)?;
        if told == STOP {
            break;
        }
        let mut value = walk;
        walk.field_value(told, PAGE_HEADER.field(number))?;
        if number == PAGE_BYTES {
            // As wide as the format has it.
            body = Some(value.integer()? as i32);
        }
    }
    let header = (head.len() - walk.0.len()) as u64;
    Some(header + u64::try_from(body?).ok()?)
}
