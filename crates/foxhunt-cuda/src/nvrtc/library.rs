//! The few NVRTC calls used here, bound at run time so that any version from 11 on serves.
//!
//! `cudarc`'s binding knows library names up to one fixed version and panics where none is found; this one looks
//! further and returns an error. It keeps nothing between compilations.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::{Library, Symbol};

use super::Program;
use crate::CudaError;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Handle,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type NumArchs = unsafe extern "C" fn(*mut c_int) -> c_int;
type Archs = unsafe extern "C" fn(*mut c_int) -> c_int;

/// The loaded compiler.
#[derive(Debug)]
pub struct Nvrtc {
    create: Create,
    compile: Compile,
    log_size: Size,
    log: Get,
    cubin_size: Size,
    cubin: Get,
    ptx_size: Size,
    ptx: Get,
    destroy: Destroy,
    version: (u32, u32),
    /// Compute capabilities it compiles for, as 10 * major + minor, rising.
    archs: Vec<u32>,
    path: String,
}

impl Nvrtc {
    /// The compiler of this process; looked for once.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`].
    pub fn get() -> Result<&'static Self, CudaError> {
        static NVRTC: OnceLock<Result<Nvrtc, CudaError>> = OnceLock::new();
        NVRTC.get_or_init(Self::find).as_ref().map_err(Clone::clone)
    }

    /// Major and minor version.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The name or path it was loaded from.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    fn find() -> Result<Self, CudaError> {
        let mut tried = Vec::new();
        for candidate in candidates() {
            tried.push(candidate.display().to_string());
            if let Some(nvrtc) = Self::open(&candidate) {
                return Ok(nvrtc);
            }
        }
        Err(CudaError::NoCompiler { tried })
    }

    fn open(path: &Path) -> Option<Self> {
        // NVRTC looks its builtins up by bare name; the loader finds them when they are already in the process.
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            for file in files_starting_with(dir, "libnvrtc-builtins.so") {
                // SAFETY: NVIDIA's library, whose initialisers have no preconditions. Leaked on purpose.
                if let Ok(builtins) = unsafe { Library::new(file) } {
                    std::mem::forget(builtins);
                }
            }
        }
        // SAFETY: as above. The library is leaked, so its functions stay valid for ever.
        let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(path) }.ok()?));
        fn symbol<T: Copy + 'static>(library: &'static Library, name: &CStr) -> Option<T> {
            // SAFETY: each caller below names the C signature of that symbol as documented by NVRTC.
            let symbol: Symbol<'static, T> = unsafe { library.get(name.to_bytes_with_nul()) }.ok()?;
            Some(*symbol)
        }
        let version: Version = symbol(library, c"nvrtcVersion")?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to live integers.
        if unsafe { version(&mut major, &mut minor) } != 0 {
            return None;
        }
        let mut archs = Vec::new();
        if let (Some(count), Some(list)) = (
            symbol::<NumArchs>(library, c"nvrtcGetNumSupportedArchs"),
            symbol::<Archs>(library, c"nvrtcGetSupportedArchs"),
        ) {
            let mut n = 0;
            // SAFETY: the first call writes one integer, the second as many as the first said.
            unsafe {
                if count(&mut n) == 0 {
                    let mut values = vec![0; usize::try_from(n).unwrap_or(0)];
                    if list(values.as_mut_ptr()) == 0 {
                        archs = values.into_iter().map(c_int::unsigned_abs).collect();
                    }
                }
            }
        }
        Some(Self {
            create: symbol(library, c"nvrtcCreateProgram")?,
            compile: symbol(library, c"nvrtcCompileProgram")?,
            log_size: symbol(library, c"nvrtcGetProgramLogSize")?,
            log: symbol(library, c"nvrtcGetProgramLog")?,
            cubin_size: symbol(library, c"nvrtcGetCUBINSize")?,
            cubin: symbol(library, c"nvrtcGetCUBIN")?,
            ptx_size: symbol(library, c"nvrtcGetPTXSize")?,
            ptx: symbol(library, c"nvrtcGetPTX")?,
            destroy: symbol(library, c"nvrtcDestroyProgram")?,
            version: (major.unsigned_abs(), minor.unsigned_abs()),
            archs,
            path: path.display().to_string(),
        })
    }

    /// `target` itself, or PTX for the newest architecture below it when this compiler does not know it.
    pub(super) fn usable_target(&self, target: &str) -> String {
        let wanted: Option<u32> =
            target.strip_prefix("sm_").and_then(|t| t.trim_end_matches(['a', 'f']).parse().ok());
        let Some(wanted) = wanted else { return target.to_owned() };
        if self.archs.is_empty() || self.archs.contains(&wanted) {
            return target.to_owned();
        }
        match self.archs.iter().rev().find(|&&arch| arch < wanted) {
            Some(arch) => format!("compute_{arch}"),
            None => target.to_owned(),
        }
    }

    /// The code and the compiler's log.
    pub(super) fn compile(
        &self,
        program: &Program,
        target: &str,
        options: &[String],
    ) -> Result<(Vec<u8>, String), CudaError> {
        let text = |s: &str| {
            CString::new(s).map_err(|_| CudaError::Compile {
                file: program.name.clone(),
                arch: target.to_owned(),
                log: "the source, a name or an option holds a zero byte".to_owned(),
            })
        };
        let source = text(&program.source)?;
        let name = text(&program.name)?;
        let mut names = Vec::new();
        let mut headers = Vec::new();
        for (header_name, header) in &program.headers {
            names.push(text(header_name)?);
            headers.push(text(header)?);
        }
        let options = options.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |v: &[CString]| v.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let (names_p, headers_p, options_p) = (pointers(&names), pointers(&headers), pointers(&options));
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: all strings end in a zero byte and live until the end of this function, after the program is gone.
        let code = unsafe {
            (self.create)(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                c_int::try_from(headers_p.len()).unwrap_or(0),
                headers_p.as_ptr(),
                names_p.as_ptr(),
            )
        };
        check("nvrtcCreateProgram", code)?;
        let result = self.run(handle, program, target, &options_p);
        // SAFETY: created above, destroyed once.
        unsafe { (self.destroy)(&mut handle) };
        result
    }

    fn run(
        &self,
        handle: Handle,
        program: &Program,
        target: &str,
        options: &[*const c_char],
    ) -> Result<(Vec<u8>, String), CudaError> {
        const INVALID_OPTION: c_int = 5;
        const COMPILATION: c_int = 6;
        // SAFETY: the program is live and the options are strings of the caller.
        let code =
            unsafe { (self.compile)(handle, c_int::try_from(options.len()).unwrap_or(0), options.as_ptr()) };
        let log = self.text(handle, "nvrtcGetProgramLog", self.log_size, self.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        if code == COMPILATION || code == INVALID_OPTION {
            return Err(CudaError::Compile { file: program.name.clone(), arch: target.to_owned(), log });
        }
        check("nvrtcCompileProgram", code)?;
        let code = if target.starts_with("compute_") {
            self.text(handle, "nvrtcGetPTX", self.ptx_size, self.ptx)?
        } else {
            self.text(handle, "nvrtcGetCUBIN", self.cubin_size, self.cubin)?
        };
        Ok((code, log))
    }

    fn text(&self, handle: Handle, call: &'static str, size: Size, get: Get) -> Result<Vec<u8>, CudaError> {
        let mut n = 0;
        // SAFETY: the program is live; the result goes to a live word.
        check(call, unsafe { size(handle, &mut n) })?;
        let mut bytes = vec![0_u8; n];
        // SAFETY: the vector has the size the library asked for.
        check(call, unsafe { get(handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Compiler { call, code }) }
}

/// Where NVRTC may be, in order: `FOXHUNT_NVRTC`, the loader's path, CUDA folders, a Python environment's wheels.
fn candidates() -> Vec<PathBuf> {
    let mut list = Vec::new();
    let in_dir = |list: &mut Vec<PathBuf>, dir: &Path| {
        let mut files = files_starting_with(dir, "libnvrtc.so");
        // The bare name first, then the newest version.
        files.sort_by_key(|f| (f.extension().is_some_and(|e| e != "so"), std::cmp::Reverse(f.clone())));
        list.extend(files);
    };
    if let Some(path) = std::env::var_os("FOXHUNT_NVRTC").map(PathBuf::from) {
        if path.is_dir() { in_dir(&mut list, &path) } else { list.push(path) }
    }
    for name in ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "libnvrtc.so.11.2"] {
        list.push(name.into());
    }
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(root) = std::env::var_os(variable).map(PathBuf::from) {
            in_dir(&mut list, &root.join("lib64"));
        }
    }
    in_dir(&mut list, Path::new("/usr/local/cuda/lib64"));
    if let Some(root) = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from) {
        for python in files_starting_with(&root.join("lib"), "python") {
            for package in files_starting_with(&python.join("site-packages/nvidia"), "cu") {
                in_dir(&mut list, &package.join("lib"));
            }
        }
    }
    list
}

fn files_starting_with(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|e| e.file_name().to_string_lossy().starts_with(prefix))
        .map(|e| e.path())
        .collect();
    files.sort();
    files
}
