//! Loaded code and launches.
//!
//! A launch is the one unsafe step of this crate: nothing checks a kernel's signature at run time.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};

use crate::buffer::Allocation;
use crate::calls::CALLS;
use crate::nvrtc::Image;
use crate::{CudaError, Device, DeviceBuffer, MappedBuffer, Stream};

/// Code on a device; unloaded when the last kernel of it is gone.
#[derive(Debug)]
pub struct Module {
    device: Arc<Device>,
    module: sys::CUmodule,
}

// SAFETY: a module handle may be used from any thread whose context is current, which `bind` sees to.
unsafe impl Send for Module {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Module {}

impl Module {
    /// Loads compiled code.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn load(device: &Arc<Device>, image: &Image) -> Result<Arc<Self>, CudaError> {
        device.bind()?;
        // The driver reads a cubin by its own header and PTX up to a zero byte, so one is added.
        let mut bytes = image.bytes().to_vec();
        bytes.push(0);
        // SAFETY: the image outlives the call and ends in a zero byte.
        let module = unsafe { result::module::load_data(bytes.as_ptr().cast()) };
        let module = device.check(&format!("cuModuleLoadData of {}", image.name()), module)?;
        Ok(Arc::new(Self { device: Arc::clone(device), module }))
    }

    /// The kernel with this symbol.
    ///
    /// # Errors
    /// [`CudaError::Driver`] when there is none.
    pub fn kernel(self: &Arc<Self>, symbol: &'static str) -> Result<Kernel, CudaError> {
        self.device.bind()?;
        let call = format!("cuModuleGetFunction of {symbol}");
        let Ok(name) = CString::new(symbol) else {
            return Err(CudaError::Driver { call, name: "symbol with a zero byte".to_owned() });
        };
        // SAFETY: the module is loaded.
        let function =
            self.device.check(&call, unsafe { result::module::get_function(self.module, name) })?;
        Ok(Kernel { module: Arc::clone(self), function, symbol })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: loaded once, unloaded once, and no kernel of it is left.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// A kernel that can be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    module: Arc<Module>,
    function: sys::CUfunction,
    symbol: &'static str,
}

// SAFETY: as for the module it belongs to.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// What a kernel uses, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelResources {
    /// Registers a thread.
    pub registers: u32,
    /// Local memory a thread in bytes (stack and spills).
    pub local_bytes: u32,
    /// Static shared memory a block in bytes.
    pub shared_bytes: u32,
}

impl Kernel {
    /// Its symbol.
    #[must_use]
    pub fn symbol(&self) -> &'static str {
        self.symbol
    }

    /// What it uses.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn resources(&self) -> Result<KernelResources, CudaError> {
        let device = &self.module.device;
        device.bind()?;
        let get = |attribute| {
            // SAFETY: the function belongs to a loaded module.
            let value = unsafe { result::function::get_function_attribute(self.function, attribute) };
            device.check("cuFuncGetAttribute", value).map(i32::unsigned_abs)
        };
        Ok(KernelResources {
            registers: get(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        })
    }

    /// Allows up to `bytes` of dynamic shared memory a block.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)
    }

    /// Share of the L1 that becomes shared memory, in per cent. Kernels that follow one another closely should agree.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn prefer_carveout(&self, per_cent: u32) -> Result<(), CudaError> {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, per_cent)
    }

    /// Clusters of `blocks` blocks that the device can run at once, each block with `threads` threads and `shared` bytes of dynamic shared memory.
    /// For compute capability 9.0 and up.
    ///
    /// # Errors
    /// [`CudaError::Driver`].
    pub fn active_clusters(&self, blocks: u32, threads: u32, shared: u32) -> Result<u32, CudaError> {
        let device = &self.module.device;
        device.bind()?;
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue {
                clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 },
            },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            hStream: std::ptr::null_mut(),
            attrs: &mut attribute,
            numAttrs: 1,
        };
        let mut clusters = 0;
        // SAFETY: the function belongs to a loaded module; the configuration lives until the call returns.
        let done = unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, self.function, &config) };
        device.check("cuOccupancyMaxActiveClusters", done.result())?;
        Ok(clusters.unsigned_abs())
    }

    fn set(&self, attribute: Attribute, value: u32) -> Result<(), CudaError> {
        let device = &self.module.device;
        device.bind()?;
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        // SAFETY: the function belongs to a loaded module.
        let done = unsafe { result::function::set_function_attribute(self.function, attribute, value) };
        device.check("cuFuncSetAttribute", done)
    }
}

