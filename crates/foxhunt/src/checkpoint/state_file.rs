//! One [`Snapshot`] as one safetensors file, streamed in both directions with its checksum.
//!
//! Writing borrows the arrays and reading fills them in place, so neither direction holds a second copy of a large
//! replay memory. Arrays are laid out by falling element size, then by name, which keeps every offset aligned and
//! makes equal snapshots equal files, byte for byte. Renaming and finding files is the business of the store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde::Serialize;

use super::CheckpointFault;
use crate::MLError;
use crate::engine::{Array, ArrayData, Snapshot};

// Arrays are copied as they lie in memory; the format is little-endian.
const _: () = assert!(cfg!(target_endian = "little"));

/// The format's own limit on its header, 100 MB.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Reads and writes go through buffers of this size.
const CHUNK_BYTES: usize = 1 << 20;

/// Size and checksum of a written or read file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Bytes of the whole file.
    pub(crate) bytes: u64,
    /// BLAKE3 of the whole file, in hex.
    pub(crate) blake3: String,
}

/// What a key of the header stands for.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Array { dtype: &'static str, shape: &'a [usize], data_offsets: (usize, usize) },
    Metadata(&'a BTreeMap<String, String>),
}

impl ArrayData {
    fn dtype(&self) -> (&'static str, usize) {
        match self {
            Self::F32(_) => ("F32", 4),
            Self::F64(_) => ("F64", 8),
            Self::U32(_) => ("U32", 4),
            Self::U64(_) => ("U64", 8),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::F32(values) => bytemuck::cast_slice(values),
            Self::F64(values) => bytemuck::cast_slice(values),
            Self::U32(values) => bytemuck::cast_slice(values),
            Self::U64(values) => bytemuck::cast_slice(values),
        }
    }
}

/// Bytes that [`write`] would put on disk, without the header.
pub(crate) fn payload_bytes(snapshot: &Snapshot) -> u64 {
    snapshot.arrays.values().map(|array| array.data.bytes().len() as u64).sum()
}

/// Writes `snapshot` to `path` and flushes it to the disk.
pub(crate) fn write(path: &Path, snapshot: &Snapshot) -> Result<Fingerprint, MLError> {
    write_with(path, snapshot, &BTreeMap::new())
}

/// As [`write`], with the format's own metadata, which [`read`] passes over.
pub(crate) fn write_with(
    path: &Path,
    snapshot: &Snapshot,
    metadata: &BTreeMap<String, String>,
) -> Result<Fingerprint, MLError> {
    let failed =
        |source| MLError::WriteFailed { path: path.to_path_buf(), bytes: payload_bytes(snapshot), source };
    let file = File::create(path).map_err(failed)?;
    let mut writer = BufWriter::with_capacity(CHUNK_BYTES, file);
    let fingerprint = stream(&mut writer, snapshot, metadata).map_err(failed)?;
    let file = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok(fingerprint)
}

fn stream(
    writer: &mut impl Write,
    snapshot: &Snapshot,
    metadata: &BTreeMap<String, String>,
) -> std::io::Result<Fingerprint> {
    let mut order: Vec<(&String, &Array)> = snapshot.arrays.iter().collect();
    // The sort is stable, so names stay in order within one element size.
    order.sort_by_key(|(_, array)| std::cmp::Reverse(array.data.dtype().1));

    let mut header = BTreeMap::new();
    if !metadata.is_empty() {
        header.insert("__metadata__", Entry::Metadata(metadata));
    }
    let mut offset = 0;
    for (name, array) in &order {
        let end = offset + array.data.bytes().len();
        let (dtype, _) = array.data.dtype();
        let entry = Entry::Array { dtype, shape: &array.shape, data_offsets: (offset, end) };
        header.insert(name.as_str(), entry);
        offset = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');

    let mut hasher = blake3::Hasher::new();
    let mut bytes = 0;
    let mut put = |part: &[u8]| {
        bytes += part.len() as u64;
        hasher.update(part);
        writer.write_all(part)
    };
    put(&(header.len() as u64).to_le_bytes())?;
    put(&header)?;
    for (_, array) in order {
        // In chunks, so that hashing and writing share the cache.
        for chunk in array.data.bytes().chunks(CHUNK_BYTES) {
            put(chunk)?;
        }
    }
    writer.flush()?;
    Ok(Fingerprint { bytes, blake3: hasher.finalize().to_hex().to_string() })
}

/// Reads a file that [`write`] made, and says what it really holds.
pub(crate) fn read(path: &Path) -> Result<(Snapshot, Fingerprint), CheckpointFault> {
    let torn = |error: std::io::Error| CheckpointFault::Torn { reason: error.to_string() };
    let name = path.file_name().unwrap_or(path.as_os_str()).display();
    let file = File::open(path)
        .map_err(|error| CheckpointFault::Unreadable { reason: format!("{name}: {error}") })?;
    let file_bytes = file.metadata().map_err(torn)?.len();
    let mut reader = HashingReader {
        inner: BufReader::with_capacity(CHUNK_BYTES, file),
        hasher: blake3::Hasher::new(),
        bytes: 0,
    };

    let mut length = [0; 8];
    reader.read_exact(&mut length).map_err(torn)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES || length > file_bytes {
        return Err(CheckpointFault::Torn { reason: format!("the header claims {length} bytes") });
    }
    // At most MAX_HEADER_BYTES, which fits every usize this runs on.
    let mut header = vec![0; length as usize];
    reader.read_exact(&mut header).map_err(torn)?;
    let metadata: Metadata = serde_json::from_slice(&header)
        .map_err(|error| CheckpointFault::Torn { reason: format!("bad header: {error}") })?;
    let expected = 8 + length + metadata.data_len() as u64;
    if expected != file_bytes {
        let reason = format!("{file_bytes} bytes where the header asks for {expected}");
        return Err(CheckpointFault::Torn { reason });
    }

    let mut arrays = BTreeMap::new();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let len: usize = info.shape.iter().product();
        let data = match info.dtype {
            Dtype::F32 => ArrayData::F32(fill(&mut reader, len).map_err(torn)?),
            Dtype::F64 => ArrayData::F64(fill(&mut reader, len).map_err(torn)?),
            Dtype::U32 => ArrayData::U32(fill(&mut reader, len).map_err(torn)?),
            Dtype::U64 => ArrayData::U64(fill(&mut reader, len).map_err(torn)?),
            other => {
                return Err(CheckpointFault::Foreign { reason: format!("{name} has dtype {other:?}") });
            }
        };
        arrays.insert(name, Array { shape: info.shape.clone(), data });
    }
    let fingerprint =
        Fingerprint { bytes: reader.bytes, blake3: reader.hasher.finalize().to_hex().to_string() };
    Ok((Snapshot { arrays }, fingerprint))
}

