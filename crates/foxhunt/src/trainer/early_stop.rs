//! When to stop before the last epoch: validation without progress, or a max-Q that no longer moves.
//!
//! A score that is missing, NaN or infinite is never the best and never progress; it uses up patience like any
//! other validation that did not improve (case C14).

use foxhunt_core::settings::AverageQStop;
use serde::{Deserialize, Serialize};

/// The best validation so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// Epoch after which it was reached.
    pub epoch: u64,
    /// `ln(final equity / start equity)` on the validation split, after costs.
    pub net_log_return: f64,
}

/// Early stop on the net log return of validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStop {
    /// The best so far.
    pub best: Option<Best>,
    /// Validations since then.
    pub without_progress: u32,
}

impl EarlyStop {
    /// Takes in one validation and says whether it is the new best. Equal is not better.
    pub fn observe(&mut self, epoch: u64, net_log_return: Option<f64>) -> bool {
        let score = net_log_return.filter(|score| score.is_finite());
        let better = match (score, self.best) {
            (Some(score), Some(best)) => score > best.net_log_return,
            (Some(_), None) => true,
            (None, _) => false,
        };
        match score {
            Some(net_log_return) if better => {
                self.best = Some(Best { epoch, net_log_return });
                self.without_progress = 0;
            }
            _ => self.without_progress += 1,
        }
        better
    }

    /// Whether `patience` validations went by without progress; a patience of 0 never runs out.
    #[must_use]
    pub fn exhausted(&self, patience: u32) -> bool {
        patience > 0 && self.without_progress >= patience
    }
}

/// Early stop on an epoch's mean max-Q.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AverageQ {
    /// The value when it last moved.
    pub anchor: Option<f64>,
    /// Epochs since then.
    pub still_epochs: u32,
}

impl AverageQ {
    /// Takes in one epoch. Movement is measured from where the value last moved, so a slow drift counts as
    /// movement once it has gone `min_change`.
    pub fn observe(&mut self, rule: AverageQStop, max_q: Option<f64>) {
        let moved_to = max_q.filter(|q| q.is_finite()).filter(|q| match self.anchor {
            Some(anchor) => (q - anchor).abs() >= rule.min_change,
            None => true,
        });
        match moved_to {
            Some(q) => *self = Self { anchor: Some(q), still_epochs: 0 },
            None => self.still_epochs += 1,
        }
    }

    /// Whether `rule.patience` epochs went by without movement.
    #[must_use]
    pub fn exhausted(&self, rule: AverageQStop) -> bool {
        self.still_epochs >= rule.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case C14: losses [1.0, NaN, 0.9], here as returns [-1.0, NaN, -0.9]: the best is the third, the second is
    /// neither best nor progress.
    #[test]
    fn nan_is_neither_best_nor_progress() {
        let mut stop = EarlyStop::default();
        assert!(!stop.observe(1, Some(f64::NAN)), "a NaN is no first best either");
        assert_eq!(stop.best, None);
        assert!(stop.observe(2, Some(-1.0)));
        assert!(!stop.observe(3, Some(f64::NAN)));
        assert_eq!((stop.best.unwrap().epoch, stop.without_progress), (2, 1));
        assert!(!stop.observe(4, Some(f64::INFINITY)));
        assert!(!stop.observe(5, None));
        assert_eq!(stop.without_progress, 3, "patience is used up, not reset");
        assert!(stop.exhausted(3) && !stop.exhausted(4) && !stop.exhausted(0));
        assert!(stop.observe(6, Some(-0.9)));
        assert_eq!(stop.best, Some(Best { epoch: 6, net_log_return: -0.9 }));
        assert!(!stop.observe(7, Some(-0.9)), "equal is not better");
    }

    #[test]
    fn average_q_stops_when_it_stands_still() {
        let rule = AverageQStop { min_change: 0.1, patience: 2 };
        let mut stop = AverageQ::default();
        let mut step = |q| {
            stop.observe(rule, q);
            stop.exhausted(rule)
        };
        let verdicts = [1.0, 1.05, 1.09, 1.11, 1.12, 1.0].map(|q| step(Some(q)));
        // 1.05 and 1.09 are within 0.1 of the anchor 1.0; 1.11 is not, and neither is 1.0 of 1.11.
        assert_eq!(verdicts, [false, false, true, false, false, false]);
        assert!(!step(Some(f64::NAN)));
        assert!(step(None), "a missing value is no movement");
        assert_eq!(stop.anchor, Some(1.0));
    }
}
