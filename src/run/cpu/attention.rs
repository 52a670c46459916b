//! Attention over caches and the choice of cache rows.

use super::error::CpuError;
use super::work::{Work, made};
use crate::cpu::attention::{Cache, Seen, Shape, attention};
use crate::cpu::simd::Element;
use crate::cpu::{elementwise, index};
use crate::graph::{CacheRows, Node, Row, States, Value};
use crate::ops::{Kv, Op, Type};
use rayon::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

type Made = Result<Value, CpuError>;

/// The caches of an attention's segments.
struct Caches<'a, T> {
    rows: &'a [Row],
    /// Keys and values.
    of: Vec<(CacheRows<'a, T>, CacheRows<'a, T>)>,
}

impl<T: Element> Cache for Caches<'_, T> {
    type Value = T;

    fn key(&self, segment: usize, row: usize, t: usize) -> &[T] {
        self.of[segment].0.row(self.rows[row].slot, t)
    }

    fn value(&self, segment: usize, row: usize, t: usize) -> &[T] {
        self.of[segment].1.row(self.rows[row].slot, t)
    }
}

impl Work<'_> {
    fn selection(&self, n: &Node, i: usize) -> Result<&[Vec<u32>], CpuError> {
        match self.input(n, i) {
            Some(Value::Selection(rows)) => Ok(rows),
            _ => Err(CpuError::Kind { node: n.path(), want: "a selection" }),
        }
    }

    /// What each row sees of one segment.
    fn seen(
        &self,
        n: &Node,
        every: usize,
        window: Option<usize>,
        select: Option<usize>,
    ) -> Result<Vec<Seen<'_>>, CpuError> {
        let chosen = select.map(|i| self.selection(n, i)).transpose()?;
        let of = |(r, row): (usize, &Row)| {
            let end = row.visible_rows(every);
            let start = window.map_or(0, |w| end.saturating_sub(w));
            match chosen.map(|c| c[r].as_slice()) {
                None => Seen::All(start..end),
                Some(list) if start == 0 => Seen::Chosen(Cow::Borrowed(list)),
                Some(list) => Seen::Chosen(list.iter().copied().filter(|t| *t as usize >= start).collect()),
            }
        };
        Ok(self.rows().iter().enumerate().map(of).collect())
    }

    pub(super) fn attn(&self, n: &Node) -> Made {
        let Op::Attn { heads, kv_heads, dim, v_dim, scale, sink, segments } = &n.op else {
            return Err(CpuError::Kind { node: n.path(), want: "an attention" });
        };
        let q = self.tensor(n, 0)?;
        let sink = if *sink { Some(self.vector(n, 0)?) } else { None };
        let mut of = vec![];
        let mut seen = vec![vec![]; self.rows().len()];
        for s in segments {
            of.push((self.cache(n, s.k)?, self.cache(n, s.v.unwrap_or(s.k))?));
            let part = self.seen(n, s.every, s.window, s.select)?;
            seen.iter_mut().zip(part).for_each(|(row, part)| row.push(part));
        }
        let (heads, kv_heads, dim, v_dim) = (*heads, *kv_heads, *dim, *v_dim);
        let shape = Shape { heads, kv_heads, dim, v_dim, scale: *scale, sink: sink.as_deref() };
        self.attended(n, q, &of, &seen, shape)
    }

    /// One key row [c | k_rope] for all heads, whose first part is the value.
    pub(super) fn attn_latent(&self, n: &Node, rank: usize, rope: usize, select: bool) -> Made {
        let Op::AttnLatent { heads, scale, .. } = n.op else {
            return Err(CpuError::Kind { node: n.path(), want: "an attention" });
        };
        let (q, q_rope, state) = (self.tensor(n, 0)?, self.tensor(n, 1)?, self.cache(n, 2)?);
        let dim = rank + rope;
        let mut joined = vec![0.0; self.rows().len() * heads * dim];
        elementwise::concat(&[q, q_rope], &[rank, rope], &mut joined);
        let Type::Cache { every, window, .. } = self.graph.resource(n.inputs[2]).ty else {
            return Err(CpuError::Kind { node: n.path(), want: "a cache" });
        };
        let window = window.map(|w| w as usize);
        let seen = self.seen(n, every as usize, window, select.then_some(3))?;
        let seen: Vec<Vec<Seen>> = seen.into_iter().map(|s| vec![s]).collect();
        let shape = Shape { heads, kv_heads: 1, dim, v_dim: rank, scale, sink: None };
        self.attended(n, &joined, &[(state, state)], &seen, shape)
    }

    pub(super) fn index_score(&self, n: &Node, heads: usize, dim: usize, scale: f32, every: usize) -> Made {
        let (q, state, w) = (self.tensor(n, 0)?, self.cache(n, 1)?, self.tensor(n, 2)?);
        let (floats, halves) = (self.states.floats(state), self.states.halves(state));
        let of = |((q, w), row): ((&[f32], &[f32]), &Row)| {
            let mut out = vec![0.0; row.visible_rows(every)];
            if let Some(keys) = floats {
                index::index_score(q, w, |t| keys.row(row.slot, t), scale, &mut out);
            }
            if let Some(keys) = halves {
                index::index_score(q, w, |t| keys.row(row.slot, t), scale, &mut out);
            }
            out
        };
        let rows = q.par_chunks(heads * dim).zip(w.par_chunks(heads)).zip(self.rows());
        Ok(Value::Scores(Arc::new(rows.map(of).collect())))
    }

    /// Attention of dense queries over states of keys and values, as the session stores them.
    fn attended(&self, n: &Node, q: &[f32], of: &[(usize, usize)], seen: &[Vec<Seen>], shape: Shape) -> Made {
        let len = self.rows().len() * shape.heads * shape.v_dim;
        match self.states.limits().kv {
            Kv::F32 => {
                let caches = self.caches(n, of, States::floats)?;
                made(len, |y| attention(q, &caches, seen, shape, y))
            }
            Kv::F16 => {
                let caches = self.caches(n, of, States::halves)?;
                made(len, |y| attention(q, &caches, seen, shape, y))
            }
        }
    }

    fn caches<'s, T>(
        &'s self,
        n: &Node,
        of: &[(usize, usize)],
        rows: impl Fn(&'s States, usize) -> Option<CacheRows<'s, T>>,
    ) -> Result<Caches<'s, T>, CpuError> {
        let pair = |(k, v): &(usize, usize)| Some((rows(self.states, *k)?, rows(self.states, *v)?));
        let of: Option<Vec<_>> = of.iter().map(pair).collect();
        let of = of.ok_or_else(|| CpuError::Kind { node: n.path(), want: "a cache" })?;
        Ok(Caches { rows: self.rows(), of })
    }

    pub(super) fn topk_select(&self, n: &Node, k: usize) -> Made {
        let Some(Value::Scores(scores)) = self.input(n, 0) else {
            return Err(CpuError::Kind { node: n.path(), want: "scores" });
        };
        let of = |(r, scores): (usize, &Vec<f32>)| index::top_k(scores, k).map_err(|_| self.blame(n, r));
        let chosen: Result<Vec<Vec<u32>>, CpuError> = scores.par_iter().enumerate().map(of).collect();
        Ok(Value::Selection(Arc::new(chosen?)))
    }
}
