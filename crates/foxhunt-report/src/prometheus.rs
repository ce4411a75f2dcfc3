//! A training run as Prometheus reads it: OpenMetrics 1.0 text, a fixed set of series fed by a [`TrainObserver`].
//!
//! A gauge shows the last finite value, and NaN before there was one. A value that is not finite changes no gauge: it
//! is counted in `foxhunt_non_finite_metrics_total`, and `foxhunt_healthy` is 0 until an epoch passes without one. Every
//! series is there from the start and has no labels, so their number never changes. What each means is in its HELP line
//! and in `docs/metrics.md`. Serving it is the caller's.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foxhunt::trainer::{
    CheckpointReport, EpochReport, StartReport, TrainObserver, ValidationReport, Warning,
};
use foxhunt_core::record::FaultKind;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

type Gauge = prometheus_client::metrics::gauge::Gauge<f64, AtomicU64>;
/// Name, help, and the value in a report; none when the report has none.
type GaugeRow<R> = (&'static str, &'static str, fn(&R) -> Option<f64>);
/// Name, help, and by how much a report raises it, given what it stood at.
type CounterRow = (&'static str, &'static str, fn(&EpochReport, u64) -> u64);

/// Media type of [`RunMetrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Room for a scrape, so that its text does not grow from nothing; it is some 5 KB.
const TEXT_BYTES: usize = 8 << 10;

/// Gauges of an epoch.
const EPOCH: [GaugeRow<EpochReport>; 20] = [
    ("epoch", "Epochs completed", |e| Some(e.epoch as f64)),
    ("epochs", "Epochs the run has at most", |e| Some(e.epochs as f64)),
    ("loss", "Mean loss of the epoch's applied updates", |e| e.stats.loss),
    ("grad_norm", "Mean gradient norm before clipping of the epoch's applied updates", |e| e.stats.grad_norm),
    ("td_error", "Mean absolute TD error of the epoch's applied updates", |e| e.stats.td_error),
    ("q_min", "Smallest Q-value of the last decisions", |e| e.stats.q_min),
    ("q_mean", "Mean Q-value of the last decisions", |e| e.stats.q_mean),
    ("q_max", "Largest Q-value of the last decisions", |e| e.stats.q_max),
    ("max_q", "Mean over the epoch's decisions of the largest Q-value", |e| e.stats.max_q),
    ("epsilon", "Chance of a random action, share", |e| Some(e.stats.epsilon)),
    ("beta", "Power of the importance weight", |e| Some(e.stats.beta)),
    ("learning_rate", "Learning rate", |e| Some(e.stats.learning_rate)),
    ("buffer_rows", "Rows stored in the replay memory", |e| Some(e.stats.replay_len as f64)),
    ("buffer_capacity_rows", "Rows the replay memory can hold", |e| Some(e.stats.replay_capacity as f64)),
    ("buffer_fill_ratio", "Share of the replay memory that is filled", |e| {
        Some(e.stats.replay_len as f64 / e.stats.replay_capacity as f64)
            .filter(|_| e.stats.replay_capacity > 0)
    }),
    ("env_steps_per_second", "Env steps a second of collecting", |e| e.env_steps_per_s),
    ("updates_per_second", "Updates a second of updating", |e| e.updates_per_s),
    ("reward", "Mean reward of an env step in the epoch", |e| e.stats.reward),
    ("episode_log_return", "Mean log return of equity over the episodes that ended in the epoch", |e| {
        e.stats.episode_log_return
    }),
    ("q_diverged", "1 when an absolute Q-value passed the divergence threshold in the epoch", |e| {
        Some(f64::from(u8::from(e.stats.q_diverged)))
    }),
];

/// Gauges of a validation.
const VALIDATION: [GaugeRow<ValidationReport>; 3] = [
    ("validation_net_log_return", "Log return of equity after costs on the validation split", |v| {
        v.net_log_return
    }),
    ("validation_turnover", "Turnover on the validation split, multiples of equity", |v| v.turnover),
    ("validations_without_progress", "Validations since the best", |v| Some(f64::from(v.without_progress))),
];