fn fill<T: bytemuck::Pod>(reader: &mut impl Read, len: usize) -> std::io::Result<Vec<T>> {
    let mut values = vec![T::zeroed(); len];
    for chunk in bytemuck::cast_slice_mut::<T, u8>(&mut values).chunks_mut(CHUNK_BYTES) {
        reader.read_exact(chunk)?;
    }
    Ok(values)
}

struct HashingReader<R> {
    inner: R,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    fn sample() -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut put = |name: &str, shape: &[usize], data| {
            snapshot.arrays.insert(name.into(), Array { shape: shape.to_vec(), data });
        };
        put("a", &[3], ArrayData::F32(vec![1.5, f32::from_bits(0x7fc0_1234), -0.0]));
        put("b", &[2, 1], ArrayData::U64(vec![u64::MAX, 7]));
        put("c", &[1], ArrayData::U32(vec![u32::MAX]));
        put("d", &[2], ArrayData::F64(vec![f64::MIN_POSITIVE / 2.0, f64::NEG_INFINITY]));
        put("empty", &[0, 4], ArrayData::F32(vec![]));
        snapshot
    }

    /// Every bit comes back, NaN payloads included, and the crate of the format reads the same file.
    #[test]
    fn round_trip_is_bit_exact_and_readable_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.safetensors");
        let written = write(&path, &sample()).unwrap();
        let (back, read) = read(&path).unwrap();
        assert_eq!(written, read);
        assert_eq!(back.arrays.len(), 5);
        for (name, array) in &sample().arrays {
            assert_eq!(back.arrays[name].shape, array.shape);
            assert_eq!(back.arrays[name].data.bytes(), array.data.bytes(), "{name}");
        }

        let raw = std::fs::read(&path).unwrap();
        assert_eq!(raw.len() as u64, written.bytes);
        let other = SafeTensors::deserialize(&raw).unwrap();
        assert_eq!(other.tensor("b").unwrap().shape(), [2, 1]);
        assert_eq!(other.tensor("a").unwrap().data(), sample().arrays["a"].data.bytes());

        let again = write(&folder.path().join("again"), &sample()).unwrap();
        assert_eq!(again, written, "equal snapshots are equal files");
    }

    /// Case E03 for the state file alone: no prefix of it reads, and none panics.
    #[test]
    fn every_prefix_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.safetensors");
        write(&path, &sample()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for k in 0..whole.len() {
            std::fs::write(&path, &whole[..k]).unwrap();
            let fault = read(&path).unwrap_err();
            assert!(matches!(fault, CheckpointFault::Torn { .. }), "{k}: {fault}");
        }
    }

    /// Case E08: a full disk is an error that names path and bytes.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named() {
        let error = write(Path::new("/dev/full"), &sample()).unwrap_err();
        let MLError::WriteFailed { path, bytes, source } = &error else { panic!("{error}") };
        assert_eq!(path, Path::new("/dev/full"));
        assert_eq!(*bytes, payload_bytes(&sample()));
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("/dev/full"), "{error}");
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
    }
}
