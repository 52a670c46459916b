//! The graphs of the kernel tests with caches of f16: of values that come from the file as they are, and of values that are made
//! first, so that they differ in last bits, which may round them apart.

use super::cases::Case;

pub const HALVES: &[Case] = &[
    Case {
        op: "caches of f16, as they come",
        show: "y4",
        lengths: true,
        state: r#"k1: Rows(width: "32"), v1: Rows(width: "16"), c: Rows(width: "80"), i: Rows(width: "16")"#,
        body: r#"
            q1: EmbedRow(of: tokens, w: "q1", rows: "97", out: "64")
            q1: View(of: q1, shape: ["4", "16"])
            k1: EmbedRow(of: tokens, w: "k1", rows: "97", out: "32")
            k1: View(of: k1, shape: ["2", "16"])
            k1: CacheAppend(of: k1, to: k1)
            v1: EmbedRow(of: tokens, w: "v1", rows: "97", out: "16")
            v1: CacheAppend(of: v1, to: v1)
            y1: Attn(q: q1, over: [Seg(k: k1, v: v1)], scale: "scale")
            q: EmbedRow(of: tokens, w: "q", rows: "97", out: "192")
            q: View(of: q, shape: ["3", "64"])
            r: EmbedRow(of: tokens, w: "r", rows: "97", out: "48")
            r: View(of: r, shape: ["3", "16"])
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "88")
            c: Slice(of: c, at: "3", len: "80")
            c: CacheAppend(of: c, to: c)
            iq: EmbedRow(of: tokens, w: "iq", rows: "97", out: "128")
            iq: View(of: iq, shape: ["8", "16"])
            ik: EmbedRow(of: tokens, w: "ik", rows: "97", out: "16")
            ik: CacheAppend(of: ik, to: i)
            iw: EmbedRow(of: tokens, w: "hw", rows: "97", out: "8")
            s: IndexScore(q: iq, k: ik, weights: iw, scale: "scale")
            sel: TopkSelect(of: s, k: "5")
            y3: AttnLatent(q: q, q_rope: r, kv: c, scale: "scale")
            y4: AttnLatent(q: q, q_rope: r, kv: c, select: sel, scale: "scale")
        "#,
        bounds: [4e-7; 12],
    },
    Case {
        op: "caches of f16, made",
        show: "y1",
        lengths: true,
        state: r#"k1: Rows(width: "32"), v1: Rows(width: "16"), k2: Rows(width: "20"), c: Rows(width: "80")"#,
        // Norms and both rotations on the way; pairs and heads of odd widths, and pairs that lie across words.
        body: r#"
            q1: EmbedRow(of: tokens, w: "q1", rows: "97", out: "64")
            q1: View(of: q1, shape: ["4", "16"])
            k1: EmbedRow(of: tokens, w: "k1", rows: "97", out: "32")
            k1: View(of: k1, shape: ["2", "16"])
            k1: RmsNorm(of: k1, w: "kn", eps: "eps")
            k1: Rope(of: k1, theta: "100", in_layout: half, out_layout: same)
            k1: CacheAppend(of: k1, to: k1)
            v1: EmbedRow(of: tokens, w: "v1", rows: "97", out: "16")
            v1: Rope(of: v1, at: "5", dims: "6", theta: "100", in_layout: interleaved, out_layout: same)
            v1: CacheAppend(of: v1, to: v1)
            y1: Attn(q: q1, over: [Seg(k: k1, v: v1)], scale: "scale")
            q2: EmbedRow(of: tokens, w: "q2", rows: "97", out: "64")
            q2: Slice(of: q2, at: "4", len: "60")
            q2: View(of: q2, shape: ["3", "20"])
            k2: EmbedRow(of: tokens, w: "k2", rows: "97", out: "24")
            k2: Slice(of: k2, at: "1", len: "20")
            k2: View(of: k2, shape: ["4", "5"])
            k2: RmsNorm(of: k2, eps: "eps")
            k2: CacheAppend(of: k2, to: k2)
            y2: Attn(q: q2, over: [Seg(kv: k2)], scale: "scale")
            q: EmbedRow(of: tokens, w: "q", rows: "97", out: "192")
            q: View(of: q, shape: ["3", "64"])
            r: EmbedRow(of: tokens, w: "r", rows: "97", out: "48")
            r: View(of: r, shape: ["3", "16"])
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "80")
            n: Slice(of: a, len: "64")
            n: LayerNorm(of: n, w: "nw", bias: "nb", eps: "eps")
            k: Slice(of: a, at: "64", len: "16")
            k: Rope(of: k, theta: "100", in_layout: interleaved, out_layout: half)
            c: Concat(of: [n, k])
            c: CacheAppend(of: c, to: c)
            y3: AttnLatent(q: q, q_rope: r, kv: c, scale: "scale")
        "#,
        bounds: [2e-5; 12],
    },
];
