//! Trains one policy a head, with and without dueling, and with distributions of the return, and exports each beside what our
//! own network gives.
//!
//! Usage: `export_parity FOLDER`. Beside `<head>-<plain|dueling>[-<c51|qr>].onnx` and `.safetensors` it writes `states.bin`, f32
//! `[10000, 51]`, and `<name>.q.bin`, f32 `[10000, n_outputs]`, little-endian. `benches/peers/export_parity.py` evaluates
//! the files with onnxruntime and NumPy and compares.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::path::PathBuf;

use foxhunt::export::{CHECKED_STATES, Format, check, check_states, export};
use foxhunt::{Policy, Settings, Trainer};
use foxhunt_core::Head;
use foxhunt_market::STATE_DIM;
use foxhunt_market::synthetic::RandomWalk;

fn main() {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder to write to"));
    fs::create_dir_all(&folder).unwrap();
    let states = check_states(CHECKED_STATES, STATE_DIM);
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    fs::write(folder.join("states.bin"), bytes(&states)).unwrap();
    let heads = [(Head::Exposure, "exposure"), (Head::Factored, "factored"), (Head::Branching, "branching")];
    for (kind, c51_atoms, quantiles) in [("", 0, 0), ("-c51", 51, 0), ("-qr", 0, 32)] {
        for ((head, name), dueling) in heads.into_iter().flat_map(|head| [(head, false), (head, true)]) {
            let name = format!("{name}-{}{kind}", if dueling { "dueling" } else { "plain" });
            let mut settings = Settings::default();
            (settings.network.head, settings.network.dueling) = (head, dueling);
            (settings.network.c51_atoms, settings.network.quantiles) = (c51_atoms, quantiles);
            let mut policy = trained(settings, &folder.join("runs"));
            let mut q = Vec::new();
            for state in states.chunks_exact(STATE_DIM) {
                q.extend_from_slice(policy.q_values(state).unwrap());
            }
            fs::write(folder.join(format!("{name}.q.bin")), bytes(&q)).unwrap();
            for format in [Format::Onnx, Format::Safetensors] {
                let path = folder.join(format!("{name}.{}", format.extension()));
                export(&policy, format, &path).unwrap();
                let parity = check(&policy, format, &path).unwrap();
                assert!(parity.holds(), "{name}: {parity:?}");
            }
            println!("{name}");
        }
    }
}

/// A policy after a short training, so that its Q-values are no initial ones.
fn trained(mut settings: Settings, runs: &std::path::Path) -> Policy {
    (settings.training.epochs, settings.evaluation.random_policies) = (6, 1);
    settings.run.dir = runs.to_path_buf();
    let walk = RandomWalk { n_bars: 2_000, seed: 3, volatility: 0.01, start_price: 100.0 };
    let outcome = Trainer::new(&settings, walk.bars().unwrap()).unwrap().run().unwrap();
    Policy::load(outcome.run.folder()).unwrap()
}
