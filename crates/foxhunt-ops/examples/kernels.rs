//! Compiles every kernel for every supported target and prints what each one uses; fails where tensor-core products would wait for one another. Needs NVRTC, no device. Words on the
//! command line leave out programs whose names hold none of them, and targets not named.
#![allow(clippy::print_stdout)]

use foxhunt_core::settings::{Precision, ReplayStorage};
use foxhunt_core::{Head, ReturnModel};
use foxhunt_cuda::nvrtc::{Nvrtc, compile_with_report};
use foxhunt_ops::mlp::{MlpLayout, MlpShape};
use foxhunt_ops::priority_tree::cuda::programs;
use foxhunt_ops::{
    acting_pass, adam, cluster_pass, gpu_collect, gpu_learner, network_pass, rollout, select_actions,
};
use rayon::prelude::*;

/// Turing, Ampere, Hopper with its own instructions, Blackwell.
const TARGETS: [&str; 4] = ["sm_75", "sm_80", "sm_90a", "sm_100"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nvrtc = Nvrtc::get()?;
    let (major, minor) = nvrtc.version();
    println!("NVRTC {major}.{minor} from {}", nvrtc.path());
    println!(
        "{:<40} {:<6}  {:<26} {:>9} {:>6} {:>7}",
        "program", "target", "kernel", "registers", "stack", "spilled"
    );
    let mut named = Vec::new();
    let whole = [(51, 1 << 20), (51, 1 << 24), (51, 10_000), (1, 1), (130, 1 << 17)];
    let compact = [(51, 1 << 20), (51, 1 << 31)];
    let whole = whole.map(|(dim, capacity)| (dim, capacity, ReplayStorage::Rows));
    let compact = compact.map(|(dim, capacity)| (dim, capacity, ReplayStorage::Compact));
    for (state_dim, capacity, storage) in whole.into_iter().chain(compact) {
        for program in programs(state_dim, capacity, storage) {
            let form = if storage == ReplayStorage::Compact { " compact" } else { "" };
            named.push((format!("{} {state_dim} of {capacity}{form}", program.name), program, 0..4));
        }
    }
    for precision in Precision::ALL {
        for program in gpu_learner::programs(precision) {
            // The rest is the same in every mode.
            if precision != Precision::F32 && program.name != "mlp.cu" {
                continue;
            }
            let tile = program.defines.iter().take(2).map(|(_, size)| size.as_str()).collect::<Vec<_>>();
            let name = format!("{} {} {}", program.name, precision.name(), tile.join("x"));
            // Turing has no tensor cores for these.
            named.push((name, program, usize::from(precision != Precision::F32)..4));
        }
    }
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for storage in [ReplayStorage::Rows, ReplayStorage::Compact] {
            let name = format!("collect {head:?} {storage:?}");
            named.push((name, gpu_collect::cuda::program(head, storage), 0..4));
        }
        named.push((format!("account {head:?}"), rollout::cuda::account_program(head), 0..4));
    }
    for precision in [Precision::Tf32x3, Precision::Tf32, Precision::Bf16] {
        let layout_of = |head: Head, state_dim, hidden: &[usize]| {
            let (head, hidden) = (head.into(), hidden.to_vec());
            MlpLayout::new(MlpShape { state_dim, hidden, head, dueling: true, returns: ReturnModel::Mean })
        };
        let layout = |state_dim, hidden: &[usize]| layout_of(Head::Factored, state_dim, hidden);
        for of in [layout(51, &[256, 256]), layout(130, &[72, 200, 96]), layout(3, &[1])] {
            let sizes = format!("{}->{:?}", of.shape().state_dim, of.shape().hidden);
            for program in network_pass::cuda::programs(precision, &of) {
                let name = format!("{} {} {sizes}", program.name, precision.name());
                // Instructions of one architecture alone.
                named.push((name, program, 2..3));
            }
        }
        // As few and as many rows as a cluster has, and last chunks of states of several lengths.
        for (state_dim, hidden, rows) in [
            (51, vec![256, 256], 1024),
            (51, vec![256, 256], 8),
            (51, vec![256, 256], 2800),
            (51, vec![256, 256], 4080),
            (51, vec![256, 256], 4320),
            (20, vec![64], 16_000),
            (33, vec![128; 3], 1900),
            (48, vec![64], 11_000),
            (112, vec![64], 4000),
        ] {
            let of = layout(state_dim, &hidden);
            let name = format!("acting_pass.cu {} {state_dim}->{hidden:?} {rows}", precision.name());
            match acting_pass::cuda::program(precision, &of, rows, 132) {
                Some(program) => named.push((name, program, 2..3)),
                // Shared memory has room for less with tf32x3.
                None if precision == Precision::Tf32x3 && rows >= 2800 => {}
                None => return Err("a shape that is not served".into()),
            }
        }
        for (head, hidden, n_envs) in [
            (Head::Exposure, vec![256, 256], 64),
            (Head::Factored, vec![256, 256], 1024),
            (Head::Branching, vec![256, 256], 2800),
            (Head::Factored, vec![128; 3], 4000),
            (Head::Factored, vec![256, 256], 4096),
            (Head::Branching, vec![64], 8),
        ] {
            let of = layout_of(head, 51, &hidden);
            // Some are more environments than shared memory or registers have room for with tf32x3.
            if let Some(program) = rollout::cuda::program(precision, &of, head, n_envs, 132) {
                let name = format!("rollout.cu {} {head:?} {hidden:?} {n_envs}", precision.name());
                named.push((name, program, 2..3));
            } else if precision != Precision::Tf32x3 {
                return Err("a shape that is not served".into());
            }
        }
        let end = adam::cuda::with_images(adam::cuda::program(), precision);
        named.push((format!("{} {} with images", end.name, precision.name()), end, 2..3));
    }
    for program in cluster_pass::cuda::programs() {
        let sizes = program.defines.iter().take(5).map(|(_, size)| size.as_str()).collect::<Vec<_>>();
        // Clusters are from compute capability 9.0 on.
        named.push((format!("{} {}", program.name, sizes.join("x")), program, 2..4));
    }
    named.push(("select_actions".to_owned(), select_actions::cuda::program(), 0..4));
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (targets, names): (Vec<_>, Vec<_>) = words.iter().partition(|w| TARGETS.contains(&w.as_str()));
    named.retain(|(name, ..)| names.is_empty() || names.iter().any(|word| name.contains(word.as_str())));
    let (mut spills, mut serialised) = (0, 0);
    let all: Vec<_> = named
        .iter()
        .flat_map(|named| TARGETS[named.2.clone()].iter().map(move |target| (named, *target)))
        .filter(|(_, target)| targets.is_empty() || targets.iter().any(|t| t == target))
        .collect();
    let reports: Vec<_> =
        all.par_iter().map(|((_, program, _), target)| compile_with_report(program, target)).collect();
    for (((name, ..), target), report) in all.iter().zip(reports) {
        let report = report?.1;
        for line in report.lines().filter(|line| line.contains("serialized")) {
            println!("{name} {target}: {}", line.trim());
            serialised += 1;
        }
        for kernel in kernels(&report) {
            println!(
                "{:<40} {:<6}  {:<26} {:>9} {:>6} {:>7}",
                name, target, kernel.name, kernel.registers, kernel.stack, kernel.spilled
            );
            spills += kernel.spilled;
        }
    }
    println!("all kernels compile; {spills} bytes of spills in all");
    if serialised > 0 {
        return Err(format!("tensor-core products wait for one another in {serialised} kernels").into());
    }
    Ok(())
}

#[derive(Default)]
struct Kernel {
    name: String,
    registers: u32,
    stack: u32,
    spilled: u32,
}

/// Reads ptxas's verbose report.
fn kernels(report: &str) -> Vec<Kernel> {
    let mut all: Vec<Kernel> = Vec::new();
    let before = |line: &str, word: &str| -> u32 {
        let words: Vec<&str> = line.split([' ', ',']).filter(|w| !w.is_empty()).collect();
        let at = words.windows(word.split(' ').count()).position(|w| w.join(" ") == word);
        at.and_then(|i| words.get(i.wrapping_sub(1))?.parse().ok()).unwrap_or(0)
    };
    for line in report.lines() {
        if let Some(name) =
            line.split("Compiling entry function '").nth(1).and_then(|rest| rest.split('\'').next())
        {
            all.push(Kernel { name: name.to_owned(), ..Kernel::default() });
        } else if let Some(kernel) = all.last_mut() {
            if line.contains("bytes stack frame") {
                kernel.stack = before(line, "bytes stack frame");
                kernel.spilled = before(line, "bytes spill stores") + before(line, "bytes spill loads");
            } else if line.contains("Used ") && line.contains(" registers") {
                kernel.registers = before(line, "registers");
            }
        }
    }
    all
}
