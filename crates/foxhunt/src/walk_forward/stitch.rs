//! Test windows of several folds as one account.
//!
//! Each fold starts flat and is closed with costs at its end. The next goes on with the money that is there: its record is
//! scaled by what the account has over what the fold started with, which is exact for everything but the volume limit of
//! immediate orders. Between two windows the account is flat for one bar, whose return is 0 and counts.

use foxhunt_ops::env_step::EnvParams;

use crate::MLError;
use crate::evaluation::{Backtest, Costs, FillRecord, OrderCounts, backtest};
use crate::policy::Policy;
use crate::trainer::{Prepared, StopSignal};

/// Runs each policy over the test window of its own market and joins the records.
///
/// # Errors
/// As [`backtest`].
pub fn stitch(
    markets: &[Prepared],
    policies: &mut [Policy],
    params: &EnvParams,
    stop: &dyn StopSignal,
) -> Result<Backtest, MLError> {
    let mut parts = Vec::with_capacity(markets.len());
    for (prepared, policy) in markets.iter().zip(policies) {
        let market = &prepared.market;
        let mut act = |state: &[f32], bar: usize| policy.act(market, state, bar);
        parts.push(backtest(market, prepared.split.test.clone(), params, stop, &mut act)?);
    }
    Ok(join(&parts))
}

/// One record of records whose windows follow each other. After a ruin nothing is traded.
pub(super) fn join(parts: &[Backtest]) -> Backtest {
    let start = parts.first().map_or(0, |part| part.window.start);
    let mut whole = Backtest {
        window: start..start,
        equity: Vec::new(),
        position: Vec::new(),
        actions: Vec::new(),
        holds: 0,
        fallbacks: 0,
        orders: OrderCounts::default(),
        fills: Vec::new(),
        costs: Costs::default(),
        terminated: false,
    };
    for part in parts {
        whole.window.end = part.window.end;
        let scale = match whole.equity.last() {
            Some(now) => now / part.start_equity(),
            None => 1.0,
        };
        if whole.terminated {
            let now = whole.final_equity();
            whole.equity.resize(whole.window.len(), now);
            whole.position.resize(whole.window.len(), 0.0);
            continue;
        }
        whole.equity.extend(part.equity.iter().map(|equity| equity * scale));
        whole.position.extend(part.position.iter().map(|position| position * scale));
        whole.actions.extend_from_slice(&part.actions);
        whole.holds += part.holds;
        whole.fallbacks += part.fallbacks;
        whole.orders = sum(&whole.orders, &part.orders);
        whole.fills.extend(part.fills.iter().map(|fill| FillRecord {
            units: fill.units * scale,
            fee: fill.fee * scale,
            spread: fill.spread * scale,
            impact: fill.impact * scale,
            ..*fill
        }));
        whole.costs = Costs {
            fee: whole.costs.fee + part.costs.fee * scale,
            spread: whole.costs.spread + part.costs.spread * scale,
            impact: whole.costs.impact + part.costs.impact * scale,
        };
        whole.terminated = part.terminated;
    }
    whole
}

fn sum(a: &OrderCounts, b: &OrderCounts) -> OrderCounts {
    let add = |a: &[u64; 9], b: &[u64; 9]| std::array::from_fn(|i| a[i] + b[i]);
    OrderCounts {
        sent: add(&a.sent, &b.sent),
        filled: add(&a.filled, &b.filled),
        partial: add(&a.partial, &b.partial),
        cancelled: add(&a.cancelled, &b.cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: usize, equity: &[f64], terminated: bool) -> Backtest {
        let n = equity.len();
        let fill = FillRecord {
            bar: start + 1,
            action: 36,
            units: 2.0,
            price: 50.0,
            fee: 1.0,
            spread: 0.5,
            impact: 0.25,
            turnover: 1.0,
            maker: false,
            closing: false,
        };
        Backtest {
            window: start..start + n,
            equity: equity.to_vec(),
            position: vec![2.0; n],
            actions: vec![36; n - 1],
            holds: 1,
            fallbacks: 2,
            orders: OrderCounts { sent: [1; 9], ..OrderCounts::default() },
            fills: vec![fill],
            costs: Costs { fee: 1.0, spread: 0.5, impact: 0.25 },
            terminated,
        }
    }

    /// The second fold trades with the money of the first: 10 % and 20 % are 32 %, and its costs grow with the account.
    #[test]
    fn folds_compound() {
        let whole = join(&[part(10, &[100.0, 105.0, 110.0], false), part(13, &[100.0, 120.0], false)]);
        assert_eq!(whole.window, 10..15);
        let want = [100.0, 105.0, 110.0, 110.0, 132.0];
        assert!(
            whole.equity.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12),
            "{:?}",
            whole.equity
        );
        assert_eq!((whole.position.len(), whole.actions.len()), (5, 3));
        assert_eq!((whole.holds, whole.fallbacks, whole.orders.sent), (2, 4, [2; 9]));
        assert!((whole.costs.fee - 2.1).abs() < 1e-12 && (whole.fills[1].units - 2.2).abs() < 1e-12);
        assert!((whole.fills[1].fee - 1.1).abs() < 1e-12 && whole.fills[1].price == 50.0);
        assert_eq!(whole.turnover(), 2.0, "shares of equity do not grow");
    }

    #[test]
    fn nothing_is_traded_after_a_ruin() {
        let whole = join(&[part(10, &[100.0, 40.0], true), part(12, &[100.0, 150.0], false)]);
        assert_eq!(whole.equity, [100.0, 40.0, 40.0, 40.0]);
        assert_eq!((whole.position[3], whole.actions.len(), whole.fills.len()), (0.0, 1, 1));
        assert!(whole.terminated);
        assert_eq!(join(&[]).window, 0..0);
    }
}
