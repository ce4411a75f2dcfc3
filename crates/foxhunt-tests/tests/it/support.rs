//! Small markets, small runs, and comparison to the bit.

use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use foxhunt::checkpoint::{Checkpoint, CheckpointStore};
use foxhunt::engine::{ArrayData, Snapshot};
use foxhunt::run_folder::RunPaths;
use foxhunt::trainer::{MetricsLine, StopSignal, TrainOutcome, read_metrics};
use foxhunt::{BarSeries, Settings, Trainer};
use foxhunt_core::{Philox, Purpose};
use foxhunt_market::BarArrays;

/// A noisy, mean-reverting hourly market with volume, wicks and gaps between close and open.
pub(crate) fn arrays(n_bars: usize, seed: u64) -> BarArrays {
    let mut noise = Philox::new(seed).stream(Purpose::Synthetic, 9, 0);
    let mut arrays = BarArrays::default();
    let mut volume = Vec::new();
    let (mut x, mut close) = (0.0_f64, 100.0_f64);
    let cents = |price: f64| (price * 100.0).round() / 100.0;
    for t in 0..n_bars {
        let open = cents(close * (1.0 + 0.0005 * noise.next_normal()));
        x = 0.95 * x + 0.01 * noise.next_normal();
        close = cents(100.0 * x.exp());
        let wick = 0.05 + 0.3 * noise.next_f64();
        arrays.time.push(1_600_000_000_000_000_000 + t as i64 * 3_600_000_000_000);
        arrays.open.push(open);
        arrays.high.push(cents(open.max(close) + wick));
        arrays.low.push(cents(open.min(close) - wick));
        arrays.close.push(close);
        volume.push((1000.0 * noise.next_f64()).round());
    }
    arrays.volume = Some(volume);
    arrays
}

pub(crate) fn bars(seed: u64) -> BarSeries {
    BarSeries::from_arrays(Some("TEST".into()), arrays(900, seed)).unwrap()
}

/// Settings of a run that takes a fraction of a second and still does everything.
pub(crate) fn tiny(dir: &Path) -> Settings {
    let mut settings = Settings::from_toml(include_str!("../../tiny.toml")).unwrap();
    settings.run.dir = dir.to_path_buf();
    settings
}

pub(crate) fn run(settings: &Settings) -> TrainOutcome {
    Trainer::new(settings, bars(1)).unwrap().run().unwrap()
}

pub(crate) fn newest(run: &RunPaths) -> Checkpoint {
    CheckpointStore::new(run.checkpoints(), 9).load_newest().unwrap().checkpoint
}

/// Asks to stop at the k-th look, from 0, and ever after.
pub(crate) struct StopAt(AtomicU32);

impl StopAt {
    pub(crate) fn look(k: u32) -> Self {
        Self(AtomicU32::new(k))
    }
}

impl StopSignal for StopAt {
    fn stop_requested(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

/// Every array as its bits, so that a NaN equals itself.
pub(crate) fn bits(snapshot: &Snapshot) -> Vec<(String, Vec<usize>, Vec<u64>)> {
    let words = |data: &ArrayData| match data {
        ArrayData::F32(v) => v.iter().map(|x| u64::from(x.to_bits())).collect(),
        ArrayData::F64(v) => v.iter().map(|x| x.to_bits()).collect(),
        ArrayData::U32(v) => v.iter().map(|x| u64::from(*x)).collect(),
        ArrayData::U64(v) => v.clone(),
    };
    snapshot.arrays.iter().map(|(name, a)| (name.clone(), a.shape.clone(), words(&a.data))).collect()
}

/// Fails with the names of the arrays that differ.
pub(crate) fn assert_same_bits(got: &Snapshot, want: &Snapshot, context: &str) {
    let (got, want) = (bits(got), bits(want));
    let names =
        |side: &[(String, Vec<usize>, Vec<u64>)]| side.iter().map(|a| a.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&got), names(&want), "{context}");
    let differ: Vec<_> = got.iter().zip(&want).filter(|(g, w)| g != w).map(|(g, _)| &g.0).collect();
    assert!(differ.is_empty(), "{context}: {differ:?} differ");
}

/// The lines of a metrics file without wall-clock times and paths.
pub(crate) fn metrics(run: &RunPaths) -> Vec<MetricsLine> {
    let strip = |line| match line {
        MetricsLine::Epoch(mut report) => {
            report.wall_s = 0.0;
            (report.env_steps_per_s, report.updates_per_s) = (None, None);
            Some(MetricsLine::Epoch(report))
        }
        MetricsLine::Validation(report) => Some(MetricsLine::Validation(report)),
        MetricsLine::Checkpoint(_) => None,
        warning => Some(warning),
    };
    read_metrics(&run.metrics()).unwrap().into_iter().filter_map(strip).collect()
}
