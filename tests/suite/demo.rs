//! The dictionary model against its recorded reference.

use crate::common::fixture::rel_l2;
use crate::common::safetensors::{Tensor, Tensors, read};
use crate::support::{arch, argmax, root};
use coli::graph::Value;
use coli::ops::Kv;
use coli::run::{Device, Model, ModelSource, Session, Sizes, Want};
use coli::text::{DirFiles, Tokenizer};
use std::path::PathBuf;

/// The bf16 original is 59 MB and stays outside the repository.
fn original() -> PathBuf {
    std::env::var_os("COLI_DICTIONARY").map_or_else(|| root("../shared/models/dictionary-glm52"), PathBuf::from)
}

fn find<'a>(reference: &'a Tensors, name: &str) -> &'a Tensor {
    &reference.iter().find(|t| t.0 == name).unwrap_or_else(|| panic!("{name}")).1
}

/// Recorded experts (I8 [layers, rows, k], ascending) against those chosen.
fn check_experts(reference: &Tensors, name: &str, layer: usize, k: usize, got: &[u32]) {
    let recorded = find(reference, &format!("{name}.expert_ids"));
    assert_eq!(recorded.shape[2], k);
    let per_layer = recorded.shape[1] * k;
    let want = &recorded.data[layer * per_layer..][..per_layer];
    for (row, (got, want)) in got.chunks(k).zip(want.chunks(k)).enumerate() {
        let mut got: Vec<u8> = got.iter().map(|e| *e as u8).collect();
        got.sort_unstable();
        assert_eq!(got, want, "{name}: experts of layer {}, row {row}", layer + 1);
    }
}

/// Recorded choices of the indexers (bit t of a row: position t) against those made; kept only for
/// prompts longer than the selection.
fn check_selection(reference: &Tensors, name: &str, layer: u32, got: &[Vec<u32>]) {
    let Some((_, mask)) = reference.iter().find(|t| t.0 == format!("{name}.dsa_{layer}.mask_bits")) else { return };
    for (row, (got, bits)) in got.iter().zip(mask.data.chunks(mask.shape[1])).enumerate() {
        let want: Vec<u32> = (0..8 * bits.len() as u32).filter(|t| bits[*t as usize / 8] >> (t % 8) & 1 == 1).collect();
        assert_eq!(*got, want, "{name}: positions of layer {layer}, row {row}");
    }
}

/// By hand (`tests/run.sh --full`): needs the bf16 original, at COLI_DICTIONARY or beside the checkout.
#[test]
#[ignore = "needs the bf16 original of the demo model"]
fn oracle_meets_the_recorded_reference() {
    let dir = original();
    let model = Model::load(&arch("glm52"), ModelSource::Dir(dir.clone())).unwrap_or_else(|e| panic!("{e}"));
    let reference = read(&dir.join("reference.safetensors"));
    let doc: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("reference.json")).unwrap()).unwrap();
    for p in doc["prompts"].as_array().unwrap() {
        let name = p["name"].as_str().unwrap();
        let ids: Vec<u32> =
            find(&reference, &format!("{name}.input_ids")).i32().unwrap().iter().map(|i| *i as u32).collect();
        let mut s = Session::new(
            &model,
            Device::Oracle,
            Sizes { ctx: ids.len() as u32, slots: 1, chunk: ids.len() as u32, kv: Kv::F32 },
        );
        let rows = ids.iter().enumerate().map(|(i, t)| coli::graph::Row {
            token: *t,
            position: i as u32,
            slot: 0,
            logits: true,
        });
        let mut layer = 0;
        let mut see = |n: &coli::graph::Node, v: &Value| {
            if let Value::Selection(s) = v {
                check_selection(&reference, name, n.layer.unwrap(), s);
            }
            if let (Value::Route { ids, .. }, coli::ops::Op::RouterTopk(r)) = (v, &n.op) {
                check_experts(&reference, name, layer, r.k, ids);
                layer += 1;
            }
        };
        let logits = s.step(coli::graph::Role::Prompt, rows.collect(), &mut see).unwrap();
        let vocab = logits.len() / ids.len();
        let want = find(&reference, &format!("{name}.last_logits")).f32().unwrap();
        let e = rel_l2(&logits[logits.len() - want.len()..], &want);
        println!("{name}: {} positions, last logits {e:.2e}, experts of {layer} layers equal", ids.len());
        assert!(e < 1e-5 && layer == 7, "{name}: {e:.1e}, {layer}");
        let prompt = p["prompt_len"].as_u64().unwrap() as usize;
        for at in prompt..ids.len() {
            assert_eq!(argmax(&logits[(at - 1) * vocab..at * vocab]), ids[at], "{name}: token {at}");
        }
    }
}

/// The container that is in the repository: its own greedy answers, which the int4 experts keep.
#[test]
fn the_container_answers_on_the_oracle_and_the_cpu() {
    let dir = root("tests/models/dictionary-glm52-int4");
    let model = Model::load(&arch("glm52"), ModelSource::Dir(dir.clone())).unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = Tokenizer::load(&DirFiles(dir)).unwrap();
    let prompt = tokenizer.encode("[gMASK]<sop><|user|>What does quickly mean?<|assistant|><think></think>").unwrap();
    for device in [Device::Oracle, Device::Cpu] {
        let mut s = Session::new(&model, device, Sizes { ctx: 64, slots: 1, chunk: 64, kv: Kv::F32 });
        let mut next = argmax(&s.append(0, &prompt, Want::Last, &mut |_| {}).unwrap());
        let mut answer = vec![];
        while next != 4039 && answer.len() < 30 {
            answer.push(next);
            next = argmax(&s.append(0, &[next], Want::Last, &mut |_| {}).unwrap());
        }
        assert_eq!(tokenizer.decode(&answer, true).unwrap(), "The adverb quickly means: with rapid movements.");
    }
}
