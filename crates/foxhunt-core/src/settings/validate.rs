//! Range checks, one line a rule.

use super::{Device, MemoryFallback, Precision, Settings, SettingsError, TargetUpdate};
use crate::{LinearSchedule, ReturnModel};

impl Settings {
    /// Checks every range and every dependency between keys.
    ///
    /// # Errors
    /// [`SettingsError::OutOfRange`] or [`SettingsError::Unavailable`] for the first key that is refused.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.validate_market()?;
        self.validate_learning()?;
        self.validate_run()
    }

    /// Checks what the CPU engine asks of settings beside [`Settings::validate`], whatever `run.device` says.
    ///
    /// # Errors
    /// [`SettingsError::Unavailable`] for a `learner.precision` other than `f32`.
    pub fn validate_for_cpu(&self) -> Result<(), SettingsError> {
        available(
            "learner.precision",
            self.learner.precision.name(),
            self.learner.precision == Precision::F32,
            "the CPU engine computes f32 alone; the others need a GPU (run.device = \"cuda\")",
        )
    }

    fn validate_market(&self) -> Result<(), SettingsError> {
        let s = &self.split;
        share_open("split.train", s.train)?;
        share_open("split.validation", s.validation)?;
        rule(
            "split.validation",
            s.validation,
            "such that train + validation is below 1",
            s.train + s.validation < 1.0,
        )?;
        rule(
            "split.purge_bars",
            s.purge_bars,
            "at least learner.n_step",
            s.purge_bars >= self.learner.n_step,
        )?;
        if let Some(w) = &s.windows {
            let windows = [w.train, w.validation, w.test];
            let filled = windows.iter().all(|[start, end]| end.saturating_sub(*start) >= 2);
            let apart = windows
                .windows(2)
                .all(|pair| pair[1][0].checked_sub(pair[0][1]).is_some_and(|gap| gap >= self.learner.n_step));
            let text = format!("{:?}, {:?}, {:?}", w.train, w.validation, w.test);
            rule(
                "split.windows",
                text,
                "three windows [first, end] of at least two bars, in order and learner.n_step bars apart",
                filled && apart,
            )?;
        }

        let x = &self.execution;
        for (key, value) in
            [("execution.half_spread_bps", x.half_spread_bps), ("execution.impact_bps", x.impact_bps)]
        {
            rule(key, value, "in [0, 10000]", (0.0..=10_000.0).contains(&value))?;
        }
        for (key, value) in
            [("execution.taker_fee_bps", x.taker_fee_bps), ("execution.maker_fee_bps", x.maker_fee_bps)]
        {
            rule(key, value, "between -10000 and 10000", value.abs() < 10_000.0)?;
        }
        if let Some(tick) = x.tick_size {
            positive("execution.tick_size", tick)?;
        }
        rule("execution.volatility_window", x.volatility_window, "at least 2", x.volatility_window >= 2)?;
        rule("execution.median_window", x.median_window, "at least 2", x.median_window >= 2)?;

        let e = &self.env;
        within("env.n_envs", e.n_envs, "from 1 to 65536", 1, 65_536)?;
        within("env.episode_bars", e.episode_bars, "from 1 to 2^31 - 1", 1, i32::MAX as usize)?;
        let equity = e.start_equity;
        rule("env.start_equity", equity, "from 1e-6 to 1e18", (1e-6..=1e18).contains(&equity))?;
        rule(
            "env.max_leverage",
            e.max_leverage,
            "in (0, 100]",
            e.max_leverage > 0.0 && e.max_leverage <= 100.0,
        )?;
        rule(
            "env.ruin_fraction",
            e.ruin_fraction,
            "in [0.01, 1)",
            e.ruin_fraction >= 0.01 && e.ruin_fraction < 1.0,
        )?;
        positive("env.reward_scale", e.reward_scale)
    }

    fn validate_learning(&self) -> Result<(), SettingsError> {
        let n = &self.network;
        rule(
            "network.hidden",
            format!("{:?}", n.hidden),
            "one to eight layers of 1 to 4096 units",
            (1..=8).contains(&n.hidden.len()) && n.hidden.iter().all(|units| (1..=4096).contains(units)),
        )?;
        let sigma = n.noisy_sigma;
        rule("network.noisy_sigma", sigma, "in (0, 10]", sigma > 0.0 && sigma <= 10.0)?;
        available(
            "network.noisy_sigma",
            sigma,
            n.noisy || sigma == Settings::default().network.noisy_sigma,
            "no layer has noise while network.noisy = false",
        )?;
        self.validate_returns()?;

        let l = &self.learner;
        within("learner.batch", l.batch, "from 1 to 65536", 1, 65_536)?;
        within("learner.accumulation", l.accumulation, "from 1 to 1024", 1, 1024)?;
        share("learner.gamma", l.gamma)?;
        within("learner.n_step", l.n_step, "from 1 to 256", 1, 256)?;
        available(
            "learner.double",
            l.double,
            !(l.double && l.munchausen),
            "with learner.munchausen = true the target network's policy stands for the next action, so learner.double must be false",
        )?;
        share("learner.munchausen_alpha", l.munchausen_alpha)?;
        let (tau, floor) = (l.munchausen_tau, l.munchausen_floor);
        rule("learner.munchausen_tau", tau, "from 1e-6 to 1e6", (1e-6..=1e6).contains(&tau))?;
        rule("learner.munchausen_floor", floor, "in [-1e6, 0]", (-1e6..=0.0).contains(&floor))?;
        let usual = Settings::default().learner;
        for (key, value, usual) in [
            ("learner.munchausen_alpha", l.munchausen_alpha, usual.munchausen_alpha),
            ("learner.munchausen_tau", tau, usual.munchausen_tau),
            ("learner.munchausen_floor", floor, usual.munchausen_floor),
        ] {
            let used = l.munchausen || value == usual;
            available(key, value, used, "targets are others while learner.munchausen = false")?;
        }
        for (key, value) in [
            ("learner.learning_rate.start", l.learning_rate.start),
            ("learner.learning_rate.end", l.learning_rate.end),
        ] {
            rule(key, value, "in (0, 1]", value > 0.0 && value <= 1.0)?;
        }
        positive("learner.huber_delta", l.huber_delta)?;
        not_negative("learner.clip_norm", l.clip_norm)?;
        rule("learner.adam_beta1", l.adam_beta1, "in [0, 1)", (0.0..1.0).contains(&l.adam_beta1))?;
        rule("learner.adam_beta2", l.adam_beta2, "in [0, 1)", (0.0..1.0).contains(&l.adam_beta2))?;
        // Below about 1e-23 the square of a gradient is 0 in f32; what divides by its root must then still be there.
        rule(
            "learner.adam_epsilon",
            l.adam_epsilon,
            "a finite number of at least 1e-20",
            l.adam_epsilon >= 1e-20 && l.adam_epsilon.is_finite(),
        )?;
        match l.target {
            TargetUpdate::Hard { every } => rule("learner.target.every", every, "at least 1", every >= 1)?,
            TargetUpdate::Polyak { tau } => {
                rule("learner.target.tau", tau, "in (0, 1]", tau > 0.0 && tau <= 1.0)?;
            }
        }

        if self.run.device == Device::Cpu {
            self.validate_for_cpu()?;
        }

        let r = &self.replay;
        within("replay.capacity", r.capacity, "from 1 to 2^31", 1, 1 << 31)?;
        rule("replay.capacity", r.capacity, "at least learner.batch", r.capacity >= l.batch)?;
        share("replay.alpha", r.alpha)?;
        share("replay.beta_start", r.beta_start)?;
        rule(
            "replay.beta_max",
            r.beta_max,
            "in [replay.beta_start, 1]",
            r.beta_max >= r.beta_start && r.beta_max <= 1.0,
        )?;
        rule("replay.epsilon", r.epsilon, "in [0, 32767]", (0.0..=32_767.0).contains(&r.epsilon))?;
        rule("replay.resort_every", r.resort_every, "at least 1", r.resort_every >= 1)?;
        available(
            "replay.memory_fallback",
            format!("{:?}", r.memory_fallback).to_lowercase(),
            r.memory_fallback == MemoryFallback::Cpu || self.run.device != Device::Cpu,
            "the CPU engine keeps the replay memory in host memory and has nothing to fall back to",
        )?;

        let LinearSchedule { start, end, .. } = self.exploration.epsilon;
        share("exploration.epsilon.start", start)?;
        share("exploration.epsilon.end", end)?;

        let g = &self.guard;
        rule("guard.max_skips_in_row", g.max_skips_in_row, "at least 1", g.max_skips_in_row >= 1)?;
        positive("guard.loss_threshold", g.loss_threshold)?;
        not_negative("guard.collapse_multiplier", g.collapse_multiplier)?;
        rule("guard.collapse_patience", g.collapse_patience, "at least 1", g.collapse_patience >= 1)?;

        positive("monitor.divergence_threshold", self.monitor.divergence_threshold)?;
        if let Some(stop) = self.monitor.average_q_stop {
            positive("monitor.average_q_stop.min_change", stop.min_change)?;
            rule("monitor.average_q_stop.patience", stop.patience, "at least 1", stop.patience >= 1)?;
        }
        Ok(())
    }

    /// Distributions of the return: of one kind, with everything that kind goes by and nothing that it does not.
    fn validate_returns(&self) -> Result<(), SettingsError> {
        let (n, default) = (&self.network, Settings::default());
        for (key, value) in [("network.c51_atoms", n.c51_atoms), ("network.quantiles", n.quantiles)] {
            let holds = value == 0 || (2..=ReturnModel::MAX_ATOMS).contains(&value);
            rule(key, value, "0, or from 2 to 256", holds)?;
        }
        let [low, high] = n.c51_range;
        let size = low.abs().max(high.abs());
        rule(
            "network.c51_range",
            format!("{:?}", n.c51_range),
            "two numbers of at most 1e6 in size, the second above the first by at least 1e-6 and a thousandth of the larger size",
            size <= 1e6 && high - low >= 1e-6 && high - low >= 1e-3 * size,
        )?;
        available(
            "network.quantiles",
            n.quantiles,
            n.quantiles == 0 || n.c51_atoms == 0,
            "the network already has network.c51_atoms, and one distribution is enough",
        )?;
        available(
            "learner.munchausen",
            self.learner.munchausen,
            !self.learner.munchausen || n.returns().is_mean(),
            "its targets are Q-values, those of network.c51_atoms and network.quantiles are distributions",
        )?;
        available(
            "network.c51_range",
            format!("{:?}", n.c51_range),
            n.c51_atoms > 0 || n.c51_range == default.network.c51_range,
            "there are no returns to spread over it while network.c51_atoms = 0",
        )?;
        available(
            "learner.huber_delta",
            self.learner.huber_delta,
            n.c51_atoms == 0 || self.learner.huber_delta == default.learner.huber_delta,
            "with network.c51_atoms the loss is a cross-entropy, which has no Huber part",
        )
    }

    fn validate_run(&self) -> Result<(), SettingsError> {
        let t = &self.training;
        rule("training.epochs", t.epochs, "at least 1", t.epochs >= 1)?;
        rule("training.collect", t.collect, "at least 1", t.collect >= 1)?;
        within("training.updates_per_epoch", t.updates_per_epoch as usize, "from 1 to 2^30", 1, 1 << 30)?;
        rule("training.validate_every", t.validate_every, "at least 1", t.validate_every >= 1)?;
        let v = &self.evaluation;
        rule("evaluation.random_policies", v.random_policies, "from 1 to 10000", {
            (1..=10_000).contains(&v.random_policies)
        })?;
        rule("evaluation.risk_free_rate", v.risk_free_rate, "in (-1, 10)", {
            v.risk_free_rate > -1.0 && v.risk_free_rate < 10.0
        })?;
        let w = &self.walk_forward;
        within("walk_forward.folds", w.folds, "from 1 to 1000", 1, 1000)?;
        within("walk_forward.seeds", w.seeds, "from 1 to 1000", 1, 1000)?;
        share_open("walk_forward.first_share", w.first_share)?;
        share_open("walk_forward.validation", w.validation)?;
        within("walk_forward.parallel", w.parallel, "from 0 to 1024", 0, 1024)?;
        let c = &self.checkpoint;
        rule("checkpoint.every_epochs", c.every_epochs, "at least 1", c.every_epochs >= 1)?;
        rule("checkpoint.keep", c.keep, "at least 1", c.keep >= 1)?;
        let dir = &self.run.dir;
        rule(
            "run.dir",
            dir.display(),
            "a path in UTF-8, as settings are kept as text",
            dir.to_str().is_some(),
        )?;
        rule("run.seed", self.run.seed, "below 2^63", self.run.seed < 1 << 63)?;
        within("run.threads", self.run.threads, "from 0 to 1024", 0, 1024)
    }
}

