//! Choosing actions on candle tensors: epsilon-greedy for the three heads, and order routing.
//!
//! The rules (one coin a decision, ties to the lowest index, what a NaN or an empty mask does, which random words
//! are used) are those of [`foxhunt_ops::select_actions`]; this module only takes tensors and gives tensors. Every
//! result is a u32 tensor `[B]` on the device of its input, which with the feature `candle-cuda` may be a GPU; there
//! the calls queue work and return.

use candle_core::{Device, Tensor};
use foxhunt_core::action::N_EXPOSURES;
use foxhunt_ops::select_actions as ops;

pub use foxhunt_core::action::{
    ActionError, Exposure, FactoredAction, Head, OrderRouter, OrderType, Urgency,
};
pub use foxhunt_ops::select_actions::Explore;

use crate::MLError;
use crate::host_values::{rows, values};

/// What the router reads; each f32 tensor has one value a row, or a single value for all rows.
#[derive(Clone, Copy, Debug)]
pub struct RouterTensors<'a> {
    /// Observed spread, price units.
    pub spread: &'a Tensor,
    /// Rolling median of the spread, same unit.
    pub median_spread: &'a Tensor,
    /// Volatility.
    pub volatility: &'a Tensor,
    /// Rolling median of the volatility, same unit.
    pub median_volatility: &'a Tensor,
}

/// Action of each row of `q`, f32 `[B, n_actions]`: for 5 columns the exposure index, for 45 the factored index.
/// `mask`: u8, the shape of `q`, 0 = forbidden. The CPU takes any number of columns.
///
/// # Errors
/// [`MLError::Shape`], [`MLError::DType`] and [`MLError::DeviceMismatch`] for tensors that do not fit.
pub fn select_actions(q: &Tensor, mask: Option<&Tensor>, explore: &Explore) -> Result<Tensor, MLError> {
    #[cfg(feature = "candle-cuda")]
    if let Device::Cuda(device) = q.device() {
        return crate::candle_cuda::actions::select_actions(device, q, mask, explore);
    }
    let (q, n, width) = rows("q", q, None)?;
    let mask = read_mask(mask, n, width)?;
    let mut out = vec![0; n];
    ops::select_actions(&q, width, mask.as_deref(), explore, &mut out);
    to_tensor(out)
}

/// Factored action of each row of `q`, f32 `[B, 5]`: the exposure of [`select_actions`], completed by the router.
///
/// # Errors
/// As [`select_actions`].
pub fn select_actions_routed(
    q: &Tensor,
    mask: Option<&Tensor>,
    explore: &Explore,
    router: &RouterTensors<'_>,
) -> Result<Tensor, MLError> {
    #[cfg(feature = "candle-cuda")]
    if let Device::Cuda(device) = q.device() {
        return crate::candle_cuda::actions::select_actions_routed(device, q, mask, explore, router);
    }
    let (q, n, width) = rows("q", q, Some(N_EXPOSURES))?;
    let mask = read_mask(mask, n, width)?;
    let mut out = vec![0; n];
    let router = RouterValues::read(router, n)?;
    ops::select_actions_routed(&q, mask.as_deref(), explore, &router.view(), &mut out);
    to_tensor(out)
}

/// Factored action of each row of `q`, f32 `[B, 11]`: exposures, order types, urgencies, one argmax a branch.
///
/// # Errors
/// As [`select_actions`].
pub fn select_actions_branching(
    q: &Tensor,
    mask: Option<&Tensor>,
    explore: &Explore,
) -> Result<Tensor, MLError> {
    #[cfg(feature = "candle-cuda")]
    if let Device::Cuda(device) = q.device() {
        return crate::candle_cuda::actions::select_actions_branching(device, q, mask, explore);
    }
    let (q, n, width) = rows("q", q, Some(Head::Branching.n_outputs()))?;
    let mask = read_mask(mask, n, width)?;
    let mut out = vec![0; n];
    ops::select_actions_branching(&q, mask.as_deref(), explore, &mut out);
    to_tensor(out)
}

/// Completes exposures, u32 `[N]`, to factored actions.
///
/// # Errors
/// [`MLError::Action`] for an exposure of 5 or more on the CPU; a GPU gives `u32::MAX` for it and counts it. Else as
/// [`select_actions`].
pub fn batch_route_exposure_to_factored(
    exposures: &Tensor,
    router: &RouterTensors<'_>,
) -> Result<Tensor, MLError> {
    #[cfg(feature = "candle-cuda")]
    if let Device::Cuda(device) = exposures.device() {
        return crate::candle_cuda::actions::batch_route_exposure_to_factored(device, exposures, router);
    }
    let exposures: Vec<u32> = values("exposures", exposures)?;
    let mut out = vec![0; exposures.len()];
    let router = RouterValues::read(router, exposures.len())?;
    ops::batch_route_exposure_to_factored(&exposures, &router.view(), &mut out)?;
    to_tensor(out)
}

