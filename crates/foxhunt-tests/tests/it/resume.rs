//! Going on equals never having stopped, to the bit, for every way of drawing and every head.

use foxhunt::engine_choice::build_engine;
use foxhunt::trainer::StopReason;
use foxhunt::{Policy, Trainer};
use foxhunt_core::settings::{NanPolicy, ReplayKind, ReplayStorage, TargetUpdate};
use foxhunt_core::{Head, LinearSchedule};

use crate::support::{StopAt, assert_same_bits, bars, metrics, newest, run, tiny};

/// Cases E02, B07, C18: stopped in the middle of an epoch, after k looks at the signal (2 of warm-up, then 2 while
/// collecting and 2 while updating an epoch, one a bar while validating every second), for k in and between every
/// part of an epoch.
#[test]
fn resumed_equals_uninterrupted() {
    let dir = tempfile::tempdir().unwrap();
    let kinds = [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased];
    let heads = [Head::Exposure, Head::Factored, Head::Branching];
    for (i, kind) in kinds.into_iter().enumerate() {
        for (j, head) in heads.into_iter().enumerate() {
            let mut settings = tiny(dir.path());
            settings.replay.kind = kind;
            settings.replay.resort_every = 7;
            settings.network.head = head;
            // Each option that holds state of its own is on in some of the nine.
            settings.replay.capacity = if i == j { 100 } else { 512 };
            settings.learner.accumulation = 1 + i;
            settings.network.dueling = i != j;
            if j == 1 {
                settings.learner.target = TargetUpdate::Hard { every: 13 };
            }
            if i == 1 {
                settings.guard.nan_policy = NanPolicy::Rollback;
            }
            let whole = run(&settings);
            let want = newest(&whole.run);
            let evaluating = if i == j { &[60, 900][..] } else { &[] };
            for &k in [1, 3 + i as u32, 5 + j as u32, 8, 11].iter().chain(evaluating) {
                let context = format!("{kind:?} {head:?} stopped at look {k}");
                let stop = StopAt::look(k);
                let first = Trainer::new(&settings, bars(1)).unwrap().stop_on(&stop).run().unwrap();
                assert_eq!(first.stop_reason, StopReason::Interrupted, "{context}");
                let second = Trainer::resume(first.run.folder(), bars(1)).unwrap().run().unwrap();
                let got = newest(&second.run);
                assert_same_bits(&got.snapshot, &want.snapshot, &context);
                assert_eq!(got.manifest.trainer, want.manifest.trainer, "{context}");
                assert_eq!(got.manifest.status, want.manifest.status, "{context}");
                assert_eq!(got.manifest.settings, settings, "{context}: case B12");
                assert_eq!(metrics(&second.run), metrics(&whole.run), "{context}");
                assert_eq!(second.evaluation, whole.evaluation, "{context}");
            }
        }
    }
}

/// What draws noise or asks more of the target network goes on as well, and leaves a policy of means alone behind.
#[test]
fn noise_and_munchausen_go_on_to_the_bit() {
    let dir = tempfile::tempdir().unwrap();
    for (noisy, munchausen, c51_atoms, head) in [
        (true, false, 0, Head::Exposure),
        (false, true, 0, Head::Factored),
        (true, true, 0, Head::Branching),
        (true, false, 11, Head::Branching),
    ] {
        let mut settings = tiny(dir.path());
        settings.network.head = head;
        (settings.network.noisy, settings.network.c51_atoms) = (noisy, c51_atoms);
        (settings.learner.double, settings.learner.munchausen) = (!munchausen, munchausen);
        settings.guard.nan_policy = NanPolicy::Rollback;
        if noisy {
            settings.exploration.epsilon = LinearSchedule::constant(0.0);
        }
        let whole = run(&settings);
        let want = newest(&whole.run);
        assert_eq!(want.snapshot.arrays.contains_key("online.layer0.weight_sigma"), noisy);
        for k in [3, 5, 8, 11] {
            let context = format!("{head:?} stopped at look {k}");
            let stop = StopAt::look(k);
            let first = Trainer::new(&settings, bars(1)).unwrap().stop_on(&stop).run().unwrap();
            assert_eq!(first.stop_reason, StopReason::Interrupted, "{context}");
            let second = Trainer::resume(first.run.folder(), bars(1)).unwrap().run().unwrap();
            assert_same_bits(&newest(&second.run).snapshot, &want.snapshot, &context);
            assert_eq!(metrics(&second.run), metrics(&whole.run), "{context}");
            assert_eq!(second.evaluation, whole.evaluation, "{context}");
        }
        let policy = Policy::load(whole.run.folder()).unwrap();
        assert!(policy.arrays().arrays.keys().all(|name| !name.ends_with("_sigma")));
    }
}

