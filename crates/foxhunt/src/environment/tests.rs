//! The classic problems against Gymnasium, and an agent that learns, repeats itself and refuses nonsense.

use foxhunt_core::settings::ReplayKind;
use foxhunt_core::{LinearSchedule, Philox, PhiloxStream, Purpose, Settings};
use serde_json::Value;

use super::classic::{Acrobot, CartPole, MountainCar};
use super::*;
use crate::MLError;

/// Walks an environment along Gymnasium's and compares state, reward and end at every step. What is shown is f32; sines
/// may differ in the last place of an f64, which a hundred steps of the Acrobot make larger.
fn walk<E: Environment>(walk: &Value, environment: &mut E, tolerance: f32) -> usize {
    let mut shown = vec![0.0; environment.state_dim()];
    let steps = walk["steps"].as_array().unwrap();
    for (at, step) in steps.iter().enumerate() {
        let outcome = environment.step(step[0].as_u64().unwrap() as u32, &mut shown);
        for (got, want) in shown.iter().zip(step[1].as_array().unwrap()) {
            let want = want.as_f64().unwrap() as f32;
            assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "step {at}: {got}, not {want}");
        }
        assert_eq!(f64::from(outcome.reward), step[2].as_f64().unwrap(), "step {at}");
        assert_eq!(outcome.terminated, step[3].as_bool().unwrap(), "step {at}");
    }
    steps.len()
}

