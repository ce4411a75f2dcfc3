//! GPU tests as one plain executable, so that it can be carried to a machine without a toolchain.
//!
//! `gpu [--small] [--list] [NAME PART ...]`. Without a device every test prints SKIP and the count; with
//! `FOXHUNT_REQUIRE_GPU=1` a missing device or compiler is a failure. `--small` keeps to sizes that compute-sanitizer can
//! take. `--break-device` is the child half of the fault test.
#![allow(clippy::print_stdout, clippy::unwrap_used, unsafe_code)] // Tests, which also launch kernels of their own.

mod actions;
mod bits;
mod collect;
mod compact;
mod distribution;
mod guard;
mod hot_path;
mod injection;
mod laws;
mod layer;
mod learner;
mod options;
mod oracle;
mod parity;
mod precision;
mod q_monitor;
mod rank;
mod rollout;
mod twin;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use foxhunt_cuda::nvrtc::Nvrtc;
use foxhunt_cuda::{Device, Stream};

/// What every test gets.
pub(crate) struct Gpu {
    pub(crate) device: Arc<Device>,
    pub(crate) stream: Stream,
    pub(crate) small: bool,
}

type Test = (&'static str, fn(&Gpu));

fn tests() -> Vec<Test> {
    let mut all: Vec<Test> = Vec::new();
    all.extend(layer::TESTS);
    all.extend(bits::TESTS);
    all.extend(parity::TESTS);
    all.extend(rank::TESTS);
    all.extend(laws::TESTS);
    all.extend(hot_path::TESTS);
    all.extend(actions::TESTS);
    all.extend(collect::TESTS);
    all.extend(compact::TESTS);
    all.extend(rollout::TESTS);
    all.extend(guard::TESTS);
    all.extend(q_monitor::TESTS);
    all.extend(learner::TESTS);
    all.extend(options::TESTS);
    all.extend(distribution::TESTS);
    all.extend(injection::TESTS);
    all.extend(precision::TESTS);
    all
}

fn main() {
    let mut small = false;
    let mut parts = Vec::new();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--small" => small = true,
            "--list" => {
                tests().iter().for_each(|(name, _)| println!("{name}: test"));
                return;
            }
            "--break-device" => std::process::exit(layer::break_device()),
            // Flags of the standard harness mean nothing here.
            flag if flag.starts_with("--") => {}
            part => parts.push(part.to_owned()),
        }
    }
    let chosen: Vec<Test> = tests()
        .into_iter()
        .filter(|(name, _)| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str())))
        .collect();
    let required = std::env::var("FOXHUNT_REQUIRE_GPU").is_ok_and(|v| v == "1");
    let gpu = Nvrtc::get()
        .and_then(|_| Device::open(0))
        .and_then(|device| Ok(Gpu { stream: device.stream()?, device, small }));
    let gpu = match gpu {
        Ok(gpu) => gpu,
        Err(error) => {
            for (name, _) in &chosen {
                println!("SKIP {name}");
            }
            println!("gpu tests: {} skipped, none run: {error}", chosen.len());
            std::process::exit(i32::from(required));
        }
    };
    let (major, minor) = Nvrtc::get().unwrap().version();
    println!("{:?}, NVRTC {major}.{minor}", gpu.device.info());
    let mut failed = Vec::new();
    for (name, test) in &chosen {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| test(&gpu)));
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{word:<6} {name} ({:.2} s)", start.elapsed().as_secs_f64());
        if result.is_err() {
            failed.push(*name);
        }
    }
    println!("gpu tests: {} passed, {} failed, 0 skipped", chosen.len() - failed.len(), failed.len());
    failed.iter().for_each(|name| println!("  failed: {name}"));
    std::process::exit(i32::from(!failed.is_empty()));
}
