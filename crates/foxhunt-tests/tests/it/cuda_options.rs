//! The CUDA engine against the CPU engine with Munchausen targets and noisy layers: the same bits.

use foxhunt::Settings;
use foxhunt_core::settings::TargetUpdate;
use foxhunt_core::{Head, LinearSchedule};

use crate::cuda::{device, same_work, settings};

#[test]
fn munchausen_and_noise_give_the_same_bits() {
    let Some((_turn, device)) = device() else { return };
    type Change = (&'static str, fn(&mut Settings));
    let changes: [Change; 7] = [
        ("Munchausen", |s| (s.learner.double, s.learner.munchausen) = (false, true)),
        ("Munchausen, branching, three sub-batches", |s| {
            (s.learner.double, s.learner.munchausen) = (false, true);
            (s.network.head, s.learner.accumulation, s.learner.n_step) = (Head::Branching, 3, 1);
        }),
        ("noise", |s| (s.network.noisy, s.exploration.epsilon) = (true, LinearSchedule::constant(0.0))),
        ("noise, branching, three sub-batches of two segments, hard target", |s| {
            (s.network.noisy, s.network.head, s.learner.accumulation) = (true, Head::Branching, 3);
            (s.learner.batch, s.replay.capacity, s.env.n_envs) = (300, 700, 50);
            s.learner.target = TargetUpdate::Hard { every: 7 };
        }),
        ("noise and Munchausen, plain", |s| {
            (s.network.noisy, s.network.dueling) = (true, false);
            (s.learner.double, s.learner.munchausen) = (false, true);
        }),
        ("noise and C51", |s| {
            (s.network.noisy, s.network.c51_atoms, s.network.c51_range) = (true, 11, [-3.0, 3.0]);
        }),
        ("noise and quantiles, branching, plain", |s| {
            (s.network.noisy, s.network.quantiles) = (true, 7);
            (s.network.head, s.network.dueling) = (Head::Branching, false);
        }),
    ];
    for (what, change) in changes {
        let mut s = settings();
        change(&mut s);
        s.validate().unwrap();
        same_work(&s, &device, what);
    }
}
