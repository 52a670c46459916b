//! The graphs of the kernel tests: one operator each, or the few that one kernel serves, in several shapes.

use crate::common::stored::Stored;

/// Weights named w... are in the tested format, those named i... are int4 (for ties), all others f32. Results named y... are kept
/// from being absorbed by a reader.
pub struct Case {
    pub op: &'static str,
    /// The result that the snapshot shows.
    pub show: &'static str,
    /// Runs through lengths around 64 and 128 instead of numbers of rows.
    pub lengths: bool,
    pub state: &'static str,
    pub body: &'static str,
    /// Worst relative L2 of any result in any step on llvmpipe, rounded up to one digit, by format as in [`Stored::ALL`];
    /// 0 where no weight of the case can have it.
    pub bounds: [f64; 12],
}

impl Case {
    pub fn bound(&self, format: Stored) -> f64 {
        self.bounds[Stored::ALL.iter().position(|f| *f == format).unwrap()]
    }
}

/// Kernels that read matrices.
pub const READERS: &[Case] = &[
    Case {
        op: "EmbedRow",
        show: "y2",
        lengths: false,
        state: "",
        body: r#"
            y1: EmbedRow(of: tokens, w: "w1", rows: "97", out: "64")
            y2: EmbedRow(of: tokens, w: "w2", rows: "97", out: "192", repeat: "3")
            y3: EmbedRow(of: tokens, w: "w3", rows: "97", out: "1032")
        "#,
        bounds: [0.0; 12],
    },
    Case {
        op: "Linear",
        show: "y8",
        lengths: false,
        state: "",
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "64")
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "192")
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "320")
            y1: Linear(of: a, w: "w1", out: "7")
            y2: Linear(of: a, w: "w2", out: "64")
            y3: Linear(of: a, w: "w3", out: "65")
            y4: Linear(of: b, w: "w4", out: "7")
            y5: Linear(of: b, w: "w5", out: "64")
            y6: Linear(of: b, w: "w6", out: "65")
            y7: Linear(of: c, w: "w7", out: "7")
            y8: Linear(of: c, w: "w8", out: ["4", "16"])
            y9: Linear(of: c, w: "w9", out: "65")
        "#,
        bounds: [3e-7, 2e-7, 3e-7, 2e-7, 3e-7, 2e-7, 2e-7, 3e-7, 3e-7, 2e-7, 2e-7, 0.0],
    },
    Case {
        op: "Linear, fused",
        show: "y4",
        lengths: false,
        state: "",
        body: r#"
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "192")
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "320")
            n: RmsNorm(of: b, eps: "eps")
            m: RmsNorm(of: c, w: "mn", eps: "eps")
            s: Slice(of: c, at: "64", len: "192")
            y1: Linear(of: n, w: "w1", out: "65")
            y2: Linear(of: m, w: "w2", bias: "b2", out: "64")
            l3: Linear(of: b, w: "w3", bias: "b3", out: "192")
            y3: Add(a: b, b: l3)
            l4: Linear(of: m, w: "w4", out: "192")
            y4: Add(a: l4, b: y3)
            y5: Linear(of: s, w: "w5", out: "7")
            l6: Linear(of: m, w: "w6", bias: "b6", out: "192")
            y6: Add(a: s, b: l6)
        "#,
        bounds: [3e-7, 2e-7, 2e-7, 3e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 0.0],
    },
    Case {
        op: "RouterLogits",
        show: "y3",
        lengths: false,
        state: "",
        body: r#"
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "192")
            n: RmsNorm(of: b, w: "bn", eps: "eps")
            y1: RouterLogits(of: b, w: "w1", experts: "7")
            y2: RouterLogits(of: n, w: "w2", experts: "64")
            y3: RouterLogits(of: n, w: "w3", experts: "65")
        "#,
        bounds: [6e-7, 4e-7, 6e-7, 6e-7, 6e-7, 8e-7, 2e-7, 3e-7, 3e-7, 4e-7, 7e-7, 0.0],
    },
    Case {
        op: "LmHead",
        show: "logits",
        lengths: false,
        state: "",
        body: r#"
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "192")
            n: RmsNorm(of: b, w: "bn", eps: "eps")
            logits: LmHead(of: n, w: "w1", out: "97")
        "#,
        bounds: [2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 0.0],
    },
    Case {
        op: "Glu of two linear maps",
        show: "y2",
        lengths: false,
        state: "",
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "64")
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "192")
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "320")
            n: RmsNorm(of: b, eps: "eps")
            m: RmsNorm(of: c, w: "mn", eps: "eps")
            g1: Linear(of: a, w: "w1g", out: "7")
            u1: Linear(of: a, w: "w1u", out: "7")
            y1: Glu(gate: g1, up: u1, kind: silu)
            g2: Linear(of: n, w: "w2g", out: "64")
            u2: Linear(of: n, w: "w2u", out: "64")
            y2: Glu(gate: g2, up: u2, kind: gelu)
            g3: Linear(of: m, w: "w3g", out: "65")
            u3: Linear(of: m, w: "w3u", out: "65")
            y3: Glu(gate: g3, up: u3, kind: situ, beta: "1.5", linear_beta: "2.5")
            g4: Linear(of: c, w: "w4g", out: "65")
            u4: Linear(of: c, w: "w4u", out: "65")
            y4: Glu(gate: g4, up: u4, kind: silu_clamped, limit: "1.25")
        "#,
        bounds: [4e-7, 5e-7, 5e-7, 5e-7, 7e-7, 7e-7, 4e-7, 6e-7, 4e-7, 5e-7, 6e-7, 0.0],
    },
    Case {
        op: "MlaAbsorbQ",
        show: "y2",
        lengths: false,
        state: "",
        body: r#"
            q: EmbedRow(of: tokens, w: "q", rows: "97", out: "24")
            q1: View(of: q, shape: ["3", "8"])
            q2: EmbedRow(of: tokens, w: "q2", rows: "97", out: "80")
            q2: View(of: q2, shape: ["5", "16"])
            q3: View(of: q, shape: ["2", "12"])
            q3: Slice(of: q3, at: "4", len: "8")
            y1: MlaAbsorbQ(of: q1, w: "w1", v_dim: "12", rank: "64")
            y2: MlaAbsorbQ(of: q2, w: "w2", v_dim: "8", rank: "192")
            y3: MlaAbsorbQ(of: q3, w: "w3", v_dim: "68", rank: "320")
        "#,
        bounds: [9e-8, 9e-8, 9e-8, 1e-7, 1e-7, 1e-7, 7e-8, 9e-8, 9e-8, 1e-7, 9e-8, 0.0],
    },
    Case {
        op: "MlaExpandV",
        show: "y2",
        lengths: false,
        state: "",
        body: r#"
            l1: EmbedRow(of: tokens, w: "l1", rows: "97", out: "192")
            l1: View(of: l1, shape: ["3", "64"])
            l2: EmbedRow(of: tokens, w: "l2", rows: "97", out: "960")
            l2: View(of: l2, shape: ["5", "192"])
            l3: EmbedRow(of: tokens, w: "l3", rows: "97", out: "640")
            l3: View(of: l3, shape: ["2", "320"])
            y1: MlaExpandV(of: l1, w: "w1", nope: "8", v_dim: "12")
            y2: MlaExpandV(of: l2, w: "w2", nope: "4", v_dim: "64")
            y3: MlaExpandV(of: l3, w: "w3", nope: "16", v_dim: "68")
        "#,
        bounds: [2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 2e-7, 1e-7, 2e-7, 2e-7, 0.0],
    },
    Case {
        op: "MoeExperts",
        show: "y2",
        lengths: false,
        state: "",
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "64")
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "192")
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "320")
            z: RouterLogits(of: a, w: "r", experts: "5")
            route1: RouterTopk(of: z, k: "1", score: softmax)
            route2: RouterTopk(of: z, k: "2", score: sigmoid, renorm: "true")
            route3: RouterTopk(of: z, k: "5", score: sigmoid)
            y1: MoeExperts(of: a, route: route2, ff: "72", kind: silu, gate: "w1g.{e}", up: "w1u.{e}", down: "w1d.{e}")
            n: RmsNorm(of: b, w: "bn", eps: "eps")
            x2: MoeExperts(of: n, route: route2, ff: "128", kind: silu_clamped, limit: "0.7", gate: "w2g.{e}", up: "w2u.{e}", down: "w2d.{e}")
            s2: Linear(of: n, w: "w2s", out: "192")
            x2: Add(a: x2, b: s2)
            y2: Add(a: b, b: x2)
            x3: MoeExperts(of: c, route: route1, ff: "64", kind: situ, beta: "1.5", linear_beta: "2.5", gate: "w3g.{e}", up: "w3u.{e}", down: "w3d.{e}")
            y3: Add(a: x3, b: c)
            m: RmsNorm(of: a, eps: "eps")
            y4: MoeExperts(of: m, route: route3, ff: "8", kind: gelu, gate: "w4g.{e}", up: "w4u.{e}", down: "w4d.{e}")
        "#,
        bounds: [4e-7, 5e-7, 5e-7, 5e-7, 4e-7, 5e-7, 5e-7, 5e-7, 5e-7, 4e-7, 4e-7, 0.0],
    },
];

