//! Noisy layers in the learner: what acts with noise and what without, and that noise is a function of counts.

use foxhunt_ops::noise::{NoiseSource, Pass};

use super::*;

fn noisy(head: Head, seed: u64) -> Settings {
    let mut settings = settings(head);
    (settings.network.noisy, settings.run.seed) = (true, seed);
    settings
}

fn acting(learner: &mut Learner, step: u64, rows: &Rows) -> Vec<f32> {
    let mut q = vec![0.0; rows.actions.len() * learner.network().layout().n_outputs()];
    learner.acting_q_values(step, &rows.states, &mut q).unwrap();
    q
}

/// Acting draws weights anew for every step, the same for every row of it; evaluation goes by the means alone.
#[test]
fn acting_is_noisy_and_evaluation_is_not() {
    let mut learner = Learner::new(&noisy(Head::Branching, 4), STATE_DIM);
    let rows = Rows::new(70, Head::Branching, 1);
    learner.update(&[rows.view()]).unwrap();
    let layout = learner.network().layout().clone();
    let parameters = learner.network().parameters().to_vec();
    let plain = |weights: &[f32]| {
        let mut network = QNetwork::with_parameters(layout.means(), weights.to_vec()).unwrap();
        let mut q = vec![0.0; 70 * layout.n_outputs()];
        network.q_values(&rows.states, &mut q).unwrap();
        q
    };
    let means = plain(&parameters[..layout.n_weights()]);
    let mut q = vec![0.0; means.len()];
    learner.network_mut().q_values(&rows.states, &mut q).unwrap();
    assert_eq!(q, means);

    let mut seen = vec![means];
    for step in [0, 1, 1 << 40] {
        let mut weights = vec![0.0; layout.n_weights()];
        NoiseSource::new(&layout, 4).weights(Pass::Acting, step, &parameters, &mut weights);
        let q = acting(&mut learner, step, &rows);
        assert_eq!(q, plain(&weights));
        assert!(!seen.contains(&q));
        seen.push(q);
    }
    // A row's answer does not depend on the rows around it.
    let one = Rows { states: rows.states[..STATE_DIM].to_vec(), actions: vec![0], ..rows.clone() };
    assert_eq!(acting(&mut learner, 1 << 40, &one), seen[3][..layout.n_outputs()]);
}

/// Scales of 0 are no noise: updates and answers are those of the plain network to the bit, and scales learn from there on.
#[test]
fn without_scale_it_is_the_plain_network() {
    for munchausen in [false, true] {
        let mut settings = noisy(Head::Factored, 1);
        (settings.learner.double, settings.learner.munchausen) = (!munchausen, munchausen);
        // The norm is over scales as well, so nothing may be clipped.
        settings.learner.clip_norm = 1e9;
        let mut learner = Learner::new(&settings, STATE_DIM);
        settings.network.noisy = false;
        let mut plain = Learner::new(&settings, STATE_DIM);
        let n = plain.network().layout().len();
        let mut state = learner.state();
        state.online[n..].fill(0.0);
        state.target[n..].fill(0.0);
        learner.set_state(&state).unwrap();
        let rows = Rows::new(150, Head::Factored, 5);
        assert_eq!(acting(&mut learner, 3, &rows), acting(&mut plain, 3, &rows));
        let td = plain.update(&[rows.view()]).unwrap().td.to_vec();
        assert_eq!(learner.update(&[rows.view()]).unwrap().td, td);
        assert_eq!(learner.network().parameters()[..n], *plain.network().parameters());
        assert!(learner.network().parameters()[n..].iter().any(|&scale| scale != 0.0));
    }
}

/// Noise goes by counts: a learner put together from a snapshot draws what the first would have drawn, and a refused update
/// is followed by other noise than its own.
#[test]
fn noise_goes_on_where_it_was() {
    let rows = Rows::new(60, Head::Exposure, 2);
    let mut bad = rows.clone();
    bad.rewards[3] = f32::NAN;
    let mut first = Learner::new(&noisy(Head::Exposure, 8), STATE_DIM);
    for _ in 0..3 {
        first.update(&[rows.view()]).unwrap();
    }
    let mut snapshot = Snapshot::default();
    first.snapshot(&mut snapshot);
    let mut second = Learner::new(&noisy(Head::Exposure, 8), STATE_DIM);
    second.restore(&snapshot).unwrap();
    for learner in [&mut first, &mut second] {
        assert!(!learner.update(&[bad.view()]).unwrap().applied);
        learner.update(&[rows.view()]).unwrap();
    }
    assert_eq!(bits(&first.state()), bits(&second.state()));

    let mut without = Learner::new(&noisy(Head::Exposure, 8), STATE_DIM);
    without.restore(&snapshot).unwrap();
    without.update(&[rows.view()]).unwrap();
    assert_ne!(bits(&without.state()), bits(&first.state()), "the refused update took its noise with it");

    let plain = Learner::new(&settings(Head::Exposure), STATE_DIM);
    let mut snapshot = Snapshot::default();
    plain.snapshot(&mut snapshot);
    assert!(matches!(second.restore(&snapshot), Err(MLError::Checkpoint { .. })));
}

/// Sub-batches share the noise of their update, and threads change no bit.
#[test]
fn an_update_draws_once_whatever_its_parts_and_threads() {
    let run = |cut: usize, threads, seed| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut learner = Learner::new(&noisy(Head::Branching, seed), STATE_DIM);
        let rows = Rows::new(200, Head::Branching, 6);
        pool.install(|| {
            let parts = [rows.part(0..cut), rows.part(cut..200)];
            learner.update(&parts).unwrap();
        });
        let gradient = learner.gradient().to_vec();
        (gradient, bits(&learner.state()))
    };
    let one = run(90, 1, 3);
    assert_eq!(one, run(90, 3, 3));
    assert_ne!(one, run(90, 1, 4));
    let want: Vec<f64> = run(0, 1, 3).0.iter().map(|&g| f64::from(g)).collect();
    // The same sums in the same order but for where they are cut.
    assert_close("gradient", &one.0, &want, 1e-6);
}
