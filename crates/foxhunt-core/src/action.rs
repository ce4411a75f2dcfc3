//! The factored action space, the order router and the network heads.
//!
//! A factored action is `exposure * 9 + order_type * 3 + urgency`, 45 in all. The router fills in order type
//! and urgency when a head decides exposure alone. Nothing here fills an order or touches money.

use serde::{Deserialize, Serialize};

/// Number of exposure levels.
pub const N_EXPOSURES: usize = 5;
/// Number of order types, and of urgencies.
pub const N_ORDER_TYPES: usize = 3;
/// Number of urgencies.
pub const N_URGENCIES: usize = 3;
/// Number of factored actions.
pub const N_FACTORED: usize = N_EXPOSURES * N_ORDER_TYPES * N_URGENCIES;

/// An action index outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} index {index} is not below {len}")]
pub struct ActionError {
    /// Which index it was.
    pub what: &'static str,
    /// The value given.
    pub index: u32,
    /// The number of valid values.
    pub len: u32,
}

macro_rules! indexed {
    ($(#[$doc:meta])* $name:ident, $what:literal, $(($(#[$vdoc:meta])* $variant:ident, $label:literal)),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u32)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every value, in index order.
            pub const ALL: [$name; [$($label),+].len()] = [$($name::$variant),+];

            /// The index of this value.
            #[must_use]
            pub const fn index(self) -> u32 {
                self as u32
            }

            /// The value at `index`.
            ///
            /// # Errors
            /// [`ActionError`] when `index` is out of range.
            pub fn from_index(index: u32) -> Result<Self, ActionError> {
                Self::ALL.get(index as usize).copied().ok_or(ActionError {
                    what: $what,
                    index,
                    len: Self::ALL.len() as u32,
                })
            }

            /// A short label for tables and plots.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $($name::$variant => $label),+ }
            }
        }
    };
}

indexed!(
    /// Target exposure as a share of the maximum position.
    Exposure, "exposure",
    (/// -100 %.
     Short, "short"),
    (/// -50 %.
     HalfShort, "half short"),
    (/// No position.
     Flat, "flat"),
    (/// +50 %.
     HalfLong, "half long"),
    (/// +100 %.
     Long, "long")
);

impl Exposure {
    /// The signed share of the maximum position: -1, -0.5, 0, 0.5, 1.
    #[must_use]
    pub const fn fraction(self) -> f64 {
        [-1.0, -0.5, 0.0, 0.5, 1.0][self as usize]
    }
}

indexed!(
    /// How the order reaches the market.
    OrderType, "order type",
    (/// Takes the next open.
     Market, "market"),
    (/// Rests at a limit for one bar and pays the maker fee.
     LimitMaker, "limit maker"),
    (/// Immediate or cancel: takes the next open if it is near, up to a share of the bar's volume.
     Ioc, "ioc")
);

indexed!(
    /// How much is paid, or risked, for being filled.
    Urgency, "urgency",
    (/// Low.
     Patient, "patient"),
    (/// Middle.
     Normal, "normal"),
    (/// High.
     Aggressive, "aggressive")
);

/// One of the 45 joint actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FactoredAction {
    /// Target exposure.
    pub exposure: Exposure,
    /// Order type.
    pub order_type: OrderType,
    /// Urgency.
    pub urgency: Urgency,
}

impl FactoredAction {
    /// `exposure * 9 + order_type * 3 + urgency`, in 0..45.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.exposure.index() * 9 + self.order_type.index() * 3 + self.urgency.index()
    }

    /// The action at `index`.
    ///
    /// # Errors
    /// [`ActionError`] when `index` is 45 or more.
    pub fn from_index(index: u32) -> Result<Self, ActionError> {
        if index >= N_FACTORED as u32 {
            return Err(ActionError { what: "factored action", index, len: N_FACTORED as u32 });
        }
        Ok(Self {
            exposure: Exposure::from_index(index / 9)?,
            order_type: OrderType::from_index(index / 3 % 3)?,
            urgency: Urgency::from_index(index % 3)?,
        })
    }
}

/// Chooses order type and urgency from the state of the market. See [`OrderRouter::route`].
#[derive(Clone, Copy, Debug, Default)]
pub struct OrderRouter;

impl OrderRouter {
    /// Completes `exposure` to a factored action.
    ///
    /// Order type: Market if `median_spread <= 0`; else LimitMaker if `spread < median_spread`; else Market if
    /// `spread > 2 * median_spread`; else IoC. Urgency: Normal if `median_volatility <= 0`; else Aggressive if
    /// `volatility > 1.5 * median_volatility`; else Patient if `volatility < 0.5 * median_volatility`; else
    /// Normal. Spreads share one unit, volatilities share one unit; all are f32 so that the GPU's comparison is
    /// the same bit for bit. A NaN compares false everywhere, which gives IoC and Normal.
    #[must_use]
    pub fn route(
        exposure: Exposure,
        spread: f32,
        median_spread: f32,
        volatility: f32,
        median_volatility: f32,
    ) -> FactoredAction {
        let order_type = if median_spread <= 0.0 {
            OrderType::Market
        } else if spread < median_spread {
            OrderType::LimitMaker
        } else if spread > 2.0 * median_spread {
            OrderType::Market
        } else {
            OrderType::Ioc
        };
        let urgency = if median_volatility <= 0.0 {
            Urgency::Normal
        } else if volatility > 1.5 * median_volatility {
            Urgency::Aggressive
        } else if volatility < 0.5 * median_volatility {
            Urgency::Patient
        } else {
            Urgency::Normal
        };
        FactoredAction { exposure, order_type, urgency }
    }
}