/// Experts whose matrices are stored rotated: inputs and hidden values of one block, and of several.
pub const ROTATED: &[Case] = &[Case {
    op: "MoeExperts, rotated",
    show: "y2",
    lengths: false,
    state: "",
    body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "256")
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "768")
            z: RouterLogits(of: a, w: "r", experts: "5")
            route1: RouterTopk(of: z, k: "1", score: softmax)
            route2: RouterTopk(of: z, k: "3", score: sigmoid, renorm: "true")
            y1: MoeExperts(of: a, route: route1, ff: "256", kind: silu, gate: "w1g.{e}", up: "w1u.{e}", down: "w1d.{e}")
            n: RmsNorm(of: b, w: "bn", eps: "eps")
            x2: MoeExperts(of: n, route: route2, ff: "1792", kind: silu_clamped, limit: "0.7", gate: "w2g.{e}", up: "w2u.{e}", down: "w2d.{e}")
            s2: Linear(of: n, w: "s", out: "768")
            x2: Add(a: x2, b: s2)
            y2: Add(a: b, b: x2)
        "#,
    bounds: [6e-7; 12],
}];

/// Kernels that read no matrix.
pub const PLAIN: &[Case] = &[
    Case {
        op: "norms",
        show: "y4",
        lengths: false,
        state: "",
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "65")
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "320")
            h: EmbedRow(of: tokens, w: "h", rows: "97", out: "120")
            h: View(of: h, shape: ["5", "24"])
            y1: RmsNorm(of: a, eps: "eps")
            y2: RmsNorm(of: c, w: "cn", eps: "eps")
            y3: LayerNorm(of: a, w: "aw", bias: "ab", eps: "eps")
            y4: LayerNorm(of: c, w: "cw", bias: "cb", eps: "eps")
            y5: L2Norm(of: h, eps: "eps", scale: "scale")
            y6: RmsNorm(of: h, w: "hn", eps: "eps")
            y7: L2Norm(of: a, eps: "eps")
        "#,
        bounds: [9e-8; 12],
    },
    Case {
        op: "Rope",
        show: "y5",
        lengths: true,
        state: "",
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "64")
            h: EmbedRow(of: tokens, w: "h", rows: "97", out: "120")
            h: View(of: h, shape: ["5", "24"])
            y1: Rope(of: a, theta: "10000", in_layout: interleaved, out_layout: same)
            y2: Rope(of: a, at: "7", dims: "34", theta: "1e6", in_layout: half, out_layout: same)
            y3: Rope(of: h, theta: "50", in_layout: interleaved, out_layout: half, yarn_factor: "4", yarn_orig: "16", yarn_fast: "32", yarn_slow: "1")
            y4: Rope(of: h, at: "4", dims: "20", theta: "50", in_layout: interleaved, out_layout: same, direction: inverse)
            n5: RmsNorm(of: h, w: "hn", eps: "eps")
            y5: Rope(of: n5, at: "12", theta: "100", in_layout: half, out_layout: half)
            n6: LayerNorm(of: a, w: "aw", bias: "ab", eps: "eps")
            y6: Rope(of: n6, dims: "16", theta: "100", in_layout: interleaved, out_layout: half)
        "#,
        bounds: [9e-8; 12],
    },
    Case {
        op: "elementwise",
        show: "y7",
        lengths: false,
        state: "",
        // Values up to some tens, where the functions are flat, next to values around zero.
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "64")
            a: L2Norm(of: a, eps: "eps", scale: "200")
            b: EmbedRow(of: tokens, w: "b", rows: "97", out: "64")
            b: L2Norm(of: b, eps: "eps", scale: "50")
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "264")
            d: EmbedRow(of: tokens, w: "d", rows: "97", out: "264")
            c: Slice(of: c, at: "3", len: "257")
            d: Slice(of: d, at: "5", len: "257")
            y1: Add(a: c, b: d)
            y2: MulSigmoid(of: a, z: b)
            y3: MulSigmoid(of: c, z: d)
            y4: Sigmoid(of: a)
            y5: Glu(gate: a, up: b, kind: silu)
            y6: Glu(gate: b, up: a, kind: gelu)
            y7: Glu(gate: a, up: b, kind: situ, beta: "4", linear_beta: "25")
            y8: Glu(gate: b, up: a, kind: silu_clamped, limit: "7")
            y9: Glu(gate: c, up: d, kind: situ, beta: "4", linear_beta: "25")
        "#,
        bounds: [2e-7; 12],
    },
    Case {
        op: "Slice, View, Concat",
        show: "y4",
        lengths: false,
        state: "",
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "64")
            h: EmbedRow(of: tokens, w: "h", rows: "97", out: "120")
            h: View(of: h, shape: ["5", "24"])
            s: Slice(of: a, at: "3", len: "7")
            hs: Slice(of: h, at: "5", len: "7")
            y1: Concat(of: [s, a])
            y2: View(of: hs, shape: ["35"])
            y3: Add(a: s, b: s)
            hv: View(of: hs, shape: ["7", "5"])
            hv: Slice(of: hv, at: "1", len: "3")
            y4: Sigmoid(of: hv)
            y5: View(of: s, shape: ["7", "1"])
        "#,
        bounds: [8e-8; 12],
    },
    Case {
        op: "matrices of views",
        show: "y1",
        lengths: false,
        state: "",
        // Rows that begin at any channel, and heads with gaps between them.
        body: r#"
            a: EmbedRow(of: tokens, w: "a", rows: "97", out: "200")
            o: Linear(of: a, w: "o", out: "99")
            h: View(of: a, shape: ["5", "40"])
            hs: Slice(of: h, at: "8", len: "24")
            s2: Slice(of: a, at: "2", len: "64")
            so: Slice(of: o, at: "4", len: "64")
            y1: Linear(of: hs, w: "w1", out: "65")
            y2: Linear(of: s2, w: "w2", out: "65")
            y3: Linear(of: so, w: "w3", out: "65")
            n4: RmsNorm(of: s2, eps: "eps")
            y4: Linear(of: n4, w: "w4", out: "64")
            g5: Linear(of: so, w: "w5g", out: "65")
            u5: Linear(of: so, w: "w5u", out: "65")
            y5: Glu(gate: g5, up: u5, kind: silu)
            z: Slice(of: a, at: "5", len: "6")
            route: RouterTopk(of: z, k: "2", score: sigmoid)
            y6: MoeExperts(of: s2, route: route, ff: "8", kind: silu, gate: "w6g.{e}", up: "w6u.{e}", down: "w6d.{e}")
            y7: Add(a: s2, b: y6)
            x8: MoeExperts(of: so, route: route, ff: "8", kind: silu, gate: "w8g.{e}", up: "w8u.{e}", down: "w8d.{e}")
            y8: Add(a: s2, b: x8)
            q9: View(of: s2, shape: ["2", "32"])
            y9: MlaExpandV(of: q9, w: "w9", nope: "8", v_dim: "12")
            q10: View(of: so, shape: ["8", "8"])
            y10: MlaAbsorbQ(of: q10, w: "w10", v_dim: "4", rank: "32")
        "#,
        bounds: [3e-7; 12],
    },
    Case {
        op: "Attn",
        show: "y1",
        lengths: true,
        state: r#"k1: Rows(width: "32"), v1: Rows(width: "16"), k2: Rows(width: "64"), k3: Rows(width: "512"), v3: Rows(width: "48"), k4: Rows(width: "16")"#,
        body: r#"
            q1: EmbedRow(of: tokens, w: "q1", rows: "97", out: "64")
            q1: View(of: q1, shape: ["4", "16"])
            q1: Rope(of: q1, theta: "100", in_layout: half, out_layout: same)
            k1: EmbedRow(of: tokens, w: "k1", rows: "97", out: "32")
            k1: View(of: k1, shape: ["2", "16"])
            k1: RmsNorm(of: k1, w: "kn", eps: "eps")
            k1: Rope(of: k1, theta: "100", in_layout: half, out_layout: same)
            k1: CacheAppend(of: k1, to: k1)
            v1: EmbedRow(of: tokens, w: "v1", rows: "97", out: "16")
            v1: CacheAppend(of: v1, to: v1)
            y1: Attn(q: q1, over: [Seg(k: k1, v: v1)], scale: "scale")
            q2: EmbedRow(of: tokens, w: "q2", rows: "97", out: "192")
            q2: View(of: q2, shape: ["3", "64"])
            k2: EmbedRow(of: tokens, w: "k2", rows: "97", out: "64")
            k2: CacheAppend(of: k2, to: k2)
            y2: Attn(q: q2, over: [Seg(kv: k2)], scale: "scale")
            q3: EmbedRow(of: tokens, w: "q3", rows: "97", out: "512")
            q3: View(of: q3, shape: ["4", "128"])
            k3: EmbedRow(of: tokens, w: "k3", rows: "97", out: "512")
            k3: CacheAppend(of: k3, to: k3)
            v3: EmbedRow(of: tokens, w: "v3", rows: "97", out: "48")
            v3: CacheAppend(of: v3, to: v3)
            y3: Attn(q: q3, over: [Seg(k: k3, v: v3)], scale: "scale")
            x4: EmbedRow(of: tokens, w: "x4", rows: "97", out: "56")
            s4: Slice(of: x4, at: "4", len: "32")
            q4: View(of: s4, shape: ["2", "16"])
            k4: Slice(of: x4, at: "36", len: "16")
            k4: CacheAppend(of: k4, to: k4)
            y4: Attn(q: q4, over: [Seg(kv: k4)], scale: "scale")
        "#,
        bounds: [4e-7; 12],
    },
    Case {
        op: "AttnLatent",
        show: "y1",
        lengths: true,
        state: r#"c1: Rows(width: "80"), c2: Rows(width: "576")"#,
        body: r#"
            q1: EmbedRow(of: tokens, w: "q1", rows: "97", out: "192")
            q1: View(of: q1, shape: ["3", "64"])
            r1: EmbedRow(of: tokens, w: "r1", rows: "97", out: "72")
            r1: View(of: r1, shape: ["3", "24"])
            r1: Slice(of: r1, at: "8", len: "16")
            a1: EmbedRow(of: tokens, w: "a1", rows: "97", out: "80")
            n1: Slice(of: a1, len: "64")
            n1: RmsNorm(of: n1, w: "n1", eps: "eps")
            k1: Slice(of: a1, at: "64", len: "16")
            k1: Rope(of: k1, theta: "100", in_layout: interleaved, out_layout: half)
            c1: Concat(of: [n1, k1])
            c1: CacheAppend(of: c1, to: c1)
            y1: AttnLatent(q: q1, q_rope: r1, kv: c1, scale: "scale")
            q2: EmbedRow(of: tokens, w: "q2", rows: "97", out: "1024")
            q2: View(of: q2, shape: ["2", "512"])
            r2: EmbedRow(of: tokens, w: "r2", rows: "97", out: "128")
            r2: View(of: r2, shape: ["2", "64"])
            c2: EmbedRow(of: tokens, w: "c2", rows: "97", out: "576")
            c2: CacheAppend(of: c2, to: c2)
            y2: AttnLatent(q: q2, q_rope: r2, kv: c2, scale: "scale")
            y3: AttnLatent(q: q2, q_rope: r2, kv: c2, scale: "0.02")
        "#,
        bounds: [4e-7; 12],
    },
    Case {
        op: "Attn, many heads",
        show: "y1",
        lengths: true,
        state: r#"k1: Rows(width: "16"), v1: Rows(width: "24"), k2: Rows(width: "4"), v2: Rows(width: "520"), k3: Rows(width: "20")"#,
        // Heads that share a key: five and several rows of them in a workgroup, with some to spare; and more than it has.
        body: r#"
            q1: EmbedRow(of: tokens, w: "q1", rows: "97", out: "80")
            q1: View(of: q1, shape: ["10", "8"])
            k1: EmbedRow(of: tokens, w: "k1", rows: "97", out: "16")
            k1: CacheAppend(of: k1, to: k1)
            v1: EmbedRow(of: tokens, w: "v1", rows: "97", out: "24")
            v1: CacheAppend(of: v1, to: v1)
            y1: Attn(q: q1, over: [Seg(k: k1, v: v1)], scale: "scale")
            q2: EmbedRow(of: tokens, w: "q2", rows: "97", out: "8")
            q2: View(of: q2, shape: ["2", "4"])
            k2: EmbedRow(of: tokens, w: "k2", rows: "97", out: "4")
            k2: CacheAppend(of: k2, to: k2)
            v2: EmbedRow(of: tokens, w: "v2", rows: "97", out: "520")
            v2: CacheAppend(of: v2, to: v2)
            y2: Attn(q: q2, over: [Seg(k: k2, v: v2)], scale: "scale")
            q3: EmbedRow(of: tokens, w: "q3", rows: "97", out: "800")
            q3: View(of: q3, shape: ["40", "20"])
            k3: EmbedRow(of: tokens, w: "k3", rows: "97", out: "20")
            k3: CacheAppend(of: k3, to: k3)
            y3: Attn(q: q3, over: [Seg(kv: k3)], scale: "scale")
        "#,
        bounds: [2e-7; 12],
    },
    Case {
        op: "AttnLatent, many heads",
        show: "y1",
        lengths: true,
        state: r#"c1: Rows(width: "64"), c2: Rows(width: "576")"#,
        // More heads than a workgroup has, and the channels of real models.
        body: r#"
            q1: EmbedRow(of: tokens, w: "q1", rows: "97", out: "2080")
            q1: View(of: q1, shape: ["40", "52"])
            r1: EmbedRow(of: tokens, w: "r1", rows: "97", out: "480")
            r1: View(of: r1, shape: ["40", "12"])
            c1: EmbedRow(of: tokens, w: "c1", rows: "97", out: "64")
            c1: CacheAppend(of: c1, to: c1)
            y1: AttnLatent(q: q1, q_rope: r1, kv: c1, scale: "scale")
            q2: EmbedRow(of: tokens, w: "q2", rows: "97", out: "8704")
            q2: View(of: q2, shape: ["17", "512"])
            r2: EmbedRow(of: tokens, w: "r2", rows: "97", out: "1088")
            r2: View(of: r2, shape: ["17", "64"])
            c2: EmbedRow(of: tokens, w: "c2", rows: "97", out: "576")
            c2: CacheAppend(of: c2, to: c2)
            y2: AttnLatent(q: q2, q_rope: r2, kv: c2, scale: "0.02")
        "#,
        bounds: [3e-7; 12],
    },
    Case {
        op: "IndexScore, TopkSelect, AttnLatent of a selection",
        show: "y3",
        lengths: true,
        state: r#"i: Rows(width: "16"), j: Rows(width: "128"), l: Rows(width: "144"), c: Rows(width: "12")"#,
        body: r#"
            iq: EmbedRow(of: tokens, w: "iq", rows: "97", out: "128")
            iq: View(of: iq, shape: ["8", "16"])
            iq: Rope(of: iq, at: "4", dims: "8", theta: "100", in_layout: half, out_layout: half)
            ik: EmbedRow(of: tokens, w: "ik", rows: "97", out: "16")
            ik: CacheAppend(of: ik, to: i)
            iw: EmbedRow(of: tokens, w: "hw", rows: "97", out: "8")
            s: IndexScore(q: iq, k: ik, weights: iw, scale: "scale")
            jq: EmbedRow(of: tokens, w: "jq", rows: "97", out: "1152")
            jq: View(of: jq, shape: ["9", "128"])
            jq: Rope(of: jq, dims: "64", theta: "100", in_layout: interleaved, out_layout: half)
            jk: EmbedRow(of: tokens, w: "jk", rows: "97", out: "128")
            jk: CacheAppend(of: jk, to: j)
            jw: EmbedRow(of: tokens, w: "jw", rows: "97", out: "16")
            jw: Slice(of: jw, at: "3", len: "9")
            t: IndexScore(q: jq, k: jk, weights: jw, scale: "scale")
            lq: EmbedRow(of: tokens, w: "lq", rows: "97", out: "5328")
            lq: Slice(of: lq, at: "4", len: "5292")
            lq: View(of: lq, shape: ["36", "147"])
            lq: Slice(of: lq, at: "3", len: "144")
            lk: EmbedRow(of: tokens, w: "lk", rows: "97", out: "144")
            lk: CacheAppend(of: lk, to: l)
            lw: EmbedRow(of: tokens, w: "lw", rows: "97", out: "36")
            u: IndexScore(q: lq, k: lk, weights: lw, scale: "scale")
            sel1: TopkSelect(of: s, k: "1")
            sel2: TopkSelect(of: s, k: "5")
            sel3: TopkSelect(of: t, k: "63")
            sel4: TopkSelect(of: t, k: "64")
            sel5: TopkSelect(of: s, k: "65")
            sel6: TopkSelect(of: t, k: "200")
            sel7: TopkSelect(of: u, k: "40")
            q: EmbedRow(of: tokens, w: "q", rows: "97", out: "16")
            q: View(of: q, shape: ["2", "8"])
            r: EmbedRow(of: tokens, w: "r", rows: "97", out: "8")
            r: View(of: r, shape: ["2", "4"])
            c: EmbedRow(of: tokens, w: "c", rows: "97", out: "16")
            c: Slice(of: c, at: "1", len: "12")
            c: CacheAppend(of: c, to: c)
            y1: AttnLatent(q: q, q_rope: r, kv: c, select: sel1, scale: "scale")
            y2: AttnLatent(q: q, q_rope: r, kv: c, select: sel2, scale: "scale")
            y3: AttnLatent(q: q, q_rope: r, kv: c, select: sel3, scale: "scale")
            y4: AttnLatent(q: q, q_rope: r, kv: c, select: sel4, scale: "scale")
            y5: AttnLatent(q: q, q_rope: r, kv: c, select: sel5, scale: "scale")
            y6: AttnLatent(q: q, q_rope: r, kv: c, select: sel6, scale: "scale")
            y7: AttnLatent(q: q, q_rope: r, kv: c, select: sel7, scale: "scale")
        "#,
        bounds: [2e-7; 12],
    },
    Case {
        op: "RouterTopk",
        show: "r4",
        lengths: false,
        state: "",
        // Logits from int4 weights are often equal.
        body: r#"
            x: EmbedRow(of: tokens, w: "x", rows: "97", out: "8")
            z1: Slice(of: x, len: "6")
            z2: EmbedRow(of: tokens, w: "i2", rows: "97", out: "8")
            z3: EmbedRow(of: tokens, w: "z3", rows: "97", out: "72")
            z3: Slice(of: z3, at: "4", len: "65")
            z4: EmbedRow(of: tokens, w: "i4", rows: "97", out: "64")
            z5: EmbedRow(of: tokens, w: "z5", rows: "97", out: "264")
            z5: Slice(of: z5, at: "4", len: "258")
            r1: RouterTopk(of: z1, k: "2", score: softmax, groups: "2", top_groups: "1", group_score: max, renorm: "true", scale: "1.5")
            r2: RouterTopk(of: z2, k: "8", score: sigmoid)
            r3: RouterTopk(of: z3, bias: "b3", k: "7", score: sqrtsoftplus, renorm: "true", renorm_eps: "1e-20", scale: "2.5")
            r4: RouterTopk(of: z4, bias: "b4", k: "4", score: sigmoid, groups: "8", top_groups: "3", renorm: "true", scale: "2.5")
            r5: RouterTopk(of: z5, k: "8", score: softmax, groups: "3", top_groups: "2", scale: "1.5")
            y1: MoeExperts(of: x, route: r1, ff: "8", kind: silu, gate: "e1g.{e}", up: "e1u.{e}", down: "e1d.{e}")
            y2: MoeExperts(of: x, route: r2, ff: "8", kind: silu, gate: "e2g.{e}", up: "e2u.{e}", down: "e2d.{e}")
            y3: MoeExperts(of: x, route: r3, ff: "8", kind: silu, gate: "e3g.{e}", up: "e3u.{e}", down: "e3d.{e}")
            y4: MoeExperts(of: x, route: r4, ff: "8", kind: silu, gate: "e4g.{e}", up: "e4u.{e}", down: "e4d.{e}")
            y5: MoeExperts(of: x, route: r5, ff: "8", kind: silu, gate: "e5g.{e}", up: "e5u.{e}", down: "e5d.{e}")
        "#,
        bounds: [3e-7; 12],
    },
];
