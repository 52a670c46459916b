//! Values of resources while a step runs on the host.

use std::sync::Arc;

/// What a node made. Rows are those of its type's [`RowDim`](crate::ops::RowDim).
#[derive(Debug, Clone)]
pub enum Value {
    /// The step's row records.
    Tokens,
    /// f32 `[rows][width]`; hyper-connection coefficients too. Shared, so that a view costs nothing.
    Tensor(Arc<Vec<f32>>),
    /// Per row, a score for each cache row it may look at.
    Scores(Arc<Vec<Vec<f32>>>),
    /// Per row, chosen cache rows, ascending.
    Selection(Arc<Vec<Vec<u32>>>),
    /// `[rows][k]` each.
    Route { ids: Arc<Vec<u32>>, weights: Arc<Vec<f32>> },
    /// Entries, oldest first, each `[rows][width]`.
    Stack(Vec<Arc<Vec<f32>>>),
    /// The state with this index has been written.
    Cache(usize),
}

impl Value {
    pub fn tensor(values: Vec<f32>) -> Value {
        Value::Tensor(Arc::new(values))
    }
}

/// Called with every node and what it made, in execution order, on any thread.
pub type Watch<'a> = dyn FnMut(&super::Node, &Value) + Send + 'a;
