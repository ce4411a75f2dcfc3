//! Replay memory on slices: ring, priorities, rank order and the count of samples, moved together.

use foxhunt_core::settings::{ReplayKind, ReplaySettings, ReplayStorage};
use foxhunt_core::{LinearSchedule, Philox};
use foxhunt_market::STATE_DIM;
use foxhunt_ops::OpError;
use foxhunt_ops::priority_tree::{PriorityParams, PriorityTree, SumTree, UpdateReport, random_bits};
use foxhunt_ops::rank_sampler::RankSampler;
use foxhunt_ops::ring::{
    BatchBuffers, COMPACT_WORDS, CompactRow, InsertReport, Ring, RowLayout, Rows, StateSource, uniform_slot,
};

use crate::MLError;

/// Everything refused or capped since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounters {
    /// Rows refused for a non-finite reward, terminated or discount.
    pub refused_rewards: u64,
    /// Rows refused for a non-finite state or next state.
    pub refused_states: u64,
    /// TD errors refused because they were not finite.
    pub refused_td_errors: u64,
    /// Priorities stored as the cap.
    pub capped_priorities: u64,
    /// Updates that came too late: their row had been overwritten.
    pub stale_updates: u64,
    /// Updates of a slot where no row is stored, which only a GPU counts: the CPU refuses the call.
    pub out_of_range_updates: u64,
    /// Draws that found nothing to draw, which only a GPU counts: the CPU refuses the call.
    pub empty_samples: u64,
}

/// A replay memory in host memory. See [`crate::replay`] for what happens in which order.
#[derive(Debug)]
pub struct ReplayMemory {
    pub(super) kind: ReplayKind,
    pub(super) ring: Ring,
    /// Absent when rows are drawn uniformly.
    pub(super) tree: Option<PriorityTree>,
    /// Made at the start for [`ReplayKind::RankBased`], else when first drawn from.
    pub(super) rank: Option<RankSampler>,
    beta: LinearSchedule,
    pub(super) alpha: f32,
    pub(super) resort_every: u64,
    pub(super) seed: u64,
    pub(super) samples_taken: u64,
    pub(super) stale_updates: u64,
    live: Live,
}

/// Entries of an update whose rows are still there.
#[derive(Clone, Debug, Default)]
struct Live {
    slots: Vec<u32>,
    td_errors: Vec<f32>,
}

impl ReplayMemory {
    /// An empty memory of whole rows with all of them allocated: it knows no market, so `storage` of the settings is not
    /// asked. `memory_fallback` is the engine's business.
    ///
    /// # Errors
    /// [`MLError::InvalidArgument`] for a setting outside its range, [`MLError::HostMemory`] with the bytes that
    /// could not be had.
    pub fn new(settings: &ReplaySettings, state_dim: usize, seed: u64) -> Result<Self, MLError> {
        Self::build(settings, seed, || Ring::new(settings.capacity, state_dim))
    }

    /// An empty memory for the states of `source`, which stores rows as `settings.storage` says.
    ///
    /// # Errors
    /// As [`ReplayMemory::new`].
    pub fn of_market(settings: &ReplaySettings, source: &StateSource, seed: u64) -> Result<Self, MLError> {
        match settings.storage {
            ReplayStorage::Rows => Self::new(settings, STATE_DIM, seed),
            ReplayStorage::Compact => {
                Self::build(settings, seed, || Ring::compact(settings.capacity, source.clone()))
            }
        }
    }

    fn build(
        settings: &ReplaySettings,
        seed: u64,
        ring: impl FnOnce() -> Result<Ring, OpError>,
    ) -> Result<Self, MLError> {
        let refuse =
            |what, value: f64, rule| Err(MLError::InvalidArgument { what, value: value.to_string(), rule });
        if !(0.0..=1.0).contains(&settings.beta_start) {
            return refuse("beta_start", settings.beta_start, "in [0, 1]");
        }
        if !(settings.beta_start..=1.0).contains(&settings.beta_max) {
            return refuse("beta_max", settings.beta_max, "in [beta_start, 1]");
        }
        let capacity = settings.capacity;
        let params = PriorityParams { alpha: settings.alpha as f32, epsilon: settings.epsilon as f32 };
        // The largest part first: where the whole cannot be had, that shows before the small parts are touched.
        let ring = ring()?;
        let tree = match settings.kind {
            ReplayKind::Uniform => None,
            ReplayKind::Proportional | ReplayKind::RankBased => Some(PriorityTree::new(capacity, params)?),
        };
        let rank = match settings.kind {
            ReplayKind::RankBased => Some(RankSampler::new(capacity, params.alpha, settings.resort_every)?),
            ReplayKind::Uniform | ReplayKind::Proportional => None,
        };
        Ok(Self {
            kind: settings.kind,
            ring,
            tree,
            rank,
            beta: beta_schedule(settings),
            alpha: params.alpha,
            resort_every: settings.resort_every,
            seed,
            samples_taken: 0,
            stale_updates: 0,
            live: Live::default(),
        })
    }

