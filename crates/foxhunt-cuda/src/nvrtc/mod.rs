//! Compiles CUDA source at run time and keeps the result on disk.
//!
//! A program is its text, its headers (by the names it includes them under) and its defines; nothing is read from
//! the disk but the cache. Compilation needs `libnvrtc` and no device, so CI checks every kernel for every target.

mod cache;
mod library;

#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use library::Nvrtc;

use crate::CudaError;

/// Source to compile.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// File name for messages, for example `priority_tree.cu`.
    pub name: String,
    /// The text.
    pub source: String,
    /// Headers: the name in `#include "..."` and the text.
    pub headers: Vec<(String, String)>,
    /// Defines: name and value.
    pub defines: Vec<(String, String)>,
}

impl Program {
    /// A program without headers and defines.
    #[must_use]
    pub fn new(name: &str, source: &str) -> Self {
        Self { name: name.to_owned(), source: source.to_owned(), ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, text: &str) -> Self {
        self.headers.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Adds a define.
    #[must_use]
    pub fn define(mut self, name: &str, value: impl ToString) -> Self {
        self.defines.push((name.to_owned(), value.to_string()));
        self
    }
}

/// Compiled code: a cubin, or PTX where NVRTC is older than the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    name: String,
    bytes: Vec<u8>,
}

impl Image {
    pub(crate) fn new(name: &str, bytes: Vec<u8>) -> Self {
        Self { name: name.to_owned(), bytes }
    }

    /// Name of the program it came from.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The code.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Target of the device with this compute capability: the architecture-specific one where there is one.
#[must_use]
pub fn target_of(compute_capability: (u32, u32)) -> String {
    let (major, minor) = compute_capability;
    let suffix = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{suffix}")
}

/// Whether the compiler makes code for exactly this target, as instructions of one architecture alone need.
///
/// # Errors
/// [`CudaError::NoCompiler`].
pub fn knows(target: &str) -> Result<bool, CudaError> {
    Ok(Nvrtc::get()?.usable_target(target) == target)
}

/// Compiles `program` for `target` (for example `sm_90a`), or takes it from the cache.
///
/// # Errors
/// [`CudaError::NoCompiler`], [`CudaError::Compile`] with the log, [`CudaError::Compiler`]. A cache that cannot be
/// read or written is no error.
pub fn compile(program: &Program, target: &str, cache: Option<&Cache>) -> Result<Image, CudaError> {
    let nvrtc = Nvrtc::get()?;
    let target = nvrtc.usable_target(target);
    let options = options(program, &target);
    let Some(cache) = cache else {
        return Ok(Image::new(&program.name, nvrtc.compile(program, &target, &options)?.0));
    };
    let key = cache::key(program, &options, nvrtc.version());
    if let Some(bytes) = cache.load(&key) {
        return Ok(Image::new(&program.name, bytes));
    }
    let (bytes, _) = nvrtc.compile(program, &target, &options)?;
    cache.store(&key, &bytes);
    Ok(Image::new(&program.name, bytes))
}

/// Compiles without the cache and returns the compiler's report too: registers, shared memory and spills of each kernel.
///
/// # Errors
/// As [`compile`].
pub fn compile_with_report(program: &Program, target: &str) -> Result<(Image, String), CudaError> {
    let nvrtc = Nvrtc::get()?;
    let target = nvrtc.usable_target(target);
    let mut options = options(program, &target);
    options.push("--ptxas-options=--verbose".to_owned());
    let (bytes, log) = nvrtc.compile(program, &target, &options)?;
    Ok((Image::new(&program.name, bytes), log))
}

fn options(program: &Program, target: &str) -> Vec<String> {
    let mut options = vec![
        format!("--gpu-architecture={target}"),
        "--std=c++17".to_owned(),
        "--generate-line-info".to_owned(),
        // Products and sums keep their own rounding, so that the CPU twins agree to the bit.
        "--fmad=false".to_owned(),
        "--device-int128".to_owned(),
    ];
    options.extend(program.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}")));
    options
}