/// Counters of epochs. Those of the engine run from the start of training, over resumes.
const TOTALS: [CounterRow; 9] = [
    ("env_steps", "Env steps since the start of training", |e, at| {
        e.stats.total_env_steps.saturating_sub(at)
    }),
    ("updates", "Applied updates since the start of training", |e, at| {
        e.stats.total_updates.saturating_sub(at)
    }),
    (
        "skipped_updates",
        "Updates skipped for a non-finite loss or gradient norm since the start of training",
        |e, at| e.stats.total_skipped_updates.saturating_sub(at),
    ),
    ("rollbacks", "Rollbacks to the last good network in this process", |e, _| e.rollbacks),
    ("refused_transitions", "Non-finite rewards and states refused in this process", |e, _| refused(e)),
    ("non_finite_q_decisions", "Decisions whose largest Q-value was not finite in this process", |e, _| {
        e.stats.non_finite_q_decisions
    }),
    ("fallback_decisions", "Decisions that fell back for want of a Q-value in this process", |e, _| {
        e.stats.fallback_decisions
    }),
    ("episodes", "Episodes that ended in this process", |e, _| e.stats.episodes),
    ("ruined_episodes", "Episodes that ended in ruin in this process", |e, _| e.stats.ruined_episodes),
];

fn refused(epoch: &EpochReport) -> u64 {
    let of_row = |kind| matches!(kind, FaultKind::NonFiniteReward | FaultKind::NonFiniteState);
    epoch.stats.faults.iter().filter(|fault| of_row(fault.kind)).map(|fault| u64::from(fault.count)).sum()
}

/// The metrics of one run. Clones show the same run; reading never waits for the trainer, nor the trainer for a reader.
#[derive(Clone, Debug)]
pub struct RunMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    epoch: Vec<Gauge>,
    validation: Vec<Gauge>,
    totals: Vec<Counter>,
    healthy: Gauge,
    non_finite: Counter,
    validations: Counter,
    checkpoints: Counter,
    warnings: Counter,
    started: AtomicBool,
}

impl Default for RunMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("foxhunt");
        let mut gauge = |(name, help): (&str, &str)| {
            let gauge = Gauge::default();
            gauge.set(f64::NAN);
            registry.register(name, help, gauge.clone());
            gauge
        };
        let epoch = EPOCH.iter().map(|row| gauge((row.0, row.1))).collect();
        let validation = VALIDATION.iter().map(|row| gauge((row.0, row.1))).collect();
        let healthy = gauge(("healthy", "1 while every number of the last epoch was finite, else 0"));
        healthy.set(1.0);
        let mut counter = |(name, help): (&str, &str)| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let totals = TOTALS.iter().map(|row| counter((row.0, row.1))).collect();
        let non_finite =
            counter(("non_finite_metrics", "Metrics that were not finite and left their gauge as it was"));
        let validations = counter(("validations", "Validations in this process"));
        let checkpoints = counter(("checkpoints", "Checkpoints saved in this process"));
        let warnings = counter(("warnings", "Warnings in this process"));
        Self(Arc::new(Inner {
            registry,
            epoch,
            validation,
            totals,
            healthy,
            non_finite,
            validations,
            checkpoints,
            warnings,
            started: AtomicBool::new(true),
        }))
    }
}

impl RunMetrics {
    /// The metrics of a run that has not started: they are not to be served before [`RunMetrics::started`], as the counters of a
    /// run that goes on would seem to begin anew.
    #[must_use]
    pub fn awaiting() -> Self {
        let metrics = Self::default();
        metrics.0.started.store(false, Ordering::Release);
        metrics
    }

    /// Whether training has started.
    #[must_use]
    pub fn started(&self) -> bool {
        self.0.started.load(Ordering::Acquire)
    }

