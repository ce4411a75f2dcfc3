//! Money: cash, position, average entry price and what has been realised.
//!
//! Equity is `cash + position * price` and nothing else: fees leave cash the moment they are paid (cases F12 and
//! F14), so equity is always net. Straight-line f64 in a fixed order of operations, because the CUDA kernel
//! repeats it. This module does not decide, price or refuse anything: negative cash and negative equity are
//! representable, and ruin is the environment's business.

use serde::{Deserialize, Serialize};

/// An account in one instrument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Portfolio {
    /// Account currency; negative when borrowed.
    pub cash: f64,
    /// Units held; negative when short.
    pub position: f64,
    /// Average price the position was opened at, price units; 0 without a position.
    pub entry_price: f64,
    /// Profit of closed quantities before fees, account currency.
    pub realised_pnl: f64,
    /// Fees paid so far less rebates, account currency.
    pub fees: f64,
}

impl Portfolio {
    /// An account that holds `cash` and no position.
    #[must_use]
    pub fn new(cash: f64) -> Self {
        Self { cash, ..Self::default() }
    }

    /// Books a trade of signed `quantity` at `price` that cost `fee` (negative: a rebate).
    ///
    /// Adding to a position averages its entry price by quantity. Reducing it realises the profit of the
    /// quantity closed and leaves the entry price. A trade through zero realises the whole old position and
    /// opens the rest at `price` (case F08).
    pub fn trade(&mut self, quantity: f64, price: f64, fee: f64) {
        let old = self.position;
        let new = old + quantity;
        let adds = old == 0.0 || (old > 0.0) == (quantity > 0.0);
        if adds {
            let units = old.abs() + quantity.abs();
            let value = self.entry_price * old.abs() + price * quantity.abs();
            self.entry_price = if units > 0.0 { value / units } else { 0.0 };
        } else {
            let closed = if quantity.abs() < old.abs() { quantity.abs() } else { old.abs() };
            let direction = if old > 0.0 { 1.0 } else { -1.0 };
            self.realised_pnl += direction * (price - self.entry_price) * closed;
            if new == 0.0 {
                self.entry_price = 0.0;
            } else if (new > 0.0) != (old > 0.0) {
                self.entry_price = price;
            }
        }
        self.position = new;
        self.cash = self.cash - quantity * price - fee;
        self.fees += fee;
    }

    /// Net equity with the position marked at `price`, account currency.
    #[must_use]
    pub fn equity(&self, price: f64) -> f64 {
        self.cash + self.position * price
    }

