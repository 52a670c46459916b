//! One token from a row of logits.
//!
//! Everything is computed in f64 with `libm`, so a seed gives the same tokens on every machine.

use super::ranked::{Candidate, Ranked};
use super::{Error, GenerationDefaults};

/// Settings of a sampler; `None` leaves a step out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits. `None`, zero and below choose the highest logit always.
    pub temperature: Option<f64>,
    /// Keep the fewest most likely tokens that together have this probability, in (0, 1].
    pub top_p: Option<f64>,
    /// Keep this many most likely tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keep tokens at least this likely relative to the most likely one, in [0, 1].
    pub min_p: Option<f64>,
    /// Start of the random sequence.
    pub seed: u64,
}

impl Sampling {
    /// Fills what is not set from the model's recommendation.
    ///
    /// A model that says `do_sample: false` recommends no temperature; one that says
    /// `do_sample: true` without a temperature means 1.
    #[must_use]
    pub fn or(self, defaults: &GenerationDefaults) -> Self {
        let temperature = match defaults.do_sample {
            Some(false) => None,
            Some(true) => defaults.temperature.or(Some(1.0)),
            None => defaults.temperature,
        };
        Self {
            temperature: self.temperature.or(temperature),
            top_p: self.top_p.or(defaults.top_p),
            top_k: self.top_k.or(defaults.top_k),
            min_p: self.min_p.or(defaults.min_p),
            seed: self.seed,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let check = |flag, range, value: Option<f64>, ok: fn(f64) -> bool| match value {
            Some(value) if !ok(value) => Err(Error::Flag { flag, range, value }),
            _ => Ok(()),
        };
        check("--temperature", "a finite number", self.temperature, f64::is_finite)?;
        check("--top-p", "in (0, 1]", self.top_p, |p| p > 0.0 && p <= 1.0)?;
        check("--min-p", "in [0, 1]", self.min_p, |p| (0.0..=1.0).contains(&p))
    }
}

/// Draws tokens. A clone continues with the same random sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    settings: Sampling,
    random: XorShift,
}

impl Sampler {
    /// A sampler at the start of its random sequence.
    ///
    /// # Errors
    /// [`Error::Flag`] for a setting out of its range.
    pub fn new(settings: Sampling) -> Result<Self, Error> {
        settings.check()?;
        Ok(Self { settings, random: XorShift::new(settings.seed) })
    }

    /// The settings.
    pub fn settings(&self) -> &Sampling {
        &self.settings
    }

    /// Whether the highest logit is chosen always.
    pub fn is_greedy(&self) -> bool {
        self.settings.temperature.is_none_or(|t| t <= 0.0)
    }

    /// Chooses a token id from one row of logits (length: the model's vocabulary; -inf masks a
    /// token).
    ///
    /// Greedy: the highest logit, the lowest id among equal ones. Otherwise softmax of
    /// logit / temperature, then top-k, top-p and min-p in this order, each on the renormalised
    /// rest of the step before, then one draw. Greedy choices do not use up random numbers.
    ///
    /// # Errors
    /// [`Error::NoLogits`], [`Error::BadLogit`] for NaN and +inf, [`Error::AllMasked`].
    pub fn pick(&mut self, logits: &[f32]) -> Result<u32, Error> {
        let best = argmax(logits)?;
        let Some(temperature) = self.settings.temperature.filter(|&t| t > 0.0) else {
            return Ok(best);
        };
        let highest = logits[best as usize];
        let (mut ranked, mut total) = weigh(logits, highest, temperature);
        if let Some(k) = self.settings.top_k.filter(|&k| k > 0) {
            total = keep_top_k(&mut ranked, k as usize, total);
        }
        // At 1 nothing is cut; rounding of the sum must not cut the tail either.
        if let Some(p) = self.settings.top_p.filter(|&p| p < 1.0) {
            total = keep_top_p(&mut ranked, p * total);
        }
        if let Some(p) = self.settings.min_p.filter(|&p| p > 0.0) {
            total = keep_min_p(&mut ranked, p);
        }
        Ok(draw(&mut ranked, self.random.unit() * total, best))
    }
}

