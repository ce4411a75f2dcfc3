//! The CPU twin of action selection.

use foxhunt_core::action::{N_EXPOSURES, N_FACTORED, N_ORDER_TYPES, N_URGENCIES};
use foxhunt_core::philox::{below, unit_f32};
use foxhunt_core::{ActionError, Exposure, FactoredAction, Head, OrderRouter, OrderType, Purpose, Urgency};

use super::Explore;

/// Fallback of a branch of `len` values: Flat of 5, Market-Normal-Flat of 45. Order type and urgency branches have
/// three values each and differ by position, so they are passed by the caller.
const FLAT: u32 = Exposure::Flat.index();
const FLAT_FACTORED: u32 =
    FactoredAction { exposure: Exposure::Flat, order_type: OrderType::Market, urgency: Urgency::Normal }
        .index();

/// Index of the largest legal value that is not NaN, the lowest on ties; `None` when there is none.
#[must_use]
pub fn argmax(q: &[f32], mask: Option<&[u8]>) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (index, &value) in q.iter().enumerate() {
        let legal = mask.is_none_or(|m| m[index] != 0);
        if legal && !value.is_nan() && best.is_none_or(|(_, top)| value > top) {
            best = Some((index as u32, value));
        }
    }
    best.map(|(index, _)| index)
}

/// Selects one action a row for the exposure head (5 values) or the factored head (45).
///
/// `q`: f32 `[B, n_actions]`, row-major. `mask`: u8 `[B, n_actions]`. `out`: u32 `[B]`. Returns the number of
/// decisions that fell back.
///
/// # Panics
/// When a slice's length does not fit `out.len()` rows.
pub fn select_actions(
    q: &[f32],
    n_actions: usize,
    mask: Option<&[u8]>,
    explore: &Explore,
    out: &mut [u32],
) -> u32 {
    check(q, mask, out.len(), n_actions);
    let fallback = if n_actions == N_FACTORED { FLAT_FACTORED } else { FLAT.min(n_actions as u32 - 1) };
    let mut fell_back = 0;
    for (b, action) in out.iter_mut().enumerate() {
        let row = b * n_actions..(b + 1) * n_actions;
        let legal = mask.map(|m| &m[row.clone()]);
        let choice = match coin(explore, b) {
            Some(word) => nth_legal(legal, n_actions, word),
            None => argmax(&q[row], legal),
        };
        fell_back += u32::from(choice.is_none());
        *action = choice.unwrap_or(fallback);
    }
    fell_back
}

/// Selects a factored action a row for the branching head (5 + 3 + 3 values a row).
///
/// `q`: f32 `[B, 11]`, row-major: exposures, order types, urgencies. `mask`: u8 `[B, 11]`. `out`: u32 `[B]`,
/// factored indices. Returns the number of decisions of which a branch fell back.
///
/// # Panics
/// When a slice's length does not fit `out.len()` rows.
pub fn select_actions_branching(q: &[f32], mask: Option<&[u8]>, explore: &Explore, out: &mut [u32]) -> u32 {
    const WIDTH: usize = N_EXPOSURES + N_ORDER_TYPES + N_URGENCIES;
    const FALLBACK: [u32; 3] = [FLAT, OrderType::Market.index(), Urgency::Normal.index()];
    check(q, mask, out.len(), WIDTH);
    let branches = Head::Branching.branches();
    let mut fell_back = 0;
    for (b, action) in out.iter_mut().enumerate() {
        let legal = mask.map(|m| &m[b * WIDTH..(b + 1) * WIDTH]);
        let word = coin(explore, b);
        let mut parts = FALLBACK;
        let mut missing = false;
        if let Some(word) = word {
            // The joint legal set is a product; its members in index order are mixed-radix numbers.
            let counts = branch_spans(branches)
                .map(|span| legal.map_or(span.len(), |m| m[span].iter().filter(|&&x| x != 0).count()) as u32);
            let mut rest = below(word, counts.iter().product());
            missing = counts.contains(&0);
            for (d, span) in branch_spans(branches).into_iter().enumerate().rev() {
                if missing {
                    break;
                }
                let wanted = rest % counts[d];
                rest /= counts[d];
                parts[d] = kth_legal(legal.map(|m| &m[span]), wanted).unwrap_or(FALLBACK[d]);
            }
        } else {
            let row = &q[b * WIDTH..(b + 1) * WIDTH];
            for (d, span) in branch_spans(branches).into_iter().enumerate() {
                match argmax(&row[span.clone()], legal.map(|m| &m[span])) {
                    Some(index) => parts[d] = index,
                    None => missing = true,
                }
            }
        }
        fell_back += u32::from(missing);
        *action = parts[0] * 9 + parts[1] * 3 + parts[2];
    }
    fell_back
}

