//! What a report says about the machine around the device. No name of a person, a machine or a folder is in it.

use serde_json::{Value, json};

/// A file of the system; nothing where the system has no such file.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// The value of the first line `key SEPARATOR value`, without quotes.
fn field(text: &str, key: &str, separator: char) -> Option<String> {
    let of = |line: &str| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim().trim_matches('"').to_string())
    };
    text.lines().find_map(of)
}

/// Operating system, processor and memory.
pub fn describe() -> Value {
    let cpu = read("/proc/cpuinfo").and_then(|t| field(&t, "model name", ':').or_else(|| field(&t, "Model", ':')));
    let kib = read("/proc/meminfo").and_then(|t| field(&t, "MemTotal", ':'));
    let ram = kib.and_then(|t| t.split_whitespace().next()?.parse::<u64>().ok()).map(|kib| kib << 10);
    let mut out = json!({
        "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
        "distribution": read("/etc/os-release").and_then(|t| field(&t, "PRETTY_NAME", '=')),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpu": cpu, "threads": std::thread::available_parallelism().map_or(1, usize::from), "ram_bytes": ram,
        "cpu_kernels": crate::run::cpu::bench::instruction_set(),
    });
    if ram.is_none() {
        out["why_unknown"] = "processor and memory are read from /proc, which this system does not have".into();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let text = "processor\t: 0\nmodel name\t: A Chip: 16 cores\nMemTotal:       65 kB\nPRETTY_NAME=\"Some OS 1\"\n";
        assert_eq!(field(text, "model name", ':').as_deref(), Some("A Chip: 16 cores"));
        assert_eq!(field(text, "PRETTY_NAME", '=').as_deref(), Some("Some OS 1"));
        assert_eq!(field(text, "name", ':'), None);
        assert!(describe()["threads"].as_u64().is_some_and(|n| n > 0));
    }
}
