//! The classic control problems, with the equations and constants of Gymnasium 1.x, for checking a learner against what
//! one knows.
//!
//! | problem | states | actions | solved at a mean return of |
//! |---|---|---|---|
//! | [`CartPole`] (v1) | position, speed, angle, angular speed | push left, right | 475 |
//! | [`MountainCar`] (v0) | position, speed | push left, not, right | -110 |
//! | [`Acrobot`] (v1) | cos and sin of both angles, angular speeds | torque -1, 0, 1 | -100 |
//!
//! Money is not involved, but f64 is: states are integrated in f64 and shown in f32, as Gymnasium does. Sources: Barto,
//! Sutton and Anderson 1983; Moore 1990; Sutton and Barto, *Reinforcement Learning*, sections 10.1 and 11.3 (1st ed.).

use std::f64::consts::PI;

use foxhunt_core::PhiloxStream;

use super::{Environment, Outcome};

fn uniform(random: &mut PhiloxStream, low: f64, high: f64) -> f64 {
    low + (high - low) * random.next_f64()
}

fn show(values: &[f64], state: &mut [f32]) {
    for (shown, value) in state.iter_mut().zip(values) {
        *shown = *value as f32;
    }
}

/// A pole on a cart; the longer it stands the better. Truncated after 500 steps.
#[derive(Clone, Debug, Default)]
pub struct CartPole {
    /// Position, speed, angle, angular speed.
    pub(super) state: [f64; 4],
    pub(super) steps: u32,
}

impl CartPole {
    const LIMIT: u32 = 500;
}

impl Environment for CartPole {
    fn state_dim(&self) -> usize {
        4
    }

    fn n_actions(&self) -> usize {
        2
    }

    fn reset(&mut self, random: &mut PhiloxStream, state: &mut [f32]) {
        self.state = std::array::from_fn(|_| uniform(random, -0.05, 0.05));
        self.steps = 0;
        show(&self.state, state);
    }

    fn step(&mut self, action: u32, next_state: &mut [f32]) -> Outcome {
        const GRAVITY: f64 = 9.8;
        const POLE_MASS: f64 = 0.1;
        const TOTAL_MASS: f64 = 1.1;
        /// Half of the pole.
        const LENGTH: f64 = 0.5;
        const POLE_MOMENT: f64 = POLE_MASS * LENGTH;
        const SECONDS: f64 = 0.02;
        let [x, x_speed, angle, angle_speed] = self.state;
        let force = if action == 1 { 10.0 } else { -10.0 };
        let (sin, cos) = angle.sin_cos();
        let push = (force + POLE_MOMENT * (angle_speed * angle_speed) * sin) / TOTAL_MASS;
        let angle_gain =
            (GRAVITY * sin - cos * push) / (LENGTH * (4.0 / 3.0 - POLE_MASS * (cos * cos) / TOTAL_MASS));
        let x_gain = push - POLE_MOMENT * angle_gain * cos / TOTAL_MASS;
        self.state = [
            x + SECONDS * x_speed,
            x_speed + SECONDS * x_gain,
            angle + SECONDS * angle_speed,
            angle_speed + SECONDS * angle_gain,
        ];
        self.steps += 1;
        show(&self.state, next_state);
        let terminated = self.state[0].abs() > 2.4 || self.state[2].abs() > 12.0 * 2.0 * PI / 360.0;
        Outcome { reward: 1.0, terminated, truncated: !terminated && self.steps >= Self::LIMIT }
    }
}

/// A car in a valley, too weak to drive straight out of it. Truncated after 200 steps.
#[derive(Clone, Debug, Default)]
pub struct MountainCar {
    /// Position, speed.
    pub(super) state: [f64; 2],
    pub(super) steps: u32,
}

impl MountainCar {
    const LIMIT: u32 = 200;
}

impl Environment for MountainCar {
    fn state_dim(&self) -> usize {
        2
    }

    fn n_actions(&self) -> usize {
        3
    }

    fn reset(&mut self, random: &mut PhiloxStream, state: &mut [f32]) {
        self.state = [uniform(random, -0.6, -0.4), 0.0];
        self.steps = 0;
        show(&self.state, state);
    }

