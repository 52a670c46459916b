//! Answering the requests of a model graph.

use std::collections::HashSet;
use std::sync::Arc;

use super::logical::{Logical, Part};
use super::resolve::{Misfit, Want, resolve};
use super::tensor::Bytes;
use super::{Index, Problem, Tensor};
use crate::formats::Format;
use crate::names::{glob, near};

/// Where the number of an expert goes in a name.
const EXPERT: &str = "{e}";

/// Missing experts a problem names; the others are counted.
const LISTED: usize = 4;

/// Missing tensors that get a suggestion. When more are missing the cause is not a misspelling, and
/// the search is the slow part of binding.
const SUGGESTED: usize = 8;

/// A tensor, or one tensor per expert, that a model graph needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Alternative names, the first that exists is taken. `NAME.weight` is looked for before
    /// `NAME`, so the suffix can be left out.
    pub names: Vec<String>,
    /// Wanted shape, outputs before inputs. Dimensions of size one do not matter.
    pub shape: Vec<u64>,
    /// A stored vector may be longer than `shape` (padding); the first elements are used.
    pub at_least: bool,
    /// With `Some(n)` every name holds `{e}`, which runs from 0 to n-1.
    pub experts: Option<u64>,
}

/// The tensors of every request, in the order of the requests.
#[derive(Clone, Debug)]
pub struct Bound {
    tensors: Vec<Vec<Tensor>>,
}

impl Bound {
    /// The tensor of a request without experts.
    ///
    /// # Panics
    /// When there is no such request, or it asked for zero experts.
    pub fn one(&self, request: usize) -> &Tensor {
        self.expert(request, 0)
    }

    /// The tensor of expert `e`.
    ///
    /// # Panics
    /// When there is no such request or expert.
    pub fn expert(&self, request: usize, e: usize) -> &Tensor {
        &self.tensors[request][e]
    }

    /// Tensors of a request: 1, or the number of experts.
    ///
    /// # Panics
    /// When there is no such request.
    pub fn count(&self, request: usize) -> usize {
        self.tensors[request].len()
    }

    /// The format of a request's tensors; None if its experts are stored in several.
    ///
    /// # Panics
    /// When there is no such request.
    pub fn format(&self, request: usize) -> Option<Format> {
        let mut formats = self.tensors[request].iter().map(Tensor::format);
        let first = formats.next()?;
        formats.all(|f| f == first).then_some(first)
    }

    /// The same with other tensors for some requests without experts.
    ///
    /// # Panics
    /// When there is no such request.
    pub fn with(&self, tensors: impl IntoIterator<Item = (usize, Tensor)>) -> Bound {
        let mut bound = self.clone();
        tensors.into_iter().for_each(|(request, tensor)| bound.tensors[request] = vec![tensor]);
        bound
    }

    /// Bytes of all bound tensors. A tensor that answers two requests counts twice.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().flatten().map(Tensor::bytes).sum()
    }
}

impl Index {
    /// Finds every requested tensor and works out its format.
    ///
    /// `ignore` lists patterns (`*` matches any run of characters) of stored or logical names that
    /// may be left unused.
    ///
    /// # Errors
    /// Every [`Problem`] found. A request for experts contributes at most one problem of each kind,
    /// about its first bad expert: experts share their shape, so the others would repeat it.
    pub fn bind(&self, requests: &[Request], ignore: &[String]) -> Result<Bound, Vec<Problem>> {
        let mut binder = Binder { index: self, taken: HashSet::new(), problems: Vec::new(), suggested: 0 };
        let tensors = requests
            .iter()
            .enumerate()
            .map(|(number, request)| match request.experts {
                None => binder.bind_one(number, request),
                Some(experts) => binder.bind_experts(number, request, experts),
            })
            .collect();
        binder.check_unused(ignore);
        if binder.problems.is_empty() { Ok(Bound { tensors }) } else { Err(binder.problems) }
    }

    /// The logical tensor of `NAME.weight` or `NAME`.
    fn find(&self, name: &str) -> Option<(&str, &Logical)> {
        let logical = self.logical();
        let found = logical.get_key_value(&with_suffix(name)).or_else(|| logical.get_key_value(name))?;
        Some((found.0.as_str(), found.1))
    }
}

fn with_suffix(name: &str) -> String {
    format!("{name}.weight")
}

/// State of one [`Index::bind`] call.
struct Binder<'a> {
    index: &'a Index,
    /// Logical names some request found, fitting or not.
    taken: HashSet<&'a str>,
    problems: Vec<Problem>,
    suggested: usize,
}

