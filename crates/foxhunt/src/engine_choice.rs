//! Which engine runs: what the settings ask for, what this machine has.
//!
//! A choice that differs from the wish is a notice, returned as data; the trainer tells its observers.

use std::sync::{Arc, OnceLock};

use foxhunt_core::Settings;
use foxhunt_core::settings::{Device as DeviceSetting, MemoryFallback};
use foxhunt_cuda::nvrtc::{Cache, Nvrtc};
use foxhunt_cuda::{CudaError, Device};

use crate::MLError;
use crate::cpu_engine::CpuEngine;
use crate::cuda_engine::{CudaEngine, CudaOptions};
use crate::engine::Engine;
use crate::memory_plan::{MemoryPlan, plan};
use crate::trainer::Prepared;

/// An engine, and why it is not the one asked for, if so.
pub struct BuiltEngine<'a> {
    /// The engine.
    pub engine: Box<dyn Engine + 'a>,
    /// One line for the user; none when the wish was met.
    pub notice: Option<String>,
}

/// The first device, with the compiler that its kernels need. It stays open for the life of the process.
///
/// # Errors
/// [`CudaError::NoDriver`], [`CudaError::NoDevice`], [`CudaError::NoCompiler`], [`CudaError::Driver`].
pub fn open_device() -> Result<Arc<Device>, CudaError> {
    static DEVICE: OnceLock<Arc<Device>> = OnceLock::new();
    if let Some(device) = DEVICE.get() {
        return Ok(Arc::clone(device));
    }
    let device = Device::open(0)?;
    Nvrtc::get()?;
    Ok(Arc::clone(DEVICE.get_or_init(|| device)))
}

/// The memory that a run over `n_bars` bars will take on the engine that would run it here.
#[must_use]
pub fn memory_plan(settings: &Settings, n_bars: usize) -> MemoryPlan {
    let host = plan(settings, n_bars);
    if settings.run.device == DeviceSetting::Cpu {
        return host;
    }
    let on_device = open_device()
        .and_then(|device| device.memory())
        .ok()
        .and_then(|(free, _)| CudaEngine::memory(settings, n_bars, free).ok());
    match on_device {
        Some((parts, _)) => host.moved_to_device(parts),
        None => host,
    }
}

/// Builds the engine for the training window of `prepared`. With `run.device = "auto"` a machine without a usable
/// device gets the CPU engine and a notice that says why.
///
/// # Errors
/// [`MLError::DeviceUnavailable`] when `run.device` is `cuda` and it cannot be had; and what the engine itself
/// reports, such as [`MLError::HostMemory`] and [`MLError::GpuMemoryError`] with the bytes that were missing.
pub fn build_engine(settings: &Settings, prepared: &Prepared) -> Result<BuiltEngine<'static>, MLError> {
    if settings.run.device == DeviceSetting::Cpu {
        return cpu(settings, prepared, None);
    }
    let reason = match cuda(settings, prepared) {
        Ok(built) => return Ok(built),
        Err(error) if settings.run.device == DeviceSetting::Cuda => return Err(error),
        Err(MLError::DeviceUnavailable { reason, .. }) => reason,
        Err(error @ MLError::GpuMemoryError { .. })
            if settings.replay.memory_fallback != MemoryFallback::Error =>
        {
            error.to_string()
        }
        Err(error) => return Err(error),
    };
    cpu(settings, prepared, Some(ended_on_cpu(settings, &reason)))
}

/// What a user is told whose run ends on the CPU engine, and why it does.
fn ended_on_cpu(settings: &Settings, reason: &str) -> String {
    let mut notice = format!("running on the CPU engine: {reason}");
    let fallback = settings.replay.memory_fallback;
    if fallback != MemoryFallback::Cpu {
        let name = format!("{fallback:?}").to_lowercase();
        notice.push_str(&format!(
            "; replay.memory_fallback = {name} does nothing there, the replay memory is host memory"
        ));
    }
    notice
}

fn cpu(
    settings: &Settings,
    prepared: &Prepared,
    notice: Option<String>,
) -> Result<BuiltEngine<'static>, MLError> {
    let engine = CpuEngine::new(settings, prepared.market.clone(), prepared.split.train.clone())?;
    Ok(BuiltEngine { engine: Box::new(engine), notice })
}

fn cuda(settings: &Settings, prepared: &Prepared) -> Result<BuiltEngine<'static>, MLError> {
    let device = open_device()?;
    let options = CudaOptions { cache: Cache::user(), ..CudaOptions::default() };
    let (market, train) = (prepared.market.clone(), prepared.split.train.clone());
    let built = CudaEngine::build(settings, market, train, &device, &options)?;
    Ok(BuiltEngine { engine: Box::new(built.engine), notice: built.notice })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting that has no effect on the engine a run ends on is named.
    #[test]
    fn a_fallback_that_does_nothing_is_told() {
        let mut settings = Settings::default();
        assert_eq!(ended_on_cpu(&settings, "no device"), "running on the CPU engine: no device");
        settings.replay.memory_fallback = MemoryFallback::Shrink;
        let told = ended_on_cpu(&settings, "no device");
        assert!(told.contains("no device; replay.memory_fallback = shrink does nothing"), "{told}");
    }
}