    /// Bytes that [`ReplayMemory::new`] takes; `u64::MAX` when the number does not fit. Asks for nothing.
    #[must_use]
    pub fn bytes(settings: &ReplaySettings, state_dim: usize) -> u64 {
        Self::bytes_with(settings, RowLayout { state_dim }.bytes(settings.capacity))
    }

    /// Bytes that [`ReplayMemory::of_market`] takes, as [`ReplayMemory::bytes`].
    #[must_use]
    pub fn bytes_of_market(settings: &ReplaySettings) -> u64 {
        match settings.storage {
            ReplayStorage::Rows => Self::bytes(settings, STATE_DIM),
            ReplayStorage::Compact => Self::bytes_with(
                settings,
                (settings.capacity as u64).saturating_mul(4 * COMPACT_WORDS as u64),
            ),
        }
    }

    fn bytes_with(settings: &ReplaySettings, row_bytes: u64) -> u64 {
        let sums = SumTree::bytes(settings.capacity);
        let rows = settings.capacity as u64;
        let beside = match settings.kind {
            ReplayKind::Uniform => 0,
            ReplayKind::Proportional => sums.saturating_add(rows.saturating_mul(4)),
            ReplayKind::RankBased => sums.saturating_mul(2).saturating_add(rows.saturating_mul(16)),
        };
        row_bytes.saturating_add(beside)
    }

    /// How rows are drawn.
    #[must_use]
    pub fn kind(&self) -> ReplayKind {
        self.kind
    }

    /// Rows stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Rows it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Whether no row is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Values in a state.
    #[must_use]
    pub fn state_dim(&self) -> usize {
        self.ring.layout().state_dim
    }

    /// Sample calls that returned rows so far: the number of the next sample.
    #[must_use]
    pub fn samples_taken(&self) -> u64 {
        self.samples_taken
    }

    /// The power of the importance weights that the next sample will use.
    #[must_use]
    pub fn beta(&self) -> f64 {
        self.beta.at(self.samples_taken)
    }

    /// The ring, for reading.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The priorities, for reading; none when rows are drawn uniformly.
    #[must_use]
    pub fn priorities(&self) -> Option<&PriorityTree> {
        self.tree.as_ref()
    }

    /// Everything refused or capped since the start.
    #[must_use]
    pub fn counters(&self) -> ReplayCounters {
        ReplayCounters {
            refused_rewards: self.ring.refused_rewards(),
            refused_states: self.ring.refused_states(),
            refused_td_errors: self.tree.as_ref().map_or(0, PriorityTree::refused),
            capped_priorities: self.tree.as_ref().map_or(0, PriorityTree::capped),
            stale_updates: self.stale_updates,
            out_of_range_updates: 0,
            empty_samples: 0,
        }
    }

    /// Stores rows; each gets the largest priority so far. A row that is not finite is refused and counted.
    ///
    /// # Errors
    /// [`MLError::Shape`] when the fields do not belong together, [`MLError::InvalidArgument`] where rows are stored
    /// compact; nothing is stored then.
    pub fn insert(&mut self, rows: &Rows<'_>) -> Result<InsertReport, MLError> {
        let report = self.ring.insert(rows)?;
        Ok(self.inserted(report))
    }

    /// As [`ReplayMemory::insert`], for a memory of compact rows.
    ///
    /// # Errors
    /// [`MLError::InvalidArgument`] where rows are stored whole and for a row that ends behind the last bar; nothing is
    /// stored then.
    pub fn insert_compact(&mut self, rows: &[CompactRow]) -> Result<InsertReport, MLError> {
        let report = self.ring.insert_compact(rows)?;
        Ok(self.inserted(report))
    }

    fn inserted(&mut self, report: InsertReport) -> InsertReport {
        if let Some(tree) = &mut self.tree {
            tree.insert(report.first_slot, report.written);
        }
        report
    }

    /// Draws `batch` rows, with replacement, the way the settings say. `out` is resized to fit; a batch of 0
    /// leaves it empty and does not count as a sample.
    ///
    /// # Errors
    /// [`MLError::NotEnoughData`] when nothing is stored, [`MLError::NoMass`] when every priority is 0,
    /// [`MLError::InvalidArgument`] for more than 2^31 rows.
    pub fn sample(&mut self, batch: usize, out: &mut BatchBuffers) -> Result<(), MLError> {
        self.sample_as(self.kind, batch, out)
    }

