//! Shared vocabulary of Foxhunt: settings, schedules, counter-based random numbers, actions, records.
//!
//! Everything here is plain data and arithmetic that both engines and every other crate agree on. It does no
//! I/O, holds no `unsafe`, and knows neither a GPU nor a tensor library.

pub mod action;
pub mod philox;
pub mod record;
pub mod return_model;
pub mod schedule;
pub mod settings;

pub use action::{ActionError, ActionSpace, Exposure, FactoredAction, Head, OrderRouter, OrderType, Urgency};
pub use philox::{Philox, PhiloxStream, Purpose};
pub use return_model::ReturnModel;
pub use schedule::LinearSchedule;
pub use settings::{Settings, SettingsError};
