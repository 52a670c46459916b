//! Random graphs: expand, check, and run to the same values on the oracle and the CPU.

use crate::common::random_graph::{
    BLOCKS, CHUNK, CTX, EIGHTS, ODD, Piece, SLOTS, STEPS, TOLERANCE, VOCAB, difference, model, model_in, piece, run,
};
use crate::common::stored::Stored;
use crate::support::worst_row;
use coli::ops::Kv;
use coli::run::{Device, Model, Session, Sizes};
use proptest::prelude::*;

/// The worst difference of a node's value or a row of logits; choices must be the same.
fn agree(model: &Model) -> Result<f64, TestCaseError> {
    let on = |device| Session::new(model, device, Sizes { ctx: CTX, slots: SLOTS, chunk: CHUNK, kv: Kv::F32 });
    let (want, want_logits) = run(&mut on(Device::Oracle), &STEPS).unwrap();
    let (got, got_logits) = run(&mut on(Device::Cpu), &STEPS).unwrap();
    prop_assert_eq!(want.len(), got.len());
    let mut worst = worst_row(&got_logits, &want_logits, VOCAB as usize);
    for ((name, w), (other, g)) in want.iter().zip(&got) {
        prop_assert_eq!(name, other);
        let e = difference(name, g, w);
        prop_assert!(e < TOLERANCE, "{:?}: {:.1e}", name, e);
        worst = worst.max(e);
    }
    prop_assert!(worst < TOLERANCE);
    Ok(worst)
}

proptest! {
    // A fixed seed: a near tie between experts would be a false alarm, and must not come and go.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(20261130), ..ProptestConfig::default() })]
    #[test]
    fn oracle_and_cpu_agree(pieces in prop::collection::vec(piece(), 1..6), seed in any::<u64>(), odd in any::<bool>()) {
        let widths = if odd { &ODD } else { &EIGHTS };
        let (_dir, model) = model(&pieces, widths, seed);
        agree(&model)?;
    }
}

/// Formats of codes in blocks and squares.
const BLOCKED: [Stored; 6] =
    [Stored::Int2Row, Stored::Int3G64, Stored::Mxfp4, Stored::Fp8, Stored::Fp8Ue8m0, Stored::E8];

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(20261201), ..ProptestConfig::default() })]
    #[test]
    fn formats_in_blocks(pieces in prop::collection::vec(piece(), 1..4), seed in any::<u64>(), widths in 0..3usize) {
        let (_dir, model) = model_in(&BLOCKED, &pieces, [&ODD, &EIGHTS, &BLOCKS][widths], seed);
        agree(&model)?;
    }

    #[test]
    fn rotated_experts(groups in 1..3u64, softmax in any::<bool>(), shared in any::<bool>(), seed in any::<u64>()) {
        let pieces = [Piece::Moe { groups, softmax, shared }];
        let (_dir, model) = model_in(&[Stored::E8], &pieces, &BLOCKS, seed);
        let experts = model.graph.weights.iter().enumerate().filter(|(_, w)| w.need.experts.is_some());
        for (i, _) in experts {
            prop_assert_eq!(model.weights.format(i).map(|f| f.to_string()), Some("e8-iq3-lattice".into()));
        }
        agree(&model)?;
    }
}
