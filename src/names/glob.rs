//! Name patterns with `*`.

/// Whether `pattern` describes the whole of `name`; `*` stands for any run of characters, every
/// other character for itself.
///
/// Greedy with one retreat point, so the time is at most the product of both lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to continue after the last star: the pattern behind it and the name byte it grows to.
    let mut retreat = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retreat = Some((p, n));
            }
            Some(byte) if *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retreat {
                Some((after, start)) => {
                    p = after;
                    n = start + 1;
                    retreat = Some((after, n));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_match_runs_and_the_rest_is_literal() {
        for (pattern, name, want) in [
            ("vision_tower.*", "vision_tower.a.weight", true),
            ("vision_tower.*", "model.vision_tower.a", false),
            ("*.rotary_emb.*", "model.layers.0.rotary_emb.inv_freq", true),
            ("*a*b", "xxaxxbxxb", true),
            ("*a*b", "xxaxxbxxc", false),
            ("a", "A", false),
            ("a?c", "abc", false),
            ("", "", true),
            ("", "a", false),
            ("**", "", true),
            ("a*", "a", true),
            ("*.routed", "l3.moe.routed", true),
            ("l3.*", "l3.moe.routed", true),
            ("*", "", true),
            ("l3.*", "l33.moe.routed", false),
            ("routed", "l3.moe.routed", false),
            ("l*.moe.*d", "l3.moe.routed", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} on {name}");
        }
    }
}
