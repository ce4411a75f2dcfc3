//! Distributions of the return: C51 (arXiv 1707.06887) and QR-DQN (arXiv 1710.10044).
//!
//! The head says `N` values for each action `a`, its atoms `x_{a,j}`, `j = 0..N-1` ([`foxhunt_core::ReturnModel`]):
//!
//! - **categorical**: logits of the probabilities `p_{a,j} = softmax_j(x_a)` of the returns
//!   `z_j = v_min + j (v_max - v_min) / (N - 1)`;
//! - **quantiles**: the returns at the midpoints `tau_j = (2 j + 1) / (2 N)` of `N` equal shares of probability.
//!
//! **Expectations.** `Q(a) = sum_j p_{a,j} z_j`, or `Q(a) = (1/N) sum_j x_{a,j}`. These are the Q-values that everything
//! acts by: collection, evaluation, policies, the Q monitor, exported files.
//!
//! **Loss.** For row `i` with branches `d = 1..D` (one for the exposure and factored heads), `a*_d` chosen as in
//! [`crate::td_loss`] by the expectations of the online network (double) or of the target network:
//!
//! - categorical: `p_j = (1/D) sum_d p_target(s')_{d, a*_d, j}`; each `r + discount z_j` is clamped to `[v_min, v_max]` and its
//!   `p_j` shared among the two nearest returns in proportion to their nearness (equation 7), which gives `m`. With
//!   `l_d = log softmax(x(s)_{d, a_d})`: loss of the branch `-sum_j m_j l_{d,j}`, gradient `p(s)_{d,j} - m_j`, TD error the
//!   Kullback-Leibler divergence `sum_j m_j (ln m_j - l_{d,j})`, at least 0: what Rainbow (arXiv 1710.02298) takes for the
//!   priority. It differs from the loss by the target's entropy, which no update can take away.
//! - quantiles: `y_j = r + discount (1/D) sum_d x_target(s')_{d, a*_d, j}`. With `u_{ij} = y_j - x(s)_{d, a_d, i}`: loss of the branch
//!   `sum_i (1/N) sum_j |tau_i - 1(u_ij < 0)| huber(u_ij)`, Huber of [`crate::td_loss`] with its `kappa` (equation 10 and
//!   algorithm 1; no division by `kappa`, so that a small one does not make the loss large), and its gradient; TD error
//!   `(1/N) sum_i |u_ii|`, the distance of each quantile from its own target: where both are in order the
//!   1-Wasserstein distance, the metric of the paper, and like the divergence 0 when nothing is left to learn.
//!
//! Over branches both are averaged as Q-values are: the target over the branches' best actions (the probabilities of each
//! return; or each quantile), then loss and TD error over the branches. With `terminated` the target is `r` for certain,
//! and `s'` is not looked at. The loss is the mean over the rows of all sub-batches with importance weights, as in
//! [`crate::td_loss`], whose parameters these are.
//!
//! **Not a number.** As in [`crate::td_loss`]: a NaN among the expectations that choose `a*` makes the target NaN; a
//! NaN atom of the action taken, or of a target, makes the TD error NaN. Rows whose TD error is not finite are counted.
//!
//! **Arithmetic.** Everything categorical is f64 on logits of f32 with the exponentials and logarithms of
//! [`crate::power`]. Quantile losses are f32; sums over the quantiles of a target are taken in order. Sums over atoms are f64 in
//! a fixed tree: value `j` is added to running sum `j % 32`, then the upper half of the sums to the lower, from 16 down to
//! 1, as a warp does it. A probability moved to a neighbour is added in the order of where it comes from. Results are rounded
//! to f32 at the end, and loss, gradient and TD error of a branch are put together in f32 as in [`crate::td_loss`]. The
//! CUDA twin gives the same bits.
//!
//! This module runs no network and combines no dueling streams; that is [`crate::mlp`], atom by atom.

mod categorical;
mod cpu;
pub mod cuda;
mod quantiles;
#[cfg(test)]
mod tests;

pub use cpu::{distribution_loss, expectations};
