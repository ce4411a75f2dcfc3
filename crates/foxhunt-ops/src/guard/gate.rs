//! The gate on the device: what keeps an update that is not finite from leaving a trace, here or elsewhere.
//!
//! An update is refused from what is known when the squares of its gradient are summed: whoever has to know can judge for
//! itself, beside the kernel that steps and not behind it. Both use `gate.cuh`, so both say the same.

use foxhunt_cuda::{DeviceBuffer, DevicePtr, Launch, shared_struct};

/// Text of `gate.cuh`.
pub(crate) const GATE_CUH: &str = include_str!("gate.cuh");

shared_struct! {
    /// What is known of an update before its norm. Stays until the next update's rows are summed.
    pub struct Findings {
        loss: f64,
        td_error: f64,
        bad_td: u32,
        bad_states: u32,
        bad_rewards: u32,
        pad: u32,
    }
}

shared_struct! {
    /// A gate as kernels take it: a word, or what to judge by; neither is an open one.
    pub(crate) struct GateArgs {
        word: DevicePtr<u32>,
        findings: DevicePtr<Findings>,
        squares: DevicePtr<f64>,
        blocks: u64,
    }
}

/// What refuses an update.
#[derive(Clone, Copy, Debug)]
pub enum Gate<'a> {
    /// u32 `[1]`: not 0 refuses.
    Word(&'a DeviceBuffer<u32>),
    /// A learner's update, as soon as its squares are summed. Only for kernels queued behind the end of that update.
    Update(PendingUpdate<'a>),
}

/// An update whose squares are summed, or will be by then.
#[derive(Clone, Copy, Debug)]
pub struct PendingUpdate<'a> {
    pub(crate) findings: &'a DeviceBuffer<Findings>,
    /// f64 `[blocks]`, sums of squares.
    pub(crate) squares: &'a DeviceBuffer<f64>,
}

impl Gate<'_> {
    /// As an argument, and kept.
    pub(crate) fn add_to<'k>(gate: Option<Self>, launch: Launch<'k>) -> Launch<'k> {
        let none = GateArgs {
            word: DevicePtr::NULL,
            findings: DevicePtr::NULL,
            squares: DevicePtr::NULL,
            blocks: 0,
        };
        match gate {
            None => launch.value(none),
            Some(Gate::Word(word)) => launch.value(GateArgs { word: word.ptr(), ..none }).keep(word),
            Some(Gate::Update(of)) => {
                let blocks = of.squares.len() as u64;
                let args =
                    GateArgs { findings: of.findings.ptr(), squares: of.squares.ptr(), blocks, ..none };
                launch.value(args).keep(of.findings).keep(of.squares)
            }
        }
    }
}
