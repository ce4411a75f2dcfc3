//! Q-values of few rows in one launch, on the tensor cores of Hopper clusters.
//!
//! [`crate::network_pass`] gives a warpgroup 64 rows and brings all weights to each block, so a thousand rows are the work of 16 multiprocessors, each of
//! which waits for all of a network. Here the weights of a layer are dealt to the blocks of a cluster, which hand one another the units they made,
//! and a cluster has as few rows as there are clusters for: 40 of a thousand.
//!
//! **Contract.** What [`crate::network_pass`] says of Q-values and head outputs, from its images of weights. Sums are in another order.
//! A row's do not depend on the rows around it.
//!
//! Of networks that [`crate::network_pass`] serves it serves those with one or more hidden layers, all of 64, 128 or 256 units, up to 144 rows a cluster (96 with tf32x3) and as far as shared memory goes: with the default network on an
//! H200 up to 4,320 rows, 1,200 with tf32x3. There is no CPU twin: tests hold it against f64.
//!
//! It keeps no images and makes no choice of an action.

pub mod cuda;
