//! Compiled code on disk, so that only the first start compiles.
//!
//! A file is named by a hash of everything that went in and carries a hash of what came out. A file that is torn,
//! foreign or unreadable counts as absent: the cache can make a start slower, never wrong.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Program;

const MAGIC: &[u8; 8] = b"FOXCUB01";

/// A folder of compiled code.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// The cache in `dir`, made when something is stored.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The user's cache: `FOXHUNT_CACHE_DIR`, else `foxhunt` in `XDG_CACHE_HOME` or `~/.cache`. `None` without a home.
    #[must_use]
    pub fn user() -> Option<Self> {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let dir = var("FOXHUNT_CACHE_DIR")
            .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("foxhunt")))
            .or_else(|| var("HOME").map(|d| d.join(".cache/foxhunt")))?;
        Some(Self { dir: dir.join("kernels") })
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn load(&self, key: &str) -> Option<Vec<u8>> {
        let file = std::fs::read(self.path(key)).ok()?;
        let (magic, rest) = file.split_at_checked(MAGIC.len())?;
        let (hash, bytes) = rest.split_at_checked(32)?;
        (magic == MAGIC && blake3::hash(bytes).as_bytes() == hash).then(|| bytes.to_vec())
    }

    /// Stores under a temporary name, then renames, so that a reader sees all or nothing. Failure is silent: the next
    /// start compiles again.
    pub(super) fn store(&self, key: &str, bytes: &[u8]) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = self.dir.join(format!("{key}.{}.{n}.tmp", std::process::id()));
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(blake3::hash(bytes).as_bytes());
        file.extend_from_slice(bytes);
        let written = std::fs::create_dir_all(&self.dir)
            .and_then(|()| std::fs::write(&temporary, file))
            .and_then(|()| std::fs::rename(&temporary, self.path(key)));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.bin"))
    }
}

/// Hash of everything the result depends on; every part is preceded by its length.
pub(super) fn key(program: &Program, options: &[String], version: (u32, u32)) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |s: &str| {
        hasher.update(&(s.len() as u64).to_le_bytes());
        hasher.update(s.as_bytes());
    };
    part(&format!("{}.{}", version.0, version.1));
    part(&program.name);
    part(&program.source);
    for (name, text) in &program.headers {
        part(name);
        part(text);
    }
    options.iter().for_each(|o| part(o));
    hasher.finalize().to_hex().to_string()
}
