//! Linear maps and experts of prompts by cooperative matrices, on devices that have them.

use super::super::pass::{Bind, Buf, Count, Dispatch, Push};
use super::pending::{Tiles, View, glu_numbers};
use super::{Lower, Matrices, groups};
use crate::formats::Format;
use crate::graph::WeightId;
use crate::ops::Op;
use petgraph::graph::NodeIndex;

/// Threads of `halves.comp`.
const HALVES: u32 = 256;
/// Columns of a step of `coop.glsl`: a group's factor holds for all of them.
const STEP: u32 = 32;

/// How subgroups lie over the tile of a workgroup, in matrices: outputs by rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Matrices of each subgroup.
    pub fragments: [u32; 2],
    pub subgroups: [u32; 2],
}

impl Tile {
    /// Of eight kinds that were tried the fastest on an H200, with 128 outputs and 64 rows where matrices have sides of 16.
    const DENSE: Tile = Tile { fragments: [4, 2], subgroups: [2, 2] };
    /// Where a driver works matrices out by scalars, which only has those with sides of 8: little code to compile.
    const SCALAR: Tile = Tile { fragments: [1, 1], subgroups: [2, 2] };

    /// For the items of one expert (`grouped::ITEMS` rows), of which there are few.
    const EXPERTS: Tile = Tile { fragments: [2, 2], subgroups: [4, 1] };
    const SCALAR_EXPERTS: Tile = Tile { fragments: [2, 1], subgroups: [2, 4] };

    fn dense(matrices: Matrices) -> Tile {
        if matrices.side < 16 { Tile::SCALAR } else { Tile::DENSE }
    }

    fn experts(matrices: Matrices) -> Tile {
        if matrices.side < 16 { Tile::SCALAR_EXPERTS } else { Tile::EXPERTS }
    }

    /// The constants that the kernels have from FRAGMENTS_M on.
    fn constants(self, matrices: Matrices) -> [u32; 5] {
        let ([a, b], [m, n]) = (self.fragments, self.subgroups);
        [a, b, m, n, matrices.side]
    }

    fn local(self, matrices: Matrices) -> u32 {
        matrices.subgroup * self.subgroups[0] * self.subgroups[1]
    }

    /// Outputs and rows of a workgroup, with matrices of `side`.
    pub fn sides(self, side: u32) -> [u32; 2] {
        [0, 1].map(|i| side * self.fragments[i] * self.subgroups[i])
    }
}

/// Whether a weight's codes are exact as halves, and its factors hold for whole steps.
fn exact(format: Format) -> bool {
    match format {
        Format::F32 | Format::Bf16 => false,
        Format::Int4Grouped { group } => group.is_multiple_of(STEP),
        _ => true,
    }
}

/// The kernel of a prompt's experts' products by matrices: its constants, and the outputs of a workgroup.
pub fn experts_down(matrices: Matrices) -> (&'static str, Vec<u32>, u32) {
    let tile = Tile::experts(matrices);
    let spec = [&[tile.local(matrices)], &tile.constants(matrices)[..]].concat();
    ("experts_down_coop", spec, tile.sides(matrices.side)[0])
}

/// What `emit_linear` knows of a map of a prompt's rows.
pub struct Map {
    pub index: NodeIndex,
    pub w: WeightId,
    pub bias: Option<Push>,
    pub inp: u32,
    pub out: u32,
    pub x: View,
    pub y: View,
    pub add: Option<View>,
    /// Only rows that want logits.
    pub gather: bool,
}

