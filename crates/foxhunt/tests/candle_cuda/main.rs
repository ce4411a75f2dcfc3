//! The tensor faces on candle's CUDA device against the same calls on `Device::Cpu`, bit by bit.
//!
//! One thread (`--test-threads 1`): calls to the driver are counted for the whole process. Without a device every test prints
//! SKIP; with `FOXHUNT_REQUIRE_GPU=1` that is a failure. `FOXHUNT_SMALL=1` keeps to sizes that compute-sanitizer can take.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod actions;
mod guard;
mod monitor;
mod replay;

use candle_core::{Device, Tensor};
use foxhunt_cuda::{DriverCalls, driver_calls};

/// The device, or `None` where there is none to test on.
fn cuda() -> Option<Device> {
    match Device::new_cuda(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var("FOXHUNT_REQUIRE_GPU").is_ok_and(|v| v == "1") => panic!("{error}"),
        Err(error) => {
            println!("SKIP: {error}");
            None
        }
    }
}

fn small() -> bool {
    std::env::var("FOXHUNT_SMALL").is_ok_and(|v| v == "1")
}

/// The driver calls of `work` beside launches and fills: none wait, copy or allocate.
fn only_launches(what: &str, launches: u64, work: impl FnOnce()) {
    let before = driver_calls();
    work();
    let made = driver_calls() - before;
    assert_eq!(made, DriverCalls { launches, ..DriverCalls::default() }, "{what}");
}

fn hash(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

fn integers(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec1().unwrap()
}