impl<'a> Binder<'a> {
    fn bind_one(&mut self, number: usize, request: &Request) -> Vec<Tensor> {
        let index = self.index;
        let Some((name, logical)) = request.names.iter().find_map(|name| index.find(name)) else {
            self.missing(number, spellings(&request.names), 1);
            return Vec::new();
        };
        match self.take(number, request, name, logical) {
            Ok(tensor) => vec![tensor],
            Err(problem) => {
                self.problems.push(problem);
                Vec::new()
            }
        }
    }

    fn bind_experts(&mut self, number: usize, request: &Request, experts: u64) -> Vec<Tensor> {
        if let Some(name) = request.names.iter().find(|name| !name.contains(EXPERT)) {
            let why = format!("its request is for {experts} experts, but the name has no `{EXPERT}`");
            self.problems.push(Problem::Format { request: number, name: name.clone(), why });
            return Vec::new();
        }
        if experts == 0 {
            return Vec::new();
        }
        let numbered = |name: &String, e: u64| name.replace(EXPERT, &e.to_string());
        let index = self.index;
        let Some(name) = request.names.iter().find(|name| index.find(&numbered(name, 0)).is_some()) else {
            let first: Vec<String> = request.names.iter().map(|name| numbered(name, 0)).collect();
            self.missing(number, spellings(&first), experts);
            return Vec::new();
        };
        let mut tensors = Vec::new();
        let (mut tried, mut found) = (Vec::new(), 0);
        let (mut shape, mut format) = (None, None);
        // Past as many experts as there are tensors, the rest can only be missing: a corrupt
        // expert count must not become an endless loop.
        for e in 0..experts.min(index.logical().len() as u64 + 1) {
            let expert = numbered(name, e);
            let Some((name, logical)) = index.find(&expert) else {
                if tried.len() < LISTED {
                    tried.push(with_suffix(&expert));
                }
                continue;
            };
            found += 1;
            match self.take(number, request, name, logical) {
                Ok(tensor) => tensors.push(tensor),
                Err(problem @ Problem::Shape { .. }) => shape = shape.or(Some(problem)),
                Err(problem) => format = format.or(Some(problem)),
            }
        }
        if found < experts {
            self.missing(number, tried, experts - found);
        }
        self.problems.extend(shape.into_iter().chain(format));
        tensors
    }

    /// Marks a tensor as used and makes it readable.
    fn take(
        &mut self,
        number: usize,
        request: &Request,
        name: &'a str,
        logical: &'a Logical,
    ) -> Result<Tensor, Problem> {
        self.taken.insert(name);
        let want = Want { shape: &request.shape, at_least: request.at_least };
        let place = |part: &Part, range| Bytes { shard: Arc::clone(self.index.shard(part)), range };
        match resolve(logical, want) {
            Ok(resolved) => Ok(Tensor {
                name: Arc::from(name),
                format: resolved.format,
                rows: resolved.rows,
                cols: resolved.cols,
                tiled: resolved.tiled,
                data: place(&logical.data, resolved.data),
                scales: logical.scale.as_ref().map(|(_, part)| place(part, part.range.clone())),
            }),
            Err(Misfit::Shape(found)) => {
                let (name, want) = (name.to_owned(), request.shape.clone());
                Err(Problem::Shape { request: number, name, want, found })
            }
            Err(Misfit::Format(why)) => Err(Problem::Format { request: number, name: name.to_owned(), why }),
        }
    }

    fn missing(&mut self, request: usize, tried: Vec<String>, absent: u64) {
        let near = if self.suggested < SUGGESTED {
            self.suggested += 1;
            let tried: Vec<&str> = tried.iter().map(String::as_str).collect();
            near::nearest(&tried, 0, self.index.names()).map(str::to_owned)
        } else {
            None
        };
        self.problems.push(Problem::Missing { request, tried, absent, near });
    }

    fn check_unused(&mut self, ignore: &[String]) {
        let ignored = |name: &str| ignore.iter().any(|pattern| glob::matches(pattern, name));
        let mut names: Vec<String> = self
            .index
            .logical()
            .iter()
            .filter(|(name, _)| !self.taken.contains(name.as_str()))
            .filter(|(name, logical)| !ignored(name) && !ignored(&logical.stored))
            .map(|(_, logical)| logical.stored.clone())
            .collect();
        if !names.is_empty() {
            names.sort();
            self.problems.push(Problem::Unused { names });
        }
    }
}

/// The names in the order they are looked for.
fn spellings(names: &[String]) -> Vec<String> {
    names.iter().flat_map(|name| [with_suffix(name), name.clone()]).collect()
}
