//! Random graphs: expand, check, and run to the same values on the oracle and the CPU.

use crate::common::random_graph::{
    CHUNK, CTX, EIGHTS, ODD, SLOTS, STEPS, TOLERANCE, VOCAB, difference, model, piece, run,
};
use crate::support::worst_row;
use coli::run::{Device, Session, Sizes};
use proptest::prelude::*;

proptest! {
    // A fixed seed: a near tie between experts would be a false alarm, and must not come and go.
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(20261130), ..ProptestConfig::default() })]
    #[test]
    fn oracle_and_cpu_agree(pieces in prop::collection::vec(piece(), 1..6), seed in any::<u64>(), odd in any::<bool>()) {
        let widths = if odd { &ODD } else { &EIGHTS };
        let (_dir, model) = model(&pieces, widths, seed);
        let on = |device| Session::new(&model, device, Sizes { ctx: CTX, slots: SLOTS, chunk: CHUNK });
        let (want, want_logits) = run(&mut on(Device::Oracle), &STEPS).unwrap();
        let (got, got_logits) = run(&mut on(Device::Cpu), &STEPS).unwrap();
        prop_assert_eq!(want.len(), got.len());
        for ((name, w), (other, g)) in want.iter().zip(&got) {
            prop_assert_eq!(name, other);
            let e = difference(name, g, w);
            prop_assert!(e < TOLERANCE, "{:?}: {:.1e}", name, e);
        }
        prop_assert!(worst_row(&got_logits, &want_logits, VOCAB as usize) < TOLERANCE);
    }
}
