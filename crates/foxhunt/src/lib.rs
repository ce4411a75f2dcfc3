//! Deep Q-learning for trading: replay, guard, engines, trainer, evaluation and checkpoints.
//!
//! This is the crate that programs import, and the only one that names the tensor library.
//!
//! ```no_run
//! use foxhunt::{BarSeries, Settings, TrainObserver, Trainer};
//! use foxhunt::trainer::EpochReport;
//!
//! struct Print;
//! impl TrainObserver for Print {
//!     fn on_epoch(&mut self, epoch: &EpochReport) {
//!         println!("epoch {}: loss {:?}", epoch.epoch, epoch.stats.loss);
//!     }
//! }
//!
//! fn learn(bars: BarSeries) -> Result<(), foxhunt::MLError> {
//!     let mut settings = Settings::default();
//!     settings.training.epochs = 20;
//!     let outcome = Trainer::new(&settings, bars)?.observe(Print).run()?;
//!     println!("{:?} after {} updates", outcome.stop_reason, outcome.updates);
//!     let policy = foxhunt::Policy::load(outcome.run.folder())?;
//!     println!("{} parameters", policy.parameters().len());
//!     Ok(())
//! }
//! ```

pub mod actions;
#[cfg(feature = "candle-cuda")]
pub mod candle_cuda;
pub mod checkpoint;
pub mod cpu_engine;
pub mod cuda_engine;
pub mod engine;
pub mod engine_choice;
pub mod environment;
mod error;
pub mod evaluation;
pub mod export;
pub mod guard;
mod host_memory;
mod host_values;
pub mod learner;
pub mod ledger;
pub mod lookahead;
pub mod memory_plan;
pub mod monitor;
pub mod policy;
pub mod replay;
pub mod run_folder;
pub mod statistics;
mod stop;
mod tensors;
pub mod trainer;
pub mod walk_forward;

pub use error::MLError;
pub use foxhunt_core::Settings;
pub use foxhunt_market::BarSeries;
pub use policy::Policy;
pub use trainer::{TrainObserver, TrainOutcome, Trainer};

/// Trains on `bars` to the end: [`Trainer::new`] and [`Trainer::run`] with nobody watching.
///
/// # Errors
/// As [`Trainer::new`] and [`Trainer::run`].
pub fn train(settings: &Settings, bars: BarSeries) -> Result<TrainOutcome, MLError> {
    Trainer::new(settings, bars)?.run()
}
