//! An engine that learns nothing: it counts, remembers what it was asked, and skips where its script says so.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use foxhunt_core::Settings;
use foxhunt_core::record::EpochStats;
use foxhunt_market::Market;

use crate::MLError;
use crate::engine::{Array, ArrayData, Engine, EngineStatus, Snapshot, WorkTimes};
use crate::engine_choice::BuiltEngine;
use crate::evaluation::{Backtest, Costs, OrderCounts};
use crate::policy::{named, network_layout};
use crate::trainer::{Prepared, StopSignal};

/// What the toy does when asked, by count.
#[derive(Clone)]
pub(super) struct Script {
    /// Score of each validation; the last one repeats.
    pub(super) scores: Vec<f64>,
    /// Attempted updates (from 1) that are skipped.
    pub(super) skipped: Range<u64>,
    /// Updates (from 1) whose gradient has collapsed.
    pub(super) collapsed: Range<u64>,
    pub(super) max_q: Option<f64>,
}

impl Default for Script {
    fn default() -> Self {
        Self { scores: vec![0.1, 0.3, 0.2], skipped: 0..0, collapsed: 0..0, max_q: Some(1.0) }
    }
}

/// Counts, and a number that depends on every call and its order.
struct Toy {
    script: Script,
    log: Rc<RefCell<Vec<String>>>,
    n_envs: u64,
    policy_settings: Settings,
    status: EngineStatus,
    rows: [u64; 2],
    validations: u64,
    chain: u64,
    epoch: EpochStats,
}

impl Toy {
    fn link(&mut self, word: u64) {
        self.chain = (self.chain ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    }
}

impl Engine for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn collect(&mut self, vector_steps: u32) -> Result<(), MLError> {
        self.log.borrow_mut().push(format!("collect {vector_steps}"));
        for _ in 0..vector_steps {
            self.link(1);
        }
        self.status.env_steps += u64::from(vector_steps) * self.n_envs;
        self.epoch.env_steps += u64::from(vector_steps) * self.n_envs;
        Ok(())
    }
    fn update(&mut self, updates: u32) -> Result<u32, MLError> {
        self.log.borrow_mut().push(format!("update {updates}"));
        for _ in 0..updates {
            let attempt = self.status.updates + self.status.skipped_updates + 1;
            let skip = self.script.skipped.contains(&attempt);
            self.rows[0] = if skip { self.rows[0] + 1 } else { 0 };
            self.rows[1] = if self.script.collapsed.contains(&attempt) { self.rows[1] + 1 } else { 0 };
            self.status.longest_skipped_row = self.status.longest_skipped_row.max(self.rows[0]);
            self.status.longest_collapsed_row = self.status.longest_collapsed_row.max(self.rows[1]);
            if skip {
                self.status.skipped_updates += 1;
                self.epoch.skipped_updates += 1;
            } else {
                self.link(2);
                self.status.updates += 1;
                self.epoch.updates += 1;
            }
        }
        Ok(updates)
    }
    fn take_work_times(&mut self) -> Result<WorkTimes, MLError> {
        Ok(WorkTimes::default())
    }
    fn status(&self) -> EngineStatus {
        self.status
    }
    fn keep_good_copy(&mut self) -> Result<(), MLError> {
        self.log.borrow_mut().push("keep".into());
        Ok(())
    }
    fn roll_back(&mut self) -> Result<(), MLError> {
        self.log.borrow_mut().push("roll back".into());
        self.link(3);
        Ok(())
    }
    fn drain(&mut self) -> Result<EpochStats, MLError> {
        self.log.borrow_mut().push("drain".into());
        let counts = std::mem::take(&mut self.epoch);
        Ok(EpochStats {
            total_env_steps: self.status.env_steps,
            total_updates: self.status.updates,
            max_q: self.script.max_q,
            ..counts
        })
    }
    fn evaluate(
        &mut self,
        _: &Market,
        window: Range<usize>,
        stop: &dyn StopSignal,
    ) -> Result<Backtest, MLError> {
        self.log.borrow_mut().push("evaluate".into());
        if stop.stop_requested() {
            return Err(MLError::Interrupted);
        }
        let last = self.script.scores.len() - 1;
        let score = self.script.scores[last.min(self.validations as usize)];
        self.validations += 1;
        Ok(Backtest {
            window,
            equity: vec![1.0, score.exp()],
            position: vec![0.0; 2],
            actions: vec![0],
            holds: 0,
            fallbacks: 0,
            orders: OrderCounts::default(),
            fills: Vec::new(),
            costs: Costs::default(),
            terminated: false,
        })
    }
    fn snapshot(&mut self) -> Result<Snapshot, MLError> {
        self.log.borrow_mut().push("snapshot".into());
        let s = self.status;
        let words = vec![
            s.env_steps,
            s.updates,
            s.skipped_updates,
            s.longest_skipped_row,
            s.longest_collapsed_row,
            self.rows[0],
            self.rows[1],
            self.validations,
            self.chain,
            self.epoch.env_steps,
            self.epoch.updates,
            self.epoch.skipped_updates,
        ];
        let array = Array { shape: vec![words.len()], data: ArrayData::U64(words) };
        Ok(Snapshot { arrays: BTreeMap::from([("toy".to_owned(), array)]) })
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), MLError> {
        assert_eq!(snapshot.arrays.len(), 1, "the best policy's arrays are not the engine's");
        let ArrayData::U64(w) = &snapshot.arrays["toy"].data else { panic!() };
        self.status = EngineStatus {
            env_steps: w[0],
            updates: w[1],
            skipped_updates: w[2],
            longest_skipped_row: w[3],
            longest_collapsed_row: w[4],
        };
        self.rows = [w[5], w[6]];
        (self.validations, self.chain) = (w[7], w[8]);
        self.epoch =
            EpochStats { env_steps: w[9], updates: w[10], skipped_updates: w[11], ..EpochStats::default() };
        Ok(())
    }
    fn parameters(&mut self) -> Result<Snapshot, MLError> {
        let layout = network_layout(&self.policy_settings);
        Ok(named(&layout, &layout.init(self.chain)))
    }
}

pub(super) type Log = Rc<RefCell<Vec<String>>>;

pub(super) fn toy(
    script: Script,
    log: &Log,
) -> impl Fn(&Settings, &Prepared) -> Result<BuiltEngine<'static>, MLError> + use<> {
    let log = log.clone();
    move |settings, _| {
        let engine = Toy {
            script: script.clone(),
            log: log.clone(),
            n_envs: settings.env.n_envs as u64,
            policy_settings: settings.clone(),
            status: EngineStatus::default(),
            rows: [0; 2],
            validations: 0,
            chain: settings.run.seed,
            epoch: EpochStats::default(),
        };
        Ok(BuiltEngine { engine: Box::new(engine), notice: None })
    }
}
