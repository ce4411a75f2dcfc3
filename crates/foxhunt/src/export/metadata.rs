//! What an exported file says about itself, as text by key.
//!
//! | key | value |
//! |---|---|
//! | `foxhunt.format` | `1`, or `2` with a distribution; rises when a reader of the old one would go wrong |
//! | `foxhunt.version` | of the program that wrote it |
//! | `foxhunt.head` | `exposure`, `factored` or `branching` |
//! | `foxhunt.dueling` | `true` or `false`: whether value and advantage streams were combined |
//! | `foxhunt.distribution` | JSON: `null`, `{"kind": "categorical", "atoms", "v_min", "v_max"}` or `{"kind": "quantiles", "atoms"}` |
//! | `foxhunt.inputs` | JSON array: name of each value of a state, in order |
//! | `foxhunt.look_back` | JSON array: bars before t that each market feature needs, in order |
//! | `foxhunt.normaliser` | JSON object: `names`, `mean`, `std` of each market feature, and `bound` |
//! | `foxhunt.branches` | JSON array: Q-values of each branch, in output order; one argmax a branch |
//! | `foxhunt.actions` | JSON array with one array a branch: what each Q-value stands for, in output order |
//! | `foxhunt.tick_size` | price units, or `null` when it is not known |
//! | `foxhunt.settings_hash` | BLAKE3 of the settings it was trained with, hex |
//!
//! A market feature x enters the state as `clamp((x - mean) / std, -bound, bound)`, and as 0 where std is 0. The inputs
//! after the market features are the portfolio's: exposure over `env.max_leverage`, unrealised return in percent of
//! equity, and `bars / (bars + 16)` for bars in position.

use std::collections::BTreeMap;

use foxhunt_core::{Exposure, FactoredAction, Head, OrderType, ReturnModel, Urgency};
use foxhunt_market::FEATURES;
use foxhunt_market::normaliser::NORMALISED_BOUND;
use serde_json::{Value, json};

use crate::Policy;
use crate::checkpoint::settings_hash;

/// Names of the state's values after the market features.
pub const PORTFOLIO_INPUTS: [&str; 3] = ["exposure", "unrealised_return", "bars_in_position"];

/// The metadata of `policy`.
#[must_use]
pub fn of(policy: &Policy) -> BTreeMap<String, String> {
    let (shape, head) = (policy.layout().shape(), policy.settings().network.head);
    let normaliser = policy.normaliser();
    let inputs: Vec<&str> = FEATURES.iter().map(|f| f.name).chain(PORTFOLIO_INPUTS).collect();
    let look_back: Vec<usize> = FEATURES.iter().map(|f| f.look_back).collect();
    let entries = [
        ("format", json!(if shape.returns.is_mean() { 1 } else { 2 })),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("head", json!(head)),
        ("dueling", json!(shape.dueling)),
        ("distribution", distribution(&shape.returns)),
        ("inputs", json!(inputs)),
        ("look_back", json!(look_back)),
        (
            "normaliser",
            json!({
                "names": normaliser.names,
                "mean": normaliser.mean,
                "std": normaliser.std,
                "bound": NORMALISED_BOUND,
            }),
        ),
        ("branches", json!(head.branches())),
        ("actions", actions(head)),
        ("tick_size", json!(policy.tick_size())),
        ("settings_hash", json!(settings_hash(policy.settings()))),
    ];
    let text = |value: Value| match value {
        Value::String(text) => text,
        value => value.to_string(),
    };
    entries.into_iter().map(|(key, value)| (format!("foxhunt.{key}"), text(value))).collect()
}

/// What the arrays of the head say; an ONNX file gives its expectations.
fn distribution(returns: &ReturnModel) -> Value {
    match *returns {
        ReturnModel::Mean => Value::Null,
        ReturnModel::Categorical { atoms, v_min, v_max } => {
            json!({ "kind": "categorical", "atoms": atoms, "v_min": v_min, "v_max": v_max })
        }
        ReturnModel::Quantiles { n } => json!({ "kind": "quantiles", "atoms": n }),
    }
}

/// What each Q-value stands for, branch by branch.
fn actions(head: Head) -> Value {
    let exposures = Exposure::ALL.map(|e| json!({ "exposure": e.fraction() }));
    match head {
        Head::Exposure => json!([exposures]),
        Head::Factored => {
            let joint = (0..head.n_actions() as u32).filter_map(|i| FactoredAction::from_index(i).ok());
            let joint = joint.map(|action| {
                json!({
                    "exposure": action.exposure.fraction(),
                    "order_type": action.order_type,
                    "urgency": action.urgency,
                })
            });
            json!([joint.collect::<Vec<_>>()])
        }
        Head::Branching => json!([
            exposures,
            OrderType::ALL.map(|o| json!({ "order_type": o })),
            Urgency::ALL.map(|u| json!({ "urgency": u })),
        ]),
    }
}