/// Which decision the network makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// Five Q-values over exposure; the router does the rest.
    Exposure,
    /// Forty-five Q-values, one a factored action.
    Factored,
    /// 5 + 3 + 3 Q-values, one argmax a branch (BDQ, arXiv 1711.08946).
    Branching,
}

impl Head {
    /// Q-values a branch, in output order.
    #[must_use]
    pub const fn branches(self) -> &'static [usize] {
        match self {
            Self::Exposure => &[N_EXPOSURES],
            Self::Factored => &[N_FACTORED],
            Self::Branching => &[N_EXPOSURES, N_ORDER_TYPES, N_URGENCIES],
        }
    }

    /// Number of Q-values the network puts out.
    #[must_use]
    pub const fn n_outputs(self) -> usize {
        match self {
            Self::Exposure => N_EXPOSURES,
            Self::Factored => N_FACTORED,
            Self::Branching => N_EXPOSURES + N_ORDER_TYPES + N_URGENCIES,
        }
    }

    /// Number of joint actions of the head: what a random action is uniform over, and what the replay stores
    /// (the exposure index for [`Head::Exposure`], the factored index for the other two).
    #[must_use]
    pub const fn n_actions(self) -> usize {
        match self {
            Self::Exposure => N_EXPOSURES,
            Self::Factored | Self::Branching => N_FACTORED,
        }
    }
}

/// What a network decides: a trading decision, or one of so many actions of another environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionSpace {
    /// A trading head.
    Trading(Head),
    /// Actions 0 to n - 1, one Q-value each; see [`ActionSpace::discrete`].
    Discrete([usize; 1]),
}

impl ActionSpace {
    /// `n` actions, at least 1.
    #[must_use]
    pub const fn discrete(n: usize) -> Self {
        Self::Discrete([n])
    }

    /// Q-values a branch, in output order.
    #[must_use]
    pub const fn branches(&self) -> &[usize] {
        match self {
            Self::Trading(head) => head.branches(),
            Self::Discrete(branch) => branch,
        }
    }

    /// Number of Q-values the network puts out.
    #[must_use]
    pub const fn n_outputs(&self) -> usize {
        match self {
            Self::Trading(head) => head.n_outputs(),
            Self::Discrete([n]) => *n,
        }
    }

    /// Number of joint actions, what the replay stores; see [`Head::n_actions`].
    #[must_use]
    pub const fn n_actions(&self) -> usize {
        match self {
            Self::Trading(head) => head.n_actions(),
            Self::Discrete([n]) => *n,
        }
    }
}

impl From<Head> for ActionSpace {
    fn from(head: Head) -> Self {
        Self::Trading(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_round_trips_over_all_45() {
        for index in 0..45 {
            let action = FactoredAction::from_index(index).unwrap();
            assert_eq!(action.index(), index);
        }
        assert_eq!(
            FactoredAction::from_index(45),
            Err(ActionError { what: "factored action", index: 45, len: 45 })
        );
        let last = FactoredAction {
            exposure: Exposure::Long,
            order_type: OrderType::Ioc,
            urgency: Urgency::Aggressive,
        };
        assert_eq!(last.index(), 44);
    }

    #[test]
    fn exposure_fractions() {
        assert_eq!(Exposure::ALL.map(Exposure::fraction), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    }

    /// Every branch and both sides of every boundary of the router.
    #[test]
    fn router_boundaries() {
        let order = |spread, median| OrderRouter::route(Exposure::Flat, spread, median, 1.0, 1.0).order_type;
        assert_eq!(order(1.0, 0.0), OrderType::Market);
        assert_eq!(order(1.0, -1.0), OrderType::Market);
        assert_eq!(order(0.999, 1.0), OrderType::LimitMaker);
        assert_eq!(order(1.0, 1.0), OrderType::Ioc);
        assert_eq!(order(2.0, 1.0), OrderType::Ioc);
        assert_eq!(order(2.001, 1.0), OrderType::Market);
        assert_eq!(order(f32::NAN, 1.0), OrderType::Ioc);
        let urgency = |vol, median| OrderRouter::route(Exposure::Flat, 1.0, 1.0, vol, median).urgency;
        assert_eq!(urgency(9.0, 0.0), Urgency::Normal);
        assert_eq!(urgency(1.5, 1.0), Urgency::Normal);
        assert_eq!(urgency(1.501, 1.0), Urgency::Aggressive);
        assert_eq!(urgency(0.5, 1.0), Urgency::Normal);
        assert_eq!(urgency(0.499, 1.0), Urgency::Patient);
        assert_eq!(urgency(f32::NAN, 1.0), Urgency::Normal);
    }

    #[test]
    fn head_sizes_agree() {
        for head in [Head::Exposure, Head::Factored, Head::Branching] {
            assert_eq!(head.branches().iter().sum::<usize>(), head.n_outputs());
            assert_eq!(head.branches().iter().product::<usize>(), head.n_actions());
        }
    }
}
