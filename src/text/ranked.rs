//! Tokens in order of likelihood, sorted only as far as somebody looks.
//!
//! A vocabulary has 150,000 tokens and a draw rarely looks beyond a few dozen, so sorting all of
//! them for every token would cost more than everything else here.

use std::cmp::Ordering;

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token id.
    pub id: u32,
    /// Its logit, by which candidates are ordered.
    pub logit: f32,
    /// Its probability up to a common factor; 1 for the highest logit.
    pub weight: f64,
}

/// Candidates by falling logit, equal ones by rising id.
#[derive(Debug)]
pub struct Ranked {
    items: Vec<Candidate>,
    /// The first `sorted` items are in their final place.
    sorted: usize,
}

/// Items put in order by the first look; each further step orders as many as are in order already.
const FIRST_STEP: usize = 64;

impl Ranked {
    /// Takes the candidates in any order. Their logits must not be NaN.
    pub fn new(items: Vec<Candidate>) -> Self {
        Self { items, sorted: 0 }
    }

    /// The candidate of rank `at`, 0 being the most likely.
    pub fn get(&mut self, at: usize) -> Option<Candidate> {
        while at >= self.sorted && self.sorted < self.items.len() {
            self.extend();
        }
        self.items.get(at).copied()
    }

    /// How many candidates are left.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Keeps the `count` most likely candidates.
    pub fn truncate(&mut self, count: usize) {
        if count < self.items.len() {
            if let Some(last) = count.checked_sub(1) {
                self.get(last);
            }
            self.items.truncate(count);
            self.sorted = self.sorted.min(count);
        }
    }

    fn extend(&mut self) {
        let step = self.sorted.max(FIRST_STEP);
        let rest = &mut self.items[self.sorted..];
        let count = step.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by(count, order);
        }
        rest[..count].sort_unstable_by(order);
        self.sorted += count;
    }
}

fn order(a: &Candidate, b: &Candidate) -> Ordering {
    // Not total_cmp: 0.0 and -0.0 are the same logit, and the id decides.
    let by_logit = b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal);
    by_logit.then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(logits: impl Iterator<Item = f32>) -> Vec<Candidate> {
        (0..).zip(logits).map(|(id, logit)| Candidate { id, logit, weight: 1.0 }).collect()
    }

    #[test]
    fn ranks_like_a_full_sort() {
        for count in [0, 1, 63, 64, 65, 129, 1000] {
            // Many equal logits, both zeros among them.
            let items = candidates((0..count).map(|i| ((i * 37) % 11) as f32 * -0.5));
            let mut full = items.clone();
            full.sort_by(order);
            let mut ranked = Ranked::new(items);
            for (at, expected) in full.iter().enumerate() {
                assert_eq!(ranked.get(at), Some(*expected));
            }
            assert_eq!(ranked.get(count), None);
        }
    }

    #[test]
    fn truncation_keeps_the_best() {
        let mut ranked = Ranked::new(candidates((0..1000).map(|i| i as f32)));
        ranked.truncate(70);
        assert_eq!(ranked.len(), 70);
        assert_eq!(ranked.get(69).map(|c| c.id), Some(930));
        assert_eq!(ranked.get(70), None);
        ranked.truncate(100);
        assert_eq!(ranked.len(), 70);
        ranked.truncate(0);
        assert_eq!(ranked.get(0), None);
    }

    #[test]
    fn zeros_of_both_signs_are_equal() {
        let mut ranked = Ranked::new(candidates([-0.0, 0.0].into_iter()));
        assert_eq!(ranked.get(0).map(|c| c.id), Some(0));
    }
}
