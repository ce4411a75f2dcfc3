//! Who watches a run beside its progress: the metrics endpoint and TensorBoard, where asked for.

use std::path::Path;

use foxhunt::Trainer;
use foxhunt::trainer::{EpochReport, StartReport, TrainObserver, ValidationReport};
use foxhunt_report::prometheus::RunMetrics;
use foxhunt_report::tensorboard::EventWriter;

use crate::args::WatchArgs;
use crate::progress::Progress;
use crate::{console, endpoint};

/// What was asked for, with the endpoint up.
pub(crate) struct Watch {
    metrics: Option<RunMetrics>,
    tensorboard: bool,
}

impl Watch {
    /// Opens the endpoint, so that a port in use ends the command before anything else happens.
    pub(crate) fn open(args: &WatchArgs) -> anyhow::Result<Self> {
        let metrics = args.metrics_addr.map(|address| {
            let metrics = RunMetrics::awaiting();
            let served = endpoint::serve(address, metrics.clone())?;
            console::notice(&format!("metrics: http://{served}/metrics"));
            anyhow::Ok(metrics)
        });
        Ok(Self { metrics: metrics.transpose()?, tensorboard: args.tensorboard })
    }

    /// Hangs progress and everything asked for on `trainer`. A run that has event files already goes on with them.
    pub(crate) fn hang_on<'a>(self, mut trainer: Trainer<'a>) -> anyhow::Result<Trainer<'a>> {
        let folder = trainer.run_folder().paths().tensorboard();
        if self.tensorboard || folder.is_dir() {
            trainer = trainer.observe(Events::create(&folder)?);
        }
        if let Some(metrics) = self.metrics {
            trainer = trainer.observe(metrics);
        }
        Ok(trainer.observe(Progress::new()))
    }
}

/// An event file whose first lost event is told.
struct Events(EventWriter);

impl Events {
    fn create(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self(EventWriter::create(folder)?))
    }

    fn tell_loss(&mut self) {
        if let Some(error) = self.0.take_error() {
            console::notice(&format!("note: TensorBoard events were lost: {error}"));
        }
    }
}

impl TrainObserver for Events {
    fn on_start(&mut self, start: &StartReport) {
        self.0.on_start(start);
        self.tell_loss();
    }

    fn on_epoch(&mut self, report: &EpochReport) {
        self.0.on_epoch(report);
        self.tell_loss();
    }

    fn on_validation(&mut self, report: &ValidationReport) {
        self.0.on_validation(report);
        self.tell_loss();
    }
}
