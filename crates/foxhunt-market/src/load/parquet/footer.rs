//! A look through the footer of a Parquet file before the decoder gets it.
//!
//! Why it must be looked through stands in [`super::thrift`]. What fields mean is not known here, and pages are not
//! looked at.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::format::FILE_META_DATA;
use super::thrift::{Compact, STOP};

/// What ends a file, behind the four bytes of the footer's length, and one whose footer is encrypted.
const MAGIC: &[u8; 4] = b"PAR1";
const MAGIC_ENCRYPTED: &[u8; 4] = b"PARE";
/// The field of a footer that tells how columns are encrypted.
const ENCRYPTION: i16 = 8;

/// What a footer is.
pub(super) enum Footer {
    /// Nothing is wrong with it, or there is none to look at, which the decoder can tell.
    Bounded,
    /// It, or what it leads to, is encrypted.
    Encrypted,
    /// It is not all there, has a field of another type than the format's, or a list of booleans.
    Unbounded,
}

/// Looks through the footer of a file.
pub(super) fn look(mut file: &File) -> io::Result<Footer> {
    let mut tail = [0; 8];
    let Ok(end) = file.seek(SeekFrom::End(-8)) else { return Ok(Footer::Bounded) };
    file.read_exact(&mut tail)?;
    let [a, b, c, d, magic @ ..] = tail;
    let bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    if magic == *MAGIC_ENCRYPTED {
        return Ok(Footer::Encrypted);
    }
    if magic != *MAGIC || bytes > end {
        return Ok(Footer::Bounded);
    }
    file.seek(SeekFrom::Start(end - bytes))?;
    let mut footer = Vec::new();
    file.take(bytes).read_to_end(&mut footer)?;
    if Compact(&footer).structure(&FILE_META_DATA).is_none() {
        return Ok(Footer::Unbounded);
    }
    Ok(if has_field(Compact(&footer), ENCRYPTION) { Footer::Encrypted } else { Footer::Bounded })
}

/// Whether a footer that can be walked over has a field of this number.
fn has_field(mut footer: Compact<'_>, wanted: i16) -> bool {
    let mut number = 0;
    while let Some(told) = footer.field(&mut number) {
        if told == STOP || number == wanted {
            return told != STOP;
        }
        if footer.field_value(told, FILE_META_DATA.field(number)).is_none() {
            return false;
        }
    }
    false
}
