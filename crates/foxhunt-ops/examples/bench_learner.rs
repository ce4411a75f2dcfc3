//! Times the GPU learner: `bench_learner [--quick] [--json FILE]`. The table goes to standard output.
#![allow(clippy::print_stdout)]

use foxhunt_cuda::Device;
use foxhunt_cuda::nvrtc::Cache;
use foxhunt_ops::gpu_learner::bench::{BenchConfig, run};
use foxhunt_ops::gpu_learner::{GpuLearner, GpuLearnerConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut config = BenchConfig::default();
    if args.iter().any(|a| a == "--quick") {
        config.batches = vec![256];
        config.acting = vec![4096];
    }
    let device = Device::open(0)?;
    let stream = device.stream()?;
    println!("{:?}", device.info());
    let cache = Cache::user();
    let learner = GpuLearner::new(&stream, &GpuLearnerConfig::new(config.shape.clone()), cache.as_ref())?;
    for (kernel, resources) in learner.resources()? {
        println!("{kernel}: {resources:?}");
    }
    drop(learner);
    println!("{:<24} {:>6} {:>5} {:>9} {:>19} {:>7}", "op", "rows", "pdl", "us", "range", "TFLOP/s");
    let rows = run(&stream, &config, cache.as_ref(), &mut |r| {
        println!(
            "{:<24} {:>6} {:>5} {:>9.2} {:>9.2} {:>9.2} {:>7.1}",
            r.op, r.rows, r.programmatic, r.us, r.us_range[0], r.us_range[1], r.tflops
        );
    })?;
    if let Some(i) = args.iter().position(|a| a == "--json")
        && let Some(path) = args.get(i + 1)
    {
        std::fs::write(path, serde_json::to_string_pretty(&(device.info().name.clone(), rows))?)?;
    }
    Ok(())
}
