//! The same past with another future: none at all, or one where every bar is different.

use foxhunt_core::{Philox, Purpose};
use foxhunt_market::{BarArrays, BarSeries, FEATURES, N_MARKET_FEATURES, STATE_DIM};

use super::compare::{Findings, Place};
use super::way::{Seen, Walk, Walker, Way};
use super::{Check, Leak, Stage};
use crate::MLError;
use crate::evaluation::Backtest;
use crate::trainer::StopSignal;

/// Decisions of one backtest of the comparison: enough for every look-back to be passed, few enough to do often.
const DECISIONS: usize = 400;

/// Truncates and perturbs at every cut and compares everything up to it.
pub(super) fn check(
    way: &mut Way<'_>,
    bars: &BarSeries,
    cuts: &[usize],
    stop: &dyn StopSignal,
    findings: &mut Findings,
) -> Result<(), MLError> {
    let base = way.see(bars.clone())?;
    for &cut in cuts {
        // A decision needs the bar after it to be filled in, so the last one on truncated bars is at cut - 1.
        let futures = [
            (Check::Truncation, truncated(bars, cut)?, cut + 1),
            (Check::Perturbation, perturbed(bars, cut, Course::Up)?, cut + 2),
            (Check::Perturbation, perturbed(bars, cut, Course::Down)?, cut + 2),
        ];
        for (check, other, end) in futures {
            let other = way.see(other)?;
            let place = |stage| Place { stage, check, cut };
            compare_seen(&base, &other, cut, &place, findings);
            let [mine, its] = [&base, &other].map(|seen| Walks::of(way, seen, cut, end, stop));
            mine?.compare(&its?, &place, findings);
        }
    }
    Ok(())
}

/// An order decided at the close of t and filled at once in t + 1 must have a price of t + 1: it moves when all later
/// prices do. Market orders alone, because a resting limit is priced when it is decided.
pub(super) fn next_bar(
    way: &mut Way<'_>,
    bars: &BarSeries,
    cut: usize,
    stop: &dyn StopSignal,
    findings: &mut Findings,
) -> Result<(), MLError> {
    // The decision at `cut` is the last one, so its fill is the last but the close.
    let window = cut + 1 - 8..cut + 2;
    let base = way.see(bars.clone())?;
    let other = way.see(perturbed(bars, cut, Course::Up)?)?;
    let [price, moved] = [&base, &other].map(|seen| {
        let walk = way.walk(seen, window.clone(), Walker::Market, stop)?;
        let fill = walk.backtest.fills.iter().find(|fill| fill.bar == cut + 1 && !fill.closing);
        Ok::<_, MLError>(fill.map(|fill| fill.price))
    });
    let (price, moved) = (price?, moved?);
    findings.looked(Stage::Fills, Check::NextBar, 1);
    if price.is_some() && price == moved {
        findings.found(Leak {
            stage: Stage::Fills,
            check: Check::NextBar,
            what: "fill price of a market order".to_owned(),
            bar: Some(cut + 1),
            cut: Some(cut),
            seen: format!("{} whatever the bar after the decision is", price.unwrap_or_default()),
        });
    }
    Ok(())
}

fn compare_seen(
    base: &Seen,
    other: &Seen,
    cut: usize,
    place: &impl Fn(Stage) -> Place,
    findings: &mut Findings,
) {
    let known = (cut + 1) * N_MARKET_FEATURES;
    let feature = |i: usize| (FEATURES[i % N_MARKET_FEATURES].name.to_string(), Some(i / N_MARKET_FEATURES));
    findings.compare(place(Stage::Features), &base.raw.values[..known], &other.raw.values[..known], feature);
    let (a, b) = (&base.market, &other.market);
    for (name, mine, its) in [
        ("spread", &a.spread, &b.spread),
        ("median spread", &a.median_spread, &b.median_spread),
        ("volatility", &a.volatility, &b.volatility),
        ("median volatility", &a.median_volatility, &b.median_volatility),
    ] {
        let name = |bar| (name.to_owned(), Some(bar));
        findings.compare(place(Stage::Router), &mine[..=cut], &its[..=cut], name);
    }
    let half = |bar| ("half spread".to_owned(), Some(bar));
    findings.compare(place(Stage::Router), &a.half_spread[..=cut], &b.half_spread[..=cut], half);
    let fitted = |what: &'static str| move |i: usize| (format!("{what} of {}", FEATURES[i].name), None);
    findings.compare(place(Stage::Fitted), &a.normaliser.mean, &b.normaliser.mean, fitted("mean"));
    findings.compare(place(Stage::Fitted), &a.normaliser.std, &b.normaliser.std, fitted("deviation"));
    let tick = |_| ("tick size".to_owned(), None);
    findings.compare(place(Stage::Fitted), &[a.tick_size], &[b.tick_size], tick);
}

/// Both policies over the bars up to a cut; the bar after it is there for the last decision to be filled in.
struct Walks {
    first: usize,
    network: Walk,
    hash: Walk,
}

impl Walks {
    fn of(
        way: &Way<'_>,
        seen: &Seen,
        cut: usize,
        end: usize,
        stop: &dyn StopSignal,
    ) -> Result<Self, MLError> {
        let first = (cut + 1).saturating_sub(DECISIONS).max(seen.market.first_bar);
        let walk = |walker| way.walk(seen, first..end, walker, stop);
        Ok(Self { first, network: walk(Walker::Network)?, hash: walk(Walker::Hash)? })
    }

