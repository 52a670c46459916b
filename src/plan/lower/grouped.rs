//! Experts of a prompt's rows: items (a row and one of its experts) are sorted by expert, and each expert's weights are decoded
//! once for a tile of its items.

use super::super::pass::{Bind, Buf, Count, Dispatch, Push};
use super::coop::experts_down;
use super::pending::{Hidden, Pending, Repr, Tiles, View, glu_numbers};
use super::{Lower, groups, unused};
use crate::formats::Format;
use crate::graph::Node;
use crate::ops::Op;
use petgraph::graph::NodeIndex;

/// Items of a tile at most: `ROWS` of `experts_tile.glsl`, `ITEMS` of `group.comp`, and the rows of `coop::Tile::EXPERTS`.
const ITEMS: u32 = 32;
/// Threads of the kernels of tiles, one for each four outputs of four items, and their outputs: of two matrices, or of two runs
/// of one.
const TILE: u32 = 128;
const OUTS: u32 = 64;
/// Threads of `group.comp`, and the experts whose items a workgroup places.
const GROUP: u32 = 256;
const EXPERTS: u32 = 16;
/// Threads of `experts_sum.comp`.
const SUM: u32 = 256;
/// Products of all items are kept for as many outputs as this has room for.
const PRODUCTS: u64 = 32 << 20;

/// The outputs of a pass of products, for `items` items: the fewest slices that keep to [`PRODUCTS`], of one width. At least
/// one workgroup's.
fn slice(out: u32, items: u32) -> u32 {
    let per = 2 * OUTS;
    let most = ((PRODUCTS / (4 * u64::from(items.max(1)))) as u32 / per).max(1);
    let blocks = out.div_ceil(per);
    per * blocks.div_ceil(blocks.div_ceil(most))
}

