//! A learner's products on the tensor cores of Hopper warpgroups: whole networks forward, back, and all weight gradients.
//!
//! **Contract.** What [`mod@crate::mlp`] says of a forward pass and of the way back, with factors of products rounded to the format of
//! [`Precision`](foxhunt_core::settings::Precision) where they are made (with tf32x3 split where they are used), and each product a sum of the tensor core in f32 from the bias
//! on. Units are kept rounded, and a unit is above 0 when it is so after rounding. Where it serves, three launches stand for one a
//! layer and direction:
//!
//! | launch | kernel | gives |
//! |---|---|---|
//! | all forward passes, or one for acting | `network_pass` | head outputs or Q-values; of online(s), inputs of all layers; what is not finite is counted |
//! | the way back, behind the loss | `network_back` | gradients of all layers' outputs; losses are summed beside it |
//! | weights and biases | `weight_gradient` | a gradient for each segment of rows |
//!
//! **Images.** The right operand of a product lies in memory as the copy engine brings it to shared memory: slabs of k, a line of 128 bytes
//! for each of its rows, sixteen bytes number `i` of line `r` at place `i ^ r % 8`; with tf32x3 two lines of 64 bytes, high parts and low
//! ones. Images of the parameters follow them: each step of an update puts what it changes where it belongs, `pack_weights`
//! does it for all other changes. The images of a batch have k along the rows.
//!
//! It serves for modes other than f32, compute capability 9.0, networks that `plan.rs` finds room for, without noise in the weights;
//! an update's passes, and acting, from as many rows up as it pays; its images serve [`crate::acting_pass`] for fewer. There is no CPU twin: tests hold it against f64.
//!
//! It makes no loss, no step and no choice.

pub mod cuda;
pub(crate) mod plan;