/// Id of the highest logit, the lowest id among equal ones.
///
/// # Errors
/// [`Error::NoLogits`], [`Error::BadLogit`] for NaN and +inf, [`Error::AllMasked`].
pub fn argmax(logits: &[f32]) -> Result<u32, Error> {
    let bad = |x: &f32| x.is_nan() || *x == f32::INFINITY;
    if let Some(index) = logits.iter().position(bad) {
        return Err(Error::BadLogit {
            index,
            len: logits.len(),
            value: logits[index],
            count: logits.iter().filter(|x| bad(x)).count(),
        });
    }
    let mut best: Option<(u32, f32)> = None;
    for (id, &logit) in (0..).zip(logits) {
        if best.is_none_or(|(_, highest)| logit > highest) {
            best = Some((id, logit));
        }
    }
    match best {
        None => Err(Error::NoLogits),
        Some((_, f32::NEG_INFINITY)) => Err(Error::AllMasked { len: logits.len() }),
        Some((id, _)) => Ok(id),
    }
}

/// Unnormalised softmax: exp((logit - highest) / temperature), and its sum. Tokens whose weight
/// is zero can never be drawn and are left out.
fn weigh(logits: &[f32], highest: f32, temperature: f64) -> (Ranked, f64) {
    let mut total = 0.0;
    let mut items = Vec::new();
    for (id, &logit) in (0..).zip(logits) {
        let below = f64::from(logit) - f64::from(highest);
        let weight = libm::exp(below / temperature);
        if weight > 0.0 {
            total += weight;
            items.push(Candidate { id, logit, weight });
        }
    }
    (Ranked::new(items), total)
}

/// Keeps the `count` most likely; returns the sum of their weights.
fn keep_top_k(ranked: &mut Ranked, count: usize, total: f64) -> f64 {
    if count >= ranked.len() {
        return total;
    }
    ranked.truncate(count);
    (0..count).filter_map(|at| ranked.get(at)).map(|c| c.weight).sum()
}

/// Keeps the shortest prefix whose weights reach `mass`; returns their sum.
fn keep_top_p(ranked: &mut Ranked, mass: f64) -> f64 {
    keep_while(ranked, |_, sum| sum < mass)
}

/// Keeps candidates at least `least` times as likely as the first; returns the sum of weights.
fn keep_min_p(ranked: &mut Ranked, least: f64) -> f64 {
    let first = ranked.get(0).map_or(0.0, |c| c.weight);
    keep_while(ranked, |c, _| c.weight >= least * first)
}

/// Keeps the longest prefix for which `keep(candidate, sum of weights before it)` holds; returns
/// the sum of weights of the prefix. Both uses hold for the first candidate.
fn keep_while(ranked: &mut Ranked, keep: impl Fn(Candidate, f64) -> bool) -> f64 {
    let mut sum = 0.0;
    let mut count = 0;
    while let Some(c) = ranked.get(count).filter(|&c| keep(c, sum)) {
        sum += c.weight;
        count += 1;
    }
    ranked.truncate(count);
    sum
}

/// The candidate in whose share of the summed weights `target` falls.
fn draw(ranked: &mut Ranked, target: f64, best: u32) -> u32 {
    let mut sum = 0.0;
    let mut last = best;
    for at in 0.. {
        // The sum may stay below the target by rounding: then it is the last one's share.
        let Some(c) = ranked.get(at) else { break };
        sum += c.weight;
        last = c.id;
        if sum > target {
            break;
        }
    }
    last
}

/// Random numbers: xorshift64* (Vigna 2016: shifts 12, 25, 27, multiplier 0x2545F4914F6CDD1D).
#[derive(Clone, Copy, Debug, PartialEq)]
struct XorShift {
    /// Never zero, from which the sequence could not leave.
    state: u64,
}

impl XorShift {
    /// Seeds through one step of splitmix64, which spreads neighbouring seeds apart.
    fn new(seed: u64) -> Self {
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let state = if z == 0 { 0x9e37_79b9_7f4a_7c15 } else { z };
        Self { state }
    }

