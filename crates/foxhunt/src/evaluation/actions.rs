//! Which of the 45 actions were taken, and the marginals over exposure, order type and urgency.
//!
//! Decisions are counted as the policy made them, holds included; what became of the orders is in
//! [`super::OrderCounts`].

use foxhunt_core::action::N_FACTORED;
use foxhunt_core::{Exposure, OrderType, Urgency};
use serde::{Deserialize, Serialize};

use super::Backtest;

/// Counts of decisions by factored action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionTable {
    /// 45 counts, index `exposure * 9 + order_type * 3 + urgency`.
    pub counts: Vec<u64>,
    /// Decisions among them that held the position.
    pub holds: u64,
}

impl ActionTable {
    /// The decisions of a backtest.
    #[must_use]
    pub fn of(backtest: &Backtest) -> Self {
        let mut counts = vec![0; N_FACTORED];
        for &action in &backtest.actions {
            if let Some(count) = counts.get_mut(usize::from(action)) {
                *count += 1;
            }
        }
        Self { counts, holds: backtest.holds }
    }

    /// All decisions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The count of one joint action.
    #[must_use]
    pub fn get(&self, exposure: Exposure, order_type: OrderType, urgency: Urgency) -> u64 {
        let index = exposure.index() * 9 + order_type.index() * 3 + urgency.index();
        self.counts.get(index as usize).copied().unwrap_or_default()
    }

    /// Sums by exposure.
    #[must_use]
    pub fn by_exposure(&self) -> [u64; 5] {
        self.marginal(|index| index / 9)
    }

    /// Sums by order type.
    #[must_use]
    pub fn by_order_type(&self) -> [u64; 3] {
        self.marginal(|index| index / 3 % 3)
    }

    /// Sums by urgency.
    #[must_use]
    pub fn by_urgency(&self) -> [u64; 3] {
        self.marginal(|index| index % 3)
    }

    fn marginal<const N: usize>(&self, group: impl Fn(usize) -> usize) -> [u64; N] {
        let mut sums = [0; N];
        for (index, count) in self.counts.iter().enumerate().take(N_FACTORED) {
            sums[group(index)] += count;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marginals_add_up_to_the_table() {
        let counts: Vec<u64> = (0..45).collect();
        let table = ActionTable { counts, holds: 0 };
        assert_eq!(table.total(), 990);
        assert_eq!(table.by_exposure(), [36, 117, 198, 279, 360]);
        assert_eq!(table.by_order_type(), [285, 330, 375]);
        assert_eq!(table.by_urgency(), [315, 330, 345]);
        assert_eq!(table.get(Exposure::Long, OrderType::Ioc, Urgency::Aggressive), 44);
    }
}
