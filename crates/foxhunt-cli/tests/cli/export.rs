//! `foxhunt export`: files for other programs, from a trained run.

use std::fs;

use crate::support::{Place, run};

#[test]
fn a_run_is_exported_and_checked() {
    let place = Place::new();
    let (_, folder) = place.trained("bars.csv", "runs", &["--set", "network.head=branching"]);
    let folder = folder.to_str().unwrap();
    // By default ONNX, into the run; by the name's ending; by the flag.
    let named = place.text("named.safetensors");
    let odd = place.text("odd.bin");
    for (arguments, path) in [
        (&["export", folder, "--check"][..], format!("{folder}/export.onnx")),
        (&["export", folder, "--check", "--format", "safetensors"], format!("{folder}/export.safetensors")),
        (&["export", folder, "--check", "--out", &named], named.clone()),
        (&["export", folder, "--check", "--out", &odd, "--format", "safetensors"], odd.clone()),
    ] {
        let done = run(arguments).expect(0);
        let lines: Vec<&str> = done.out.lines().collect();
        assert_eq!(lines[0], path);
        assert!(lines[1].starts_with("same: ") && lines[1].contains("10000 states"), "{}", done.out);
        assert!(fs::metadata(&path).unwrap().len() > 1_000, "{path}");
    }
    assert_eq!(fs::read(&named).unwrap(), fs::read(&odd).unwrap());
    assert_eq!(fs::read(&named).unwrap()[8..].iter().take(1).collect::<Vec<_>>(), [&b'{']);
    // A policy folder is a policy as well.
    let policy = format!("{folder}/policy");
    run(&["export", &policy, "--out", &odd, "--format", "onnx", "--check"]).expect(0);
    assert_eq!(fs::read(&odd).unwrap(), fs::read(format!("{folder}/export.onnx")).unwrap());
}

#[test]
fn what_cannot_be_exported_is_told() {
    let place = Place::new();
    let (_, folder) = place.trained("bars.csv", "runs", &[]);
    let folder = folder.to_str().unwrap();
    let own = format!("{folder}/policy/policy.safetensors");
    let done = run(&["export", folder, "--out", &own]).expect(1);
    assert!(done.err.contains("another than the policy's own"), "{}", done.err);
    run(&["export", folder, "--check"]).expect(0);
    let done = run(&["export", folder, "--out", &place.text("no/such/folder.onnx")]).expect(1);
    assert!(done.err.contains("no/such"), "{}", done.err);
    assert!(run(&["export", &place.text("nothing")]).expect(1).err.contains("nothing"));
    run(&["export"]).expect(2);
    run(&["export", folder, "--format", "pickle"]).expect(2);
}
