//! A row's bits on the device: the same twice, alone and among eight rows of its role, and wherever a prompt was cut.

use crate::common::fixture::fixture;
use crate::common::random_graph::{BLOCKS, Piece, model_from, model_in};
use crate::common::stored::Stored;
use crate::device::{Gpu, with};
use crate::support::load;
use coli::graph::{Role, Row};
use coli::ops::{Kv, Op};
use coli::plan::Tuning;
use coli::plan::place::{Place, Rule};
use coli::run::vulkan::Options;
use coli::run::{Model, Session, Sizes};

/// Positions of each sequence; the last [`DECODED`] of them by the decode kernels.
const LENGTH: usize = 24;
const DECODED: usize = 4;
/// Sequences of a full decode step.
const SLOTS: u32 = 8;

fn session(gpu: &Gpu, model: &Model, slots: u32) -> Session {
    let sizes = Sizes { ctx: LENGTH as u32, slots, chunk: 2 * LENGTH as u32, kv: Kv::F32 };
    // Refused if a kernel is missing: the processor's bits are not what is tested. (Random graphs end in AttnResMix.)
    let on_device = model.graph.nodes().filter(|(_, n)| !matches!(n.op, Op::AttnResMix { .. }));
    let rules = on_device.map(|(_, n)| Rule { pattern: n.path(), place: Place::Gpu }).collect();
    let options = Options { rules, tuning: Some(Tuning::default()), ..Options::default() };
    Session::on_vulkan(model, gpu.device.clone(), sizes, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// The token of a sequence at a position; sequences differ.
fn row(model: &Model, sequence: u32, position: usize, slot: u32) -> Row {
    let token = (position as u32 * 37 + sequence * 11 + 3) % model.graph.vocab as u32;
    Row { token, position: position as u32, slot, logits: true }
}

fn step(s: &mut Session, role: Role, rows: Vec<Row>) -> Vec<u32> {
    let logits = s.step(role, rows, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    assert!(logits.iter().all(|x| x.is_finite()));
    logits.iter().map(|x| x.to_bits()).collect()
}

/// A sequence alone in slot 0: its prompt in pieces of these lengths, then decoded row by row.
fn alone(s: &mut Session, model: &Model, sequence: u32, pieces: &[usize]) -> Vec<u32> {
    s.reset(0).unwrap();
    let (mut out, mut at) = (vec![], 0);
    for n in pieces {
        out.extend(step(s, Role::Prompt, (at..at + n).map(|i| row(model, sequence, i, 0)).collect()));
        at += n;
    }
    assert_eq!(at, LENGTH - DECODED);
    for i in at..LENGTH {
        out.extend(step(s, Role::Decode, vec![row(model, sequence, i, 0)]));
    }
    out
}

/// All sequences in every step, in an order that changes; the bits of each.
fn together(gpu: &Gpu, model: &Model) -> Vec<Vec<u32>> {
    let mut s = session(gpu, model, SLOTS);
    let vocab = model.graph.vocab as usize;
    let mut out = vec![vec![]; SLOTS as usize];
    let mut run = |role, rows: Vec<Row>| {
        let slots: Vec<u32> = rows.iter().map(|r| r.slot).collect();
        let bits = step(&mut s, role, rows);
        slots.iter().zip(bits.chunks(vocab)).for_each(|(slot, b)| out[*slot as usize].extend_from_slice(b));
    };
    // Prompt rows of two sequences alternate, three positions at a time and then the rest.
    for pair in 0..SLOTS / 2 {
        for range in [0..3, 3..LENGTH - DECODED] {
            let both = range.flat_map(|i| [2 * pair + 1, 2 * pair].map(|slot| row(model, slot, i, slot)));
            run(Role::Prompt, both.collect());
        }
    }
    for i in LENGTH - DECODED..LENGTH {
        let order = (0..SLOTS).map(|n| (n + i as u32) % SLOTS);
        run(Role::Decode, order.map(|slot| row(model, slot, i, slot)).collect());
    }
    out
}

fn check(gpu: &Gpu, name: &str, model: &Model) {
    let whole = LENGTH - DECODED;
    let mut s = session(gpu, model, 1);
    let want: Vec<Vec<u32>> = (0..SLOTS).map(|n| alone(&mut s, model, n, &[whole])).collect();
    assert!(want[0] != want[1], "{name}: sequences that do not differ show nothing");
    let differs = |got: &[u32], want: &[u32]| got.iter().zip(want).position(|(g, w)| g != w);
    let at = |i: usize| (i / model.graph.vocab as usize, i % model.graph.vocab as usize);
    assert_eq!(
        differs(&alone(&mut s, model, 0, &[whole]), &want[0]).map(at),
        None,
        "{name}: other bits the second time"
    );
    // Single rows, borders inside tiles of 8 and 16 rows, and at them.
    for pieces in [&[1, whole - 1][..], &[7, 1, whole - 8], &[8, 8, whole - 16], &[16, whole - 16], &[1; 20][..whole]] {
        let got = alone(&mut s, model, 0, pieces);
        assert_eq!(
            differs(&got, &want[0]).map(at),
            None,
            "{name}: other bits of (row, logit) with chunks of {pieces:?}"
        );
    }
    for (slot, (got, want)) in together(gpu, model).iter().zip(&want).enumerate() {
        assert_eq!(got.len(), want.len());
        assert_eq!(differs(got, want).map(at), None, "{name}: other bits of (row, logit) in slot {slot} among others");
    }
    println!("{name}: {} logits with the same bits", want.concat().len());
}

#[test]
fn glm_moe_dsa_bits() {
    with(|gpu| check(gpu, "glm_moe_dsa", &load(&fixture("glm_moe_dsa"))));
}

/// Attention over several parts, of 64 positions each: a row alone has them merged by the expansion where that fits, eight
/// rows by a pass of its own.
fn several_parts(name: &str) {
    const FED: usize = 150;
    with(|gpu| {
        let model = load(&fixture(name));
        let sizes = Sizes { ctx: FED as u32 + 2, slots: 2, chunk: FED as u32, kv: Kv::F32 };
        let mut s = Session::on_vulkan(&model, gpu.device.clone(), sizes, &Options::default()).unwrap();
        for slot in 0..2 {
            step(&mut s, Role::Prompt, (0..FED).map(|i| row(&model, slot, i, slot)).collect());
        }
        let both = step(&mut s, Role::Decode, (0..2).map(|slot| row(&model, slot, FED, slot)).collect());
        s.reset(0).unwrap();
        step(&mut s, Role::Prompt, (0..FED).map(|i| row(&model, 0, i, 0)).collect());
        let alone = step(&mut s, Role::Decode, vec![row(&model, 0, FED, 0)]);
        assert!(alone[..] == both[..alone.len()], "{name}: other bits alone");
    });
}

#[test]
fn kimi_linear_parts() {
    several_parts("kimi_linear");
}

#[test]
fn qwen3_parts() {
    several_parts("qwen3");
}

/// Feeds each sequence `pieces`, whose rows take turns of so many; the bits of sequence 0.
fn feed(s: &mut Session, model: &Model, sequences: &[u32], pieces: &[usize], turn: usize) -> Vec<u32> {
    let vocab = model.graph.vocab as usize;
    let (mut of_first, mut at) = (vec![], 0);
    (0..2).for_each(|slot| s.reset(slot).unwrap());
    for n in pieces {
        let mut rows = vec![];
        for from in (at..at + n).step_by(turn) {
            for slot in sequences {
                rows.extend((from..(from + turn).min(at + n)).map(|i| row(model, *slot, i, *slot)));
            }
        }
        let first: Vec<bool> = rows.iter().map(|r| r.slot == 0).collect();
        let bits = step(s, Role::Prompt, rows);
        let kept = bits.chunks(vocab).zip(first).filter(|(_, first)| *first);
        of_first.extend(kept.flat_map(|(b, _)| b.to_vec()));
        at += n;
    }
    of_first
}

/// Attention over several tiles of positions: a prompt cut anywhere, and among the rows of another sequence, in turns of
/// one row and of several.
fn several_tiles(name: &str) {
    const FED: usize = 150;
    with(|gpu| {
        let model = load(&fixture(name));
        let sizes = Sizes { ctx: FED as u32, slots: 2, chunk: 2 * FED as u32, kv: Kv::F32 };
        let mut s = Session::on_vulkan(&model, gpu.device.clone(), sizes, &Options::default()).unwrap();
        let want = feed(&mut s, &model, &[0], &[FED], 1);
        for pieces in [&[1, 63, 1, 64, 21][..], &[128, 22]] {
            assert!(feed(&mut s, &model, &[0], pieces, 1) == want, "{name}: other bits with chunks of {pieces:?}");
        }
        for (pieces, turn) in [(&[FED][..], 1), (&[70, 80], 3), (&[FED], 50)] {
            let got = feed(&mut s, &model, &[1, 0], pieces, turn);
            assert!(got == want, "{name}: other bits among others, in chunks of {pieces:?} and turns of {turn}");
        }
    });
}

/// Attention over rings and sinks; near rows and a choice of all rows in one softmax. Windows as wide as given.
fn windows(window: u32) -> String {
    format!(
        r#"Arch(model_type: ["windows"], config: {{}},
        state: {{ k: Ring(width: "48", window: "{window}"), v: Ring(width: "24", window: "{window}"),
            r: Ring(width: "24", window: "{window}"), c: Rows(width: "24"), i: Rows(width: "8") }},
        blocks: {{ t: {{
            x: EmbedRow(of: tokens, w: "e", rows: "20", out: "32"),
            q: Linear(of: x, w: "q", out: ["4", "24"]), q: Rope(of: q, theta: "100", in_layout: half, out_layout: same),
            k: Linear(of: x, w: "k", out: ["2", "24"]), k: Rope(of: k, theta: "100", in_layout: half, out_layout: same),
            k: RingAppend(of: k, to: k), v: Linear(of: x, w: "v", out: "24"), v: RingAppend(of: v, to: v),
            o: Attn(q: q, over: [Seg(k: k, v: v)], scale: "0.3", sink: "s"), o: Linear(of: o, w: "o", out: "32"), x: Add(a: x, b: o),
            c: Linear(of: x, w: "c", out: "24"), near: RingAppend(of: c, to: r), far: CacheAppend(of: c, to: c),
            iq: Linear(of: x, w: "iq", out: ["4", "8"]), iw: Linear(of: x, w: "iw", out: "4"),
            ik: Linear(of: x, w: "ik", out: "8"), ik: CacheAppend(of: ik, to: i),
            far_s: IndexScore(q: iq, k: ik, weights: iw, scale: "0.3"), sel: TopkSelect(of: far_s, k: "9"),
            p: Linear(of: x, w: "p", out: ["3", "24"]),
            n: Attn(q: p, over: [Seg(kv: near), Seg(kv: far)], scale: "0.3", sink: "t"),
            m: Attn(q: p, over: [Seg(kv: near), Seg(kv: far, select: sel)], scale: "0.3", sink: "t"),
            n: View(of: n, shape: ["72"]), m: View(of: m, shape: ["72"]), y: Concat(of: [n, m]), y: Linear(of: y, w: "y", out: "32"), x: Add(a: x, b: y),
            logits: LmHead(of: x, w: "h", out: "20") }} }},
        programs: {{ main: [t] }})"#
    )
}

fn windows_model(window: u32) -> (tempfile::TempDir, Model) {
    model_from(&windows(window), r#"{"model_type": "windows"}"#, 3, &mut |_| Stored::F32)
}

#[test]
fn window_bits() {
    with(|gpu| {
        let (_dir, model) = windows_model(5);
        check(gpu, "windows", &model);
    });
}

/// Windows over several tiles of positions, in rings that wrap, cut at other places and among others; then over several parts.
#[test]
fn window_tiles_and_parts() {
    const FED: usize = 150;
    with(|gpu| {
        let (_dir, model) = windows_model(70);
        let sizes = Sizes { ctx: FED as u32 + 2, slots: 2, chunk: 60, kv: Kv::F32 };
        let mut s = Session::on_vulkan(&model, gpu.device.clone(), sizes, &Options::default()).unwrap();
        let want = feed(&mut s, &model, &[0], &[50; 3], 1);
        let alone = step(&mut s, Role::Decode, vec![row(&model, 0, FED, 0)]);
        for pieces in [&[1, 59, 4, 60, 26][..], &[60, 60, 30]] {
            assert!(feed(&mut s, &model, &[0], pieces, 1) == want, "other bits with chunks of {pieces:?}");
        }
        for turn in [1, 3, 15] {
            assert!(
                feed(&mut s, &model, &[1, 0], &[30; 5], turn) == want,
                "other bits among others in turns of {turn}"
            );
        }
        let both = step(&mut s, Role::Decode, (0..2).map(|slot| row(&model, slot, FED, slot)).collect());
        assert!(alone[..] == both[..alone.len()], "other bits of a decoded row among others");
    });
}

#[test]
fn glm_moe_dsa_tiles() {
    several_tiles("glm_moe_dsa");
}

#[test]
fn kimi_linear_tiles() {
    several_tiles("kimi_linear");
}

#[test]
fn qwen3_tiles() {
    several_tiles("qwen3");
}

#[test]
fn qwen3_moe_bits() {
    with(|gpu| check(gpu, "qwen3_moe", &load(&fixture("qwen3_moe"))));
}

/// A chain of the kernels that read weights, all of one format.
fn chain(format: Stored) {
    let pieces = [
        Piece::Plain { kv_heads: 2, fused: false },
        Piece::Mlp { gelu: false, bias: false },
        Piece::Latent { select: true, joined: false },
        Piece::Moe { groups: 2, softmax: false, shared: true },
    ];
    with(|gpu| {
        let (_dir, model) = model_in(&[format], &pieces, &BLOCKS, 11);
        check(gpu, format.name(), &model);
    });
}

#[test]
fn int4_bits() {
    chain(Stored::Int4Row);
}

#[test]
fn int4_grouped_bits() {
    chain(Stored::Int4Grouped);
}

#[test]
fn mxfp4_bits() {
    chain(Stored::Mxfp4);
}

#[test]
fn bf16_bits() {
    chain(Stored::Bf16);
}

/// A product of `cols` columns and `rows` rows.
fn wide(format: Stored, cols: u32, rows: u32) {
    let text = format!(
        r#"Arch(model_type: ["wide"], config: {{}}, state: {{}}, blocks: {{ t: {{
        x: EmbedRow(of: tokens, w: "e", rows: "20", out: "{rows}"), a: EmbedRow(of: tokens, w: "f", rows: "20", out: "{cols}"),
        y: Linear(of: a, w: "d", out: "{rows}"), z: Add(a: x, b: y), logits: LmHead(of: z, w: "h", out: "20") }} }},
        programs: {{ main: [t] }})"#
    );
    with(|gpu| {
        let (_dir, model) = model_from(&text, r#"{"model_type": "wide"}"#, 3, &mut |_| format);
        check(gpu, &format!("wide {}", format.name()), &model);
    });
}

/// Columns enough for two chunks of a stripe under way at once, and rows for four quads in a workgroup.
#[test]
fn wide_mxfp4_bits() {
    wide(Stored::Mxfp4, 8192, 1536);
}

/// Three blocks of digits a stripe, of which the last is there for half of them.
#[test]
fn wide_int4_bits() {
    wide(Stored::Int4Row, 5120, 64);
}