    /// As [`ReplayMemory::sample`], drawn in a way of its own. A memory made for uniform draws has no priorities
    /// to draw by.
    ///
    /// # Errors
    /// As [`ReplayMemory::sample`], and [`MLError::InvalidArgument`] where there are no priorities.
    pub fn sample_as(
        &mut self,
        kind: ReplayKind,
        batch: usize,
        out: &mut BatchBuffers,
    ) -> Result<(), MLError> {
        if batch > 1 << 31 {
            let value = batch.to_string();
            return Err(MLError::InvalidArgument { what: "batch", value, rule: "at most 2^31" });
        }
        if batch > 0 && self.is_empty() {
            return Err(MLError::NotEnoughData { have: 0, need: 1 });
        }
        out.resize(batch, self.state_dim());
        let philox = Philox::new(self.seed);
        let (step, beta) = (self.samples_taken, self.beta() as f32);
        match (kind, &mut self.tree) {
            (ReplayKind::Uniform, _) => {
                let len = self.ring.len();
                for (b, slot) in (0_u32..).zip(&mut out.indices) {
                    *slot = uniform_slot(random_bits(&philox, step, b), len);
                }
                out.weights.fill(1.0);
            }
            (ReplayKind::Proportional, Some(tree)) => {
                tree.sample(&philox, step, beta, &mut out.indices, &mut out.weights)?;
            }
            (ReplayKind::RankBased, Some(tree)) => {
                let rank = match &mut self.rank {
                    Some(rank) => rank,
                    none => none.insert(RankSampler::new(tree.capacity(), self.alpha, self.resort_every)?),
                };
                rank.sample(tree, &philox, step, beta, &mut out.indices, &mut out.weights)?;
            }
            (_, None) => {
                let value = format!("{kind:?}");
                let rule = "uniform in a memory without priorities";
                return Err(MLError::InvalidArgument { what: "kind", value, rule });
            }
        }
        self.ring.gather(out)?;
        self.samples_taken += u64::from(batch > 0);
        Ok(())
    }

    /// Sets the priorities of the rows in `indices` from their TD errors. Where rows are drawn uniformly there is
    /// nothing to set and the report is empty.
    ///
    /// # Errors
    /// [`MLError::Shape`] and [`MLError::RowOutOfRange`]; nothing changes then.
    pub fn update_priorities(&mut self, indices: &[u32], td_errors: &[f32]) -> Result<UpdateReport, MLError> {
        let Some(tree) = &mut self.tree else { return Ok(UpdateReport::default()) };
        let report = tree.update(indices, td_errors)?;
        if let (Some(rank), false) = (&mut self.rank, indices.is_empty()) {
            rank.note_update();
        }
        Ok(report)
    }

    /// Takes note of an update whose priorities were not written, because it was not applied: it counts towards the
    /// next rank order all the same, since a device learns too late that it was not.
    pub(crate) fn note_skipped_update(&mut self) {
        if let Some(rank) = &mut self.rank {
            rank.note_update();
        }
    }

    /// As [`ReplayMemory::update_priorities`], for TD errors that come late: an entry whose slot no longer holds
    /// the row that was drawn (its generation moved on) is left out and counted as stale.
    ///
    /// # Errors
    /// As [`ReplayMemory::update_priorities`].
    pub fn update_priorities_of(
        &mut self,
        indices: &[u32],
        generations: &[u64],
        td_errors: &[f32],
    ) -> Result<UpdateReport, MLError> {
        for (what, got) in [("generations", generations.len()), ("td_errors", td_errors.len())] {
            if got != indices.len() {
                let expected = format!("{} elements", indices.len());
                return Err(MLError::Shape { what, got: vec![got], expected });
            }
        }
        let mut live = std::mem::take(&mut self.live);
        live.slots.clear();
        live.td_errors.clear();
        for ((&slot, &generation), &td_error) in indices.iter().zip(generations).zip(td_errors) {
            if self.ring.generation(slot as usize) == generation {
                live.slots.push(slot);
                live.td_errors.push(td_error);
            }
        }
        let report = self.update_priorities(&live.slots, &live.td_errors);
        let stale = indices.len() - live.slots.len();
        self.live = live;
        let report = report?;
        self.stale_updates += stale as u64;
        Ok(UpdateReport { stale, ..report })
    }
}

/// The power of the importance weights by sample.
pub(crate) fn beta_schedule(settings: &ReplaySettings) -> LinearSchedule {
    LinearSchedule {
        start: settings.beta_start,
        end: settings.beta_max,
        steps: settings.beta_annealing_steps as u64,
    }
}