    /// Everything, as of now.
    ///
    /// # Errors
    /// [`fmt::Error`] when a metric cannot be written as text.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::with_capacity(TEXT_BYTES);
        encode(&mut text, &self.0.registry)?;
        Ok(text)
    }

    /// Whether every number of the last epoch was finite.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.0.healthy.get() > 0.0
    }

    /// Sets the gauges that have a finite value; how many had one that is not.
    fn set<R>(&self, rows: &[GaugeRow<R>], gauges: &[Gauge], report: &R) -> u64 {
        let mut non_finite = 0;
        for ((_, _, value), gauge) in rows.iter().zip(gauges) {
            match value(report) {
                Some(value) if value.is_finite() => drop(gauge.set(value)),
                Some(_) => non_finite += 1,
                None => {}
            }
        }
        self.0.non_finite.inc_by(non_finite);
        non_finite
    }
}

impl TrainObserver for RunMetrics {
    fn on_start(&mut self, start: &StartReport) {
        self.0.epoch[0].set(start.epoch as f64);
        self.0.epoch[1].set(start.epochs as f64);
        // Those of the engine come first in their table.
        let done = [start.done.env_steps, start.done.updates, start.done.skipped_updates];
        for (counter, done) in self.0.totals.iter().zip(done) {
            counter.inc_by(done.saturating_sub(counter.get()));
        }
        self.0.started.store(true, Ordering::Release);
    }

    fn on_epoch(&mut self, report: &EpochReport) {
        let non_finite = self.set(&EPOCH, &self.0.epoch, report);
        for ((_, _, rise), counter) in TOTALS.iter().zip(&self.0.totals) {
            counter.inc_by(rise(report, counter.get()));
        }
        let stats = &report.stats;
        let sound = non_finite == 0
            && stats.skipped_updates == 0
            && stats.non_finite_q_decisions == 0
            && stats.fallback_decisions == 0
            && stats.faults.is_empty()
            && stats.faults_lost == 0;
        self.0.healthy.set(f64::from(u8::from(sound)));
    }

    fn on_validation(&mut self, report: &ValidationReport) {
        self.0.validations.inc();
        // A validation without a finite return has none at all.
        if self.set(&VALIDATION, &self.0.validation, report) > 0 || report.net_log_return.is_none() {
            self.0.healthy.set(0.0);
        }
    }

    fn on_checkpoint(&mut self, _report: &CheckpointReport) {
        self.0.checkpoints.inc();
    }

    fn on_warning(&mut self, _warning: &Warning) {
        self.0.warnings.inc();
    }
}

#[cfg(test)]
mod tests {
    use foxhunt::engine::EngineStatus;
    use foxhunt::run_folder::RunPaths;
    use foxhunt_core::record::EpochStats;

    use super::*;

