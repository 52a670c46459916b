//! `coli devices`: what the machine's Vulkan devices can do, and why not.

use super::failure::Failure;
use crate::plan::text::bytes;
use crate::vk::{self, Bar, Capabilities, Instance, QueueFamily, Support, Validation};
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
    let _ = writeln!(out, "  {:<22} {}", "resizable BAR", bar(d.memory.bar));
    for q in &d.queues {
        let _ = writeln!(out, "  {:<22} {}", format!("queue family {}", q.index), queue(q));
    }
    out
}

/// How much of the device's memory the processor writes to directly.
fn bar(bar: Bar) -> String {
    match bar {
        Bar::Unified => "not needed: host and device share one memory".into(),
        Bar::Whole => "yes: the host reaches all device memory".into(),
        Bar::Window(size) => format!("no: the host reaches {} of device memory; uploads are copied", bytes(size)),
        Bar::None => "no: the host reaches no device memory; uploads are copied".into(),
    }
}

fn queue(q: &QueueFamily) -> String {
    let kinds = [(q.graphics, "graphics"), (q.compute, "compute"), (q.transfer, "transfer")];
    let kinds: Vec<&str> = kinds.iter().filter(|k| k.0).map(|k| k.1).collect();
    let times = match q.timestamp_bits {
        0 => "no timestamps".into(),
        bits => format!("timestamps of {bits} bits"),
    };
    format!("{} queues for {}, {times}", q.count, kinds.join(", "))
}
