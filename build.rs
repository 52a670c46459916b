//! Compiles the shaders, and tells the program which commit and features it was built from.

#[path = "build/shaders.rs"]
mod shaders;

use std::path::Path;
use std::process::Command;

fn main() {
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let hash = git.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string());
    println!("cargo:rustc-env=COLI_GIT_HASH={}", hash.unwrap_or_else(|| "not a git checkout".into()));
    let demo = std::env::var_os("CARGO_FEATURE_DEMO").is_some();
    println!("cargo:rustc-env=COLI_FEATURES={}", if demo { "demo" } else { "none" });
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    shaders::build(Path::new("shaders"), Path::new(&out));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=src/formats");
    println!("cargo:rerun-if-changed=.git/HEAD");
}
