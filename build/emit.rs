//! Writes the table that the program includes.

use super::Compiled;
use super::reflect::Access;
use std::fmt::Write;

/// The source of `shaders.rs`: one `Shader` a variant, its SPIR-V embedded on a four-byte boundary.
pub fn source(compiled: &[Compiled]) -> String {
    let mut out = String::from("/// Every compiled kernel, by name.\npub static SHADERS: &[Shader] = &[\n");
    for shader in compiled {
        // A String takes any text, so the result of `write!` says nothing.
        let _ = writeln!(out, "    {},", entry(shader));
    }
    out.push_str("];\n");
    out
}

fn entry(shader: &Compiled) -> String {
    let face = &shader.interface;
    let bindings: Vec<String> = face.bindings.iter().map(|&(set, at, access)| binding(set, at, access)).collect();
    format!(
        "Shader {{ name: {:?}, spirv: {{ static CODE: Aligned<[u8; {}]> = Aligned(*include_bytes!({:?})); \
         words(&CODE) }}, bindings: &[{}], push_size: {}, spec_ids: &{:?}, capabilities: &{:?}, local_size: {:?}, \
         local_size_ids: {:?} }}",
        shader.name,
        shader.bytes,
        format!("spirv/{}", shader.file),
        bindings.join(", "),
        face.push_size,
        face.spec_ids,
        face.capabilities,
        face.local_size,
        face.local_size_ids,
    )
}

fn binding(set: u32, binding: u32, access: Access) -> String {
    let access = match access {
        Access::Read => "Read",
        Access::Write => "Write",
        Access::ReadWrite => "ReadWrite",
    };
    format!("Binding {{ set: {set}, binding: {binding}, access: Declared::{access} }}")
}