/// One launch being put together: shape, then arguments in the order of the kernel's parameters.
#[derive(Debug)]
pub struct Launch<'k> {
    kernel: &'k Kernel,
    grid: [u32; 3],
    block: u32,
    shared_bytes: u32,
    programmatic: bool,
    words: Vec<u64>,
    args: Vec<usize>,
    kept: Vec<Arc<Allocation>>,
}

impl<'k> Launch<'k> {
    /// `blocks` blocks of `threads` threads.
    #[must_use]
    pub fn new(kernel: &'k Kernel, blocks: u32, threads: u32) -> Self {
        Self {
            kernel,
            grid: [blocks, 1, 1],
            block: threads,
            shared_bytes: 0,
            programmatic: false,
            words: Vec::with_capacity(32),
            args: Vec::with_capacity(8),
            kept: Vec::new(),
        }
    }

    /// A second grid dimension.
    #[must_use]
    pub fn rows(mut self, y: u32) -> Self {
        self.grid[1] = y;
        self
    }

    /// Dynamic shared memory a block.
    #[must_use]
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Lets the kernel start before the one ahead of it is done; it must wait (`dependency_wait`) before it reads
    /// what that one writes. Ignored below compute capability 9.0, where there is nothing to wait with.
    #[must_use]
    pub fn programmatic(mut self, on: bool) -> Self {
        self.programmatic = on && self.kernel.module.device.info().compute_capability.0 >= 9;
        self
    }

    /// A buffer as pointer argument; it lives until the launch, or the graph that holds it, is done.
    #[must_use]
    pub fn buffer<T: Pod>(self, buffer: &DeviceBuffer<T>) -> Self {
        self.keep(buffer).value(buffer.ptr())
    }

    /// A plain value or a shared struct.
    #[must_use]
    pub fn value<T: Pod>(mut self, value: T) -> Self {
        self.args.push(self.words.len());
        let bytes = bytemuck::bytes_of(&value);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_ne_bytes(word));
        }
        self
    }

    /// Keeps a buffer that a struct argument points to.
    #[must_use]
    pub fn keep<T>(mut self, buffer: &DeviceBuffer<T>) -> Self {
        self.kept.push(Arc::clone(buffer.allocation()));
        self
    }

    /// Pinned memory as pointer argument; kept alive as with [`Launch::buffer`].
    #[must_use]
    pub fn mapped<T: Pod>(self, buffer: &MappedBuffer<T>) -> Self {
        self.keep_mapped(buffer).value(buffer.ptr())
    }

    /// Keeps pinned memory that a struct argument points to.
    #[must_use]
    pub fn keep_mapped<T>(mut self, buffer: &MappedBuffer<T>) -> Self {
        self.kept.push(Arc::clone(buffer.allocation()));
        self
    }

    /// Queues the launch. A grid without blocks or threads is no launch and no error.
    ///
    /// # Errors
    /// [`CudaError::MixedDevices`], [`CudaError::Driver`], [`CudaError::DeviceFault`].
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters in number, order, type and size; every address must be
    /// valid for what the kernel does with it; buffers that the kernel writes must not be used meanwhile on other
    /// streams; buffers dropped before the work is done must have been passed to `buffer` or `keep`
    /// (their release waits for the device).
    pub unsafe fn launch(mut self, stream: &Stream) -> Result<(), CudaError> {
        let device = &self.kernel.module.device;
        if self.grid.contains(&0) || self.block == 0 {
            return Ok(());
        }
        let (got, expected) = (device.info().ordinal, stream.device().info().ordinal);
        if got != expected {
            return Err(CudaError::MixedDevices { what: self.kernel.symbol, got, expected });
        }
        for allocation in &self.kept {
            let got = allocation.device.info().ordinal;
            if got != expected {
                return Err(CudaError::MixedDevices { what: "a kernel argument", got, expected });
            }
            stream.keep(allocation);
        }
        stream.ready()?;
        let words = self.words.as_mut_ptr();
        // SAFETY: every entry of `args` is an index into `words`.
        let mut pointers: Vec<*mut c_void> =
            self.args.iter().map(|&i| unsafe { words.add(i) }.cast()).collect();
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: stream.raw(),
            attrs: &mut attribute,
            numAttrs: u32::from(self.programmatic),
        };
        CALLS.launches.add();
        device.launched(self.kernel.symbol);
        // SAFETY: the caller vouches for the arguments; all pointers live until the call returns, which copies them.
        let done = unsafe {
            sys::cuLaunchKernelEx(&config, self.kernel.function, pointers.as_mut_ptr(), std::ptr::null_mut())
        };
        // The text is only needed on failure, and launches are frequent.
        if done == sys::CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        device.check(&format!("cuLaunchKernelEx of {}", self.kernel.symbol), done.result())
    }
}
