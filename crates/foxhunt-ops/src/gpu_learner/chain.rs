//! The launches an update is made of, in their order.

use foxhunt_cuda::{CudaError, DeviceBuffer, Stream};

use super::memory::Parameters;
use super::state::SumArgs;
use super::{GpuLearner, GpuLearnerError};
use crate::cluster_pass::cuda::Pass;
use crate::head_pass::cuda::Units;
use crate::mlp::cuda::{Ahead, Backward, Forward, Job, stride};
use crate::network_pass::cuda::{NetworkPass, Passes, WayBack};
use crate::ring::cuda::DeviceBatch;
use crate::td_loss::cuda::Loss;
use crate::td_loss::{TargetRule, TdLossParams};

impl GpuLearner {
    /// The beginning of an update of one sub-batch, for timing: behind a sample, up to phase 1 forward through hidden layers, 2 heads
    /// and loss, 3 backward, 4 and up the whole. Where a cluster does them together, 1 is empty, and 2 holds forward passes and gradients of units
    /// too.
    pub(crate) fn prefix(
        &mut self,
        stream: &Stream,
        batch: &DeviceBatch,
        phase: usize,
    ) -> Result<(), GpuLearnerError> {
        let mut ahead = Ahead::LeavesParameters;
        if phase >= 1 {
            ahead = self.draw(stream, ahead)?;
            ahead = self.forward(stream, batch, ahead)?;
        }
        if phase >= 2 {
            self.head_and_loss(stream, batch, 0, ahead)?;
        }
        if phase >= 3 {
            self.backward(stream, batch, 0)?;
        }
        if phase >= 4 {
            self.finish(stream)?;
        }
        Ok(())
    }

    /// Whether one launch does what is between the batch and the gradients of weights.
    pub(crate) fn has_clusters(&self) -> bool {
        self.cluster_pass.is_some()
    }

    /// All two or three forward passes through the hidden layers, unless a cluster does them with what follows. Gives what the heads
    /// then have ahead.
    pub(super) fn forward(
        &self,
        stream: &Stream,
        batch: &DeviceBatch,
        mut ahead: Ahead,
    ) -> Result<Ahead, CudaError> {
        if self.has_clusters() {
            return Ok(ahead);
        }
        if let Some(network) = self.network.as_ref().filter(|network| network.updates()) {
            self.forward_at_once(network, stream, batch, ahead)?;
            return Ok(Ahead::LeavesParameters);
        }
        for l in 0..self.layout.layers().len() - 1 {
            self.forward_layer(stream, batch, l, ahead)?;
            ahead = Ahead::LeavesParameters;
        }
        Ok(ahead)
    }

    /// All two or three forward passes through the whole network.
    fn forward_at_once(
        &self,
        network: &NetworkPass,
        stream: &Stream,
        batch: &DeviceBatch,
        ahead: Ahead,
    ) -> Result<(), CudaError> {
        let (acts, [online, of_beside, target]) = (&self.acts, self.weights());
        let rule = TargetRule::of(&self.config.learner);
        let states = if rule.asks_target() { &batch.states } else { &batch.next_states };
        let mut jobs = vec![Job { x: &batch.states, parameters: online, out: &acts.head }];
        if let Some(pass) = &acts.beside {
            jobs.push(Job { x: states, parameters: of_beside, out: &pass.head });
        }
        let out = &acts.target_next.head;
        jobs.push(Job { x: &batch.next_states, parameters: target, out });
        let mut of_target = [false, rule.asks_target(), false];
        of_target[jobs.len() - 1] = true;
        let passes = Passes {
            rows: batch.len(),
            jobs: &jobs,
            out_stride: stride(self.layout.head().n_out),
            of_target,
            ahead,
            batch: Some((batch, &self.step.state)),
            q: None,
        };
        network.forward(stream, &passes, self.config.programmatic)
    }

