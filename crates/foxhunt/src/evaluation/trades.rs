//! Round trips: fills paired from the moment a position opens until it is flat again or turns round.
//!
//! The profit of a trade is the cash its fills moved, fees included, so the profits of all trades add up to the
//! change of equity. Adding to a position or taking part of it off does not start a trade.

use serde::{Deserialize, Serialize};

use super::FillRecord;

/// One round trip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trade {
    /// Bar of the first fill.
    pub open_bar: usize,
    /// Bar of the fill that closed it.
    pub close_bar: usize,
    /// Whether units were held long.
    pub long: bool,
    /// Net profit, account currency: sales minus purchases minus all fees (case F06).
    pub profit: f64,
}

/// The round trips of `fills`, in the order they closed. A fill that turns the position round closes one trade
/// and opens the next; its fee is divided in proportion to the units (case F08). A position still open after the
/// last fill is no trade; a backtest always closes.
#[must_use]
pub fn round_trips(fills: &[FillRecord]) -> Vec<Trade> {
    let mut trades = Vec::new();
    let mut position = 0.0_f64;
    let (mut cash, mut open_bar) = (0.0, 0);
    for fill in fills {
        let after = position + fill.units;
        if position == 0.0 {
            (cash, open_bar) = (0.0, fill.bar);
        }
        if position != 0.0 && position * after <= 0.0 {
            let share = (position / fill.units).abs();
            cash += position * fill.price - fill.fee * share;
            trades.push(Trade { open_bar, close_bar: fill.bar, long: position > 0.0, profit: cash });
            (cash, open_bar) = (-after * fill.price - fill.fee * (1.0 - share), fill.bar);
        } else {
            cash -= fill.units * fill.price + fill.fee;
        }
        position = after;
    }
    trades
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(units: f64, price: f64, fee: f64) -> FillRecord {
        FillRecord {
            bar: 1,
            action: 0,
            units,
            price,
            fee,
            spread: 0.0,
            impact: 0.0,
            turnover: 0.0,
            maker: false,
            closing: false,
        }
    }

    fn profits(fills: &[FillRecord]) -> Vec<f64> {
        round_trips(fills).iter().map(|trade| trade.profit).collect()
    }

    /// Case F06: both fees count, so a small gross gain is a net loss.
    #[test]
    fn both_fees_count() {
        let (buy, sell) = (1500.0 * 0.2166, 1500.0 * 0.2183);
        let got = profits(&[fill(1500.0, 0.2166, buy * 0.004), fill(-1500.0, 0.2183, sell * 0.004)]);
        assert_eq!(got.len(), 1);
        assert!((got[0] - -0.0594).abs() < 1e-9, "{got:?}");
    }

    /// Case F08: a flip realises the closed size, not the traded size.
    #[test]
    fn a_flip_realises_the_closed_size() {
        assert_eq!(profits(&[fill(-1.0, 100.0, 0.0), fill(1.5, 90.0, 0.0)]), [10.0]);
        assert_eq!(profits(&[fill(2.0, 10.0, 0.0), fill(-5.0, 12.0, 0.0)]), [4.0]);
        let both = round_trips(&[fill(2.0, 10.0, 0.0), fill(-5.0, 12.0, 5.0), fill(3.0, 11.0, 0.0)]);
        assert_eq!(both.iter().map(|t| (t.long, t.profit)).collect::<Vec<_>>(), [(true, 2.0), (false, 0.0)]);
    }

    #[test]
    fn scaling_in_and_out_is_one_trade() {
        let fills =
            [fill(1.0, 10.0, 0.5), fill(1.0, 11.0, 0.5), fill(-0.5, 12.0, 0.5), fill(-1.5, 13.0, 0.5)];
        let got = profits(&fills);
        assert_eq!(got, [-10.0 - 11.0 + 6.0 + 19.5 - 2.0]);
    }

    #[test]
    fn nothing_and_an_open_position_are_no_trades() {
        assert!(round_trips(&[]).is_empty());
        assert!(round_trips(&[fill(1.0, 10.0, 0.0)]).is_empty());
    }
}