    fn report(epoch: u64, loss: Option<f64>) -> EpochReport {
        EpochReport {
            epoch,
            epochs: 9,
            wall_s: 1.5,
            env_steps_per_s: Some(10.0),
            updates_per_s: None,
            rollbacks: 0,
            stats: EpochStats {
                loss,
                total_updates: 10 * epoch,
                replay_len: 5,
                replay_capacity: 20,
                ..EpochStats::default()
            },
        }
    }

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    /// The series of a scrape, each preceded by its HELP and TYPE.
    fn series(text: &str) -> Vec<String> {
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last(), Some(&"# EOF"));
        let mut names = Vec::new();
        for group in lines[..lines.len() - 1].chunks(3) {
            let [help, kind, sample] = group else { panic!("{group:?}") };
            let name = help.strip_prefix("# HELP ").unwrap().split(' ').next().unwrap();
            let kind = kind.strip_prefix(&format!("# TYPE {name} ")).expect(name);
            let (sample, value) = sample.rsplit_once(' ').unwrap();
            assert!(value == "NaN" || value.parse::<f64>().unwrap().is_finite(), "{name} {value}");
            match kind {
                "gauge" => assert_eq!(sample, name),
                "counter" => assert_eq!(sample, format!("{name}_total")),
                other => panic!("{name} is a {other}"),
            }
            assert!(sample.starts_with("foxhunt_"), "{sample}");
            names.push(sample.to_owned());
        }
        names
    }

    /// What was done before counts from the first scrape on, and there is none before that is known.
    #[test]
    fn counters_go_on_where_a_resumed_run_stands() {
        let mut metrics = RunMetrics::awaiting();
        assert!(!metrics.started());
        let done =
            EngineStatus { env_steps: 700, updates: 50, skipped_updates: 3, ..EngineStatus::default() };
        let run = RunPaths::new(std::path::Path::new("run"));
        metrics.on_start(&StartReport { engine: "cpu", epoch: 4, resumed: true, done, epochs: 9, run });
        assert!(metrics.started());
        let text = metrics.text().unwrap();
        for (name, want) in
            [("env_steps", 700.0), ("updates", 50.0), ("skipped_updates", 3.0), ("episodes", 0.0)]
        {
            assert_eq!(value(&text, &format!("foxhunt_{name}_total")), want, "{name}");
        }
        metrics.on_epoch(&report(5, Some(0.5)));
        assert_eq!(value(&metrics.text().unwrap(), "foxhunt_updates_total"), 50.0);
        metrics.on_epoch(&report(6, Some(0.5)));
        assert_eq!(value(&metrics.text().unwrap(), "foxhunt_updates_total"), 60.0);
    }

    #[test]
    fn the_series_never_change() {
        let mut metrics = RunMetrics::default();
        let before = series(&metrics.text().unwrap());
        assert_eq!(before.len(), 37);
        metrics.on_epoch(&report(1, Some(0.5)));
        metrics.on_warning(&Warning::Diverged { epoch: 1 });
        let text = metrics.text().unwrap();
        assert_eq!(series(&text), before);
        assert_eq!(value(&text, "foxhunt_loss"), 0.5);
        assert_eq!(value(&text, "foxhunt_buffer_fill_ratio"), 0.25);
        assert_eq!(value(&text, "foxhunt_warnings_total"), 1.0);
        assert!(value(&text, "foxhunt_updates_per_second").is_nan(), "never measured");
    }

    /// The rule of SPEC section 12, for every kind of value that is not finite.
    #[test]
    fn a_nan_keeps_the_last_finite_value() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut metrics = RunMetrics::default();
            metrics.on_epoch(&report(1, Some(0.5)));
            assert!(metrics.healthy());
            metrics.on_epoch(&report(2, Some(bad)));
            let text = metrics.text().unwrap();
            assert_eq!(value(&text, "foxhunt_loss"), 0.5);
            assert_eq!(value(&text, "foxhunt_epoch"), 2.0);
            assert_eq!(value(&text, "foxhunt_healthy"), 0.0);
            assert_eq!(value(&text, "foxhunt_non_finite_metrics_total"), 1.0);
            // None is a mean over nothing, which is no fault.
            metrics.on_epoch(&report(3, None));
            let text = metrics.text().unwrap();
            assert_eq!(value(&text, "foxhunt_loss"), 0.5);
            assert_eq!(value(&text, "foxhunt_healthy"), 1.0);
            assert_eq!(value(&text, "foxhunt_updates_total"), 30.0);
        }
    }

    /// What the guard kept out of the metrics is no health either.
    #[test]
    fn a_skipped_update_is_unhealthy() {
        let mut metrics = RunMetrics::default();
        let mut bad = report(1, Some(0.5));
        (bad.stats.skipped_updates, bad.stats.total_skipped_updates) = (2, 2);
        metrics.on_epoch(&bad);
        assert!(!metrics.healthy());
        assert_eq!(value(&metrics.text().unwrap(), "foxhunt_skipped_updates_total"), 2.0);
    }
}
