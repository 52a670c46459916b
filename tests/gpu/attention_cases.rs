//! The graphs of the kernel tests for attention over rings, compressed caches, selections and several segments, with sinks.

use super::cases::Case;

pub const SEGMENTS: &[Case] = &[
    Case {
        op: "Attn of rings and sinks",
        show: "y2",
        lengths: true,
        // Rings of 59, 109 and 40 rows, which wrap; windows within a tile and over two, and of one row.
        state: r#"k1: Ring(width: "32", window: "20"), v1: Ring(width: "16", window: "20"), k2: Ring(width: "20", window: "70"), k3: Ring(width: "16", window: "1"), k4: Rows(width: "16")"#,
        body: r#"
            q1: EmbedRow(of: tokens, w: "q1", rows: "97", out: "64")
            q1: View(of: q1, shape: ["4", "16"])
            k1: EmbedRow(of: tokens, w: "k1", rows: "97", out: "32")
            k1: View(of: k1, shape: ["2", "16"])
            k1: RmsNorm(of: k1, w: "kn", eps: "eps")
            k1: Rope(of: k1, theta: "100", in_layout: half, out_layout: same)
            k1: RingAppend(of: k1, to: k1)
            v1: EmbedRow(of: tokens, w: "v1", rows: "97", out: "16")
            v1: RingAppend(of: v1, to: v1)
            y1: Attn(q: q1, over: [Seg(k: k1, v: v1)], scale: "scale")
            q2: EmbedRow(of: tokens, w: "q2", rows: "97", out: "200")
            q2: View(of: q2, shape: ["10", "20"])
            k2: EmbedRow(of: tokens, w: "k2", rows: "97", out: "20")
            k2: RingAppend(of: k2, to: k2)
            y2: Attn(q: q2, over: [Seg(kv: k2)], scale: "scale", sink: "s2")
            k3: EmbedRow(of: tokens, w: "k3", rows: "97", out: "16")
            k3: RingAppend(of: k3, to: k3)
            y3: Attn(q: q1, over: [Seg(kv: k3)], scale: "scale", sink: "s3")
            k4: EmbedRow(of: tokens, w: "k4", rows: "97", out: "16")
            k4: CacheAppend(of: k4, to: k4)
            y4: Attn(q: q1, over: [Seg(kv: k4)], scale: "scale", sink: "s4")
        "#,
        bounds: [2e-7; 12],
    },
    Case {
        op: "Attn of segments and selections",
        show: "y2",
        lengths: true,
        // Caches with a row for three positions, of which the first rows see nothing; selections of those and of all rows.
        state: r#"p: Window(len: "3", width: "32"), c: Rows(width: "16", every: "3"), r: Ring(width: "16", window: "9"), k: Rows(width: "16"), v: Rows(width: "16")"#,
        body: r#"
            q: EmbedRow(of: tokens, w: "q", rows: "97", out: "96")
            q: View(of: q, shape: ["6", "16"])
            g: EmbedRow(of: tokens, w: "g", rows: "97", out: "16")
            x: EmbedRow(of: tokens, w: "x", rows: "97", out: "16")
            r: RingAppend(of: x, to: r)
            k: CacheAppend(of: x, to: k)
            v: CacheAppend(of: g, to: v)
            c: WindowPool(kv: x, gate: g, ape: "ape", to: p, every: "3", overlap: "false")
            c: CacheAppend(of: c, to: c)
            iw: EmbedRow(of: tokens, w: "hw", rows: "97", out: "6")
            s: IndexScore(q: q, k: c, weights: iw, scale: "scale")
            sc: TopkSelect(of: s, k: "7")
            t: IndexScore(q: q, k: k, weights: iw, scale: "scale")
            sk: TopkSelect(of: t, k: "70")
            y1: Attn(q: q, over: [Seg(kv: c)], scale: "scale")
            y2: Attn(q: q, over: [Seg(kv: r), Seg(kv: c)], scale: "scale", sink: "s2")
            y3: Attn(q: q, over: [Seg(kv: r), Seg(kv: c, select: sc)], scale: "scale", sink: "s3")
            y4: Attn(q: q, over: [Seg(k: k, v: v, select: sk), Seg(kv: c, select: sc)], scale: "scale")
            y5: Attn(q: q, over: [Seg(k: k, v: v), Seg(kv: r)], scale: "scale")
        "#,
        bounds: [2e-7; 12],
    },
];