    /// All two or three forward passes through one layer.
    fn forward_layer(
        &self,
        stream: &Stream,
        batch: &DeviceBatch,
        l: usize,
        ahead: Ahead,
    ) -> Result<(), CudaError> {
        let (layers, acts) = (self.layout.layers(), &self.acts);
        let (layer, is_head) = (layers[l], l + 1 == layers.len());
        let [online, of_beside, target] = self.weights();
        let own_x = if l == 0 { &batch.states } else { &acts.kept[l - 1] };
        let own_out = if is_head { &acts.head } else { &acts.kept[l] };
        let mut jobs = vec![Job { x: own_x, parameters: online, out: own_out }];
        // What targets ask beside target(s'): online(s') or target(s).
        let rule = TargetRule::of(&self.config.learner);
        let states = if rule.asks_target() { &batch.states } else { &batch.next_states };
        let others = acts.beside.iter().map(|pass| (pass, (states, of_beside)));
        for (pass, (states, parameters)) in others.chain([(&acts.target_next, (&batch.next_states, target))])
        {
            let x = if l == 0 { states } else { pass.units(l) };
            let out = if is_head { &pass.head } else { pass.units(l + 1) };
            jobs.push(Job { x, parameters, out });
        }
        let forward = Forward {
            layer,
            rows: batch.len(),
            x_stride: if l == 0 { layer.n_in } else { stride(layer.n_in) },
            out_stride: stride(layer.n_out),
            relu: !is_head,
            ahead,
            few_behind: self.head_pass.is_some() && l + 2 == layers.len(),
            inspect: (l == 0).then_some((batch, &self.step.state)),
            q: None,
        };
        self.mlp.forward(stream, &forward, &jobs, self.config.programmatic)?;
        Ok(())
    }

    /// The heads, targets, loss and the gradient of the head, and in one launch with them that of the units before, or all of the
    /// forward passes and the gradients of all units.
    pub(super) fn head_and_loss(
        &self,
        stream: &Stream,
        batch: &DeviceBatch,
        sub: usize,
        ahead: Ahead,
    ) -> Result<(), CudaError> {
        let (acts, p, l) = (&self.acts, &self.parameters, self.layout.layers().len() - 1);
        let beside = acts.beside.as_ref().unwrap_or(&acts.target_next);
        let loss = Loss {
            layout: &self.layout,
            params: TdLossParams {
                head: self.config.shape.head,
                rule: TargetRule::of(&self.config.learner),
                huber_delta: self.config.learner.huber_delta as f32,
                rows_total: self.config.rows_total(),
            },
            heads: [&acts.head, &beside.head, &acts.target_next.head],
            batch,
            dhead: &acts.dhead,
            results: &self.results,
            first: sub * batch.len(),
        };
        if let (Some(cluster_pass), [first, second]) = (&self.cluster_pass, &acts.kept[..]) {
            let pass = Pass {
                layers: self.layout.layers(),
                parameters: [&p.online, &p.target],
                kept: [first, second],
                before: [acts.dunits(1), acts.dunits(2)],
                state: &self.step.state,
                ahead,
            };
            return cluster_pass.run(stream, &pass, &loss, self.config.programmatic);
        }
        let Some(head_pass) = &self.head_pass else {
            if !self.network.as_ref().is_some_and(NetworkPass::updates) {
                self.forward_layer(stream, batch, l, ahead)?;
            }
            return match &self.distribution {
                Some(kernels) => kernels.loss(stream, &loss, self.config.programmatic),
                None => self.loss.run(stream, &loss, self.config.programmatic),
            };
        };
        let head = self.layout.head();
        let units = Units {
            head,
            x: [&acts.kept[l - 1], beside.units(l), acts.target_next.units(l)],
            x_stride: stride(head.n_in),
            parameters: [&p.online, &p.target],
            before: acts.dunits(l),
        };
        head_pass.run(stream, &units, &loss, self.config.programmatic)
    }