    /// Profit of the open position at `price` before fees, account currency.
    #[must_use]
    pub fn unrealised_pnl(&self, price: f64) -> f64 {
        self.position * (price - self.entry_price)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(position: f64, entry_price: f64) -> Portfolio {
        Portfolio { position, entry_price, ..Portfolio::default() }
    }

    /// Case F08: a flip realises the closed size, not the traded size, and reopens at the trade's price.
    #[test]
    fn flip_realises_the_closed_size() {
        let mut p = held(-1.0, 100.0);
        p.trade(1.5, 90.0, 0.0);
        assert_eq!((p.realised_pnl, p.position, p.entry_price), (10.0, 0.5, 90.0));
        let mut p = held(2.0, 10.0);
        p.trade(-5.0, 12.0, 0.0);
        assert_eq!((p.realised_pnl, p.position, p.entry_price), (4.0, -3.0, 12.0));
    }

    /// Case F09: 168 units, prices 1, 2, 4, long then short then flat: 0, +168, -336.
    #[test]
    fn flip_moves_cash() {
        let mut p = Portfolio::new(0.0);
        let mut equity = vec![];
        for (price, target) in [(1.0, 168.0), (2.0, -168.0), (4.0, 0.0)] {
            equity.push(p.equity(price));
            p.trade(target - p.position, price, 0.0);
            assert_eq!(p.equity(price), *equity.last().unwrap(), "a trade at the mark changes no equity");
        }
        assert_eq!(equity, [0.0, 168.0, -168.0]);
        assert_eq!((p.position, p.realised_pnl), (0.0, -168.0));
    }

    /// Case F11: a rebate is paid out on both sides.
    #[test]
    fn rebate_adds_cash_on_both_sides() {
        let mut p = Portfolio::new(0.0);
        p.trade(1.0, 100.0, 100.0 * -0.0004);
        assert_eq!(p.cash, -99.96);
        p.trade(-1.0, 100.0, 100.0 * -0.0004);
        assert!((p.cash - 0.08).abs() < 1e-12 && (p.fees + 0.08).abs() < 1e-15);
    }

    /// Case F12: a fee on a sale is taken from cash.
    #[test]
    fn fee_on_a_sale_is_taken_from_cash() {
        let mut p = Portfolio::new(1000.0);
        p.trade(10.0, 50.0, 0.0);
        assert_eq!(p.cash, 500.0);
        p.trade(-10.0, 60.0, 5.0);
        assert_eq!((p.cash, p.realised_pnl), (1095.0, 100.0));
    }

    /// Case F14: equity is net of fees at once, and agrees with the fee counter.
    #[test]
    fn fees_leave_equity_at_once() {
        let mut p = Portfolio::new(1000.0);
        p.trade(1.0, 100.0, 1.0);
        assert_eq!(p.equity(100.0), 999.0);
        p.trade(-1.0, 100.0, 1.0);
        assert_eq!((p.equity(100.0), p.fees), (998.0, 2.0));
    }

    /// Case F05: a fee never makes a round trip better, long or short.
    #[test]
    fn fee_never_helps() {
        for side in [1.0, -1.0] {
            let mut p = Portfolio::new(1.0);
            p.trade(side, 1.0, 0.005);
            p.trade(-side, 1.0, 0.005);
            assert!((p.equity(1.0) - 0.99).abs() < 1e-15 && p.equity(1.0) < 1.0);
            assert_eq!(p.realised_pnl, 0.0);
        }
        // Over what was paid for a long, and over what was received for a short: .995 / 1.005 - 1, 1 - 1.005 / .995.
        for (side, want) in [(1.0, -0.009_950_248_8), (-1.0, -0.010_050_3)] {
            let mut p = Portfolio::new(0.0);
            p.trade(side, 1.0, 0.005);
            let outlay = p.cash.abs();
            p.trade(-side, 1.0, 0.005);
            assert!((p.cash / outlay - want).abs() < 1e-7, "{side}: {}", p.cash / outlay);
        }
    }

    /// Case F06: both fees are in the result, and a small edge is a loss.
    #[test]
    fn commission_on_entry_and_exit() {
        let mut p = Portfolio::new(0.0);
        p.trade(1500.0, 0.2166, 1500.0 * 0.2166 * 0.004);
        p.trade(-1500.0, 0.2183, 1500.0 * 0.2183 * 0.004);
        assert!((p.realised_pnl - 2.55).abs() < 1e-9);
        assert!((p.fees - 2.6094).abs() < 1e-9);
        assert!((p.equity(0.2183) + 0.0594).abs() < 1e-9);
    }

    /// Case F35: point profit at negative prices has the right sign (such bars are refused on loading).
    #[test]
    fn negative_prices_keep_the_sign_of_profit() {
        let mut p = Portfolio::new(0.0);
        p.trade(1.0, 10.0, 0.0);
        assert_eq!([10.0, -2.0, -4.0].map(|price| p.equity(price)), [0.0, -12.0, -14.0]);
    }

    #[test]
    fn adding_averages_and_reducing_keeps_the_entry() {
        let mut p = Portfolio::new(0.0);
        p.trade(-1.0, 10.0, 0.0);
        p.trade(-3.0, 14.0, 0.0);
        assert_eq!((p.position, p.entry_price), (-4.0, 13.0));
        p.trade(1.0, 12.0, 0.0);
        assert_eq!((p.position, p.entry_price, p.realised_pnl), (-3.0, 13.0, 1.0));
        assert_eq!(p.unrealised_pnl(12.0), 3.0);
    }

    proptest! {
        /// Equity is what came in less what was paid, whatever the path; and realised + unrealised - fees is the
        /// same number from the other side.
        #[test]
        fn equity_identity(trades in prop::collection::vec((-100.0..100.0f64, 1.0..1000.0f64, -1.0..1.0f64), 1..40)) {
            let mut p = Portfolio::new(1e5);
            let (mut position, mut paid) = (0.0, 0.0);
            let mut price = 1.0;
            for (quantity, at, fee) in trades {
                p.trade(quantity, at, fee);
                position += quantity;
                paid += quantity * at + fee;
                price = at;
            }
            prop_assert_eq!(p.position, position);
            prop_assert!((p.equity(price) - (1e5 - paid + position * price)).abs() < 1e-6);
            let both = 1e5 + p.realised_pnl + p.unrealised_pnl(price) - p.fees;
            prop_assert!((p.equity(price) - both).abs() < 1e-6, "{} against {}", p.equity(price), both);
        }
    }
}
