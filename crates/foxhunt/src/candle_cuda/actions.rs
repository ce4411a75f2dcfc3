//! Action selection and routing on candle's CUDA tensors. The contract is that of [`crate::actions`].

use candle_core::{CudaDevice, Device, Tensor};
use foxhunt_core::Head;
use foxhunt_core::action::{N_EXPOSURES, N_FACTORED};
use foxhunt_ops::select_actions::Explore;
use foxhunt_ops::select_actions::cuda::{Decisions, DeviceRouter};

use super::cuda::{Input, Queue};
use crate::MLError;
use crate::actions::RouterTensors;

/// What the action functions met on a device since the program started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionCounts {
    /// Decisions that fell back because no legal Q-value was a number.
    pub fell_back: u64,
    /// Exposures of 5 or more, whose action is `u32::MAX`.
    pub bad_exposures: u64,
}

/// What the action functions met on this device: a readback that waits, for epoch boundaries. Nothing on the CPU, whose
/// functions refuse a bad exposure at once.
///
/// # Errors
/// [`MLError::Gpu`].
pub fn action_counts(device: &Device) -> Result<ActionCounts, MLError> {
    let Device::Cuda(device) = device else { return Ok(ActionCounts::default()) };
    let queue = Queue::of(device)?;
    let shared = queue.shared();
    let read =
        |counter: &_| queue.stream().download(counter).map(|words| words.first().copied().unwrap_or(0));
    Ok(ActionCounts {
        fell_back: read(&*shared.fell_back.lock())?,
        bad_exposures: read(&*shared.bad_exposures.lock())?,
    })
}

/// Q-values and mask of `n` decisions.
struct Given {
    q: Input<f32>,
    mask: Option<Input<u8>>,
    n: usize,
}

impl Given {
    fn new(queue: &Queue, q: &Tensor, mask: Option<&Tensor>, width: usize) -> Result<Self, MLError> {
        let q = queue.input::<f32>("q", q, &[None, Some(width)])?;
        let n = q.len() / width;
        let mask = mask.map(|mask| queue.input::<u8>("mask", mask, &[Some(n), Some(width)])).transpose()?;
        Ok(Self { q, mask, n })
    }

    fn decisions(&self) -> Decisions<'_> {
        Decisions { q: &self.q, mask: self.mask.as_deref(), n: self.n }
    }
}

struct RouterInputs([Input<f32>; 4]);

impl RouterInputs {
    fn new(queue: &Queue, router: &RouterTensors<'_>, n: usize) -> Result<Self, MLError> {
        let read = |what, tensor: &Tensor| {
            let len = tensor.elem_count();
            if len != n && len != 1 {
                let expected = format!("one value, or {n}");
                return Err(MLError::Shape { what, got: tensor.dims().to_vec(), expected });
            }
            queue.input::<f32>(what, &tensor.flatten_all()?, &[None])
        };
        Ok(Self([
            read("spread", router.spread)?,
            read("median_spread", router.median_spread)?,
            read("volatility", router.volatility)?,
            read("median_volatility", router.median_volatility)?,
        ]))
    }

    fn view(&self) -> DeviceRouter<'_> {
        let [spread, median_spread, volatility, median_volatility] = &self.0;
        DeviceRouter { spread, median_spread, volatility, median_volatility }
    }
}

pub(crate) fn select_actions(
    device: &CudaDevice,
    q: &Tensor,
    mask: Option<&Tensor>,
    explore: &Explore,
) -> Result<Tensor, MLError> {
    let (head, width) = match q.dims() {
        &[_, N_EXPOSURES] => (Head::Exposure, N_EXPOSURES),
        &[_, N_FACTORED] => (Head::Factored, N_FACTORED),
        dims => {
            let expected = format!("[rows, {N_EXPOSURES}] or [rows, {N_FACTORED}] on a GPU");
            return Err(MLError::Shape { what: "q", got: dims.to_vec(), expected });
        }
    };
    let queue = Queue::of(device)?;
    let given = Given::new(&queue, q, mask, width)?;
    let mut out = queue.output::<u32>("actions", &[given.n])?;
    let (kernels, mut fell_back) = (&queue.shared().actions, queue.shared().fell_back.lock());
    kernels.select_actions(
        queue.stream(),
        head,
        &given.decisions(),
        explore,
        out.buffer(),
        &mut fell_back,
    )?;
    Ok(out.into_tensor())
}

pub(crate) fn select_actions_routed(
    device: &CudaDevice,
    q: &Tensor,
    mask: Option<&Tensor>,
    explore: &Explore,
    router: &RouterTensors<'_>,
) -> Result<Tensor, MLError> {
    let queue = Queue::of(device)?;
    let given = Given::new(&queue, q, mask, N_EXPOSURES)?;
    let router = RouterInputs::new(&queue, router, given.n)?;
    let mut out = queue.output::<u32>("actions", &[given.n])?;
    let (kernels, mut fell_back) = (&queue.shared().actions, queue.shared().fell_back.lock());
    let (decisions, router) = (given.decisions(), router.view());
    kernels.select_actions_routed(
        queue.stream(),
        &decisions,
        explore,
        &router,
        out.buffer(),
        &mut fell_back,
    )?;
    Ok(out.into_tensor())
}

pub(crate) fn select_actions_branching(
    device: &CudaDevice,
    q: &Tensor,
    mask: Option<&Tensor>,
    explore: &Explore,
) -> Result<Tensor, MLError> {
    let queue = Queue::of(device)?;
    let given = Given::new(&queue, q, mask, Head::Branching.n_outputs())?;
    let mut out = queue.output::<u32>("actions", &[given.n])?;
    let (kernels, mut fell_back) = (&queue.shared().actions, queue.shared().fell_back.lock());
    kernels.select_actions_branching(
        queue.stream(),
        &given.decisions(),
        explore,
        out.buffer(),
        &mut fell_back,
    )?;
    Ok(out.into_tensor())
}

pub(crate) fn batch_route_exposure_to_factored(
    device: &CudaDevice,
    exposures: &Tensor,
    router: &RouterTensors<'_>,
) -> Result<Tensor, MLError> {
    let queue = Queue::of(device)?;
    let exposures = queue.input::<u32>("exposures", exposures, &[None])?;
    let router = RouterInputs::new(&queue, router, exposures.len())?;
    let mut out = queue.output::<u32>("actions", &[exposures.len()])?;
    let (kernels, mut bad) = (&queue.shared().actions, queue.shared().bad_exposures.lock());
    kernels.batch_route_exposure_to_factored(
        queue.stream(),
        &exposures,
        &router.view(),
        out.buffer(),
        &mut bad,
    )?;
    Ok(out.into_tensor())
}
