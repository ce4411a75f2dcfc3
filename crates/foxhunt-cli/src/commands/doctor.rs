//! `foxhunt doctor`: what this machine can run.

use foxhunt::engine_choice::open_device;
use foxhunt_cuda::nvrtc::Nvrtc;

use crate::{console, exit};

pub(crate) fn run() -> anyhow::Result<u8> {
    let cores =
        std::thread::available_parallelism().map_or_else(|e| format!("unknown ({e})"), |n| n.to_string());
    row("foxhunt", env!("CARGO_PKG_VERSION"));
    row("platform", &format!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    row("cpu engine", &format!("ready, {cores} cores"));
    match foxhunt_cuda::probe(0) {
        Ok(info) => {
            let (major, minor) = info.compute_capability;
            let (gib, driver) = (info.total_bytes >> 30, info.driver_version);
            row(
                "cuda device",
                &format!(
                    "{}, compute capability {major}.{minor}, {gib} GiB, driver speaks CUDA {}.{}",
                    info.name,
                    driver / 1000,
                    driver % 1000 / 10
                ),
            );
        }
        Err(error) => row("cuda device", &format!("none: {error}")),
    }
    match Nvrtc::get() {
        Ok(nvrtc) => {
            let (major, minor) = nvrtc.version();
            row("nvrtc", &format!("{major}.{minor} at {}", nvrtc.path()));
        }
        Err(error) => row("nvrtc", &format!("none: {error}")),
    }
    match open_device() {
        Ok(_) => row("cuda engine", "ready; training runs here unless --device cpu"),
        Err(error) => row("cuda engine", &format!("not here ({error}); training runs on the CPU engine")),
    }
    Ok(exit::OK)
}

fn row(what: &str, value: &str) {
    console::line(&format!("{what:<12} {value}"));
}
