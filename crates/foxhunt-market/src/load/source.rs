//! Opening a file: what kind it is by its first bytes, and its content decompressed.
//!
//! Names and extensions are not looked at. Only regular files are opened.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::MarketError;

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// What is inside, once decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Parquet,
    Dbn,
    Text,
}

/// Longest prefix looked at, bytes.
const PREFIX: usize = 8;

/// An open file with its kind and its decompressed content from the start.
pub(super) struct Source {
    pub(super) compression: Compression,
    pub(super) content: Content,
    /// Size of the file, bytes.
    pub(super) file_bytes: u64,
    pub(super) reader: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
}

impl Source {
    /// Opens a regular file and looks at its first bytes.
    pub(super) fn open(path: &Path) -> Result<Self, MarketError> {
        let io_error = |action| move |source| MarketError::Io { action, path: path.to_path_buf(), source };
        // Looked at before opening: opening a pipe would wait for a writer.
        let metadata = std::fs::metadata(path).map_err(io_error("read"))?;
        if !metadata.is_file() {
            return Err(MarketError::NotAFile { path: path.into(), kind: kind_of(metadata.file_type()) });
        }
        if metadata.len() == 0 {
            return Err(MarketError::NoRows { path: path.into() });
        }
        let mut file = File::open(path).map_err(io_error("open"))?;
        let prefix = read_prefix(&mut file).map_err(io_error("read"))?;
        file.rewind().map_err(io_error("read"))?;

        let consumed = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, consumed: Arc::clone(&consumed) };
        let (compression, mut reader): (_, Box<dyn Read + Send>) = match prefix[..] {
            [0x1f, 0x8b, ..] => (Compression::Gzip, Box::new(flate2::read::MultiGzDecoder::new(counted))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = zstd::stream::read::Decoder::new(counted).map_err(io_error("decompress"))?;
                (Compression::Zstd, Box::new(decoder))
            }
            _ => (Compression::None, Box::new(counted)),
        };
        let mut source = Self {
            compression,
            content: content_of(&prefix),
            file_bytes: metadata.len(),
            reader: Box::new(io::empty()),
            consumed,
        };
        if compression != Compression::None {
            let inner = read_prefix(&mut reader).map_err(|e| source.damaged(path, &e))?;
            source.content = content_of(&inner);
            if inner.starts_with(&[0x1f, 0x8b]) || inner.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
                return Err(unknown(path, "it is compressed twice; decompress it once"));
            }
            if source.content == Content::Parquet {
                return Err(unknown(path, "it is a compressed Parquet file; decompress it first"));
            }
            source.reader = Box::new(io::Cursor::new(inner).chain(reader));
        } else {
            source.reader = reader;
        }
        if source.content == Content::Text
            && [&[0xff, 0xfe], &[0xfe, 0xff]].iter().any(|m| prefix.starts_with(*m))
        {
            return Err(unknown(path, "it is UTF-16 text; save it as UTF-8"));
        }
        Ok(source)
    }

    /// The error for content that stops or cannot be decoded. The offset is of the file as it is on disk.
    pub(super) fn damaged(&self, path: &Path, error: &io::Error) -> MarketError {
        read_error(path, self.compression, &self.consumed, error)
    }

    /// As [`Source::damaged`], for when the source has been taken apart.
    pub(super) fn damage_report(&self, path: &Path) -> impl Fn(&io::Error) -> MarketError + Send + 'static {
        let (path, compression, consumed) =
            (path.to_path_buf(), self.compression, Arc::clone(&self.consumed));
        move |error| read_error(&path, compression, &consumed, error)
    }
}

fn read_error(path: &Path, compression: Compression, consumed: &AtomicU64, error: &io::Error) -> MarketError {
    if compression == Compression::None {
        let source = io::Error::new(error.kind(), error.to_string());
        return MarketError::Io { action: "read", path: path.into(), source };
    }
    MarketError::Corrupt {
        path: path.into(),
        format: compression.name(),
        offset: consumed.load(Ordering::Relaxed),
        reason: error.to_string(),
    }
}

fn content_of(prefix: &[u8]) -> Content {
    // Behind the word of an encrypted file stands a length of less than 2^24; no text has its zero byte.
    let encrypted = prefix.starts_with(b"PARE") && prefix.get(7) == Some(&0);
    if prefix.starts_with(b"PAR1") || encrypted {
        Content::Parquet
    } else if prefix.starts_with(b"DBN") && prefix.get(3).is_some_and(|version| *version < b' ') {
        Content::Dbn
    } else {
        Content::Text
    }
}

fn read_prefix(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut prefix = Vec::with_capacity(PREFIX);
    reader.take(PREFIX as u64).read_to_end(&mut prefix)?;
    Ok(prefix)
}

fn unknown(path: &Path, reason: &str) -> MarketError {
    MarketError::UnknownFormat { path: path.into(), reason: reason.into() }
}

#[cfg(unix)]
fn kind_of(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        k if k.is_dir() => "a directory",
        k if k.is_fifo() => "a pipe",
        k if k.is_socket() => "a socket",
        k if k.is_char_device() || k.is_block_device() => "a device",
        _ => "something else",
    }
}

#[cfg(not(unix))]
fn kind_of(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() { "a directory" } else { "something else" }
}

/// A file that counts the bytes read from it.
struct Counted {
    file: File,
    consumed: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
