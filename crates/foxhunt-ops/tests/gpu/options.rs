//! Munchausen targets and noisy layers on the device against the CPU, bit by bit.

use foxhunt_core::Head;

use crate::learner::{Pair, config};
use crate::{Gpu, Test};

pub(crate) const TESTS: [Test; 2] =
    [("learner_munchausen_equals_the_cpu", munchausen), ("learner_noise_equals_the_cpu", noise)];

/// Munchausen targets for each head, dueling or not, at temperatures from far below the gaps between Q-values to far above,
/// with and without a floor that cuts.
fn munchausen(gpu: &Gpu) {
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for (dueling, tau, floor) in
            [(true, 0.03, -1.0), (false, 1e-6, -1e6), (true, 1e6, -1e-3), (false, 0.4, -0.2)]
        {
            let mut config = config(7, &[33, 17], head, dueling);
            (config.learner.double, config.learner.munchausen) = (false, true);
            (config.learner.munchausen_tau, config.learner.munchausen_floor) = (tau, floor);
            (config.learner.batch, config.learner.accumulation) = (33, if dueling { 1 } else { 2 });
            let mut pair = Pair::new(gpu, config);
            for _ in 0..if gpu.small { 2 } else { 20 } {
                let rows = pair.fresh_rows();
                assert!(pair.update(&rows));
            }
            pair.same_state();
        }
    }
}

/// Noise in every layer, for each head, kind of target and number of sub-batches, in layers narrower and wider than a block,
/// with rows of one segment and of several; another seed is another update.
fn noise(gpu: &Gpu) {
    let nets: [(usize, &[usize]); 3] = [(7, &[33, 17]), (300, &[19, 270]), (4, &[])];
    for head in [Head::Exposure, Head::Factored, Head::Branching] {
        for (kind, (state_dim, hidden)) in nets.into_iter().enumerate() {
            for (batch, accumulation) in [(33, 1), (16, 3), (300, 1), (300, 2)] {
                if gpu.small && batch > 33 {
                    continue;
                }
                let mut config = config(state_dim, hidden, head, kind != 1);
                (config.noise, config.seed) = (Some(0.5), 0x1_2345_6789 + kind as u64);
                (config.learner.double, config.learner.munchausen) = (kind == 0, kind == 1);
                (config.learner.batch, config.learner.accumulation) = (batch, accumulation);
                let mut pair = Pair::new(gpu, config);
                for update in 0..if gpu.small { 2 } else { 10 } {
                    let mut rows = pair.fresh_rows();
                    // A refused update has drawn its noise as well.
                    if update == 1 {
                        rows[0].rewards[0] = f32::NAN;
                    }
                    assert_eq!(pair.update(&rows), update != 1);
                    if update != 1 {
                        pair.same_state();
                    }
                }
            }
        }
    }
    let gradient = |seed| {
        let mut config = config(7, &[33, 17], Head::Exposure, true);
        (config.noise, config.seed) = (Some(0.5), seed);
        let mut pair = Pair::new(gpu, config);
        let rows = pair.fresh_rows();
        assert!(pair.update(&rows));
        gpu.stream.download(pair.device.gradient()).unwrap()
    };
    assert_ne!(gradient(1), gradient(2));
}