#[test]
fn classic_problems_walk_as_gymnasium_does() {
    let golden: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    let mut steps = 0;
    for golden in golden["walks"].as_array().unwrap() {
        let start: Vec<f64> =
            golden["start"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        steps += match golden["name"].as_str().unwrap() {
            "CartPole-v1" => walk(golden, &mut CartPole { state: start.try_into().unwrap(), steps: 0 }, 1e-6),
            "MountainCar-v0" => {
                walk(golden, &mut MountainCar { state: start.try_into().unwrap(), steps: 0 }, 1e-6)
            }
            "Acrobot-v1" => walk(golden, &mut Acrobot { state: start.try_into().unwrap(), steps: 0 }, 1e-4),
            name => panic!("{name}"),
        };
    }
    assert!(steps > 300, "{steps} steps");
}

/// Time limits cut and do not end, resets start where Gymnasium's do.
#[test]
fn limits_and_starts() {
    let mut random = Philox::new(3).stream(Purpose::EnvReset, 0, 0);
    let (mut car, mut state) = (MountainCar::default(), [0.0; 2]);
    car.reset(&mut random, &mut state);
    assert!((-0.6..=-0.4).contains(&state[0]) && state[1] == 0.0);
    for step in 1..=200 {
        let outcome = car.step(1, &mut state);
        assert_eq!((outcome.terminated, outcome.truncated), (false, step == 200));
    }
    let (mut cart, mut state) = (CartPole::default(), [0.0; 4]);
    cart.reset(&mut random, &mut state);
    assert!(state.iter().all(|x| x.abs() <= 0.05) && state.iter().any(|x| *x != 0.0));
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.network.hidden = vec![128, 128];
    settings.learner.batch = 64;
    settings.learner.n_step = 1;
    settings.learner.gamma = 0.99;
    settings.learner.learning_rate = LinearSchedule { start: 1e-3, end: 2e-4, steps: 10_000 };
    settings.learner.target = foxhunt_core::settings::TargetUpdate::Hard { every: 100 };
    settings.replay.kind = ReplayKind::Uniform;
    settings.replay.capacity = 50_000;
    settings.exploration.epsilon = LinearSchedule { start: 1.0, end: 0.04, steps: 8_000 };
    settings.training.warmup_env_steps = 1_000;
    settings.training.collect = 32;
    settings.training.updates_per_epoch = 128;
    settings
}

fn agent(settings: &Settings) -> Agent<CartPole> {
    Agent::new(settings, vec![CartPole::default(); 8]).unwrap()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Trains until twenty poles stand 195 steps on average, what solved the first version of the problem, or ten thousand
/// updates are over; gives what an agent reached before and at the end.
fn balance(settings: &Settings) -> (f64, f64) {
    let mut agent = agent(settings);
    let start = agent.network().parameters().to_vec();
    let before = mean(&agent.evaluate(&mut CartPole::default(), 20).unwrap());
    let (mut updates, mut episodes, mut epoch) = (0, 0, 0);
    let mut best: f64 = 0.0;
    while best < 195.0 && epoch < 80 {
        let report = agent.epoch().unwrap();
        epoch += 1;
        updates += report.updates;
        episodes += report.returns.len();
        assert_eq!((report.skipped_updates, report.refused_transitions), (0, 0));
        if epoch % 8 == 0 {
            best = best.max(mean(&agent.evaluate(&mut CartPole::default(), 20).unwrap()));
        }
    }
    assert_eq!(updates, epoch * 128);
    assert!(episodes > 50 && agent.network().parameters() != start);
    (before, best)
}

/// Ten thousand updates are enough for a pole that falls after some ten steps.
#[test]
fn a_pole_is_balanced() {
    let (before, best) = balance(&settings());
    assert!(before < 100.0 && best >= 195.0, "{before} before, {best} at best");
}

/// So they are when the network learns the distribution of the return, whose mean it acts by.
#[test]
fn a_pole_is_balanced_by_distributions() {
    for (c51_atoms, quantiles) in [(51, 0), (0, 20)] {
        let mut settings = settings();
        (settings.network.c51_atoms, settings.network.quantiles) = (c51_atoms, quantiles);
        if c51_atoms > 0 {
            // A reward a step, discounted by 0.99.
            settings.network.c51_range = [0.0, 100.0];
        }
        let (before, best) = balance(&settings);
        assert!(before < 100.0 && best >= 195.0, "{c51_atoms} {quantiles}: {before} before, {best} at best");
    }
}

/// The same seed gives the same bits, another seed others, with every kind of replay and with sub-batches.
#[test]
fn a_seed_is_a_run() {
    for kind in [ReplayKind::Uniform, ReplayKind::Proportional, ReplayKind::RankBased] {
        let run = |seed| {
            let mut settings = settings();
            settings.run.seed = seed;
            settings.replay.kind = kind;
            settings.learner.accumulation = 2;
            settings.learner.n_step = 3;
            settings.training.warmup_env_steps = 100;
            settings.training.updates_per_epoch = 10;
            let mut agent = agent(&settings);
            let reports: Vec<_> = (0..3).map(|_| agent.epoch().unwrap()).collect();
            assert!(reports.iter().all(|report| report.updates == 10));
            (agent.network().parameters().to_vec(), reports)
        };
        let (one, reports) = run(5);
        assert_eq!(run(5), (one.clone(), reports));
        assert_ne!(run(6).0, one);
    }
}

/// A sensor that sometimes breaks.
struct Broken(CartPole, u32);

impl Environment for Broken {
    fn state_dim(&self) -> usize {
        4
    }
    fn n_actions(&self) -> usize {
        2
    }
    fn reset(&mut self, random: &mut PhiloxStream, state: &mut [f32]) {
        self.0.reset(random, state);
    }
    fn step(&mut self, action: u32, next_state: &mut [f32]) -> Outcome {
        let outcome = self.0.step(action, next_state);
        self.1 += 1;
        match self.1 % 40 {
            20 => next_state[1] = f32::NAN,
            39 => return Outcome { reward: f32::INFINITY, ..outcome },
            _ => {}
        }
        outcome
    }
}

#[test]
fn what_is_not_finite_is_refused_and_counted() {
    let mut agent =
        Agent::new(&settings(), (0..8).map(|_| Broken(CartPole::default(), 0)).collect()).unwrap();
    let report = agent.epoch().unwrap();
    assert_eq!((report.updates, report.skipped_updates), (128, 0));
    let per_env = report.env_steps / 8;
    assert_eq!(report.refused_transitions, 8 * (per_env / 40 * 2 + u64::from(per_env % 40 >= 20)));
    assert!(agent.network().parameters().iter().all(|w| w.is_finite()));
    assert!(report.returns.iter().all(|r| r.is_finite()));
}

/// One state, two actions, an episode a step whose return is the action.
#[derive(Default)]
struct Choice;

impl Environment for Choice {
    fn state_dim(&self) -> usize {
        1
    }
    fn n_actions(&self) -> usize {
        2
    }
    fn reset(&mut self, _: &mut PhiloxStream, state: &mut [f32]) {
        state[0] = 1.0;
    }
    fn step(&mut self, action: u32, state: &mut [f32]) -> Outcome {
        state[0] = 1.0;
        Outcome { reward: action as f32, terminated: true, truncated: false }
    }
}

/// Without a random action ever, noise alone makes an agent try both actions; the same ones in every environment of a step.
#[test]
fn noise_explores() {
    let returns = |noisy| {
        let mut settings = settings();
        (settings.network.noisy, settings.exploration.epsilon) = (noisy, LinearSchedule::constant(0.0));
        let mut agent = Agent::new(&settings, vec![Choice, Choice, Choice]).unwrap();
        // Everything is collected before the first update.
        agent.epoch().unwrap().returns
    };
    let greedy = returns(false);
    assert!(greedy.len() > 900 && greedy.iter().all(|&r| r == greedy[0]));
    let noisy = returns(true);
    let ones = noisy.iter().filter(|&&r| r == 1.0).count() as f64 / noisy.len() as f64;
    assert!((0.02..0.98).contains(&ones), "{ones}");
    assert!(noisy.chunks(3).all(|step| step.iter().all(|&r| r == step[0])));
}

#[test]
fn nonsense_is_refused_by_name() {
    let refused = Agent::new(&settings(), Vec::<CartPole>::new()).err().unwrap();
    assert!(matches!(refused, MLError::InvalidArgument { what: "environments", .. }), "{refused}");
    let mut wrong = settings();
    wrong.learner.gamma = 2.0;
    assert!(matches!(Agent::new(&wrong, vec![CartPole::default()]), Err(MLError::Settings(_))));
    let mut agent = agent(&settings());
    assert!(matches!(agent.act(&[0.0; 3]), Err(MLError::Shape { .. })));
    assert!(agent.act(&[0.0; 4]).unwrap() < 2);

    struct Wide(usize);
    impl Environment for Wide {
        fn state_dim(&self) -> usize {
            self.0
        }
        fn n_actions(&self) -> usize {
            2
        }
        fn reset(&mut self, _: &mut PhiloxStream, _: &mut [f32]) {}
        fn step(&mut self, _: u32, _: &mut [f32]) -> Outcome {
            Outcome { reward: 0.0, terminated: false, truncated: false }
        }
    }
    let refused = Agent::new(&settings(), vec![Wide(2), Wide(3)]).err().unwrap();
    assert!(matches!(refused, MLError::Shape { .. }), "{refused}");
    let refused = Agent::new(&settings(), vec![Wide(0)]).err().unwrap();
    assert!(matches!(refused, MLError::InvalidArgument { what: "state_dim", .. }), "{refused}");
}
