//! Files as written, for every head: read back by other code, checked, damaged.

use std::fs;

use foxhunt_core::{Head, Settings};
use foxhunt_market::{FEATURES, Normaliser};
use prost::Message as _;
use safetensors::SafeTensors;
use serde_json::Value;

use super::*;
use crate::engine::ArrayData;
use crate::policy::{named, network_layout};

const HEADS: [Head; 3] = [Head::Exposure, Head::Factored, Head::Branching];

fn policy(head: Head, dueling: bool, hidden: &[usize]) -> Policy {
    policy_of(head, dueling, hidden, (0, 0))
}

fn policy_of(head: Head, dueling: bool, hidden: &[usize], (c51_atoms, quantiles): (usize, usize)) -> Policy {
    let mut settings = Settings::default();
    (settings.network.c51_atoms, settings.network.quantiles) = (c51_atoms, quantiles);
    (settings.network.head, settings.network.dueling) = (head, dueling);
    settings.network.hidden = hidden.to_vec();
    let names = FEATURES.iter().map(|f| f.name.to_string()).collect();
    let normaliser = Normaliser { names, mean: vec![0.1; 48], std: vec![0.5; 48] };
    let layout = network_layout(&settings);
    // Wider than it starts, so that Q-values are of the size of trained ones.
    let parameters: Vec<f32> = layout.init(7).iter().map(|w| 2.0 * w).collect();
    Policy::new(&settings, normaliser, Some(0.25), &named(&layout, &parameters)).unwrap()
}

#[test]
fn every_head_is_exported_without_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let options = HEADS.into_iter().flat_map(|head| [(head, false), (head, true)]);
    for (head, dueling) in options {
        for distribution in [(0, 0), (51, 0), (0, 32)] {
            let policy = policy_of(head, dueling, &[24, 17], distribution);
            for format in [Format::Onnx, Format::Safetensors] {
                let path = folder.path().join("policy").with_extension(format.extension());
                export(&policy, format, &path).unwrap();
                let parity = check(&policy, format, &path).unwrap();
                let context = format!("{head:?} {dueling} {distribution:?} {format:?}: {parity:?}");
                assert!(parity.holds() && parity.states == 10_000 && parity.ties < 3, "{context}");
                let exact = format == Format::Safetensors;
                assert_eq!(parity.max_error == 0.0, exact, "{context}");

                let first = fs::read(&path).unwrap();
                export(&policy, format, &path).unwrap();
                assert_eq!(fs::read(&path).unwrap(), first, "equal policies are equal files");
            }
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside them");
}

/// A network that differs anywhere is seen: one weight of one layer.
#[test]
fn a_difference_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let good = policy(Head::Branching, true, &[9]);
    let c51 = policy_of(Head::Branching, true, &[9], (5, 0));
    let plain = ["layer0.weight", "layer0.bias", "value.weight", "advantage.bias"].map(|name| (&good, name));
    let logits = ["value_logits.bias", "advantage_logits.weight"].map(|name| (&c51, name));
    for (good, name) in plain.into_iter().chain(logits) {
        let mut arrays = good.arrays();
        let ArrayData::F32(values) = &mut arrays.arrays.get_mut(name).unwrap().data else { panic!() };
        values.last_mut().map(|v| *v += 0.01).unwrap();
        let other = Policy::new(good.settings(), good.normaliser().clone(), None, &arrays).unwrap();
        for format in [Format::Onnx, Format::Safetensors] {
            let path = folder.path().join(name).with_extension(format.extension());
            export(&other, format, &path).unwrap();
            let parity = check(good, format, &path).unwrap();
            assert!(!parity.holds() && parity.max_error > 1e-4, "{name}: {parity:?}");
        }
    }
}

/// No prefix of a file passes, and none panics.
#[test]
fn a_torn_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(Head::Branching, true, &[2]);
    for format in [Format::Onnx, Format::Safetensors] {
        let path = folder.path().join("policy").with_extension(format.extension());
        export(&policy, format, &path).unwrap();
        let whole = fs::read(&path).unwrap();
        for k in (0..whole.len()).step_by(97) {
            fs::write(&path, &whole[..k]).unwrap();
            let error = check(&policy, format, &path).map(|parity| parity.holds());
            assert!(!error.unwrap_or(false), "{k} bytes of {format:?}");
        }
    }
}

/// The policy's own file is not a place to export to.
#[test]
fn the_policy_itself_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(Head::Exposure, true, &[2]);
    policy.save(&folder.path().join("policy")).unwrap();
    let own = folder.path().join("policy/policy.safetensors");
    let error = export(&policy, Format::Safetensors, &own).unwrap_err();
    assert!(matches!(error, MLError::InvalidArgument { .. }), "{error}");
    Policy::load(folder.path()).unwrap();
    // The same name elsewhere is a name like any other.
    export(&policy, Format::Safetensors, &folder.path().join("policy.safetensors")).unwrap();
}

/// Both files say what goes in and what comes out.
#[test]
fn metadata_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let distributions = [(0, 0), (7, 0), (0, 6)];
    for (head, distribution) in HEADS.into_iter().zip(distributions) {
        let policy = policy_of(head, true, &[4], distribution);
        let want = metadata::of(&policy);
        let path = folder.path().join("policy.safetensors");
        export(&policy, Format::Safetensors, &path).unwrap();
        let bytes = fs::read(&path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let got: std::collections::BTreeMap<_, _> = header.metadata().clone().unwrap().into_iter().collect();
        assert_eq!(got, want);
        let model = onnx_text(&policy);
        for (key, value) in &want {
            assert!(model.contains(key) && model.contains(value.as_str()), "{key}");
        }

        let json = |key: &str| serde_json::from_str::<Value>(&want[key]).unwrap();
        let told = match distribution {
            (0, 0) => (1.into(), Value::Null),
            (0, n) => (2.into(), serde_json::json!({ "kind": "quantiles", "atoms": n })),
            (n, _) => (
                2.into(),
                serde_json::json!({ "kind": "categorical", "atoms": n, "v_min": -10.0, "v_max": 10.0 }),
            ),
        };
        assert_eq!((json("foxhunt.format"), json("foxhunt.distribution")), told);
        assert_eq!(json("foxhunt.inputs").as_array().unwrap().len(), 51);
        assert_eq!(json("foxhunt.look_back").as_array().unwrap().len(), 48);
        assert_eq!(json("foxhunt.normaliser")["std"].as_array().unwrap().len(), 48);
        let branches: Vec<usize> = serde_json::from_str(&want["foxhunt.branches"]).unwrap();
        assert_eq!(branches, head.branches());
        let actions = json("foxhunt.actions");
        let sizes: Vec<usize> =
            actions.as_array().unwrap().iter().map(|branch| branch.as_array().unwrap().len()).collect();
        assert_eq!(sizes, head.branches());
        assert_eq!(actions[0][4]["exposure"], if head == Head::Factored { -1.0 } else { 1.0 });
    }
}

/// The strings of the ONNX file.
fn onnx_text(policy: &Policy) -> String {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Model {
        #[prost(bytes = "vec", repeated, tag = "14")]
        metadata_props: Vec<Vec<u8>>,
    }
    let model = Model::decode(&onnx::encode(policy)[..]).unwrap();
    model.metadata_props.iter().map(|entry| String::from_utf8_lossy(entry)).collect()
}
