//! Rows between the two forms they are stored in, so that a memory of either goes on from a snapshot of the other.
//!
//! To whole is a look-up. To compact is a search for the bars whose features a state shows; where several bars show the
//! same features, any of them stands for the same state.

use std::collections::HashMap;

use foxhunt_market::{N_MARKET_FEATURES, STATE_DIM};
use foxhunt_ops::n_step::MAX_N;
use foxhunt_ops::ring::{BatchBuffers, CompactRow, Rows, StateSource, Transition};

/// Rows of a snapshot, in the form it has them.
#[derive(Clone, Copy)]
pub(super) enum StoredRows<'a> {
    /// Both states whole.
    Whole(Rows<'a>),
    /// As places in the market.
    Compact(&'a [CompactRow]),
}

impl StoredRows<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole(rows) => rows.len(),
            Self::Compact(rows) => rows.len(),
        }
    }
}

/// The fields of a batch that are stored.
pub(super) fn as_rows(rows: &BatchBuffers) -> Rows<'_> {
    Rows {
        states: &rows.states,
        next_states: &rows.next_states,
        actions: &rows.actions,
        rewards: &rows.rewards,
        terminated: &rows.terminated,
        discounts: &rows.discounts,
    }
}

/// Compact rows with their states written out. Bars must be inside the market.
pub(super) fn to_whole(rows: &[CompactRow], source: &StateSource) -> BatchBuffers {
    let mut whole = BatchBuffers::new(rows.len(), STATE_DIM);
    for (i, row) in rows.iter().map(Transition::unpack).enumerate() {
        let at = i * STATE_DIM..(i + 1) * STATE_DIM;
        source.write_state(row.bar, &row.inputs, &mut whole.states[at.clone()]);
        source.write_state(row.next_bar(), &row.next_inputs, &mut whole.next_states[at]);
        whole.actions[i] = row.action;
        whole.rewards[i] = row.reward;
        whole.terminated[i] = f32::from(u8::from(row.terminated));
        whole.discounts[i] = source.discount(row.steps);
    }
    whole
}

/// Whole rows as places in the market, or the number of the first row that has none.
pub(super) fn to_compact(rows: &Rows<'_>, source: &StateSource) -> Result<Vec<CompactRow>, usize> {
    let market = source.market();
    let mut bars: HashMap<Box<[u32]>, Vec<u32>> = HashMap::new();
    for bar in 0..market.len() {
        bars.entry(bits(market.feature_row(bar))).or_default().push(bar as u32);
    }
    (0..rows.len())
        .map(|i| {
            let at = i * STATE_DIM..(i + 1) * STATE_DIM;
            let (features, inputs) = rows.states[at.clone()].split_at(N_MARKET_FEATURES);
            let (next_features, next_inputs) = rows.next_states[at].split_at(N_MARKET_FEATURES);
            let (from, to) = (bars.get(&bits(features)), bars.get(&bits(next_features)));
            let (Some(from), Some(to)) = (from, to) else { return Err(i) };
            let terminated = rows.terminated[i];
            if ![0.0, 1.0].contains(&terminated) {
                return Err(i);
            }
            let fits = |bar: u32, next: u32| {
                let steps = next.checked_sub(bar).filter(|steps| (1..=MAX_N as u32).contains(steps))?;
                let discount = source.discount(steps);
                (discount.to_bits() == rows.discounts[i].to_bits()).then_some((bar, steps))
            };
            let place = from.iter().find_map(|&bar| {
                let first = to.partition_point(|&next| next <= bar);
                to[first..].iter().take(MAX_N).find_map(|&next| fits(bar, next))
            });
            let (bar, steps) = place.ok_or(i)?;
            let row = Transition {
                bar,
                steps,
                action: rows.actions[i],
                terminated: terminated > 0.0,
                inputs: std::array::from_fn(|k| inputs[k]),
                next_inputs: std::array::from_fn(|k| next_inputs[k]),
                reward: rows.rewards[i],
            };
            row.pack().map_err(|_| i)
        })
        .collect()
}

fn bits(features: &[f32]) -> Box<[u32]> {
    features.iter().map(|value| value.to_bits()).collect()
}
