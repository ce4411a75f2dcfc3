//! `foxhunt doctor`: what this machine can run.

use std::time::Instant;

use foxhunt::engine_choice::open_device;
use foxhunt_cuda::CudaError;
use foxhunt_cuda::nvrtc::{self, Cache, Nvrtc};
use foxhunt_ops::select_actions;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::{console, exit};

/// One finding.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    ready: bool,
    detail: String,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    let findings = findings();
    if args.json {
        console::line(&serde_json::to_string(&findings)?);
    } else {
        for Finding { what, ready, detail } in &findings {
            let none = if *ready { "" } else { "none: " };
            console::line(&format!("{what:<12} {none}{detail}"));
        }
    }
    Ok(exit::OK)
}

fn findings() -> Vec<Finding> {
    let cores =
        std::thread::available_parallelism().map_or_else(|e| format!("unknown ({e})"), |n| n.to_string());
    let here = |what, detail: String| Finding { what, ready: true, detail };
    let tried = |what, found: Result<String, CudaError>| match found {
        Ok(detail) => here(what, detail),
        Err(error) => Finding { what, ready: false, detail: error.to_string() },
    };
    let engine = match open_device() {
        Ok(_) => here("cuda engine", "ready; training runs here unless --device cpu".to_owned()),
        Err(error) => {
            let detail = format!("{error}; training runs on the CPU engine");
            Finding { what: "cuda engine", ready: false, detail }
        }
    };
    vec![
        here("foxhunt", env!("CARGO_PKG_VERSION").to_owned()),
        here("platform", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
        here("cpu engine", format!("ready, {cores} cores")),
        tried("cuda device", device()),
        tried("nvrtc", Nvrtc::get().map(|n| format!("{}.{} at {}", n.version().0, n.version().1, n.path()))),
        tried("kernels", kernel()),
        cache(),
        engine,
    ]
}

fn device() -> Result<String, CudaError> {
    let info = foxhunt_cuda::probe(0)?;
    let (major, minor) = info.compute_capability;
    let (gib, driver) = (info.total_bytes >> 30, info.driver_version);
    Ok(format!(
        "{}, compute capability {major}.{minor}, {gib} GiB, driver speaks CUDA {}.{}",
        info.name,
        driver / 1000,
        driver % 1000 / 10
    ))
}

/// Compiles one kernel anew, for the device if there is one: that NVRTC is found does not say that it works.
fn kernel() -> Result<String, CudaError> {
    let target = foxhunt_cuda::probe(0)
        .map_or_else(|_| "sm_80".to_owned(), |info| nvrtc::target_of(info.compute_capability));
    let start = Instant::now();
    nvrtc::compile(&select_actions::cuda::program(), &target, None)?;
    Ok(format!("one compiled for {target} in {} ms", start.elapsed().as_millis()))
}

fn cache() -> Finding {
    let dir = Cache::user().map(|cache| cache.dir().display().to_string());
    Finding {
        what: "kernel cache",
        ready: dir.is_some(),
        detail: dir.unwrap_or_else(|| "no home folder; kernels are compiled at every start".to_owned()),
    }
}