    /// What was decided up to the cut, and what had come of it by then.
    fn compare(&self, other: &Self, place: &impl Fn(Stage) -> Place, findings: &mut Findings) {
        let first = self.first;
        let known = place(Stage::Fills).cut + 1 - first;
        let state = |i: usize| {
            let name = FEATURES.get(i % STATE_DIM).map_or("portfolio input", |feature| feature.name);
            (name.to_string(), Some(first + i / STATE_DIM))
        };
        findings.compare(place(Stage::States), &self.hash.states, &other.hash.states, state);
        let (mine, its) = (&self.network, &other.network);
        let outputs = (mine.q.len() / mine.backtest.actions.len().max(1)).max(1);
        let q = |i: usize| (format!("Q-value {}", i % outputs), Some(first + i / outputs));
        findings.compare(place(Stage::Decisions), &mine.q, &its.q, q);
        let at = |what: &'static str| move |i: usize| (what.to_owned(), Some(first + i));
        for (mine, its) in [(mine, its), (&self.hash, &other.hash)] {
            let (mine, its) = (&mine.backtest, &its.backtest);
            let actions = |b: &Backtest| b.actions.iter().map(|a| f32::from(*a)).collect::<Vec<_>>();
            findings.compare(place(Stage::Decisions), &actions(mine), &actions(its), at("action"));
            let [equity, its_equity] = [&mine.equity, &its.equity].map(|e| &e[..known.min(e.len())]);
            // The last equity of a window is after its closing trade.
            let before_close = equity.len() - usize::from(equity.len() == mine.equity.len());
            findings.compare(
                place(Stage::Fills),
                &equity[..before_close],
                &its_equity[..before_close.min(its_equity.len())],
                at("equity"),
            );
            let position = |b: &'_ Backtest| b.position[..known.min(b.position.len())].to_vec();
            findings.compare(place(Stage::Fills), &position(mine), &position(its), at("position"));
            let prices = |b: &Backtest| -> Vec<f64> {
                let filled = b.fills.iter().filter(|fill| fill.bar < first + known && !fill.closing);
                filled.map(|fill| fill.price).collect()
            };
            let bars = mine.fills.iter().map(|fill| fill.bar).collect::<Vec<_>>();
            let fill = |i: usize| ("fill price".to_owned(), bars.get(i).copied());
            findings.compare(place(Stage::Fills), &prices(mine), &prices(its), fill);
        }
    }
}

fn arrays(bars: &BarSeries) -> BarArrays {
    BarArrays {
        time: bars.time.clone(),
        open: bars.open.clone(),
        high: bars.high.clone(),
        low: bars.low.clone(),
        close: bars.close.clone(),
        volume: bars.volume.clone(),
        spread: bars.spread.clone(),
    }
}

/// Bars up to and with `cut`, as a file that ends there would give them.
pub(super) fn truncated(bars: &BarSeries, cut: usize) -> Result<BarSeries, MLError> {
    let mut arrays = arrays(bars);
    arrays.time.truncate(cut + 1);
    for column in [&mut arrays.open, &mut arrays.high, &mut arrays.low, &mut arrays.close] {
        column.truncate(cut + 1);
    }
    for column in [&mut arrays.volume, &mut arrays.spread].into_iter().flatten() {
        column.truncate(cut + 1);
    }
    let mut truncated = BarSeries::from_arrays(bars.symbol.clone(), arrays)?;
    truncated.made = bars.made.iter().copied().take(cut + 1).collect();
    Ok(truncated)
}

/// Where prices go in another future. A value that keeps the larger of what it knows and what will be sees nothing of
/// lower prices, and the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Every price, volume and spread is higher.
    Up,
    /// Every one is lower.
    Down,
}

impl Course {
    /// What a price is multiplied by, never near 1 however long the way is.
    fn step(self, factor: f64, noise: f64) -> f64 {
        match self {
            Self::Up if factor < 1.1 => 1.1 + noise,
            Self::Up => factor,
            Self::Down if !(0.5..=0.9).contains(&factor) => 0.9 - 0.4 * noise,
            Self::Down => factor,
        }
    }
}

/// The bars with every price, volume, spread and time after `cut` another one: prices go a random way of their own, bars
/// come half a second late, and all rules of bars hold.
pub(super) fn perturbed(bars: &BarSeries, cut: usize, course: Course) -> Result<BarSeries, MLError> {
    let mut arrays = arrays(bars);
    let mut noise = Philox::new(cut as u64).stream(Purpose::Bootstrap, 0, 0);
    let (mut factor, sizes) = match course {
        Course::Up => (1.25, 3.0),
        Course::Down => (0.8, 0.25),
    };
    for bar in cut + 1..bars.len() {
        factor *= (0.01 * noise.next_normal()).exp();
        let scale = course.step(factor, noise.next_f64());
        for column in [&mut arrays.open, &mut arrays.high, &mut arrays.low, &mut arrays.close] {
            column[bar] *= scale;
        }
        let wick = 1.0 + 0.01 * noise.next_f64();
        match course {
            Course::Up => arrays.high[bar] *= wick,
            Course::Down => arrays.low[bar] /= wick,
        }
        for column in [&mut arrays.volume, &mut arrays.spread].into_iter().flatten() {
            column[bar] = if course == Course::Up { 1.0 + sizes * column[bar] } else { sizes * column[bar] };
        }
        arrays.time[bar] =
            arrays.time[bar].saturating_add(500_000_000).min(i64::MAX - (bars.len() - bar) as i64);
    }
    let mut perturbed = BarSeries::from_arrays(bars.symbol.clone(), arrays)?;
    perturbed.made.clone_from(&bars.made);
    Ok(perturbed)
}
