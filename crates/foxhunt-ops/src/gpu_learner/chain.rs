//! The launches an update is made of, in their order.

use foxhunt_cuda::{CudaError, Stream};

use super::state::SumArgs;
use super::{GpuLearner, GpuLearnerError};
use crate::mlp::cuda::{Backward, Forward, Job, stride};
use crate::ring::cuda::DeviceBatch;
use crate::td_loss::TdLossParams;

impl GpuLearner {
    /// The beginning of an update of one sub-batch, for timing: after a sample, up to phase 1 forward, 2 loss, 3 backward,
    /// 4 and up the whole.
    pub(crate) fn prefix(
        &mut self,
        stream: &Stream,
        batch: &DeviceBatch,
        phase: usize,
    ) -> Result<(), GpuLearnerError> {
        if phase >= 1 {
            self.forward(stream, batch)?;
        }
        if phase >= 2 {
            self.loss(stream, batch, 0)?;
        }
        if phase >= 3 {
            self.backward(stream, batch, 0)?;
        }
        if phase >= 4 {
            self.finish(stream)?;
        }
        Ok(())
    }

    /// All three forward passes, layer by layer.
    pub(super) fn forward(&self, stream: &Stream, batch: &DeviceBatch) -> Result<(), CudaError> {
        let (layers, acts, p) = (self.layout.layers(), &self.acts, &self.parameters);
        let rows = batch.len();
        for (l, &layer) in layers.iter().enumerate() {
            let is_head = l + 1 == layers.len();
            let own_x = if l == 0 { &batch.states } else { &acts.kept[l - 1] };
            let own_out = if is_head { &acts.head } else { &acts.kept[l] };
            let mut jobs = vec![Job { x: own_x, parameters: &p.online, out: own_out }];
            let nexts = acts.online_next.iter().map(|pass| (pass, &p.online));
            for (pass, parameters) in nexts.chain([(&acts.target_next, &p.target)]) {
                let x = if l == 0 { &batch.next_states } else { &pass.hidden[(l - 1) % 2] };
                let out = if is_head { &pass.head } else { &pass.hidden[l % 2] };
                jobs.push(Job { x, parameters, out });
            }
            let forward = Forward {
                layer,
                rows,
                x_stride: if l == 0 { layer.n_in } else { stride(layer.n_in) },
                out_stride: stride(layer.n_out),
                relu: !is_head,
                first_layer: l == 0,
                inspect: (l == 0).then_some((batch, &self.step.state)),
                q: None,
            };
            self.mlp.forward(stream, &forward, &jobs, self.config.programmatic)?;
        }
        Ok(())
    }

    /// From the head to the first layer.
    pub(super) fn backward(&self, stream: &Stream, batch: &DeviceBatch, sub: usize) -> Result<(), CudaError> {
        let (layers, acts) = (self.layout.layers(), &self.acts);
        let parts = self.gradient.parts.as_ref();
        for (l, &layer) in layers.iter().enumerate().rev() {
            let is_head = l + 1 == layers.len();
            let d = if is_head { &acts.dhead } else { &acts.dhidden[l % 2] };
            let backward = Backward {
                layer,
                rows: batch.len(),
                d,
                d_stride: stride(layer.n_out),
                x: if l == 0 { &batch.states } else { &acts.kept[l - 1] },
                x_stride: if l == 0 { layer.n_in } else { stride(layer.n_in) },
                parameters: &self.parameters.online,
                before: (l > 0).then(|| &acts.dhidden[(l + 1) % 2]),
                gradient: parts.unwrap_or(&self.gradient.whole),
                segment: self.gradient.segment,
                splits: self.gradient.splits,
                split_stride: self.gradient.part_stride,
                add: sub > 0 && parts.is_none(),
            };
            let sums = is_head.then(|| self.sum_args(sub));
            let results = [&self.results.losses, &self.results.td];
            let state = (&self.step.state, &self.parameters.adam_t);
            self.mlp.backward(stream, &backward, sums, &results, state, self.config.programmatic)?;
        }
        Ok(())
    }

    fn sum_args(&self, sub: usize) -> SumArgs {
        let (learner, guard) = (&self.config.learner, &self.config.guard);
        SumArgs {
            losses: self.results.losses.ptr(),
            td: self.results.td.ptr().offset(sub * learner.batch),
            state: self.step.state.ptr(),
            adam_t: self.parameters.adam_t.ptr(),
            rows_total: self.config.rows_total() as f64,
            rate_start: learner.learning_rate.start,
            rate_end: learner.learning_rate.end,
            rate_steps: learner.learning_rate.steps,
            beta1: learner.adam_beta1,
            beta2: learner.adam_beta2,
            collapse_multiplier: guard.collapse_multiplier,
            collapse_warmup: guard.collapse_warmup,
            first: u32::from(sub == 0),
            last: u32::from(sub + 1 == learner.accumulation),
        }
    }

    /// Targets, loss and the gradient of the head.
    pub(super) fn loss(&self, stream: &Stream, batch: &DeviceBatch, sub: usize) -> Result<(), CudaError> {
        let acts = &self.acts;
        let params = TdLossParams {
            head: self.config.shape.head,
            double: self.config.learner.double,
            huber_delta: self.config.learner.huber_delta as f32,
            rows_total: self.config.rows_total(),
        };
        let online_next = acts.online_next.as_ref().map_or(&acts.target_next.head, |pass| &pass.head);
        let heads = [&acts.head, online_next, &acts.target_next.head];
        let (first, programmatic) = (sub * batch.len(), self.config.programmatic);
        let results = &self.results;
        let (layout, dhead) = (&self.layout, &acts.dhead);
        self.loss.run(stream, layout, &params, heads, batch, dhead, results, first, programmatic)
    }
}
