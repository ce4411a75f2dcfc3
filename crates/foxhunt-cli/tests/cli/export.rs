//! `foxhunt export`: files for other programs, from a trained run.

use std::fs;

use crate::support::{Place, an_entry, run};

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
    // A name that does not tell what is in the file is remarked on, unless the format was asked for under a name that
    // tells nothing.
    let (text, bare, other) = (place.text("y.txt"), place.text("bare"), place.text("other.onnx"));
    for (arguments, told) in [
        (&["export", folder, "--out", &text][..], Some((&text, "onnx"))),
        (&["export", folder, "--out", &bare], Some((&bare, "onnx"))),
        (&["export", folder, "--out", &other, "--format", "safetensors"], Some((&other, "safetensors"))),
        (&["export", folder, "--out", &text, "--format", "safetensors"], None),
        (&["export", folder, "--out", &named], None),
        (&["export", folder], None),
    ] {
        let done = run(arguments).expect(0);
        let note = told.map_or(String::new(), |(path, format)| {
            format!("note: {path} is written as {format}, which its name does not end in\n")
        });
        assert_eq!(done.err, note, "{arguments:?}");
    }
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
    // Nor is anything replaced that no export made.
    let checkpoints = format!("{folder}/checkpoints");
    let state = an_entry(std::path::Path::new(&checkpoints)).join("state.safetensors");
    for name in
        [place.text("bars.csv"), format!("{folder}/settings.toml"), state.to_str().unwrap().to_owned()]
    {
        let before = fs::read(&name).unwrap();
        let done = run(&["export", folder, "--out", &name, "--format", "onnx"]).expect(1);
        assert!(done.err.contains("exported before") && done.err.contains(&name), "{}", done.err);
        assert_eq!(fs::read(&name).unwrap(), before, "{name}");
    }
    run(&["export", folder, "--check"]).expect(0);
    // What is no file is not replaced by one.
    let there = place.text("");
    let mut others = vec![there.clone()];
    #[cfg(unix)]
    {
        let (link, socket) = (place.text("link.onnx"), place.text("socket.onnx"));
        std::os::unix::fs::symlink(place.path("bars.csv"), &link).unwrap();
        std::os::unix::net::UnixListener::bind(&socket).unwrap();
        others.extend([link, socket]);
    }
    for other in others {
        let before = fs::symlink_metadata(&other).unwrap().file_type();
        let done = run(&["export", folder, "--out", &other]).expect(1);
        assert!(done.err.contains("a new file or an ordinary one"), "{}", done.err);
        assert_eq!(fs::symlink_metadata(&other).unwrap().file_type(), before, "{other}");
    }
    let done = run(&["export", folder, "--out", &place.text("no/such/folder.onnx")]).expect(1);
    assert!(done.err.contains("no/such"), "{}", done.err);
    assert!(run(&["export", &place.text("nothing")]).expect(1).err.contains("nothing"));
    run(&["export"]).expect(2);
    run(&["export", folder, "--format", "pickle"]).expect(2);
}
