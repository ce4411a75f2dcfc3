//! A small run does what it says, and does it the same way every time.

use foxhunt::cpu_engine::CpuEngine;
use foxhunt::trainer::{MetricsLine, Prepared, StopReason};
use foxhunt::{MLError, Policy, Trainer};
use foxhunt_core::settings::{Device, Precision};

use crate::support::{assert_same_bits, bars, metrics, newest, run, tiny};

#[test]
fn a_run_updates_moves_its_weights_and_leaves_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let settings = tiny(dir.path());
    let outcome = run(&settings);
    assert_eq!((outcome.stop_reason, outcome.epochs), (StopReason::Completed, 4));
    assert_eq!(outcome.updates, 4 * 20);
    assert_eq!(outcome.env_steps, 60 + 4 * 24 * 3);

    let policy = Policy::load(outcome.run.folder()).unwrap();
    let initial = policy.layout().init(settings.run.seed);
    let moved = policy.parameters().iter().zip(&initial).filter(|(a, b)| a != b).count();
    assert!(moved * 10 > initial.len() * 9, "{moved} of {} weights moved", initial.len());

    let lines = metrics(&outcome.run);
    let epochs: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            MetricsLine::Epoch(report) => Some(report),
            _ => None,
        })
        .collect();
    assert_eq!(epochs.iter().map(|e| e.epoch).collect::<Vec<_>>(), [1, 2, 3, 4]);
    for report in &epochs {
        let stats = &report.stats;
        assert_eq!((stats.updates, stats.skipped_updates), (20, 0));
        assert!(stats.loss.is_some() && stats.grad_norm.is_some() && stats.max_q.is_some());
        assert_eq!(stats.actions.iter().sum::<u64>(), stats.env_steps);
        let orders: u64 = stats.orders.iter().sum();
        let fills: u64 = stats.fills.iter().sum();
        assert_eq!(orders + stats.holds, stats.env_steps);
        assert!(fills <= orders && fills > 0);
        assert!(stats.faults.is_empty());
    }
    // Warm-up is part of the first report.
    assert_eq!(epochs[0].stats.env_steps, 60 + 72);
    assert_eq!(epochs[3].stats.total_env_steps, outcome.env_steps);
    assert!(epochs[3].stats.epsilon < epochs[0].stats.epsilon);
    assert!(epochs[3].stats.beta > epochs[0].stats.beta);
    assert!(epochs.iter().map(|e| e.stats.episodes).sum::<u64>() > 0);

    let evaluation = outcome.evaluation.unwrap();
    assert_eq!(evaluation.windows.len(), 3);
    for file in [outcome.run.settings(), outcome.run.metrics(), outcome.run.policy().join("policy.json")] {
        assert!(file.is_file(), "{}", file.display());
    }
}

/// Determinism: the same seed gives the same bits, whatever the number of threads; another seed gives others.
#[test]
fn same_seed_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = tiny(dir.path());
    settings.learner.batch = 96;
    settings.replay.capacity = 2000;
    let first = run(&settings);
    let again = run(&settings);
    settings.run.threads = 3;
    let threads = run(&settings);
    let want = newest(&first.run).snapshot;
    assert_same_bits(&newest(&again.run).snapshot, &want, "again");
    assert_same_bits(&newest(&threads.run).snapshot, &want, "3 threads");
    assert_eq!(metrics(&again.run), metrics(&first.run));
    assert_eq!(metrics(&threads.run), metrics(&first.run));
    assert_eq!(threads.evaluation, first.evaluation);

    settings.run.seed = 2;
    let other = run(&settings);
    let other = newest(&other.run).snapshot;
    for name in ["online.layer0.weight", "replay.compact", "env.words"] {
        assert_ne!(other.arrays[name], want.arrays[name], "{name}");
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_or_a_notice() {
    use foxhunt::trainer::{TrainObserver, Warning};
    #[derive(Default)]
    struct Notices(Vec<String>);
    impl TrainObserver for Notices {
        fn on_warning(&mut self, warning: &Warning) {
            if let Warning::EngineFallback { reason } = warning {
                self.0.push(reason.clone());
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let mut settings = tiny(dir.path());
    settings.training.epochs = 1;
    let mut attempt = |device| {
        settings.run.device = device;
        let mut seen = Notices::default();
        let result = Trainer::new(&settings, bars(1)).and_then(|trainer| trainer.observe(&mut seen).run());
        (result, seen.0)
    };
    let (result, notices) = attempt(Device::Cpu);
    assert!(result.is_ok() && notices.is_empty());
    // With a CUDA engine on this machine both run on it; without one, one is told and the other refused.
    let (auto, notices) = attempt(Device::Auto);
    assert!(auto.is_ok());
    let (cuda, _) = attempt(Device::Cuda);
    match cuda {
        Ok(_) => assert!(notices.is_empty()),
        Err(error) => {
            assert!(matches!(error, MLError::DeviceUnavailable { device: "cuda", .. }), "{error}");
            assert_eq!(notices.len(), 1);
        }
    }
}

/// Whatever `run.device` says: with `auto` the CPU engine comes in where there is no GPU.
#[test]
fn the_cpu_engine_refuses_other_precisions_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = tiny(dir.path());
    settings.run.device = Device::Auto;
    let prepared = Prepared::fit(bars(1), &settings).unwrap();
    for precision in Precision::ALL {
        settings.learner.precision = precision;
        settings.validate().unwrap();
        let built = CpuEngine::new(&settings, prepared.market.clone(), prepared.split.train.clone());
        match built.err() {
            None => assert_eq!(precision, Precision::F32),
            Some(MLError::Settings(error)) => {
                let text = error.to_string();
                assert!(text.contains("learner.precision") && text.contains(precision.name()), "{text}");
            }
            Some(other) => panic!("{precision:?}: {other}"),
        }
    }
}

#[test]
fn settings_and_bars_that_cannot_work_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = tiny(&dir.path().join("runs"));
    settings.replay.capacity = 4;
    assert!(Trainer::new(&settings, bars(1)).is_err());
    settings = tiny(&dir.path().join("runs"));
    settings.learner.gamma = 2.0;
    assert!(matches!(Trainer::new(&settings, bars(1)), Err(MLError::Settings(_))));
    settings = tiny(&dir.path().join("runs"));
    settings.execution.median_window = 890;
    assert!(matches!(Trainer::new(&settings, bars(1)), Err(MLError::Market(_))));
    assert!(!dir.path().join("runs").exists());
}
