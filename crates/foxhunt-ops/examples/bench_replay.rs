//! Times the GPU replay memory: `bench_replay [--quick] [--json FILE]`. The table goes to standard output.
#![allow(clippy::print_stdout)]

use foxhunt_cuda::Device;
use foxhunt_ops::gpu_replay::bench::{BenchConfig, run};
use foxhunt_ops::gpu_replay::{GpuPrioritizedReplay, GpuReplayConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut config = BenchConfig::default();
    if args.iter().any(|a| a == "--quick") {
        config.capacities = vec![1 << 20];
        config.rank_capacities = vec![1 << 20];
    }
    let device = Device::open(0)?;
    let stream = device.stream()?;
    println!("{:?}", device.info());
    let replay = GpuPrioritizedReplay::new(&stream, GpuReplayConfig::new(1 << 20, config.state_dim), None)?;
    for (kernel, resources) in replay.resources()? {
        println!("{kernel}: {resources:?}");
    }
    drop(replay);
    println!(
        "{:<34} {:>9} {:>6} {:>5} {:>9} {:>17} {:>9}",
        "op", "capacity", "batch", "pdl", "us", "range", "GB/s"
    );
    let rows = run(&stream, &config, &mut |r| {
        println!(
            "{:<34} {:>9} {:>6} {:>5} {:>9.2} {:>8.2} {:>8.2} {:>9.0}",
            r.op, r.capacity, r.batch, r.programmatic, r.us, r.us_range[0], r.us_range[1], r.gb_per_s
        );
    })?;
    if let Some(i) = args.iter().position(|a| a == "--json")
        && let Some(path) = args.get(i + 1)
    {
        std::fs::write(path, serde_json::to_string_pretty(&(device.info().name.clone(), rows))?)?;
    }
    Ok(())
}