fn rule(
    key: &'static str,
    value: impl ToString,
    rule: &'static str,
    holds: bool,
) -> Result<(), SettingsError> {
    if holds { Ok(()) } else { Err(SettingsError::OutOfRange { key, value: value.to_string(), rule }) }
}

fn available(
    key: &'static str,
    value: impl ToString,
    holds: bool,
    reason: &'static str,
) -> Result<(), SettingsError> {
    if holds { Ok(()) } else { Err(SettingsError::Unavailable { key, value: value.to_string(), reason }) }
}

fn within(
    key: &'static str,
    value: usize,
    text: &'static str,
    low: usize,
    high: usize,
) -> Result<(), SettingsError> {
    rule(key, value, text, (low..=high).contains(&value))
}

// Each comparison below is false for NaN, so a NaN is refused everywhere.

fn positive(key: &'static str, value: f64) -> Result<(), SettingsError> {
    rule(key, value, "a finite number above 0", value > 0.0 && value.is_finite())
}

fn not_negative(key: &'static str, value: f64) -> Result<(), SettingsError> {
    rule(key, value, "a finite number of at least 0", value >= 0.0 && value.is_finite())
}

fn share(key: &'static str, value: f64) -> Result<(), SettingsError> {
    rule(key, value, "in [0, 1]", (0.0..=1.0).contains(&value))
}