impl Lower<'_> {
    /// Tiles of a step's items, as many as there can be.
    pub fn count_tiles(&self, node: &Node) -> Count {
        let Op::MoeExperts { k, experts, .. } = node.op else { unreachable!("MoeExperts") };
        Count::Tiles { experts: experts as u32, k: k as u32, per: ITEMS }
    }

    /// The pass that sorts items into tiles.
    fn emit_group(&mut self, index: NodeIndex, route: View) -> Tiles {
        let node = self.node(index);
        let Op::MoeExperts { k, experts, .. } = node.op else { unreachable!("MoeExperts") };
        let most = self.count_tiles(node).most(self.shape.rows, self.shape.ctx);
        let tiles = Tiles {
            items: self.transient(format!("{} items", node.path()), k as u32),
            list: self.transient_of(format!("{} tiles", node.path()), 16 * (1 + u64::from(most))),
        };
        let dispatch = Dispatch {
            kernel: "group",
            variant: None,
            spec: vec![GROUP],
            push: vec![Push::U32(experts as u32), Push::U32(k as u32)],
            set0: vec![Bind::read(route.buf), Bind::write(tiles.items), Bind::write(tiles.list)],
            set1: vec![],
            groups: (groups(experts as u32, EXPERTS), Count::Fixed(1)),
            bytes: 0,
        };
        self.emit_part(index, "tiles", dispatch);
        tiles
    }

    /// The experts' first pass for a prompt's rows.
    pub fn grouped(&mut self, index: NodeIndex) -> Repr {
        let node = self.node(index);
        let Op::MoeExperts { ff, k, .. } = node.op else { unreachable!("MoeExperts") };
        let gate = node.weights[0];
        let x = match self.format(gate) {
            Format::E8 => self.rotated(index).view,
            _ => {
                self.flat(node.inputs[0]);
                self.fours(node.inputs[0])
            }
        };
        let route = self.force(node.inputs[1]);
        let tiles = self.emit_group(index, route);
        let hidden = self.transient(format!("{} hidden", node.path()), (k * ff) as u32);
        let dispatch = match self.matrices(self.format(gate)) {
            Some(matrices) => self.experts_up_coop(matrices, index, x, tiles, hidden),
            None => self.up(node, x, tiles, hidden),
        };
        self.emit(index, &[], dispatch);
        self.rotate_hidden(index, hidden);
        let hidden = Hidden { buf: hidden, tiles: Some(tiles) };
        Repr::Pending(Pending::Experts { node: index, hidden, adds: vec![], nodes: vec![] })
    }

    /// Gates, ups and activations of all items.
    fn up(&self, node: &Node, x: View, tiles: Tiles, hidden: Buf) -> Dispatch {
        let Op::MoeExperts { inp, ff, k, kind, .. } = node.op else { unreachable!("MoeExperts") };
        let (gate, up) = (node.weights[0], node.weights[1]);
        let (number, [p0, p1]) = glu_numbers(kind);
        Dispatch {
            kernel: "experts_up_tile",
            variant: Some(self.variant(gate)),
            spec: vec![TILE, number],
            push: vec![
                Push::Experts(gate),
                Push::Experts(up),
                Push::U32(inp as u32),
                Push::U32(ff as u32),
                Push::U32(k as u32),
                Push::U32(x.stride),
                Push::U32(x.off),
                Push::U32(self.group(gate)),
                Push::F32(p0),
                Push::F32(p1),
            ],
            set0: vec![Bind::read(x.buf), Bind::read(tiles.items), Bind::read(tiles.list), Bind::write(hidden)],
            set1: vec![],
            groups: (groups(ff as u32, OUTS), self.count_tiles(node)),
            bytes: self.bytes(gate) + self.bytes(up),
        }
    }

    /// The experts' second pass for a prompt's rows, slice by slice of the outputs: products of all items, then their sums.
    /// The last sum stands for `last` and the nodes `fused` into it.
    pub fn emit_down_tiles(
        &mut self,
        index: NodeIndex,
        [hidden, route]: [Buf; 2],
        tiles: Tiles,
        y: View,
        added: &[View],
        (last, fused): (NodeIndex, &[NodeIndex]),
    ) {
        let node = self.node(index);
        let Op::MoeExperts { ff, k, out, .. } = node.op else { unreachable!("MoeExperts") };
        let slice = slice(out as u32, self.shape.rows * k as u32);
        let products = self.transient(format!("{} products", node.path()), k as u32 * slice);
        let slices = (out as u32).div_ceil(slice);
        let ff = ff as u32;
        let sorted = [Bind::read(tiles.items), Bind::read(tiles.list)];
        let (kernel, set0) = match self.matrices(self.format(node.weights[2])) {
            Some(matrices) => {
                let rows = View { buf: hidden, stride: k as u32 * ff, off: 0, head: ff };
                let [codes, scales] = self.halves(index, rows, [ff, k as u32]).map(Bind::read);
                (experts_down(matrices), [&[codes], &sorted[..], &[scales, Bind::write(products)]].concat())
            }
            None => {
                let kernel = ("experts_down_tile", vec![TILE], 2 * OUTS);
                (kernel, [&[Bind::read(hidden)], &sorted[..], &[Bind::write(products)]].concat())
            }
        };
        for number in 0..slices {
            let from = number * slice;
            let name = |what: &str| if slices == 1 { what.into() } else { format!("{what} {}", number + 1) };
            let dispatch = self.down(node, kernel.clone(), set0.clone(), [from, slice]);
            self.emit_part(index, &name("products"), dispatch);
            let dispatch = self.sum(node, [products, route], y, added, [from, slice]);
            match number + 1 == slices {
                true => self.emit(last, fused, dispatch),
                false => self.emit_part(index, &name("sum"), dispatch),
            }
        }
    }

    /// Products of all items with a slice of their experts' matrices, by a kernel with its constants and a workgroup's outputs.
    fn down(
        &self,
        node: &Node,
        (kernel, spec, outs): (&'static str, Vec<u32>, u32),
        set0: Vec<Bind>,
        [from, slice]: [u32; 2],
    ) -> Dispatch {
        let Op::MoeExperts { ff, out, .. } = node.op else { unreachable!("MoeExperts") };
        let w = node.weights[2];
        let width = slice.min(out as u32 - from);
        Dispatch {
            kernel,
            variant: Some(self.variant(w)),
            spec,
            push: vec![
                Push::Experts(w),
                Push::U32(ff as u32),
                Push::U32(out as u32),
                Push::U32(from),
                Push::U32(slice),
                Push::U32(self.group(w)),
            ],
            set0,
            set1: vec![],
            groups: (groups(width, outs), self.count_tiles(node)),
            bytes: self.bytes(w) * u64::from(width) / out as u64,
        }
    }

    /// Each row's sum of a slice of its products, and what is added to it.
    fn sum(
        &self,
        node: &Node,
        [products, route]: [Buf; 2],
        y: View,
        added: &[View],
        [from, slice]: [u32; 2],
    ) -> Dispatch {
        let Op::MoeExperts { k, out, .. } = node.op else { unreachable!("MoeExperts") };
        let add = |i: usize| added.get(i).map_or(unused(), |v| Bind::read(v.buf));
        Dispatch {
            kernel: "experts_sum",
            variant: None,
            spec: vec![SUM, u32::from(!added.is_empty()), u32::from(added.len() > 1)],
            push: vec![
                Push::U32(k as u32),
                Push::U32(out as u32),
                Push::U32(from),
                Push::U32(slice),
                Push::U32(y.stride),
                Push::U32(y.off),
            ],
            set0: vec![Bind::read(products), Bind::read(route), Bind::write(y.buf), add(0), add(1)],
            set1: vec![],
            groups: (groups(slice.min(out as u32 - from), SUM), Count::Rows(1)),
            bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_fit_and_are_few() {
        // GLM-5.2, Kimi K3, DeepSeek V4 Flash, Qwen3-30B-A3B at 512 rows: outputs, items, slices.
        for (out, items, slices) in [(6144, 4096, 3), (3584, 8192, 4), (4096, 3072, 2), (2048, 4096, 1)] {
            let s = slice(out, items);
            assert!(s.is_multiple_of(2 * OUTS) && 4 * u64::from(s) * u64::from(items) <= PRODUCTS, "{s} of {out}");
            assert_eq!(out.div_ceil(s), slices, "{s} of {out}");
        }
        // One workgroup's outputs, however many items there are; no wider than a matrix needs.
        assert_eq!((slice(300, 512 * 1024), slice(8, 8), slice(300, 8)), (128, 128, 384));
    }
}
