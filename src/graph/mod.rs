//! A graph file and a `config.json` to a checked graph of nodes over all layers.
//!
//! [`node`] holds the types, [`expand`] unrolls the program, [`kinds`] finds layers that are alike,
//! [`lint`] what is never used, [`dot`] draws. [`step`] and [`memory`] say what a step is made of and
//! where its state lies; every executor uses them, and no executor is known here.

pub mod dot;
pub mod expand;
pub mod kinds;
pub mod lint;
pub mod memory;
pub mod node;
pub mod step;
pub mod value;

pub use expand::expand;
pub use memory::{CacheRows, Snapshot, StateError, States, TooLarge, capacity};
pub use node::{Edge, Graph, LayerKind, Node, Resource, State, StateId, Weight, WeightId};
pub use step::{DECODE_ROWS, Emit, Limits, Role, Row, Step, StepError};
pub use value::{Value, Watch};
