//! A look through the footer of a Parquet file before the decoder gets it.
//!
//! Why it must be looked through stands in [`super::thrift`]. What fields mean is not known here, and pages are not
//! looked at.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::format::FILE_META_DATA;
use super::thrift::Compact;

/// What ends a file, behind the four bytes of the footer's length.
const MAGIC: &[u8; 4] = b"PAR1";

/// Whether the footer is all there, its fields are of the format's types, and none is a list of booleans. What has no
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
    Ok(Compact(&footer).structure(&FILE_META_DATA).is_some())
}
