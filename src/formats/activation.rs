//! Rows of activations as int8: what integer inner products multiply with. `docs/formats.md` has the rules.

/// What the inputs of products with integer-coded weights are taken as.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Activations {
    /// f32, to the last place of a group's largest.
    #[default]
    F32,
    /// Eight bits and a scale: a choice of the user, never made silently.
    Int8,
}

impl Activations {
    pub const ALL: [Activations; 2] = [Activations::F32, Activations::Int8];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Activations::F32 => "f32",
            Activations::Int8 => "int8",
        }
    }
}

/// Quantises a row: `codes[i] = round(x[i] (1 / s))`, ties to even, with `s = max(max |x| / 127, 1e-12)`, which is
/// returned. `x[i]` is about `codes[i] * s`, to half of `s`, and the codes are within ±127.
///
/// The reciprocal is rounded to f32 before it multiplies, unlike the division of weight encoders. NaN becomes 0,
/// so callers look for it first. Source: formats.md 11.1.
///
/// # Panics
/// When `codes` has another length than `x`.
#[inline]
pub fn int8(x: &[f32], codes: &mut [i8]) -> f32 {
    assert_eq!(x.len(), codes.len(), "as many codes as values");
    let most = x.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let scale = (most / 127.0).max(1e-12);
    let inverse = 1.0 / scale;
    codes.iter_mut().zip(x).for_each(|(code, v)| *code = (v * inverse).round_ties_even() as i8);
    scale
}

#[cfg(test)]
mod tests {
    use super::int8;

    #[test]
    fn nearest_codes_of_the_largest_magnitude() {
        let mut codes = [0; 5];
        assert_eq!(int8(&[127.0, -2.5, 3.5, -127.0, 0.4], &mut codes), 1.0);
        assert_eq!(codes, [127, -2, 4, -127, 0]);
    }

    #[test]
    fn nothing_and_next_to_nothing() {
        let mut codes = [9; 2];
        assert_eq!(int8(&[0.0, -0.0], &mut codes), 1e-12);
        assert_eq!(codes, [0, 0]);
        assert_eq!(int8(&[1e-20, 0.0], &mut codes), 1e-12);
        assert_eq!(codes, [0, 0]);
        assert_eq!(int8(&[], &mut []), 1e-12);
    }
}