    fn step(&mut self, action: u32, next_state: &mut [f32]) -> Outcome {
        let [mut position, mut speed] = self.state;
        speed += (f64::from(action) - 1.0) * 0.001 + (3.0 * position).cos() * -0.0025;
        speed = speed.clamp(-0.07, 0.07);
        position = (position + speed).clamp(-1.2, 0.6);
        if position == -1.2 && speed < 0.0 {
            speed = 0.0;
        }
        self.state = [position, speed];
        self.steps += 1;
        show(&self.state, next_state);
        let terminated = position >= 0.5 && speed >= 0.0;
        Outcome { reward: -1.0, terminated, truncated: !terminated && self.steps >= Self::LIMIT }
    }
}

/// Two links that hang, with a motor between them; the tip has to get above a line. Truncated after 500 steps.
#[derive(Clone, Debug, Default)]
pub struct Acrobot {
    /// Angle of the first link from hanging, of the second from the first, and their speeds.
    pub(super) state: [f64; 4],
    pub(super) steps: u32,
}

impl Acrobot {
    const LIMIT: u32 = 500;

    fn show(&self, state: &mut [f32]) {
        let [one, two, one_speed, two_speed] = self.state;
        show(&[one.cos(), one.sin(), two.cos(), two.sin(), one_speed, two_speed], state);
    }

    /// Speeds and accelerations: the equations of Sutton and Barto's book. Masses, lengths and moments of inertia are 1,
    /// centres of mass at half a length.
    fn change([one, two, one_speed, two_speed]: [f64; 4], torque: f64) -> [f64; 4] {
        const GRAVITY: f64 = 9.8;
        const CENTRE: f64 = 0.5;
        let (sin, cos) = two.sin_cos();
        let d1 = CENTRE * CENTRE + (1.0 + CENTRE * CENTRE + 2.0 * CENTRE * cos) + 1.0 + 1.0;
        let d2 = (CENTRE * CENTRE + CENTRE * cos) + 1.0;
        let phi2 = CENTRE * GRAVITY * (one + two - PI / 2.0).cos();
        let phi1 = -CENTRE * two_speed * two_speed * sin - 2.0 * CENTRE * two_speed * one_speed * sin
            + (CENTRE + 1.0) * GRAVITY * (one - PI / 2.0).cos()
            + phi2;
        let two_gain = (torque + d2 / d1 * phi1 - CENTRE * one_speed * one_speed * sin - phi2)
            / (CENTRE * CENTRE + 1.0 - d2 * d2 / d1);
        let one_gain = -(d2 * two_gain + phi1) / d1;
        [one_speed, two_speed, one_gain, two_gain]
    }
}

impl Environment for Acrobot {
    fn state_dim(&self) -> usize {
        6
    }

    fn n_actions(&self) -> usize {
        3
    }

    fn reset(&mut self, random: &mut PhiloxStream, state: &mut [f32]) {
        self.state = std::array::from_fn(|_| uniform(random, -0.1, 0.1));
        self.steps = 0;
        self.show(state);
    }

    fn step(&mut self, action: u32, next_state: &mut [f32]) -> Outcome {
        const SECONDS: f64 = 0.2;
        let torque = f64::from(action) - 1.0;
        // One step of Runge and Kutta.
        let s = self.state;
        let ahead = |by: f64, k: [f64; 4]| std::array::from_fn(|i| s[i] + by * k[i]);
        let k1 = Self::change(s, torque);
        let k2 = Self::change(ahead(SECONDS / 2.0, k1), torque);
        let k3 = Self::change(ahead(SECONDS / 2.0, k2), torque);
        let k4 = Self::change(ahead(SECONDS, k3), torque);
        let next: [f64; 4] =
            std::array::from_fn(|i| s[i] + SECONDS / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]));
        self.state = [
            wrapped(next[0]),
            wrapped(next[1]),
            next[2].clamp(-4.0 * PI, 4.0 * PI),
            next[3].clamp(-9.0 * PI, 9.0 * PI),
        ];
        self.steps += 1;
        self.show(next_state);
        let terminated = -self.state[0].cos() - (self.state[1] + self.state[0]).cos() > 1.0;
        let reward = if terminated { 0.0 } else { -1.0 };
        Outcome { reward, terminated, truncated: !terminated && self.steps >= Self::LIMIT }
    }
}

/// The same angle between -pi and pi.
fn wrapped(mut angle: f64) -> f64 {
    while angle > PI {
        angle -= 2.0 * PI;
    }
    while angle < -PI {
        angle += 2.0 * PI;
    }
    angle
}