/// What the router reads; each slice has one value a row, or a single value for all rows.
#[derive(Clone, Copy, Debug)]
pub struct Router<'a> {
    /// Observed spread, f32 `[N]` or `[1]`, price units.
    pub spread: &'a [f32],
    /// Rolling median of the spread, same unit.
    pub median_spread: &'a [f32],
    /// Volatility, f32 `[N]` or `[1]`.
    pub volatility: &'a [f32],
    /// Rolling median of the volatility, same unit.
    pub median_volatility: &'a [f32],
}

impl Router<'_> {
    fn route(&self, row: usize, exposure: Exposure) -> FactoredAction {
        let at = |values: &[f32]| if values.len() == 1 { values[0] } else { values[row] };
        OrderRouter::route(
            exposure,
            at(self.spread),
            at(self.median_spread),
            at(self.volatility),
            at(self.median_volatility),
        )
    }
}

/// Completes exposures to factored actions with [`OrderRouter::route`].
///
/// `exposures`: u32 `[N]`, each below 5. `out`: u32 `[N]`, factored indices.
///
/// # Errors
/// [`ActionError`] for the first exposure that is 5 or more.
///
/// # Panics
/// When `out` or a router slice has another length than `exposures` (or 1, for the router).
pub fn batch_route_exposure_to_factored(
    exposures: &[u32],
    router: &Router<'_>,
    out: &mut [u32],
) -> Result<(), ActionError> {
    assert_eq!(exposures.len(), out.len(), "one output for each exposure");
    for (row, (&exposure, factored)) in exposures.iter().zip(out).enumerate() {
        *factored = router.route(row, Exposure::from_index(exposure)?).index();
    }
    Ok(())
}

/// [`select_actions`] over five exposures, then the router.
///
/// `q`: f32 `[B, 5]`. `mask`: u8 `[B, 5]`. `out`: u32 `[B]`, factored indices. Returns the decisions that fell back.
///
/// # Panics
/// When a slice's length does not fit `out.len()` rows.
pub fn select_actions_routed(
    q: &[f32],
    mask: Option<&[u8]>,
    explore: &Explore,
    router: &Router<'_>,
    out: &mut [u32],
) -> u32 {
    let fell_back = select_actions(q, N_EXPOSURES, mask, explore, out);
    for (row, action) in out.iter_mut().enumerate() {
        let exposure = Exposure::ALL[*action as usize];
        *action = router.route(row, exposure).index();
    }
    fell_back
}

/// The word that numbers the random action, when the coin says explore.
fn coin(explore: &Explore, b: usize) -> Option<u32> {
    if explore.epsilon <= 0.0 {
        return None;
    }
    let env_idx = explore.first_env.wrapping_add(b as u32);
    let [coin, action, ..] = explore.philox.block(Purpose::Explore, env_idx, explore.vector_step, 0);
    (unit_f32(coin) < explore.epsilon).then_some(action)
}

fn nth_legal(mask: Option<&[u8]>, n_actions: usize, word: u32) -> Option<u32> {
    match mask {
        None => Some(below(word, n_actions as u32)),
        Some(m) => kth_legal(mask, below(word, m.iter().filter(|&&x| x != 0).count() as u32)),
    }
}

/// The `k`-th legal index, counted from 0.
fn kth_legal(mask: Option<&[u8]>, k: u32) -> Option<u32> {
    match mask {
        None => Some(k),
        Some(m) => m.iter().enumerate().filter(|(_, x)| **x != 0).nth(k as usize).map(|(i, _)| i as u32),
    }
}

fn branch_spans(branches: &[usize]) -> [std::ops::Range<usize>; 3] {
    let (a, b) = (branches[0], branches[0] + branches[1]);
    [0..a, a..b, b..b + branches[2]]
}

fn check(q: &[f32], mask: Option<&[u8]>, rows: usize, width: usize) {
    assert_eq!(q.len(), rows * width, "q must be [rows, {width}]");
    if let Some(m) = mask {
        assert_eq!(m.len(), rows * width, "mask must be [rows, {width}]");
    }
}
