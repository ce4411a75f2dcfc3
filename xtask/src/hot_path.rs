//! Nothing between two reports of a GPU engine may wait for the device, read back or allocate. The driver-call counter
//! shows it for what the tests run; this check reads the functions themselves, so that a call planted on a branch no
//! test takes is found as well.
//!
//! A function is found by its name and ends at the brace under its first letter, which rustfmt sees to.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Functions of the hot path, by file.
const HOT: &[(&str, &[&str])] = &[
    (
        "crates/foxhunt/src/cuda_engine/mod.rs",
        &["collect", "update", "queue_updates", "status", "take_faults"],
    ),
    ("crates/foxhunt/src/cuda_engine/graphs.rs", &["run", "replay", "take_replayed"]),
    ("crates/foxhunt-ops/src/gpu_collect/mod.rs", &["step", "insert_into", "env_steps"]),
    (
        "crates/foxhunt-ops/src/gpu_learner/mod.rs",
        &["accumulate", "finish", "update", "priorities", "live", "drain_faults"],
    ),
    ("crates/foxhunt-ops/src/gpu_learner/acting.rs", &["acting_q_values", "q_values", "q_values_with"]),
    (
        "crates/foxhunt-ops/src/gpu_learner/chain.rs",
        &["forward", "forward_at_once", "head_and_loss", "backward"],
    ),
    ("crates/foxhunt-ops/src/network_pass/cuda.rs", &["forward", "backward"]),
    ("crates/foxhunt-ops/src/cluster_pass/cuda.rs", &["run"]),
    (
        "crates/foxhunt-ops/src/gpu_replay/mod.rs",
        &["queue_insert", "sample", "sample_with", "sample_as", "update"],
    ),
    (
        "crates/foxhunt-ops/src/gpu_replay/order.rs",
        &["order_if_due", "make_order", "maintain", "restart_epochs"],
    ),
    ("crates/foxhunt-ops/src/priority_tree/cuda.rs", &["sample", "sample_uniform", "update"]),
    ("crates/foxhunt-ops/src/ring/cuda.rs", &["insert"]),
    ("crates/foxhunt-ops/src/guard/cuda.rs", &["check", "accumulate", "record", "read", "drain"]),
    ("crates/foxhunt-ops/src/guard/record.rs", &["read_words"]),
    ("crates/foxhunt-ops/src/q_monitor/cuda.rs", &["accumulate", "divergence_check", "range", "reset"]),
    ("crates/foxhunt/src/candle_cuda/cuda.rs", &["input", "output", "view", "into_tensor", "drop"]),
    ("crates/foxhunt/src/candle_cuda/replay.rs", &["insert", "sample", "update"]),
    ("crates/foxhunt/src/candle_cuda/guard.rs", &["check", "accumulate", "latest"]),
    ("crates/foxhunt/src/candle_cuda/monitor.rs", &["accumulate", "check", "latest", "reset"]),
    (
        "crates/foxhunt/src/candle_cuda/actions.rs",
        &[
            "select_actions",
            "select_actions_routed",
            "select_actions_branching",
            "batch_route_exposure_to_factored",
        ],
    ),
];

/// What such a function must not call.
const COSTLY: &[&str] = &[
    ".to_scalar",
    ".to_vec0",
    ".to_vec1",
    ".to_vec2",
    ".to_vec3",
    ".download(",
    ".download_range(",
    ".synchronise(",
    ".upload(",
    ".upload_new(",
    ".zeros(",
    "::zeros(",
    ".counters(",
];

/// Adds a fault for every costly call in a hot function, and for a function of the table that is gone.
pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    for (file, functions) in HOT {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
        for name in *functions {
            check_function(file, name, &text, faults);
        }
    }
    Ok(())
}

fn check_function(file: &str, name: &str, text: &str, faults: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    let signature = format!("fn {name}");
    let starts = |line: &str| {
        let after = line.find(&signature).map(|at| &line[at + signature.len()..]);
        after.is_some_and(|rest| rest.starts_with('(') || rest.starts_with('<'))
    };
    let found: Vec<usize> = (0..lines.len()).filter(|&i| starts(lines[i])).collect();
    if found.is_empty() {
        faults.push(format!("{file}: the hot path names `{name}`, which is not there"));
    }
    for first in found {
        let indent = lines[first].len() - lines[first].trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        for (i, line) in lines.iter().enumerate().skip(first).take_while(|(_, line)| **line != end) {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(call) = COSTLY.iter().find(|call| code.contains(**call)) {
                faults.push(format!("{file}:{}: `{name}` is on the hot path and calls `{call}`", i + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(body: &str) -> Vec<String> {
        let text = format!(
            "impl X {{\n    pub fn step(&self) {{\n{body}\n    }}\n\n    fn cold(&self) {{\n        s.synchronise();\n    }}\n}}\n"
        );
        let mut faults = Vec::new();
        check_function("f.rs", "step", &text, &mut faults);
        faults
    }

    /// One planted call of each kind is caught; a comment and another function are not.
    #[test]
    fn a_planted_readback_is_caught() {
        for call in COSTLY {
            let faults = faults_of(&format!("        let x = self.buffer{call}x);"));
            assert_eq!(faults.len(), 1, "{call}: {faults:?}");
            assert!(faults[0].starts_with("f.rs:3:"), "{faults:?}");
        }
        assert!(faults_of("        work(); // then .download( it").is_empty());
        assert!(faults_of("        kernel.launch(stream)").is_empty());
    }

    #[test]
    fn a_function_that_is_gone_is_a_fault() {
        let mut faults = Vec::new();
        check_function("f.rs", "step", "fn stepped() {\n}\n", &mut faults);
        assert_eq!(faults.len(), 1);
    }
}
