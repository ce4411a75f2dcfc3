//! JSON documents that know their own checksum, kind and version.
//!
//! The first two lines of a sealed document are `{` and `"blake3": "<hex>",`; the checksum covers every byte after
//! them, so it stays one valid JSON object that any tool reads. A newer format keeps this frame, so that an older
//! build can say "newer" instead of "torn".

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CheckpointFault;

const OPENING: &str = "{\n  \"blake3\": \"";
const CLOSING: &str = "\",\n";
const HEX_DIGITS: usize = 64;

/// Kind and version every sealed document starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Value of the key `format`.
    pub(crate) name: &'static str,
    /// Newest value of the key `version` that this build reads.
    pub(crate) version: u32,
}

#[derive(Serialize)]
struct Document<'a, T> {
    format: &'static str,
    version: u32,
    foxhunt: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// The sealed text of `body`, which must serialise to a JSON object.
pub(crate) fn seal<T: Serialize>(format: Format, body: &T) -> serde_json::Result<String> {
    let document =
        Document { format: format.name, version: format.version, foxhunt: env!("CARGO_PKG_VERSION"), body };
    let json = serde_json::to_string_pretty(&document)?;
    let sealed = json.strip_prefix("{\n").unwrap_or(&json);
    let checksum = blake3::hash(sealed.as_bytes()).to_hex();
    Ok(format!("{OPENING}{checksum}{CLOSING}{sealed}"))
}

/// Reads a sealed document; `file` names it in errors.
pub(crate) fn unseal<T: DeserializeOwned>(
    format: Format,
    file: &'static str,
    text: &str,
) -> Result<T, CheckpointFault> {
    let torn = |reason: &str| CheckpointFault::Torn { reason: format!("{file}: {reason}") };
    let rest = text.strip_prefix(OPENING).ok_or_else(|| torn("it does not begin with its checksum"))?;
    let (expected, rest) =
        rest.split_at_checked(HEX_DIGITS).ok_or_else(|| torn("it ends within its checksum"))?;
    let sealed = rest.strip_prefix(CLOSING).ok_or_else(|| torn("its checksum is cut off"))?;
    let found = blake3::hash(sealed.as_bytes()).to_hex();
    if found.as_str() != expected {
        return Err(CheckpointFault::Checksum {
            file,
            expected: expected.to_owned(),
            found: found.to_string(),
        });
    }

    let mut value: serde_json::Value =
        serde_json::from_str(&format!("{{{sealed}")).map_err(|error| torn(&error.to_string()))?;
    let object = value.as_object_mut().ok_or_else(|| torn("it is no object"))?;
    let name = object.remove("format");
    if name.as_ref().and_then(|name| name.as_str()) != Some(format.name) {
        return Err(CheckpointFault::Foreign { reason: format!("{file} is not a {}", format.name) });
    }
    let version = object.remove("version").and_then(|version| version.as_u64()).unwrap_or(0);
    let version = u32::try_from(version).unwrap_or(u32::MAX);
    if version > format.version {
        return Err(CheckpointFault::Newer { found: version, supported: format.version });
    }
    object.remove("foxhunt");
    serde_json::from_value(value)
        .map_err(|error| CheckpointFault::Foreign { reason: format!("{file}: {error}") })
}

/// Reads and unseals the file at `path`.
pub(crate) fn read<T: DeserializeOwned>(
    format: Format,
    file: &'static str,
    path: &Path,
) -> Result<T, CheckpointFault> {
    match std::fs::read(path) {
        Ok(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => unseal(format, file, text),
            Err(error) => Err(CheckpointFault::Torn { reason: format!("{file}: {error}") }),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(CheckpointFault::Unfinished),
        Err(error) => Err(CheckpointFault::Unreadable { reason: format!("{file}: {error}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const FORMAT: Format = Format { name: "test", version: 3 };

    #[test]
    fn every_flipped_bit_and_every_prefix_is_refused() {
        let body = BTreeMap::from([("x", 1.5), ("y", -0.1)]);
        let text = seal(FORMAT, &body).unwrap();
        let read: BTreeMap<String, f64> = unseal(FORMAT, "f", &text).unwrap();
        assert_eq!(read["y"], -0.1);
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["blake3"].is_string());

        let attempt = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => unseal::<BTreeMap<String, f64>>(FORMAT, "f", text).is_ok(),
            Err(_) => false,
        };
        for k in 0..text.len() {
            assert!(!attempt(&text.as_bytes()[..k]), "prefix {k}");
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[k] ^= 1 << bit;
                assert!(!attempt(&bytes), "byte {k} bit {bit}");
            }
        }
    }

    #[test]
    fn newer_and_foreign_documents_are_told_apart() {
        let body = BTreeMap::from([("x", 1)]);
        let newer = seal(Format { version: 4, ..FORMAT }, &body).unwrap();
        let fault = unseal::<BTreeMap<String, i32>>(FORMAT, "f", &newer).unwrap_err();
        assert_eq!(fault, CheckpointFault::Newer { found: 4, supported: 3 });
        let foreign = seal(Format { name: "other", ..FORMAT }, &body).unwrap();
        let fault = unseal::<BTreeMap<String, i32>>(FORMAT, "f", &foreign).unwrap_err();
        assert!(matches!(fault, CheckpointFault::Foreign { .. }), "{fault}");
    }
}
