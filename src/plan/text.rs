//! The summary as a person reads it.

use super::summary::Summary;
use std::fmt::{self, Display, Formatter};

/// `743.38 B`, `40.30 B`, `29.74 M`.
pub fn count(n: u64) -> String {
    let x = n as f64;
    match n {
        0..=99_999 => n.to_string(),
        100_000..=999_999_999 => format!("{:.2} M", x / 1e6),
        1_000_000_000..=999_999_999_999 => format!("{:.2} B", x / 1e9),
        _ => format!("{:.3} T", x / 1e12),
    }
}

/// `190,464 B` up to a megabyte, then `434.1 MB`, `20.56 GB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..=999_999 => format!("{} B", grouped(n)),
        1_000_000..=999_999_999 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `0-2, 6, 10, 14, ... (18 layers)`: runs of layer numbers, at most six of them.
fn ranges(layers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = vec![];
    for l in layers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *l => *end = *l,
            _ => runs.push((*l, *l)),
        }
    }
    let show = |(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    let shown: Vec<String> = runs.iter().take(6).map(show).collect();
    format!("{}{}", shown.join(","), if runs.len() > 6 { ",..." } else { "" })
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} program {}", self.graph, self.program)?;
        writeln!(f, "parameters   {}, {} active per token", count(self.parameters), count(self.active_parameters))?;
        writeln!(
            f,
            "nodes        {} in {} levels, {} layers of {} kinds",
            self.nodes,
            self.levels,
            self.layers,
            self.kinds.len()
        )?;
        for k in &self.kinds {
            writeln!(f, "  {:3} x {}", k.layers.len(), k.blocks.join(" + "))?;
            writeln!(
                f,
                "        layers {}; {} nodes in {} levels; {} parameters each",
                ranges(&k.layers),
                k.nodes,
                k.levels,
                count(k.parameters)
            )?;
            let less = 100.0 * (1.0 - k.transient_aliased as f64 / k.transient_separate.max(1) as f64);
            writeln!(
                f,
                "        transients per row {}, aliased by lifetime {} ({less:.0} % less)",
                bytes(k.transient_separate),
                bytes(k.transient_aliased)
            )?;
        }
        self.states(f)?;
        self.readings(f)
    }
}

impl Summary {
    fn states(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "state        {} per token and {} fixed, per sequence, {}",
            bytes(self.state_bytes_per_token.round() as u64),
            bytes(self.state_bytes_fixed),
            if self.kv == "f32" { "f32".into() } else { format!("caches in {}, the rest in f32", self.kv) }
        )?;
        for s in &self.states {
            let grows = format!("{:.1} B per token", s.bytes_per_token);
            let size = if s.bytes_fixed > 0 { bytes(s.bytes_fixed) } else { grows };
            writeln!(f, "  {:3} x {:<9} {:<34} {size}", s.layers, s.name, s.kind)?;
        }
        Ok(())
    }

    fn readings(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "weights read per token, by the format of the matrices (routers and vectors f32)")?;
        writeln!(
            f,
            "  {:<10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "format", "experts", "dense", "head", "f32", "total"
        )?;
        for r in &self.bytes_per_token {
            let [e, d, h, x, t] = [r.experts, r.dense, r.head, r.fixed, r.total].map(bytes);
            writeln!(f, "  {:<10} {e:>10} {d:>10} {h:>10} {x:>10} {t:>10}", r.format)?;
        }
        Ok(())
    }
}
