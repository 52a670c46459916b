//! When each pass runs: segments between hand-overs of the device and the host, levels of independent passes inside.
//!
//! A GPU segment is one stretch of submits; a host segment follows it and holds the CPU nodes that need its results;
//! the next GPU segment takes what they made. Even segments are the GPU's, odd ones the host's. A pass runs in the
//! earliest segment that its dependencies allow, so independent CPU nodes share one join.

use super::pass::{Buf, Pass, Work};
use crate::graph::Graph;
use petgraph::graph::NodeIndex;
use std::collections::HashMap;

/// Place of a pass in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    pub segment: u32,
    pub level: u32,
}

/// Times of all passes, and the order in which they run.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub times: Vec<Time>,
    /// Pass numbers by segment, level and first made.
    pub order: Vec<usize>,
    /// Rank of each pass's time among all times in use.
    pub rank: Vec<u32>,
}

/// For each pass, the earlier passes that it must follow: who wrote what it reads, who read or wrote what it writes.
pub fn dependencies(graph: &Graph, passes: &[Pass]) -> Vec<Vec<usize>> {
    let mut writer: HashMap<Buf, usize> = HashMap::new();
    let mut readers: HashMap<Buf, Vec<usize>> = HashMap::new();
    let mut on_host: HashMap<NodeIndex, usize> = HashMap::new();
    let mut all = Vec::with_capacity(passes.len());
    for (i, pass) in passes.iter().enumerate() {
        let mut deps: Vec<usize> = vec![];
        for bind in pass.accesses() {
            deps.extend(writer.get(&bind.buf));
            if bind.write {
                deps.extend(readers.get(&bind.buf).into_iter().flatten());
            }
        }
        for bind in pass.accesses() {
            if bind.write {
                writer.insert(bind.buf, i);
                readers.remove(&bind.buf);
            } else {
                readers.entry(bind.buf).or_default().push(i);
            }
        }
        if let Work::Cpu { node, .. } = &pass.work {
            // Values that stay on the host, states among them, follow the graph's own edges.
            deps.extend(graph.dag.neighbors_directed(*node, petgraph::Incoming).filter_map(|p| on_host.get(&p)));
            on_host.insert(*node, i);
        }
        deps.sort_unstable();
        deps.dedup();
        deps.retain(|d| *d != i);
        all.push(deps);
    }
    all
}

/// splitmix64: another order for each seed.
fn mix(x: u64) -> u64 {
    let z = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where the endings of a step begin: behind everything else, and on the device, which has the even segments.
fn behind(passes: &[Pass], times: &[Time]) -> Time {
    let common = passes.iter().zip(times).filter(|(p, _)| p.ending.is_none()).map(|(_, t)| *t);
    match common.max() {
        None => Time { segment: 0, level: 0 },
        Some(last) if last.segment % 2 == 0 => Time { segment: last.segment, level: last.level + 1 },
        Some(last) => Time { segment: last.segment + 1, level: 0 },
    }
}

/// Earliest times that respect the dependencies; what only some steps do is last.
pub fn schedule(graph: &Graph, passes: &[Pass], shuffle: u64) -> Schedule {
    let deps = dependencies(graph, passes);
    let mut times: Vec<Time> = Vec::with_capacity(passes.len());
    for (i, pass) in passes.iter().enumerate() {
        let gpu = pass.on_gpu();
        let first = u32::from(!gpu);
        let segment =
            deps[i].iter().map(|d| times[*d].segment + u32::from(passes[*d].on_gpu() != gpu)).fold(first, u32::max);
        let same = deps[i].iter().filter(|d| times[**d].segment == segment);
        let level = same.map(|d| times[*d].level + 1).max().unwrap_or(0);
        times.push(Time { segment, level });
    }
    let end = behind(passes, &times);
    for i in (0..passes.len()).filter(|i| passes[*i].ending.is_some()) {
        let own = deps[i].iter().filter(|d| passes[**d].ending.is_some());
        let level = own.map(|d| times[*d].level + 1).max().unwrap_or(end.level);
        times[i] = Time { segment: end.segment, level };
    }
    let mut order: Vec<usize> = (0..passes.len()).collect();
    let within = |i: usize| if shuffle == 0 || !passes[i].on_gpu() { i as u64 } else { mix(i as u64 ^ shuffle) };
    order.sort_by_key(|i| (times[*i], within(*i)));
    let mut distinct: Vec<Time> = times.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let rank = times.iter().map(|t| distinct.binary_search(t).map_or(0, |r| r as u32)).collect();
    Schedule { times, order, rank }
}