fn share_open(key: &'static str, value: f64) -> Result<(), SettingsError> {
    rule(key, value, "in (0, 1)", value > 0.0 && value < 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_toml() {
        let settings = Settings::default();
        settings.validate().unwrap();
        assert_eq!(Settings::from_toml(&settings.to_toml().unwrap()).unwrap(), settings);
        assert_eq!(Settings::from_toml("").unwrap(), settings);
    }

    /// Every key can be given alone, in whatever table it lies.
    #[test]
    fn a_table_given_in_part_keeps_the_other_defaults() {
        fn leaves(path: &str, value: &toml::Value, found: &mut Vec<(String, toml::Value)>) {
            match value {
                toml::Value::Table(table) => {
                    for (key, value) in table {
                        let dot = if path.is_empty() { "" } else { "." };
                        leaves(&format!("{path}{dot}{key}"), value, found);
                    }
                }
                leaf => found.push((path.to_owned(), leaf.clone())),
            }
        }
        let default = Settings::default();
        let whole: toml::Table = default.to_toml().unwrap().parse().unwrap();
        let mut found = Vec::new();
        leaves("", &whole.into(), &mut found);
        let nested = ["learner.learning_rate.start", "learner.target.tau", "exploration.epsilon.end"];
        assert!(nested.iter().all(|key| found.iter().any(|(path, _)| path == key)), "{found:?}");
        for (path, value) in found {
            let text = format!("{path} = {value}");
            assert_eq!(Settings::from_toml(&text).as_ref(), Ok(&default), "{text}");
        }

        let got =
            Settings::from_toml("exploration.epsilon.end = 0.5\nlearner.learning_rate.steps = 7").unwrap();
        let epsilon = default.exploration.epsilon;
        assert_eq!(got.exploration.epsilon, LinearSchedule { end: 0.5, ..epsilon });
        assert_eq!(got.learner.learning_rate, LinearSchedule { steps: 7, ..default.learner.learning_rate });
        let got = Settings::from_toml("learner.target.tau = 0.5").unwrap();
        assert_eq!(got.learner.target, TargetUpdate::Polyak { tau: 0.5 });
        let got = Settings::from_toml("learner.target = { kind = \"hard\", every = 3 }").unwrap();
        assert_eq!(got.learner.target, TargetUpdate::Hard { every: 3 });
        let error = Settings::from_toml("learner.target.kind = \"hard\"").unwrap_err();
        assert!(error.to_string().contains("every"), "{error}");
    }

    #[test]
    fn unknown_keys_are_errors_at_every_level() {
        for text in [
            "lr = 1",
            "[learner]\nlr = 1",
            "[learner.target]\nkind = \"hard\"\nevery = 1\ntau = 0.5",
            "learner.target.every = 5",
            "exploration.epsilon.stop = 1.0",
            "learner.learning_rate = 1e-3",
        ] {
            let error = Settings::from_toml(text).unwrap_err();
            assert!(matches!(error, SettingsError::Parse { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn lists_are_no_sections() {
        for (text, key) in [
            ("learner = [64, 2, 0.5]", "learner"),
            ("run = []", "run"),
            ("[[learner]]\nbatch = 3", "learner"),
            ("exploration.epsilon = [0.9, 0.1, 50]", "exploration.epsilon"),
            ("learner.target = [\"hard\", 3]", "learner.target"),
        ] {
            let by_line = Settings::from_toml(text).unwrap_err().to_string();
            let by_key = Settings::from_table(toml::from_str(text).unwrap()).unwrap_err().to_string();
            for error in [by_line, by_key] {
                assert!(error.contains(&format!("`{key}` is a section")), "{text}: {error}");
            }
        }
    }

    /// A value of another type is told in the words of settings, not of the program.
    #[test]
    fn types_are_told_in_words() {
        for (text, words) in [
            ("[learner]\nbatch = \"x\"", "expected a whole number from 0 on"),
            ("[learner]\nbatch = -3", "expected a whole number from 0 on"),
            ("[learner]\ngamma = \"expected usize\"", "expected a number"),
            ("[learner]\ndouble = 1", "expected true or false"),
            ("[network]\nhidden = 64", "expected a list in brackets"),
            ("learner.learning_rate = 1e-3", "expected a table of start, end and steps"),
            ("learner.target = 3", "expected a table of kind, and of every or tau"),
            ("learner = 5", "expected a section"),
            ("run.device = 1", "expected a word in quotes"),
        ] {
            let by_line = Settings::from_toml(text).unwrap_err().to_string();
            let by_key = Settings::from_table(toml::from_str(text).unwrap()).unwrap_err().to_string();
            for error in [by_line, by_key] {
                assert!(error.contains(words), "{text}: {error}");
                let wanted = error.rsplit("expected ").next().unwrap();
                let types = ["usize", "u64", "u32", "f64", "struct"];
                assert!(!types.iter().any(|name| wanted.contains(name)), "{error}");
            }
        }
    }

    /// One bad value a rule; each error names its key.
    #[test]
    fn bad_values_are_refused_by_name() {
        let cases = [
            ("split.train", "[split]\ntrain = 0.0"),
            ("split.validation", "[split]\ntrain = 0.6\nvalidation = 0.4"),
            ("split.purge_bars", "[split]\npurge_bars = 2"),
            ("execution.half_spread_bps", "[execution]\nhalf_spread_bps = -1.0"),
            ("execution.half_spread_bps", "[execution]\nhalf_spread_bps = 1e5"),
            ("execution.impact_bps", "[execution]\nimpact_bps = 1e300"),
            ("execution.taker_fee_bps", "[execution]\ntaker_fee_bps = nan"),
            ("execution.tick_size", "[execution]\ntick_size = 0.0"),
            ("execution.median_window", "[execution]\nmedian_window = 1"),
            ("env.n_envs", "[env]\nn_envs = 0"),
            ("env.start_equity", "[env]\nstart_equity = inf"),
            ("env.start_equity", "[env]\nstart_equity = 1e308"),
            ("env.max_leverage", "[env]\nmax_leverage = 101.0"),
            ("env.ruin_fraction", "[env]\nruin_fraction = 0.0"),
            ("env.reward_scale", "[env]\nreward_scale = nan"),
            ("network.hidden", "[network]\nhidden = []"),
            ("network.noisy_sigma", "[network]\nnoisy_sigma = 0.0"),
            ("network.noisy_sigma", "[network]\nnoisy_sigma = 0.4"),
            ("network.c51_atoms", "[network]\nc51_atoms = 1"),
            ("network.c51_atoms", "[network]\nc51_atoms = 257"),
            ("network.quantiles", "[network]\nquantiles = 1"),
            ("network.quantiles", "[network]\nquantiles = 257"),
            ("network.quantiles", "[network]\nquantiles = 8\nc51_atoms = 51"),
            ("network.c51_range", "[network]\nc51_range = [-1.0, 1.0]"),
            ("network.c51_range", "[network]\nc51_atoms = 51\nc51_range = [1.0, -1.0]"),
            ("network.c51_range", "[network]\nc51_atoms = 51\nc51_range = [-1.0, inf]"),
            ("network.c51_range", "[network]\nc51_atoms = 51\nc51_range = [nan, 1.0]"),
            ("network.c51_range", "[network]\nc51_atoms = 51\nc51_range = [1e5, 100001.0]"),
            ("learner.huber_delta", "[network]\nc51_atoms = 51\n[learner]\nhuber_delta = 2.0"),
            ("learner.double", "[learner]\nmunchausen = true"),
            ("learner.munchausen_alpha", "[learner]\nmunchausen_alpha = 1.1"),
            ("learner.munchausen_alpha", "[learner]\nmunchausen_alpha = 0.5"),
            ("learner.munchausen_tau", "[learner]\nmunchausen_tau = 0.5"),
            ("learner.munchausen_floor", "[learner]\nmunchausen_floor = -2.0"),
            ("learner.munchausen_tau", "[learner]\nmunchausen_tau = 0.0"),
            ("learner.munchausen_floor", "[learner]\nmunchausen_floor = 0.5"),
            ("learner.gamma", "[learner]\ngamma = 1.1"),
            (
                "learner.learning_rate.start",
                "[learner]\nlearning_rate = { start = nan, end = 1.0, steps = 0 }",
            ),
            ("learner.target.every", "[learner]\ntarget = { kind = \"hard\", every = 0 }"),
            ("learner.target.tau", "[learner]\ntarget = { kind = \"polyak\", tau = 0.0 }"),
            ("learner.precision", "[run]\ndevice = \"cpu\"\n[learner]\nprecision = \"tf32x3\""),
            ("replay.beta_max", "[replay]\nbeta_start = 0.5\nbeta_max = 0.4"),
            (
                "learner.learning_rate.end",
                "[learner]\nlearning_rate = { start = 1.0, end = 1e300, steps = 0 }",
            ),
            ("learner.adam_epsilon", "[learner]\nadam_epsilon = 1e-50"),
            ("replay.capacity", "[replay]\ncapacity = 0"),
            ("replay.capacity", "[replay]\ncapacity = 127"),
            ("replay.epsilon", "[replay]\nepsilon = 40000.0"),
            ("replay.memory_fallback", "[run]\ndevice = \"cpu\"\n[replay]\nmemory_fallback = \"shrink\""),
            ("exploration.epsilon.end", "[exploration]\nepsilon = { start = 1.0, end = -0.1, steps = 1 }"),
            ("guard.max_skips_in_row", "[guard]\nmax_skips_in_row = 0"),
            (
                "monitor.average_q_stop.patience",
                "[monitor]\naverage_q_stop = { min_change = 1.0, patience = 0 }",
            ),
            ("training.epochs", "[training]\nepochs = 0"),
            ("evaluation.random_policies", "[evaluation]\nrandom_policies = 4294967295"),
            ("evaluation.risk_free_rate", "[evaluation]\nrisk_free_rate = -1.0"),
            ("checkpoint.keep", "[checkpoint]\nkeep = 0"),
            ("split.windows", "[split.windows]\ntrain = [0, 9]\nvalidation = [11, 20]\ntest = [30, 40]"),
            ("split.windows", "[split.windows]\ntrain = [0, 9]\nvalidation = [20, 12]\ntest = [30, 40]"),
            ("walk_forward.folds", "[walk_forward]\nfolds = 0"),
            ("walk_forward.seeds", "[walk_forward]\nseeds = 1001"),
            ("walk_forward.first_share", "[walk_forward]\nfirst_share = 1.0"),
            ("walk_forward.validation", "[walk_forward]\nvalidation = nan"),
            ("walk_forward.parallel", "[walk_forward]\nparallel = 1025"),
        ];
        for (want, text) in cases {
            match Settings::from_toml(text).unwrap().validate() {
                Err(SettingsError::OutOfRange { key, .. } | SettingsError::Unavailable { key, .. }) => {
                    assert_eq!(key, want, "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    /// A path that no settings file can hold is refused by its key, not where the file is written.
    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_written_down_is_refused() {
        use std::os::unix::ffi::OsStrExt as _;
        let mut settings = Settings::default();
        settings.run.dir = std::ffi::OsStr::from_bytes(b"runs-\xff").into();
        let told = settings.validate().unwrap_err().to_string();
        assert!(told.starts_with("run.dir = runs-") && told.contains("UTF-8"), "{told}");
    }

    /// Two keys that exclude each other are both named.
    #[test]
    fn distributions_are_one_or_the_other() {
        for (text, names) in [
            ("[network]\nquantiles = 8\nc51_atoms = 51", ["network.quantiles = 8", "network.c51_atoms"]),
            (
                "[network]\nc51_range = [0.0, 1.0]",
                ["network.c51_range = [0.0, 1.0]", "network.c51_atoms = 0"],
            ),
            (
                "[network]\nquantiles = 8\n[learner]\nmunchausen = true",
                ["learner.munchausen = true", "network.quantiles"],
            ),
            (
                "[network]\nc51_atoms = 51\n[learner]\nhuber_delta = 2.0",
                ["learner.huber_delta = 2", "network.c51_atoms"],
            ),
            (
                "[network]\nc51_atoms = 51\n[learner]\nmunchausen = true\ndouble = false",
                ["learner.munchausen = true", "network.c51_atoms"],
            ),
        ] {
            let told = Settings::from_toml(text).unwrap().validate().unwrap_err().to_string();
            assert!(names.iter().all(|name| told.contains(name)), "{told}");
        }
        let of = |text: &str| {
            let settings = Settings::from_toml(text).unwrap();
            settings.validate().unwrap();
            settings.network.returns()
        };
        assert_eq!(of(""), ReturnModel::Mean);
        assert_eq!(
            of("[network]\nquantiles = 8\n[learner]\nhuber_delta = 2.0"),
            ReturnModel::Quantiles { n: 8 }
        );
        assert_eq!(
            of("[network]\nc51_atoms = 51\nc51_range = [-2, 3]"),
            ReturnModel::Categorical { atoms: 51, v_min: -2.0, v_max: 3.0 }
        );
    }
}