/// A run goes on with its rows in the other form and ends where it would have.
#[test]
fn the_form_of_rows_may_change_on_the_way() {
    let dir = tempfile::tempdir().unwrap();
    for (from, to) in
        [(ReplayStorage::Rows, ReplayStorage::Compact), (ReplayStorage::Compact, ReplayStorage::Rows)]
    {
        let with = |storage| {
            let mut settings = tiny(dir.path());
            (settings.replay.storage, settings.replay.capacity) = (storage, 100);
            settings
        };
        let whole = run(&with(to));
        let stop = StopAt::look(8);
        let first = Trainer::new(&with(from), bars(1)).unwrap().stop_on(&stop).run().unwrap();
        assert_eq!(first.stop_reason, StopReason::Interrupted);
        let changed = with(to);
        let build = |settings: &_, prepared: &_| build_engine(settings, prepared);
        let second =
            Trainer::resume_with(first.run.folder(), bars(1), Some(&changed), &build).unwrap().run().unwrap();
        assert_eq!(metrics(&second.run), metrics(&whole.run), "{from:?} to {to:?}");
        assert_eq!(second.evaluation, whole.evaluation);
        let (got, want) = (newest(&second.run), newest(&whole.run));
        for (name, array) in &want.snapshot.arrays {
            // Places with equal features may be other places.
            assert!(
                name == "replay.compact" || got.snapshot.arrays[name] == *array,
                "{from:?} to {to:?}: {name}"
            );
        }
        assert_eq!(got.snapshot.arrays.len(), want.snapshot.arrays.len());
    }
}

/// Stopped again and again, a run still ends in the same place.
#[test]
fn many_stops_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = tiny(dir.path());
    let want = run(&settings);
    let stop = StopAt::look(1);
    let mut outcome = Trainer::new(&settings, bars(1)).unwrap().stop_on(&stop).run().unwrap();
    let mut stops = 1;
    while outcome.stop_reason == StopReason::Interrupted {
        // Rising, because a validation or the last evaluation has to be done in one go.
        let stop = StopAt::look(1 << (stops / 3));
        outcome = Trainer::resume(outcome.run.folder(), bars(1)).unwrap().stop_on(&stop).run().unwrap();
        stops += 1;
    }
    assert!(stops > 10, "{stops}");
    assert_same_bits(&newest(&outcome.run).snapshot, &newest(&want.run).snapshot, "many stops");
    assert_eq!(metrics(&outcome.run), metrics(&want.run));
}

/// Case E08 in a whole run: the disk fills up at a save. Without a small disk to mount, a limit on the size of files
/// stands in: this test starts itself again under one.
#[cfg(unix)]
#[test]
fn a_disk_that_fills_up_leaves_the_previous_checkpoint() {
    use foxhunt::checkpoint::CheckpointStore;
    use foxhunt::{MLError, TrainObserver};

    const CHILD: &str = "FOXHUNT_TEST_SMALL_DISK";
    // Whole rows, so that two epochs of them need room.
    let whole = |dir: &std::path::Path| {
        let mut settings = tiny(dir);
        settings.replay.storage = foxhunt_core::settings::ReplayStorage::Rows;
        settings
    };
    if let Some(dir) = std::env::var_os(CHILD) {
        let settings = whole(dir.as_ref());
        let error = Trainer::new(&settings, bars(1)).unwrap().run().unwrap_err();
        let MLError::WriteFailed { path, bytes, .. } = &error else { panic!("{error}") };
        assert!(path.ends_with("epoch_2.tmp/state.safetensors"), "{}", path.display());
        assert!(*bytes > 64 * 1024, "{error}");
        return;
    }
    struct Quiet;
    impl TrainObserver for Quiet {}

    let dir = tempfile::tempdir().unwrap();
    let test = std::env::current_exe().unwrap();
    // 64 KiB hold the empty start and not the rows of two epochs; a write beyond the limit fails with an error
    // where the signal is ignored.
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact \
                  resume::a_disk_that_fills_up_leaves_the_previous_checkpoint --nocapture";
    let output = std::process::Command::new("bash")
        .args(["-c", script])
        .arg(&test)
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stdout));

    let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let folder = entries.into_iter().find(|path| path.is_dir()).unwrap();
    let store = CheckpointStore::new(folder.join("checkpoints"), 9);
    assert_eq!(store.load_newest().unwrap().checkpoint.manifest.trainer.epoch, 0);
    let left: Vec<_> = std::fs::read_dir(folder.join("checkpoints")).unwrap().collect();
    assert_eq!(left.len(), 1, "the unfinished folder is gone");
    // With room again the run goes on to where it would have been.
    let again = Trainer::resume(&folder, bars(1)).unwrap().observe(Quiet).run().unwrap();
    let other = tempfile::tempdir().unwrap();
    let want = run(&whole(other.path()));
    assert_same_bits(&newest(&again.run).snapshot, &newest(&want.run).snapshot, "after the full disk");
}