impl Lower<'_> {
    /// The device's matrices, if products with a weight of this format go by them.
    pub fn matrices(&self, format: Format) -> Option<Matrices> {
        self.shape.matrices.filter(|_| exact(format))
    }

    /// Rows of `count` vectors of `n` values in halves, as `halves.comp` makes them: codes and scales. Readers share them.
    pub fn halves(&mut self, index: NodeIndex, x: View, [n, count]: [u32; 2]) -> [Buf; 2] {
        if let Some((_, _, made)) = self.halves.iter().find(|(v, m, _)| (*v, *m) == (x, [n, count])) {
            return *made;
        }
        let name = |what: &str| format!("{} {what}", self.node(index).path());
        let (codes, scales) = (name("halves"), name("scales of halves"));
        let made = [self.transient(codes, count * n.next_multiple_of(64)), self.transient(scales, count)];
        let dispatch = Dispatch {
            kernel: "halves",
            variant: None,
            spec: vec![HALVES],
            push: vec![Push::U32(n), Push::U32(x.stride), Push::U32(x.off)],
            set0: vec![Bind::read(x.buf), Bind::write(made[0]), Bind::write(made[1])],
            set1: vec![],
            groups: (Count::Fixed(count), Count::Rows(1)),
            bytes: 0,
        };
        self.emit_part(index, "halves", dispatch);
        self.halves.push((x, [n, count], made));
        made
    }

    /// The dispatch of a linear map by matrices.
    pub fn coop(&mut self, matrices: Matrices, map: Map) -> Dispatch {
        let Map { index, w, bias, inp, out, x, y, add, gather } = map;
        let [codes, scales] = self.halves(index, x, [inp, 1]);
        let tile = Tile::dense(matrices);
        let [outs, rows] = tile.sides(matrices.side);
        let a = add.unwrap_or(View { buf: Buf::Dummy, stride: 0, off: 0, head: 0 });
        let flags = [u32::from(bias.is_some()), u32::from(add.is_some()), u32::from(gather)];
        Dispatch {
            kernel: "linear_coop",
            variant: Some(self.variant(w)),
            spec: [&[tile.local(matrices)], &flags[..], &tile.constants(matrices)].concat(),
            push: vec![
                Push::Codes(w),
                Push::Scales(w),
                bias.unwrap_or(Push::NoAddress),
                Push::U32(inp),
                Push::U32(out),
                Push::U32(y.stride),
                Push::U32(y.off),
                Push::U32(a.stride),
                Push::U32(a.off),
                Push::U32(self.group(w)),
            ],
            set0: vec![Bind::read(codes), Bind::read(scales), Bind::write(y.buf), Bind::read(a.buf)],
            set1: vec![],
            groups: (groups(out, outs), if gather { Count::Outputs(rows) } else { Count::Rows(rows) }),
            bytes: self.bytes(w),
        }
    }

    /// The first pass of a prompt's experts by matrices: `x` as `grouped` has it, to `hidden`.
    pub fn experts_up_coop(
        &mut self,
        matrices: Matrices,
        index: NodeIndex,
        x: View,
        tiles: Tiles,
        hidden: Buf,
    ) -> Dispatch {
        let node = self.node(index);
        let Op::MoeExperts { inp, ff, k, kind, .. } = node.op else { unreachable!("MoeExperts") };
        let (gate, up) = (node.weights[0], node.weights[1]);
        let [codes, scales] = self.halves(index, x, [inp as u32, 1]);
        let (number, [p0, p1]) = glu_numbers(kind);
        let tile = Tile::experts(matrices);
        let [both, _] = tile.sides(matrices.side);
        Dispatch {
            kernel: "experts_up_coop",
            variant: Some(self.variant(gate)),
            spec: [&[tile.local(matrices), number], &tile.constants(matrices)[..]].concat(),
            push: vec![
                Push::Experts(gate),
                Push::Experts(up),
                Push::U32(inp as u32),
                Push::U32(ff as u32),
                Push::U32(k as u32),
                Push::U32(self.group(gate)),
                Push::F32(p0),
                Push::F32(p1),
            ],
            set0: [codes, tiles.items, tiles.list, scales]
                .map(Bind::read)
                .into_iter()
                .chain([Bind::write(hidden)])
                .collect(),
            set1: vec![],
            groups: (groups(ff as u32, both / 2), self.count_tiles(node)),
            bytes: self.bytes(gate) + self.bytes(up),
        }
    }
}
