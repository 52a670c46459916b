//! `coli devices`: what the machine's Vulkan devices can do, and why not.

use super::failure::Failure;
use crate::plan::text::bytes;
use crate::vk::{self, Capabilities, Instance, Support, Validation};
use std::fmt::Write as _;
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  coli devices\n  coli devices --json | jq '.devices[].name'")]
pub struct Args {
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let listed = Instance::new(Validation::Off).and_then(|i| vk::list(&i));
    let devices = listed.map_err(|e| Failure::Device(e.to_string()))?;
    let text = match args.json {
        true => serde_json::json!({"schema": 1, "devices": devices}).to_string() + "\n",
        false => devices.iter().map(text).collect(),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn verdict<T>(out: &mut String, what: &str, support: &Support<T>) {
    let _ = match support {
        Ok(_) => writeln!(out, "  {what:<22} yes"),
        Err(missing) => writeln!(out, "  {what:<22} no: {}", missing.reason),
    };
}

fn text(d: &Capabilities) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "vulkan:{} {}", d.index, d.name);
    let _ = writeln!(out, "  {:<22} {:?}, {}, Vulkan {}", "kind", d.kind, d.driver, d.api);
    let usable = match &d.usable {
        Ok(()) => "yes".to_string(),
        Err(against) => format!("no: {}", against.join(", ")),
    };
    let _ = writeln!(out, "  {:<22} {usable}", "usable");
    let _ = writeln!(out, "  {:<22} {} invocations", "subgroup", d.subgroup.size);
    let f = &d.features;
    verdict(&mut out, "synchronization2", &f.sync2);
    verdict(&mut out, "timeline semaphores", &f.timeline);
    verdict(&mut out, "device addresses", &f.address);
    verdict(&mut out, "16-bit floats", &f.float16);
    verdict(&mut out, "cooperative matrices", &f.cooperative_matrix);
    verdict(&mut out, "memory budget", &f.memory_budget);
    verdict(&mut out, "pipeline statistics", &f.executable_properties);
    let l = &d.limits;
    let _ = writeln!(
        out,
        "  {:<22} binding {}, allocation {}, shared memory {}, push constants {} B",
        "limits",
        bytes(l.storage_range),
        bytes(l.allocation),
        bytes(u64::from(l.shared_memory)),
        l.push_constants
    );
    for (i, heap) in d.memory.heaps.iter().enumerate() {
        let local = if heap.device_local { "device" } else { "host" };
        let _ = writeln!(out, "  {:<22} {} {local}", format!("heap {i}"), bytes(heap.size));
    }
    for (i, t) in d.memory.types.iter().enumerate() {
        let flags = [
            (t.device_local, "device-local"),
            (t.host_visible, "host-visible"),
            (t.host_coherent, "coherent"),
            (t.host_cached, "cached"),
        ];
        let names: Vec<&str> = flags.iter().filter(|f| f.0).map(|f| f.1).collect();
        let _ = writeln!(out, "  {:<22} heap {} {}", format!("memory type {i}"), t.heap, names.join(" "));
    }
    let _ = writeln!(out, "  {:<22} {:?}", "resizable BAR", d.memory.bar);
    for (i, q) in d.queues.iter().enumerate() {
        let _ = writeln!(out, "  {:<22} {q:?}", format!("queue family {i}"));
    }
    out
}