    fn next(&mut self) -> u64 {
        let mut x = self.state;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.state = x;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in [0, 1) with 53 random bits.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(settings: Sampling) -> Sampler {
        Sampler::new(settings).unwrap()
    }

    fn warm() -> Sampling {
        Sampling { temperature: Some(1.0), seed: 1, ..Sampling::default() }
    }

    /// Shares of the ids among 20,000 draws.
    fn shares(settings: Sampling, logits: &[f32]) -> Vec<f64> {
        let mut sampler = sampler(settings);
        let mut counts = vec![0_u32; logits.len()];
        for _ in 0..20_000 {
            counts[sampler.pick(logits).unwrap() as usize] += 1;
        }
        counts.iter().map(|&n| f64::from(n) / 20_000.0).collect()
    }

    fn close(shares: &[f64], expected: &[f64]) {
        for (have, want) in shares.iter().zip(expected) {
            // Four standard deviations of a share are below 0.015; a dropped token must be 0.
            let slack = if *want == 0.0 { 0.0 } else { 0.015 };
            assert!((have - want).abs() <= slack, "{shares:?} {expected:?}");
        }
    }

    /// Logits whose softmax is this distribution.
    fn logits(p: &[f64]) -> Vec<f32> {
        p.iter().map(|&p| p.ln() as f32).collect()
    }

    #[test]
    fn greedy_takes_the_first_maximum() {
        for temperature in [None, Some(0.0), Some(-1.0)] {
            let mut s = sampler(Sampling { temperature, ..warm() });
            assert!(s.is_greedy());
            assert_eq!(s.pick(&[1.0, 3.0, 3.0, f32::NEG_INFINITY]).unwrap(), 1);
            assert_eq!(s.pick(&[-0.0, 0.0]).unwrap(), 0);
            assert_eq!(s, sampler(Sampling { temperature, ..warm() }));
        }
    }

    #[test]
    fn draws_follow_the_softmax() {
        let p = [0.1, 0.4, 0.2, 0.3];
        close(&shares(warm(), &logits(&p)), &p);
        let half = Sampling { temperature: Some(0.5), ..warm() };
        close(&shares(half, &logits(&p)), &[1.0 / 30.0, 16.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0]);
    }

    #[test]
    fn draws_follow_a_wide_distribution() {
        let p: Vec<f64> = (0..500).map(|i| f64::from(i % 7 + 1)).collect();
        let shares = shares(warm(), &logits(&p));
        let total: f64 = p.iter().sum();
        for rest in 0..7 {
            let have: f64 = shares.iter().skip(rest).step_by(7).sum();
            let want: f64 = p.iter().skip(rest).step_by(7).sum::<f64>() / total;
            assert!((have - want).abs() < 0.015, "{rest}: {have} {want}");
        }
    }

    #[test]
    fn top_k_keeps_the_best_with_ties_by_lowest_id() {
        let p = [0.2, 0.3, 0.2, 0.3];
        let k = |k| Sampling { top_k: Some(k), ..warm() };
        close(&shares(k(1), &logits(&p)), &[0.0, 1.0, 0.0, 0.0]);
        close(&shares(k(3), &logits(&p)), &[0.25, 0.375, 0.0, 0.375]);
        close(&shares(k(0), &logits(&p)), &p);
        close(&shares(k(9), &logits(&p)), &p);
    }

    #[test]
    fn top_p_keeps_the_shortest_prefix() {
        let p = [0.1, 0.5, 0.15, 0.25];
        let top = |p| Sampling { top_p: Some(p), ..warm() };
        close(&shares(top(0.001), &logits(&p)), &[0.0, 1.0, 0.0, 0.0]);
        close(&shares(top(0.49), &logits(&p)), &[0.0, 1.0, 0.0, 0.0]);
        close(&shares(top(0.51), &logits(&p)), &[0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
        close(&shares(top(1.0), &logits(&p)), &p);
    }

    #[test]
    fn min_p_is_relative_to_the_best() {
        let p = [0.1, 0.5, 0.15, 0.25];
        let min = |p| Sampling { min_p: Some(p), ..warm() };
        close(&shares(min(0.45), &logits(&p)), &[0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
        close(&shares(min(1.0), &logits(&p)), &[0.0, 1.0, 0.0, 0.0]);
        close(&shares(min(0.0), &logits(&p)), &p);
    }

    #[test]
    fn steps_work_on_the_renormalised_rest() {
        // Of the top three (0.4, 0.3, 0.2) the first two have 7/9, so top-p 0.75 keeps two.
        let settings = Sampling { top_k: Some(3), top_p: Some(0.75), ..warm() };
        let have = shares(settings, &logits(&[0.1, 0.2, 0.3, 0.4]));
        close(&have, &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
        let settings = Sampling { min_p: Some(0.8), ..settings };
        let have = shares(settings, &logits(&[0.1, 0.2, 0.3, 0.4]));
        close(&have, &[0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn masked_tokens_are_never_drawn() {
        let mut row = vec![f32::NEG_INFINITY; 300];
        row[7] = -1e30;
        row[250] = -1e30;
        let have = shares(warm(), &row);
        close(&have[7..8], &[0.5]);
        close(&have[250..251], &[0.5]);
    }

    #[test]
    fn extreme_temperatures_stay_finite() {
        for temperature in [f64::MIN_POSITIVE, 1e-300, 1e300] {
            let mut s = sampler(Sampling { temperature: Some(temperature), ..warm() });
            let id = s.pick(&[f32::MIN, f32::MAX, 0.0]).unwrap();
            assert!(id == 1 || temperature > 1.0);
        }
    }

    #[test]
    fn a_seed_repeats_and_clones_continue() {
        let row: Vec<f32> = (0..1000).map(|i| (i % 17) as f32 * 0.3).collect();
        let run = |seed| {
            let mut s = sampler(Sampling { seed, ..warm() });
            (0..50).map(|_| s.pick(&row).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
        let mut a = sampler(warm());
        a.pick(&row).unwrap();
        let mut b = a.clone();
        for _ in 0..20 {
            assert_eq!(a.pick(&row).unwrap(), b.pick(&row).unwrap());
        }
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // splitmix64 of seed 0 starts with this value in its author's test vectors.
        assert_eq!(XorShift::new(0).state, 0xe220_a839_7b1d_cdaf);
        let mut one = XorShift { state: 1 };
        // 1 -> 1 ^ 1 << 25 = 0x2000001, >> 27 adds nothing; times the multiplier.
        assert_eq!(one.next(), 0x0200_0001_u64.wrapping_mul(0x2545_f491_4f6c_dd1d));
        assert!((0..1000).map(|_| one.unit()).all(|u| (0.0..1.0).contains(&u)));
        // The one seed that splitmix64 maps to zero.
        assert_ne!(XorShift::new(0_u64.wrapping_sub(0x9e37_79b9_7f4a_7c15)).state, 0);
    }

    #[test]
    fn broken_rows_are_errors() {
        let mut s = sampler(warm());
        for row in [[0.0, f32::NAN, f32::NAN], [0.0, f32::INFINITY, f32::NAN]] {
            let error = s.pick(&row).unwrap_err();
            let expected = matches!(error, Error::BadLogit { index: 1, len: 3, count: 2, .. });
            assert!(expected, "{error}");
            assert!(argmax(&row).is_err());
        }
        let masked = s.pick(&[f32::NEG_INFINITY; 4]).unwrap_err();
        assert!(matches!(masked, Error::AllMasked { len: 4 }));
        assert!(matches!(s.pick(&[]).unwrap_err(), Error::NoLogits));
    }

    #[test]
    fn ranges_name_the_flag() {
        let base = Sampling::default();
        let t = |t| Sampling { temperature: Some(t), ..base };
        let p = |p| Sampling { top_p: Some(p), ..base };
        let m = |p| Sampling { min_p: Some(p), ..base };
        for (settings, text) in [
            (p(0.0), "--top-p must be in (0, 1], not 0"),
            (p(1.5), "--top-p must be in (0, 1], not 1.5"),
            (p(f64::NAN), "--top-p must be in (0, 1], not NaN"),
            (m(-0.1), "--min-p must be in [0, 1], not -0.1"),
            (m(2.0), "--min-p must be in [0, 1], not 2"),
            (t(f64::NAN), "--temperature must be a finite number, not NaN"),
            (t(f64::INFINITY), "--temperature must be a finite number, not inf"),
        ] {
            assert_eq!(Sampler::new(settings).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn flags_win_over_the_model() {
        let model = GenerationDefaults {
            do_sample: Some(true),
            top_p: Some(0.95),
            top_k: Some(20),
            ..GenerationDefaults::default()
        };
        let flags = Sampling { top_k: Some(5), seed: 3, ..Sampling::default() };
        let both = flags.or(&model);
        assert_eq!(both.temperature, Some(1.0));
        assert_eq!((both.top_p, both.top_k, both.seed), (Some(0.95), Some(5), 3));
        let greedy = GenerationDefaults { do_sample: Some(false), temperature: Some(0.7), ..model };
        assert_eq!(flags.or(&greedy).temperature, None);
    }
}