    /// The parameters that the passes belong to: online(s), the one beside it, and target(s').
    fn owners(&self) -> [&DeviceBuffer<f32>; 3] {
        let Parameters { online, target, .. } = &self.parameters;
        let beside = if TargetRule::of(&self.config.learner).asks_target() { target } else { online };
        [online, beside, target]
    }

    /// What the passes read: those parameters, or the weights drawn from them.
    fn weights(&self) -> [&DeviceBuffer<f32>; 3] {
        self.noise.as_ref().map_or_else(|| self.owners(), |noise| noise.drawn.update.each_ref())
    }

    /// Queues the draws of an update's weights, if there is noise in them. Gives what the forward passes then have ahead.
    pub(super) fn draw(&self, stream: &Stream, ahead: Ahead) -> Result<Ahead, CudaError> {
        let Some(noise) = &self.noise else { return Ok(ahead) };
        noise.draw_update(stream, self.owners(), &self.step.state, self.config.programmatic)?;
        Ok(Ahead::Unknown)
    }

    /// From the head to the first layer.
    pub(super) fn backward(&self, stream: &Stream, batch: &DeviceBatch, sub: usize) -> Result<(), CudaError> {
        let results = [&self.results.losses, &self.results.td];
        let (adam_t, programmatic) = (&self.parameters.adam_t, self.config.programmatic);
        if let Some(network) = self.network.as_ref().filter(|network| network.updates()) {
            let way = WayBack {
                rows: batch.len(),
                dhead: &self.acts.dhead,
                gradient: &self.gradient,
                sums: self.sum_args(sub),
                results,
                step: &self.step,
                adam_t,
            };
            return network.backward(stream, &way, programmatic);
        }
        // Layers whose inputs' gradients are there already go beside the first of those that make them, or all together.
        let last = self.layout.layers().len() - 1;
        let done = match (&self.cluster_pass, &self.head_pass) {
            (Some(_), _) => 0,
            (_, Some(_)) => last,
            _ => last + 1,
        };
        let weights_of = |l| Backward { before: None, ..self.way_back(batch, sub, l) };
        let mut beside: Vec<_> = (done..=last).rev().map(weights_of).collect();
        let mut sums = Some(self.sum_args(sub));
        for l in (0..done).rev() {
            beside.insert(0, self.way_back(batch, sub, l));
            let layers = std::mem::take(&mut beside);
            self.mlp.backward(stream, &layers, sums.take(), &results, &self.step, adam_t, programmatic)?;
        }
        if !beside.is_empty() {
            self.mlp.backward(stream, &beside, sums, &results, &self.step, adam_t, programmatic)?;
        }
        Ok(())
    }

    /// The way back through one layer.
    fn way_back<'a>(&'a self, batch: &'a DeviceBatch, sub: usize, l: usize) -> Backward<'a> {
        let (layers, acts) = (self.layout.layers(), &self.acts);
        let (layer, is_head) = (layers[l], l + 1 == layers.len());
        let parts = self.gradient.parts.as_ref();
        Backward {
            layer,
            rows: batch.len(),
            d: if is_head { &acts.dhead } else { acts.dunits(l + 1) },
            d_stride: stride(layer.n_out),
            x: if l == 0 { &batch.states } else { &acts.kept[l - 1] },
            x_stride: if l == 0 { layer.n_in } else { stride(layer.n_in) },
            early: l == 0 || self.cluster_pass.is_none(),
            parameters: self.weights()[0],
            before: (l > 0).then(|| acts.dunits(l)),
            gradient: parts.unwrap_or(&self.gradient.whole),
            segment: self.gradient.segment,
            splits: self.gradient.splits,
            split_stride: self.gradient.part_stride,
            add: sub > 0 && parts.is_none(),
        }
    }

    fn sum_args(&self, sub: usize) -> SumArgs {
        let (learner, guard) = (&self.config.learner, &self.config.guard);
        SumArgs {
            losses: self.results.losses.ptr(),
            td: self.results.td.ptr().offset(sub * learner.batch),
            state: self.step.state.ptr(),
            findings: self.step.findings.ptr(),
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
}
