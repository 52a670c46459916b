//! Graphs that write to a cache what an f16 cannot hold.

use super::random_graph::model_from;
use super::stored::Stored;
use coli::run::Model;
use std::fmt::Write;

/// The cache that gets values of about a million, and the node that writes it.
pub const CACHES: [(&str, &str); 3] = [("key", "t.kc"), ("value", "t.vc"), ("index", "t.ic")];

pub const VOCAB: u32 = 20;

/// Positions that a row of the index's model takes without looking at scores.
pub const SELECTED: u32 = 2;

/// A model whose `cache` gets such values from every token; in f32 all is well.
pub fn too_large(cache: &str) -> (tempfile::TempDir, Model) {
    let mut body = format!(
        r#"x: EmbedRow(of: tokens, w: "e", rows: "{VOCAB}", out: "16"), big: L2Norm(of: x, eps: "1e-9", scale: "1e6"),"#
    );
    let state = if cache == "index" {
        let _ = write!(
            body,
            r#"iq: View(of: x, shape: ["2", "8"]), ik: Slice(of: big, len: "8"), ic: CacheAppend(of: ik, to: i),
               iw: Slice(of: x, len: "2"), s: IndexScore(q: iq, k: ic, weights: iw, scale: "1e-6"),
               sel: TopkSelect(of: s, k: "{SELECTED}"), c: Slice(of: x, len: "12"), c: CacheAppend(of: c, to: c),
               q: View(of: x, shape: ["2", "8"]), r: Slice(of: x, len: "8"), r: View(of: r, shape: ["2", "4"]),
               l: AttnLatent(q: q, q_rope: r, kv: c, select: sel, scale: "0.3"),
               y: MlaExpandV(of: l, w: "b", nope: "8", v_dim: "16"),"#
        );
        r#"i: Rows(width: "8"), c: Rows(width: "12")"#
    } else {
        let (k, v) = if cache == "key" { ("big", "x") } else { ("x", "big") };
        let _ = write!(
            body,
            r#"kc: CacheAppend(of: {k}, to: k), vc: CacheAppend(of: {v}, to: v), q: View(of: x, shape: ["1", "16"]),
               y: Attn(q: q, over: [Seg(k: kc, v: vc)], scale: "1e-6"),"#
        );
        r#"k: Rows(width: "16"), v: Rows(width: "16")"#
    };
    let width = if cache == "index" { 32 } else { 16 };
    let text = format!(
        r#"Arch(model_type: ["made"], config: {{}}, state: {{ {state} }}, blocks: {{ t: {{ {body}
        y: View(of: y, shape: ["{width}"]), logits: LmHead(of: y, w: "h", out: "{VOCAB}") }} }}, programs: {{ main: [t] }})"#
    );
    model_from(&text, r#"{"model_type": "made"}"#, 20261204, &mut |_| Stored::F32)
}
