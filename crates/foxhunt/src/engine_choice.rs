//! Which engine runs: what the settings ask for, what this machine has.
//!
//! A choice that differs from the wish is a notice, returned as data; the trainer tells its observers.

use foxhunt_core::Settings;
use foxhunt_core::settings::Device;

use crate::MLError;
use crate::cpu_engine::CpuEngine;
use crate::engine::Engine;
use crate::trainer::Prepared;

/// An engine, and why it is not the one asked for, if so.
pub struct BuiltEngine<'a> {
    /// The engine.
    pub engine: Box<dyn Engine + 'a>,
    /// One line for the user; none when the wish was met.
    pub notice: Option<String>,
}

/// Builds the engine for the training window of `prepared`.
///
/// # Errors
/// [`MLError::DeviceUnavailable`] when `run.device` is `cuda` and it cannot be had; and what the engine itself
/// reports, such as [`MLError::HostMemory`] with the bytes that were missing.
pub fn build_engine(settings: &Settings, prepared: &Prepared) -> Result<BuiltEngine<'static>, MLError> {
    let absent = "the CUDA engine is not part of this build";
    let notice = match settings.run.device {
        Device::Cpu => None,
        Device::Auto => Some(format!("running on the CPU engine: {absent}")),
        Device::Cuda => {
            return Err(MLError::DeviceUnavailable { device: "cuda", reason: absent.to_owned() });
        }
    };
    let engine = CpuEngine::new(settings, prepared.market.clone(), prepared.split.train.clone())?;
    Ok(BuiltEngine { engine: Box::new(engine), notice })
}
