//! Q-values to act by.

use foxhunt_cuda::{CudaError, DeviceBuffer, Stream};

use super::{GpuLearner, GpuLearnerError};
use crate::acting_pass::cuda::{Acting, ActingPass};
use crate::mlp::cuda::{Ahead, Forward, Job, stride};
use crate::noise::cuda::Clock;

impl GpuLearner {
    /// Queues Q-values to act by: as [`GpuLearner::q_values`], with noise in the weights of a noisy network, drawn for the
    /// vector step that `clock` holds when the work is done. `ahead` tells of the kernel queued just ahead; what is said of it
    /// must be so.
    ///
    /// # Errors
    /// As [`GpuLearner::q_values`].
    pub fn acting_q_values(
        &mut self,
        stream: &Stream,
        clock: Clock<'_>,
        states: &DeviceBuffer<f32>,
        rows: usize,
        q: &mut DeviceBuffer<f32>,
        ahead: Ahead,
    ) -> Result<(), GpuLearnerError> {
        let Some(noise) = &self.noise else {
            return self.q_values_with(stream, &self.parameters.online, states, rows, q, ahead);
        };
        noise.draw_acting(stream, &self.parameters.online, clock, self.config.programmatic)?;
        self.q_values_with(stream, &noise.drawn.acting, states, rows, q, Ahead::Unknown)
    }

    /// Queues Q-values of the online network without noise for the first `rows` of `states`, f32 `[rows, state_dim]`, into
    /// `q`, f32 `[rows, n_outputs]`. A row's bits do not depend on the rows around it, unless modes other than f32 go layer by layer
    /// ([`crate::mlp`]), with tiles chosen by the rows of a call.
    ///
    /// # Errors
    /// [`CudaError::Length`] for more rows than the configuration or a buffer has room for, and driver errors.
    pub fn q_values(
        &mut self,
        stream: &Stream,
        states: &DeviceBuffer<f32>,
        rows: usize,
        q: &mut DeviceBuffer<f32>,
    ) -> Result<(), GpuLearnerError> {
        self.q_values_with(stream, &self.parameters.online, states, rows, q, Ahead::Unknown)
    }

    /// What a rollout acts by, where it can: the clusters that act on few rows, the image of weights and the parameters they read. Q-values are theirs as they are,
    /// without noise.
    pub(crate) fn clusters_to_act(&self) -> Option<(&ActingPass, &DeviceBuffer<u8>, &DeviceBuffer<f32>)> {
        let plain = self.noise.is_none() && self.distribution.is_none();
        let (pass, image) = self.network.as_ref().filter(|_| plain)?.acting_on_few()?;
        Some((pass, image, &self.parameters.online))
    }

    fn q_values_with(
        &self,
        stream: &Stream,
        parameters: &DeviceBuffer<f32>,
        states: &DeviceBuffer<f32>,
        rows: usize,
        q: &DeviceBuffer<f32>,
        ahead: Ahead,
    ) -> Result<(), GpuLearnerError> {
        if rows == 0 {
            return Ok(());
        }
        let room = self.config.acting_rows;
        let Some(pass) = self.acting.as_ref().filter(|_| rows <= room) else {
            return Err(CudaError::Length { what: "rows to act on", got: rows, expected: room }.into());
        };
        // Whether the head's outputs are no Q-values yet; those of a plain dueling head may become some at once.
        let (distribution, dueling) = (self.distribution.as_ref(), self.layout.shape().dueling);
        let indirect = dueling || distribution.is_some();
        states.holds(rows * self.layout.shape().state_dim)?;
        q.holds(rows * self.layout.n_outputs())?;
        let programmatic = self.config.programmatic;
        if let Some(network) = self.network.as_ref().filter(|network| network.acts()) {
            let n_out = self.layout.head().n_out;
            let (out, out_stride) = if indirect { (&pass.head, stride(n_out)) } else { (q, n_out) };
            let job = Job { x: states, parameters, out };
            let q_now = (dueling && distribution.is_none()).then_some((&self.layout, q));
            network.act(stream, &Acting { rows, job, out_stride, ahead, q: q_now }, programmatic)?;
            if let Some(kernels) = distribution {
                kernels.expectations(stream, &self.layout, rows, &pass.head, q, programmatic)?;
            }
            return Ok(());
        }
        let (layers, mut made_q) = (self.layout.layers(), false);
        for (l, &layer) in layers.iter().enumerate() {
            let is_head = l + 1 == layers.len();
            let out = match is_head {
                true if indirect => &pass.head,
                true => q,
                false => pass.units(l + 1),
            };
            let (x, x_stride) = match l {
                0 => (states, layer.n_in),
                _ => (pass.units(l), stride(layer.n_in)),
            };
            let out_stride = if is_head && !indirect { layer.n_out } else { stride(layer.n_out) };
            let forward = Forward {
                layer,
                rows,
                x_stride,
                out_stride,
                relu: !is_head,
                ahead: if l == 0 { ahead } else { Ahead::LeavesParameters },
                few_behind: false,
                inspect: None,
                q: (is_head && dueling && distribution.is_none()).then_some((&self.layout, q)),
            };
            let job = Job { x, parameters, out };
            made_q = self.mlp.forward(stream, &forward, &[job], programmatic)?;
        }
        if let Some(kernels) = distribution {
            kernels.expectations(stream, &self.layout, rows, &pass.head, q, programmatic)?;
        } else if dueling && !made_q {
            self.mlp.q_from_head(stream, &self.layout, rows, &pass.head, q, programmatic)?;
        }
        Ok(())
    }
}
