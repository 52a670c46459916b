//! `coli bench --report`: everything that an unknown GPU has to tell, in one file.

mod device;
mod host;
mod sheet;

use super::failure::Failure;
use crate::vk::{self, Capabilities, DeviceOptions, Instance, Validation};
use serde_json::{Value, json};
use sheet::Sheet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the report is, and for whom.
#[derive(clap::Args)]
pub struct Args {
    /// Measure everything and write it to FILE as JSON, to be sent to the people who work on coli
    #[arg(long, value_name = "FILE", required = true)]
    report: Option<PathBuf>,
    /// Number of the Vulkan device, as `coli devices` prints it; the best if left out
    #[arg(long, value_name = "N", requires = "report")]
    device: Option<usize>,
    /// Seconds that the report may take; what does not fit is left out and listed
    #[arg(long, value_name = "N", requires = "report", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let Some(path) = &args.report else {
        return Err(Failure::Usage("give --report FILE, or what to measure: coli bench --help".into()));
    };
    let mut sheet = Sheet::open(path, Duration::from_secs(args.seconds.into()))?;
    sheet.put("schema", 1.into());
    let built = if cfg!(debug_assertions) { "debug" } else { "release" };
    sheet.put("program", json!({"name": "coli", "version": env!("CARGO_PKG_VERSION"), "build": built}));
    sheet.put("host", host::describe());
    let opened = open(&mut sheet, args.device);
    sheet.save(false)?;
    if let Ok(device) = &opened {
        device::measure(&mut sheet, device)?;
    }
    if let Err(why) = &opened {
        sheet.leave_out("all measurements", &why.to_string());
    }
    sheet.save(true)?;
    finished(&sheet, path, opened.err())
}

/// Lists the devices and opens one; the list is in the report even if none can be used.
fn open(sheet: &mut Sheet, number: Option<usize>) -> Result<vk::Device, Failure> {
    for key in ["device", "clocks", "bandwidth", "launches", "kernels", "layers"] {
        sheet.put(key, Value::Null);
    }
    sheet.put("devices", json!([]));
    let failed = |e: vk::Error| Failure::Device(e.to_string());
    let instance = Instance::new(Validation::Off).map_err(failed)?;
    let devices = vk::list(&instance).map_err(failed)?;
    sheet.put("devices", devices.iter().map(brief).collect::<Vec<_>>().into());
    let picked = vk::pick(&devices, number.map_or(vk::Choice::Auto, vk::Choice::Index)).map_err(failed)?;
    let device = vk::Device::open(&instance, picked, DeviceOptions::default()).map_err(failed)?;
    sheet.put("device", device::describe(&device)?);
    sheet.say(&format!("{}, {}", picked.name, picked.driver.trim()));
    Ok(device)
}

/// A device of the machine in a few words; one that cannot be used, in all, since that is what it has to tell.
fn brief(device: &Capabilities) -> Value {
    let short = json!({
        "index": device.index, "name": device.name, "vendor_id": device.vendor_id, "device_id": device.device_id,
        "driver": device.driver, "kind": device.kind, "usable": device.usable,
    });
    match (&device.usable, serde_json::to_value(device)) {
        (Err(_), Ok(all)) => all,
        _ => short,
    }
}

fn finished(sheet: &Sheet, path: &Path, failed: Option<Failure>) -> Result<(), Failure> {
    let path = path.display();
    match failed {
        None => {
            let missing = match sheet.missing() {
                0 => "nothing is left out".into(),
                n => format!("{n} things are left out, each with its reason"),
            };
            sheet.say(&format!("wrote {path}; {missing}. Please send it: docs/performance.md says where"));
            Ok(())
        }
        Some(why) => Err(Failure::Device(format!("{why}\n{path} says so: it is worth sending all the same"))),
    }
}
