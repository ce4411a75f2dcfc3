//! Progress of a training run: a bar on a terminal, a bounded number of plain lines elsewhere (case H06).

use foxhunt::trainer::{
    CheckpointReport, EpochReport, EvaluationReport, StartReport, TrainObserver, TrainOutcome,
    ValidationReport, Warning,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console;
use crate::pace::Pace;

/// Plain lines printed over a whole run, at most, beside warnings.
const PLAIN_LINES: u64 = 20;

/// Shows a run as it happens.
pub(crate) struct Progress {
    bar: ProgressBar,
    interactive: bool,
    validation: Option<ValidationReport>,
    /// Epochs that an earlier process did.
    first_epoch: u64,
    evaluation: Pace,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let interactive = console::interactive();
        Self {
            bar: ProgressBar::hidden(),
            interactive,
            validation: None,
            first_epoch: 0,
            evaluation: if interactive { Pace::display() } else { Pace::lines() },
        }
    }

    fn say(&self, text: &str) {
        if self.interactive {
            self.bar.suspend(|| console::notice(text));
        } else {
            console::notice(text);
        }
    }

    fn figures(&self, report: &EpochReport) -> String {
        let stats = &report.stats;
        let mut text = format!(
            "env steps {}, updates {}, loss {}, grad norm {}, max-Q {}, epsilon {:.3}",
            stats.total_env_steps,
            stats.total_updates,
            number(stats.loss),
            number(stats.grad_norm),
            number(stats.max_q),
            stats.epsilon,
        );
        if let Some(validation) = &self.validation {
            let net = validation.net_log_return.map(|r| 100.0 * r.exp_m1());
            let net = net.map_or("n/a".into(), |r| format!("{r:+.2}"));
            text += &format!(", validation net {net} %");
            // An epoch is told before its own validation. The bar has no room to say so.
            if !self.interactive {
                text += &format!(" (epoch {})", validation.epoch);
            }
        }
        text += &format!(
            ", {} env steps/s, {} updates/s, skipped {}",
            rate(report.env_steps_per_s),
            rate(report.updates_per_s),
            stats.total_skipped_updates,
        );
        if stats.fallback_decisions > 0 {
            text += &format!(", fell back {}", stats.fallback_decisions);
        }
        text
    }

    /// Wall-clock seconds to the last epoch at the speed of this process so far.
    fn seconds_left(&self, report: &EpochReport) -> Option<f64> {
        let here = report.epoch.checked_sub(self.first_epoch).filter(|&n| n > 0)?;
        Some(report.wall_s / here as f64 * report.epochs.saturating_sub(report.epoch) as f64)
    }
}

impl TrainObserver for Progress {
    fn on_start(&mut self, start: &StartReport) {
        self.first_epoch = start.epoch;
        let verb = if start.resumed { "resumes" } else { "starts" };
        console::notice(&format!(
            "run {} {verb} on the {} engine at epoch {} of {}",
            start.run.folder().display(),
            start.engine,
            start.epoch,
            start.epochs
        ));
        if self.interactive {
            self.bar = ProgressBar::with_draw_target(Some(start.epochs), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(
                "epoch {pos}/{len} [{bar:24}] {elapsed_precise}, {eta} left\n{msg}",
            );
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            self.bar.set_position(start.epoch);
            // The estimate counts from here, not from the epochs of an earlier process.
            self.bar.reset_eta();
        }
    }

    fn on_epoch(&mut self, report: &EpochReport) {
        let text = self.figures(report);
        if self.interactive {
            self.bar.set_position(report.epoch);
            self.bar.set_message(text);
        } else if report.epoch.is_multiple_of(report.epochs.div_ceil(PLAIN_LINES))
            || report.epoch == report.epochs
        {
            let left = self.seconds_left(report).map_or(String::new(), |s| format!(", {s:.0} s left"));
            console::notice(&format!("epoch {}/{}: {text}{left}", report.epoch, report.epochs));
        }
    }

    fn on_validation(&mut self, report: &ValidationReport) {
        self.validation = Some(report.clone());
    }

    fn on_checkpoint(&mut self, _report: &CheckpointReport) {}

    fn on_evaluation(&mut self, report: &EvaluationReport) {
        let Some(far) = self.evaluation.told(report) else { return };
        let text = format!("last evaluation: {far}");
        if self.interactive {
            self.bar.set_message(text);
        } else {
            console::notice(&text);
        }
    }

    fn on_warning(&mut self, warning: &Warning) {
        self.say(&format!("note: {warning}"));
    }

    fn on_finish(&mut self, _outcome: &TrainOutcome) {
        self.bar.finish_and_clear();
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("n/a".into(), |v| format!("{v:.4}"))
}

fn rate(value: Option<f64>) -> String {
    value.map_or("n/a".into(), |v| format!("{v:.0}"))
}