struct RouterValues([Vec<f32>; 4]);

impl RouterValues {
    fn read(router: &RouterTensors<'_>, n: usize) -> Result<Self, MLError> {
        let read = |what, tensor: &Tensor| {
            let got: Vec<f32> = values(what, tensor)?;
            if got.len() == n || got.len() == 1 {
                return Ok(got);
            }
            let expected = format!("one value, or {n}");
            Err(MLError::Shape { what, got: tensor.dims().to_vec(), expected })
        };
        Ok(Self([
            read("spread", router.spread)?,
            read("median_spread", router.median_spread)?,
            read("volatility", router.volatility)?,
            read("median_volatility", router.median_volatility)?,
        ]))
    }

    fn view(&self) -> ops::Router<'_> {
        let [spread, median_spread, volatility, median_volatility] = &self.0;
        ops::Router { spread, median_spread, volatility, median_volatility }
    }
}

fn read_mask(mask: Option<&Tensor>, n: usize, width: usize) -> Result<Option<Vec<u8>>, MLError> {
    let Some(mask) = mask else { return Ok(None) };
    let (values, got, _) = rows("mask", mask, Some(width))?;
    if got != n {
        return Err(MLError::Shape {
            what: "mask",
            got: mask.dims().to_vec(),
            expected: format!("[{n}, {width}]"),
        });
    }
    Ok(Some(values))
}

fn to_tensor(actions: Vec<u32>) -> Result<Tensor, MLError> {
    let n = actions.len();
    Ok(Tensor::from_vec(actions, n, &Device::Cpu)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f32], shape: impl Into<candle_core::Shape>) -> Tensor {
        Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
    }

    fn actions(result: Result<Tensor, MLError>) -> Vec<u32> {
        result.unwrap().to_vec1().unwrap()
    }

    #[test]
    fn tensors_in_tensors_out() {
        let q = tensor(&[0.0, 0.0, 0.0, 1.0, 0.0, 7.0, 7.0, 0.0, 0.0, 0.0], (2, 5));
        assert_eq!(actions(select_actions(&q, None, &Explore::greedy())), [3, 0]);
        let mask = Tensor::from_slice(&[1_u8, 1, 1, 0, 1, 0, 1, 1, 1, 1], (2, 5), &Device::Cpu).unwrap();
        assert_eq!(actions(select_actions(&q, Some(&mask), &Explore::greedy())), [0, 1]);

        let one = tensor(&[1.0], 1);
        let spreads = tensor(&[0.5, 3.0], 2);
        let router = RouterTensors {
            spread: &spreads,
            median_spread: &one,
            volatility: &one,
            median_volatility: &one,
        };
        let routed = actions(select_actions_routed(&q, None, &Explore::greedy(), &router));
        assert_eq!(routed, [3 * 9 + 3 + 1, 1]);
        let exposures = Tensor::from_slice(&[3_u32, 0], 2, &Device::Cpu).unwrap();
        assert_eq!(actions(batch_route_exposure_to_factored(&exposures, &router)), routed);

        let mut branches = [0.0; 11];
        (branches[1], branches[7], branches[8]) = (1.0, 1.0, 1.0);
        let q = tensor(&branches, (1, 11));
        assert_eq!(actions(select_actions_branching(&q, None, &Explore::greedy())), [9 + 6]);
    }

    #[test]
    fn tensors_that_do_not_fit_are_refused_by_name() {
        let q = tensor(&[0.0; 10], (2, 5));
        let explore = Explore::greedy();
        assert!(matches!(
            select_actions_branching(&q, None, &explore),
            Err(MLError::Shape { what: "q", .. })
        ));
        let mask = Tensor::zeros((1, 5), candle_core::DType::U8, &Device::Cpu).unwrap();
        assert!(matches!(
            select_actions(&q, Some(&mask), &explore),
            Err(MLError::Shape { what: "mask", .. })
        ));
        let wide = q.to_dtype(candle_core::DType::F64).unwrap();
        assert!(matches!(select_actions(&wide, None, &explore), Err(MLError::DType { what: "q", .. })));
        let bad = Tensor::from_slice(&[5_u32], 1, &Device::Cpu).unwrap();
        let one = tensor(&[1.0], 1);
        let router =
            RouterTensors { spread: &one, median_spread: &one, volatility: &one, median_volatility: &one };
        assert!(matches!(batch_route_exposure_to_factored(&bad, &router), Err(MLError::Action(_))));
    }
}
