//! Requests: alternatives, experts, shapes, and the problems that are reported.

use super::{decode, file, floats, open, want};
use crate::formats::{Format, Matrix};
use crate::weights::{Index, Problem, Request, Tensor};

fn data(tensor: &Tensor) -> &[u8] {
    let Matrix::Rows(view) = tensor.matrix() else { panic!("{tensor:?} is tiled") };
    view.data
}

fn sample() -> Index {
    open(file(&[
        ("model.norm.weight", "F32", &[3], floats(&[1.0, 2.0, 3.0])),
        ("model.bias", "F32", &[1, 1, 2, 1], floats(&[4.0, 5.0])),
        ("conv.weight", "F32", &[2, 1, 2], floats(&[1.0, 2.0, 3.0, 4.0])),
        ("ids", "I64", &[2, 1], [7i64, 8].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ("e.0.up.weight", "F32", &[1, 2], floats(&[10.0, 11.0])),
        ("e.1.up.weight", "F32", &[1, 2], floats(&[20.0, f32::NAN])),
    ]))
    .unwrap()
}

fn experts(name: &str, shape: &[u64], count: u64) -> Request {
    Request { experts: Some(count), ..want(name, shape) }
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

fn problems(index: &Index, requests: &[Request]) -> Vec<Problem> {
    index.bind(requests, &all()).unwrap_err()
}

#[test]
fn everything_requested_is_found_in_place() {
    let index = sample();
    let requests = [
        want("model.norm", &[3]),
        want("model.bias", &[2]),
        want("conv", &[2, 2]),
        want("ids", &[2, 1]),
        experts("e.{e}.up", &[1, 2], 2),
        want("model.norm.weight", &[3]),
    ];
    let bound = index.bind(&requests, &[]).unwrap();
    assert_eq!(bound.one(0).name(), "model.norm.weight");
    assert_eq!((bound.count(0), bound.count(4)), (1, 2));
    assert_eq!((bound.format(2), bound.format(4)), (Some(Format::F32), Some(Format::F32)));
    assert_eq!(bound.bytes(), index.total_bytes() + 12);
    let conv = bound.one(2);
    assert_eq!((conv.rows(), conv.cols()), (2, 2));
    let mut id = [0];
    assert_eq!(bound.one(3).matrix().int_row(1, &mut id), Some(()));
    assert_eq!(id, [8]);
    assert_eq!(bound.expert(4, 0).find_nan(), None);
    assert_eq!(bound.expert(4, 1).find_nan(), Some((0, 1)));
    assert_eq!(bound.one(3).find_nan(), None);
    assert_eq!(format!("{:?}", bound.one(2).clone()), "Tensor(conv.weight f32 [2, 2])");
    drop(index);
    assert_eq!(data(bound.one(1)), floats(&[4.0, 5.0]));
}

#[test]
fn the_first_existing_alternative_wins() {
    let index = sample();
    let mut request = want("absent", &[2]);
    request.names.push("model.bias".to_owned());
    request.names.push("model.norm".to_owned());
    assert_eq!(decode(&index, request), [4.0, 5.0]);
    let mut request = experts("absent.{e}", &[1, 2], 2);
    request.names.push("e.{e}.up".to_owned());
    assert_eq!(index.bind(&[request], &all()).unwrap().expert(0, 1).name(), "e.1.up.weight");
}

#[test]
fn padded_vectors_are_cut_only_when_allowed() {
    let index = sample();
    let mut request = want("model.norm", &[2]);
    assert!(matches!(problems(&index, std::slice::from_ref(&request))[..], [Problem::Shape { .. }]));
    request.at_least = true;
    assert_eq!(decode(&index, request), [1.0, 2.0]);
    let longer = Request { at_least: true, ..want("model.norm", &[4]) };
    assert!(matches!(problems(&index, &[longer])[..], [Problem::Shape { .. }]));
    let matrix = Request { at_least: true, ..want("conv", &[1, 2]) };
    assert!(matches!(problems(&index, &[matrix])[..], [Problem::Shape { .. }]));
}

#[test]
fn all_problems_are_reported_together() {
    let index = sample();
    let requests = [want("model.nrom", &[3]), want("model.norm", &[4]), want("ids", &[2]), want("q", &[1])];
    let problems = index.bind(&requests, &["conv*".to_owned()]).unwrap_err();
    let [missing, shape, other, unused] = problems.as_slice() else { panic!("{problems:?}") };
    let Problem::Missing { request: 0, tried, absent: 1, near } = missing else { panic!("{missing}") };
    assert_eq!(tried, &["model.nrom.weight", "model.nrom"]);
    assert_eq!(near.as_deref(), Some("model.norm.weight"));
    assert!(missing.to_string().contains("closest name there is `model.norm.weight`"));
    assert!(matches!(shape, Problem::Shape { request: 1, want, found, .. } if want == &[4] && found == &[3]));
    assert!(matches!(other, Problem::Missing { request: 3, near: None, .. }));
    let Problem::Unused { names } = unused else { panic!("{unused}") };
    assert_eq!(names, &["e.0.up.weight", "e.1.up.weight", "model.bias"]);
    assert!(unused.to_string().contains("3 of the stored tensors"));
}

#[test]
fn missing_experts_are_counted_not_listed() {
    let index = sample();
    let problem = &problems(&index, &[experts("e.{e}.up", &[1, 2], 256)])[0];
    let Problem::Missing { tried, absent, .. } = problem else { panic!("{problem}") };
    assert_eq!((tried.len(), *absent), (4, 254));
    assert_eq!(tried[0], "e.2.up.weight");
    assert!(problem.to_string().contains("254 expert tensors are missing"));
    let none = &problems(&index, &[experts("f.{e}", &[1, 2], 3)])[0];
    assert!(matches!(none, Problem::Missing { absent: 3, .. }));
}

#[test]
fn expert_requests_report_one_problem_of_a_kind_and_end() {
    let index = sample();
    let found = problems(&index, &[experts("e.{e}.up", &[2, 2], 2)]);
    assert!(matches!(found.as_slice(), [Problem::Shape { name, .. }] if name == "e.0.up.weight"));
    let endless = problems(&index, &[experts("e.{e}.up", &[1, 2], u64::MAX)]);
    assert!(matches!(endless[..], [Problem::Missing { .. }]));
    let unnumbered = problems(&index, &[experts("model.norm", &[3], 2)]);
    assert!(matches!(unnumbered[..], [Problem::Format { .. }]));
    assert_eq!(index.bind(&[experts("e.{e}.up", &[1, 2], 0)], &all()).unwrap().count(0), 0);
}

#[test]
fn packed_shapes_are_reported_in_elements() {
    let index = open(file(&[
        ("k.weight_packed", "U8", &[2, 16], vec![0; 32]),
        ("k.weight_scale", "U8", &[2, 1], vec![127; 2]),
        ("a.weight", "U8", &[3, 2], vec![0; 6]),
        ("a.weight.qs", "F32", &[3], vec![0; 12]),
    ]))
    .unwrap();
    let found = problems(&index, &[want("k", &[4, 32]), want("a", &[2, 3])]);
    let [Problem::Shape { found: k, .. }, Problem::Shape { found: a, .. }] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!((k.as_slice(), a.as_slice()), (&[2, 32][..], &[3, 2][..]));
}

#[test]
fn absurd_wanted_shapes_are_shape_problems() {
    let index = sample();
    for shape in [vec![u64::MAX, u64::MAX, u64::MAX], vec![0], vec![], vec![3, 3]] {
        let found = problems(&index, &[want("model.norm", &shape)]);
        assert!(matches!(found[..], [Problem::Shape { .. }]), "{shape:?}");
    }
}

#[test]
fn scalars_and_empty_tensors_bind() {
    let index =
        open(file(&[("scalar", "F32", &[], floats(&[9.0])), ("empty", "F32", &[1 << 40, 0], Vec::new())])).unwrap();
    let bound = index.bind(&[want("scalar", &[1]), want("empty", &[1 << 40, 0])], &[]).unwrap();
    assert_eq!(data(bound.one(0)), floats(&[9.0]));
    assert_eq!(bound.one(1).find_nan(), None);
}

#[test]
fn suggestions_stay_quick_with_many_names() {
    let names: Vec<String> =
        (0..100_000).map(|n| format!("model.layers.{}.mlp.experts.{}.up", n / 256, n % 256)).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), "U8", &[0u64][..], Vec::new())).collect();
    let index = open(file(&entries)).unwrap();
    let requests: Vec<Request> = (0..1000).map(|n| want(&format!("modle.layer.{n}.mlp.experts.x.up"), &[1])).collect();
    let start = std::time::Instant::now();
    let found = problems(&index, &requests);
    assert!(matches!(&found[0], Problem::Missing { near: Some(_), .. }));
    assert!(start.elapsed().as_secs() < 10, "took {:?}", start.elapsed());
}
