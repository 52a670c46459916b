//! `coli shaders`: the embedded kernels, and what a driver's compiler makes of them.
//!
//! A card can spend only so many vector instructions on a weight before a kernel is bound by arithmetic and no longer
//! by memory. That number is read from the machine code, so that no card is needed: Mesa's RADV compiles for every AMD
//! family without one (`tests/tools/amd.sh`).

use super::failure::Failure;
use super::kernels::{KERNELS, Kernel, LOCAL, Loads, SHARING};
use crate::plan::Matrices;
use crate::run::vulkan::matrices;
use crate::vk::{self, Capture, Declared, DeviceOptions, ExecutableStatistics, Instance, SHADERS, Shader, Validation};
use crate::vk::{Pipeline, PipelineCache, PipelineDesc};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write;

#[derive(clap::Args)]
#[command(after_help = "\
With --stats every kernel but those of tests and benches (test_*, bench_*) is compiled once for each weight format and each set of
constants that plans use; those with cooperative matrices only where the device has them. Numbers that the driver does not report are `-`. VALU per weight is the number of vector
instructions in the loop that reads weights, divided by the weights it reads, for 1, 8 and 64 rows at once; of
linear_tile it is the loop that decodes into shared memory, without the products. It is `?` where no loop of the
machine code loads what the source says, and `-` where the source has none.

Examples:
  coli shaders
  coli shaders --stats --filter experts
  radv/radv gfx1201 coli shaders --stats --device 0               # after tests/tools/radv-null.sh radv
  coli shaders --stats --json | jq '.pipelines[] | select(.spills > 0) | .name'")]
pub struct Args {
    /// Compile the kernels on a device and print registers, spills and instruction counts
    #[arg(long)]
    stats: bool,
    /// Number of the Vulkan device, as `coli devices` prints it; the best if left out
    #[arg(long, value_name = "N", requires = "stats")]
    device: Option<usize>,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
    /// Only what has this in its name
    #[arg(long, value_name = "SUBSTRING")]
    filter: Option<String>,
}

/// A pipeline to compile.
struct Use {
    shader: &'static Shader,
    kernel: Option<&'static Kernel>,
    /// All constants from number 0 on, as plans hold them.
    spec: Vec<u32>,
    /// The subgroup size that it asks for.
    subgroup: Option<u32>,
}

/// What the driver said of a pipeline.
struct Compiled {
    driver: ExecutableStatistics,
    /// (rows, VALU per weight) of the loops over weights; None if the kernel has none.
    valu: Option<Vec<(u32, f64)>>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let wanted = |name: &str| args.filter.as_ref().is_none_or(|f| name.contains(f.as_str()));
    if !args.stats {
        let shaders: Vec<&Shader> = SHADERS.iter().filter(|s| wanted(s.name)).collect();
        return print(if args.json { list_json(&shaders) } else { list_text(&shaders) });
    }
    let device = open(args.device).map_err(|e| Failure::Device(e.to_string()))?;
    let (matrices, dots) = (matrices(&device), device.capabilities().features.dot_product.is_ok());
    let mut uses: Vec<Use> =
        SHADERS.iter().filter(planned).flat_map(uses).filter_map(|u| u.on(matrices, dots)).collect();
    uses.retain(|u| wanted(&u.label()));
    let cache = PipelineCache::in_memory(&device).map_err(|e| Failure::Device(e.to_string()))?;
    let results: Vec<Result<Compiled, vk::Error>> = uses.iter().map(|u| u.compile(&device, &cache)).collect();
    let rows: Vec<(&Use, &Compiled)> =
        uses.iter().zip(&results).filter_map(|(u, r)| Some((u, r.as_ref().ok()?))).collect();
    let name = &device.capabilities().name;
    print(if args.json { stats_json(name, &rows) } else { stats_text(name, &device.capabilities().driver, &rows) })?;
    let failed: Vec<String> =
        uses.iter().zip(&results).filter_map(|(u, r)| Some(format!("{}: {}", u.label(), r.as_ref().err()?))).collect();
    match failed.len() {
        0 => Ok(()),
        n => Err(Failure::Check(format!("{n} of {} pipelines do not compile:\n  {}", uses.len(), failed.join("\n  ")))),
    }
}

fn print(text: String) -> Result<(), Failure> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// A device whose pipelines keep statistics.
fn open(number: Option<usize>) -> Result<vk::Device, vk::Error> {
    let instance = Instance::new(Validation::Off)?;
    let devices = vk::list(&instance)?;
    let picked = vk::pick(&devices, number.map_or(vk::Choice::Auto, vk::Choice::Index))?;
    vk::Device::open(&instance, picked, DeviceOptions { statistics: true, ..DeviceOptions::default() })
}

fn kernel(shader: &Shader) -> Option<&'static Kernel> {
    let base = shader.name.split('.').next();
    KERNELS.iter().find(|k| Some(k.name) == base)
}

/// Whether plans use a kernel where a device has all it can have; the others are for tests, benches and what lacks dot products.
fn planned(shader: &&Shader) -> bool {
    !["test_", "bench_"].iter().any(|p| shader.name.starts_with(p)) && shader.name == shader.planned_name()
}

/// The pipelines of a kernel; one that the table lacks gets its workgroup size and nothing else.
fn uses(shader: &'static Shader) -> Vec<Use> {
    let kernel = kernel(shader);
    let plain: &[&[u32]] = &[&[]];
    let make = |more: &&[u32]| Use {
        shader,
        kernel,
        spec: [&[kernel.map_or(LOCAL, |k| k.local[0])], *more].concat(),
        subgroup: None,
    };
    kernel.map_or(plain, |k| k.used).iter().map(make).collect()
}

impl Use {
    /// As plans use it on a device with such matrices, with dot products of bytes or without; None if it needs matrices and there are none.
    fn on(mut self, matrices: Option<Matrices>, dots: bool) -> Option<Use> {
        if !dots {
            self.shader = self.shader.plain().ok()?;
        }
        if !self.shader.multiplies_matrices() {
            return Some(self);
        }
        let Matrices { subgroup, side } = matrices?;
        let at = |name: &str| self.kernel.and_then(|k| k.constants.iter().position(|n| *n == name)).map(|i| i + 1);
        let [m, n, s] = [at("SUBGROUPS_M")?, at("SUBGROUPS_N")?, at("SIDE")?];
        self.spec[0] = subgroup * self.spec[m] * self.spec[n];
        self.spec[s] = side;
        self.subgroup = Some(subgroup);
        Some(self)
    }

    /// `linear.i4:NORM=2,ADD=1`: constants that are 0, and those of sharing work out, are left out.
    fn label(&self) -> String {
        let names = self.kernel.map_or(&[][..], |k| k.constants).iter();
        let shown = names.zip(self.spec.iter().skip(1)).filter(|(name, v)| **v != 0 && !SHARING.contains(*name));
        let text: Vec<String> = shown.map(|(name, value)| format!("{name}={value}")).collect();
        // One line for all devices, whether they have dot products or not.
        let name = self.shader.planned_name();
        if text.is_empty() { name.into() } else { format!("{name}:{}", text.join(",")) }
    }

    fn compile(&self, device: &vk::Device, cache: &PipelineCache) -> Result<Compiled, vk::Error> {
        let constants = self.shader.constants(&self.spec);
        let desc = PipelineDesc {
            label: &self.label(),
            shader: self.shader,
            constants: &constants,
            subgroup_size: self.subgroup,
            capture: Capture::Text,
        };
        // A compute pipeline is one executable.
        let found = Pipeline::new(device, cache, &desc)?.statistics()?;
        let nothing = ExecutableStatistics { name: String::new(), subgroup_size: 0, statistics: vec![], texts: vec![] };
        let driver = found.into_iter().next().unwrap_or(nothing);
        let text = driver.texts.iter().find(|(name, _)| name == "Assembly").map_or("", |(_, text)| text);
        let valu = self.steps().map(|steps| valu_per_weight(&weight_loops(text), &steps));
        Ok(Compiled { driver, valu })
    }

    /// What one step of each loop over weights loads; None for a kernel without such loops.
    fn steps(&self) -> Option<Vec<Step>> {
        let kernel = self.kernel.filter(|k| !matches!(k.loads, Loads::Nothing))?;
        let constant = |name| kernel.constants.iter().position(|n| *n == name).and_then(|i| self.spec.get(i + 1));
        let format = self.shader.name.split('.').nth(1).unwrap_or_default();
        // Columns of a chunk, its words of a row, bytes of a quad's factors for groups, and for rows.
        let (columns, words, group, row) = match format {
            "f32" => (8, 8, 0, 0),
            "bf16" | "f16" => (8, 4, 0, 0),
            "i8" => (8, 2, 0, 16),
            "i4" => (8, 1, 0, 16),
            "i2" => (16, 1, 0, 16),
            "i4g" => (8, 1, 16, 0),
            "i3" => (32, 3, 16, 0),
            "mx" | "fp8" | "fp8e" => (8, if format == "mx" { 1 } else { 2 }, 4, 0),
            // Super-scales; the word of signs has the rest.
            "e8" => (32, 3, 8, 0),
            _ => return Some(vec![]),
        };
        let codes = 16 * words + group;
        Some(match kernel.loads {
            Loads::Nothing | Loads::Matrices => vec![],
            Loads::Absorb => vec![Step { rows: 1, weights: 4 * columns, direct: codes + row, bound: 16 }],
            Loads::Tile => vec![Step { rows: 64, weights: 4 * columns, direct: codes, bound: 0 }],
            // Blocks of 32 columns; an invocation makes the digits of eight. That for several rows has a loop inside.
            Loads::Dots(mats, _) if self.shader.exchanges_digits() => {
                let norm = if constant("NORM") == Some(&2) { 32 } else { 0 };
                let direct = mats * (16 * words * 32 / columns + group) + norm;
                vec![Step { rows: 1, weights: 4 * 32 * mats, direct, bound: 32 }]
            }
            Loads::Dots(mats, loops) => {
                let norm = if constant("NORM") == Some(&2) { 4 * columns } else { 0 };
                let step = |&rows: &u32| Step {
                    rows,
                    weights: 4 * columns * mats,
                    direct: mats * codes + norm,
                    bound: 4 * columns * u64::from(rows),
                };
                loops.iter().map(step).collect()
            }
        })
    }
}

/// What one step of a loop over weights loads.
struct Step {
    rows: u32,
    weights: u64,
    /// Bytes by address: weights, factors, norm weights.
    direct: u64,
    /// Bytes by descriptor: inputs.
    bound: u64,
}

/// A loop of the machine code: vector instructions, and bytes loaded by an invocation.
#[derive(Debug, Default, PartialEq)]
struct Loop {
    valu: u64,
    direct: u64,
    bound: u64,
}

/// Vector instructions per weight of each loop that loads exactly what some number of steps would, and of no other
/// kind. A compiler may leave loops for the remainder; that of the most steps counts.
fn valu_per_weight(loops: &[Loop], steps: &[Step]) -> Vec<(u32, f64)> {
    let mut best: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for l in loops {
        let fits = |s: &&Step| {
            let n = l.direct / s.direct;
            n > 0 && l.direct == n * s.direct && l.bound == n * s.bound
        };
        let mut fitting = steps.iter().filter(fits);
        if let (Some(step), None) = (fitting.next(), fitting.next()) {
            let found = (l.direct / step.direct * step.weights, l.valu);
            let known = best.entry(step.rows).or_insert(found);
            *known = found.max(*known);
        }
    }
    best.into_iter().map(|(rows, (weights, valu))| (rows, valu as f64 / weights as f64)).collect()
}

/// The innermost loops that load by address, in AMD's assembly or in the form that RADV prints if it has no
/// disassembler for a family. Empty for any other text.
fn weight_loops(text: &str) -> Vec<Loop> {
    let mut labels = HashMap::new();
    let mut code: Vec<&str> = vec![];
    // A branch back makes a loop: its first instruction, and the end of its last.
    let mut spans: BTreeMap<usize, usize> = BTreeMap::new();
    for line in text.lines() {
        let line = line.split(';').next().unwrap_or_default().trim();
        let label = line.trim_end_matches(':');
        if label.starts_with("BB") && !label.contains(char::is_whitespace) {
            labels.insert(label, code.len());
            continue;
        }
        let instruction = line.rsplit_once(" = ").map_or(line, |(_, right)| right);
        let Some(name) = instruction.split_whitespace().next().filter(|n| !n.starts_with("/*")) else { continue };
        code.push(name);
        if name.starts_with("s_cbranch") || name == "s_branch" {
            let target = instruction.split([' ', ':']).find_map(|word| labels.get(word));
            if let Some(&first) = target {
                spans.insert(first, code.len());
            }
        }
    }
    let holds = |a: usize, b: usize| spans.iter().any(|(&x, &y)| (x, y) != (a, b) && a <= x && y <= b);
    let innermost = spans.iter().filter(|&(&a, &b)| !holds(a, b));
    innermost.filter_map(|(&a, &b)| measure(&code[a..b])).filter(|l| l.direct > 0).collect()
}

/// Counts; None with a load of unknown width.
fn measure(code: &[&str]) -> Option<Loop> {
    let mut out = Loop::default();
    for name in code {
        out.valu += u64::from(name.starts_with("v_"));
        let load = |prefix: &str| name.strip_prefix(prefix);
        if let Some(width) = load("global_load_").or_else(|| load("flat_load_")) {
            out.direct += load_bytes(width)?;
        } else if let Some(width) = load("buffer_load_") {
            out.bound += load_bytes(width)?;
        }
    }
    Some(out)
}

fn load_bytes(width: &str) -> Option<u64> {
    Some(match width {
        "dword" | "b32" => 4,
        "dwordx2" | "b64" => 8,
        "dwordx3" | "b96" => 12,
        "dwordx4" | "b128" => 16,
        _ => return None,
    })
}

impl Compiled {
    /// The sum of the driver's numbers of these names, in the words of RADV.
    fn number(&self, names: &[&str]) -> Option<u64> {
        let found: Vec<f64> =
            self.driver.statistics.iter().filter(|s| names.contains(&s.name.as_str())).map(|s| s.value).collect();
        (found.len() == names.len()).then(|| found.iter().sum::<f64>() as u64)
    }

    /// Registers, spills, scratch bytes, shared bytes, code bytes, instructions.
    fn numbers(&self) -> [(&'static str, Option<u64>); 7] {
        [
            ("vgprs", self.number(&["VGPRs"])),
            ("sgprs", self.number(&["SGPRs"])),
            ("spills", self.number(&["Spilled SGPRs", "Spilled VGPRs"])),
            ("scratch", self.number(&["Scratch size"])),
            ("lds", self.number(&["LDS size"])),
            ("code", self.number(&["Code size"])),
            ("instructions", self.number(&["Instructions"])),
        ]
    }

    /// VALU per weight at a number of rows.
    fn valu_text(&self, rows: u32, steps: &[Step]) -> String {
        let found = self.valu.iter().flatten().find(|(r, _)| *r == rows);
        match found {
            Some((_, v)) => format!("{v:.2}"),
            None if steps.iter().any(|s| s.rows == rows) => "?".into(),
            None => "-".into(),
        }
    }
}

fn stats_text(device: &str, driver: &str, rows: &[(&Use, &Compiled)]) -> String {
    let mut out = format!("{device}, {driver}\n");
    let width = rows.iter().map(|(u, _)| u.label().len()).max().unwrap_or(0).max(8);
    let mut line = |name: &str, numbers: [String; 7], valu: [String; 3]| {
        let [vgprs, sgprs, spills, scratch, lds, code, instructions] = numbers;
        let _ = write!(out, "{name:<width$} {vgprs:>5} {sgprs:>5} {spills:>6} {scratch:>7} {lds:>5} {code:>6}");
        let [v1, v8, v16] = valu;
        let _ = writeln!(out, " {instructions:>6} {v1:>6} {v8:>6} {v16:>7}");
    };
    let heads = ["VGPRs", "SGPRs", "spills", "scratch", "LDS", "code", "instr."].map(String::from);
    line("pipeline", heads, ["VALU/w", "8 rows", "64 rows"].map(String::from));
    for (u, c) in rows {
        let steps = u.steps().unwrap_or_default();
        let numbers = c.numbers().map(|(_, n)| n.map_or_else(|| "-".into(), |n| n.to_string()));
        line(&u.label(), numbers, [1, 8, 64].map(|n| c.valu_text(n, &steps)));
    }
    let spilling = |c: &Compiled| c.numbers()[2..4].iter().any(|(_, n)| n.is_some_and(|n| n > 0));
    let spilling = rows.iter().filter(|(_, c)| spilling(c)).count();
    let _ = writeln!(out, "{} pipelines, {spilling} with spills or scratch memory", rows.len());
    out
}

fn stats_json(device: &str, rows: &[(&Use, &Compiled)]) -> String {
    let one = |(u, c): &(&Use, &Compiled)| {
        let mut object = json!({"name": u.label(), "kernel": u.shader.name, "constants": u.spec});
        for (name, n) in c.numbers() {
            object[name] = json!(n);
        }
        object["subgroup_size"] = json!(c.driver.subgroup_size);
        let valu = |list: &Vec<(u32, f64)>| {
            list.iter().map(|(r, v)| (r.to_string(), json!(v))).collect::<serde_json::Map<_, _>>()
        };
        object["valu_per_weight"] = json!(c.valu.as_ref().map(valu));
        object["driver"] = c.driver.statistics.iter().map(|s| (s.name.clone(), json!(s.value))).collect::<Value>();
        object
    };
    json!({"schema": 1, "device": device, "pipelines": rows.iter().map(one).collect::<Vec<_>>()}).to_string() + "\n"
}

fn access(declared: Declared) -> &'static str {
    match declared {
        Declared::Read => "r",
        Declared::Write => "w",
        Declared::ReadWrite => "rw",
    }
}

/// Names of a kernel's constants where the table has them, else their numbers.
fn constants(shader: &Shader) -> Vec<String> {
    let name = |&id: &u32| match (id, kernel(shader)) {
        (0, _) => "LOCAL".into(),
        (id, Some(k)) => k.constants.get(id as usize - 1).map_or_else(|| id.to_string(), |n| (*n).into()),
        (id, None) => id.to_string(),
    };
    shader.spec_ids.iter().map(name).collect()
}

fn list_text(shaders: &[&Shader]) -> String {
    let mut out = format!("{:<18} {:<28} {:>4} {:>7}  constants\n", "kernel", "set.binding", "push", "SPIR-V");
    for s in shaders {
        let bindings: Vec<String> =
            s.bindings.iter().map(|b| format!("{}.{}{}", b.set, b.binding, access(b.access))).collect();
        let (bindings, bytes, constants) = (bindings.join(" "), 4 * s.spirv.len(), constants(s).join(" "));
        let _ = writeln!(out, "{:<18} {bindings:<28} {:>4} {bytes:>7}  {constants}", s.name, s.push_size);
    }
    out
}

fn list_json(shaders: &[&Shader]) -> String {
    let one = |s: &&Shader| {
        let binding = |b: &vk::Binding| json!({"set": b.set, "binding": b.binding, "access": access(b.access)});
        json!({
            "name": s.name,
            "bindings": s.bindings.iter().map(binding).collect::<Vec<_>>(),
            "push_bytes": s.push_size,
            "constants": constants(s),
            "spirv_bytes": 4 * s.spirv.len(),
        })
    };
    json!({"schema": 1, "kernels": shaders.iter().map(one).collect::<Vec<_>>()}).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Format;
    use crate::graph::expand;
    use crate::ops::Kv;
    use crate::plan::pass::Work;
    use crate::plan::{Role, Shape, compile};
    use crate::spec::Config;

    /// A loop over two loops: the first reads weights, the second does not.
    const DISASSEMBLY: &str = "\
BB0:
	s_mov_b32 s0, s1                        ; be800003
BB1:
	s_cbranch_scc0 BB5                      ; bf840547
BB2:
	global_load_dwordx2 v[0:1], v2, s[0:1]  ; 00000000
	buffer_load_b128 v[4:7], v1, s[4:7], 0  ; 00000000
	v_add_f32_e32 v0, v1, v2                ; 00000000
	v_dual_add_f32 v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5
	s_cbranch_vccnz BB2
BB3:
	v_mul_f32_e32 v0, v1, v2
	s_cbranch_scc1 BB3
	s_branch BB1
BB5:
	s_endpgm";

    const PRINTED: &str = "\
BB7
/* logical preds: BB6, BB10, / kind: uniform, loop-header, */
	 v2: %1:v[0-1] = global_load_dwordx2 %2:v[2], s2: undef
	 v4: %3:v[4-7] = buffer_load_dwordx4 %4:s[4-7], %5:v[1], 0
	 v1: %6:v[0] = v_add_f32 %7:v[1], %8:v[2]
	 v1: %6:v[0],  s2: %9:vcc = v_add_co_u32 %7:v[1], %8:v[2]
	s_branch block:BB7";

    #[test]
    fn innermost_loops_with_weights_are_found_in_both_forms() {
        let found = Loop { valu: 2, direct: 8, bound: 16 };
        assert_eq!(weight_loops(DISASSEMBLY), [found]);
        assert_eq!(weight_loops(PRINTED), [Loop { valu: 2, direct: 8, bound: 16 }]);
        assert_eq!(weight_loops("something else"), []);
        let strange = DISASSEMBLY.replace("global_load_dwordx2", "global_load_tr_b64");
        assert_eq!(weight_loops(&strange), []);
    }

    #[test]
    fn a_loop_counts_only_if_one_kind_of_step_explains_it() {
        let step = |rows, direct, bound| Step { rows, weights: 32, direct, bound };
        let steps = [step(1, 16, 32), step(4, 16, 128)];
        let looped = |valu, direct, bound| Loop { valu, direct, bound };
        let remainder = [looped(200, 16, 32), looped(512, 64, 128), looped(64, 16, 128)];
        assert_eq!(valu_per_weight(&remainder, &steps), [(1, 4.0), (4, 2.0)]);
        assert_eq!(valu_per_weight(&[looped(9, 16, 64), looped(9, 24, 48), looped(9, 0, 0)], &steps), []);
        assert_eq!(valu_per_weight(&[looped(9, 16, 32)], &[step(1, 16, 32), step(2, 8, 16)]), []);
    }

    #[test]
    fn every_kernel_is_in_the_table() {
        for shader in SHADERS.iter().filter(planned) {
            let kernel = kernel(shader).unwrap_or_else(|| panic!("{} is not in KERNELS", shader.name));
            let known = |id: &u32| (*id as usize) <= kernel.constants.len();
            assert!(shader.spec_ids.iter().all(known), "{} has more constants than KERNELS says", shader.name);
            assert!(kernel.used.iter().all(|u| u.len() == kernel.constants.len()), "{}", kernel.name);
        }
    }

    #[test]
    fn what_plans_dispatch_is_in_the_table() {
        let models = [
            ("glm52", "glm52"),
            ("qwen3", "qwen3_8b"),
            ("qwen3_moe", "qwen3_30b_a3b"),
            ("kimi_k3", "kimi_k3"),
            ("deepseek_v4_flash", "deepseek_v4_flash"),
        ];
        let some = Some(Matrices { subgroup: 32, side: 16 });
        // What caches hold changes no constant, so each is in one plan of either role.
        let steps = [
            (Role::Decode, 1, None, Kv::F32),
            (Role::Decode, 8, some, Kv::F16),
            (Role::Prompt, 8, None, Kv::F16),
            (Role::Prompt, 8, some, Kv::F32),
        ];
        for ((arch, config), (role, rows, matrices, kv)) in models.iter().flat_map(|m| steps.map(|s| (m, s))) {
            let bytes = std::fs::read(format!("tests/configs/{config}.json")).unwrap();
            let arch = crate::cli::files::graph(arch).unwrap();
            let graph = expand(&arch, &Config::parse(config, &bytes).unwrap(), "main").unwrap();
            let shape = Shape { kv, matrices, ..Shape::new(rows, 4096) };
            let plan = compile(&graph, &|_| Some(Format::Int4Row), &[], role, shape).unwrap();
            for pass in &plan.lowered.passes {
                let Work::Dispatch(d) = &pass.work else { continue };
                let kernel = KERNELS.iter().find(|k| k.name == d.kernel);
                let used = kernel.is_some_and(|k| {
                    let striped = matches!(k.loads, Loads::Dots(..));
                    let same = |u: &&[u32]| {
                        let pairs = k.constants.iter().zip(u.iter().zip(&d.spec[1..]));
                        pairs.into_iter().all(|(name, (a, b))| a == b || SHARING.contains(name))
                    };
                    (striped || k.local.contains(&d.spec[0])) && k.used.iter().any(same)
                });
                assert!(vk::find(&d.shader()).is_ok(), "no kernel {}, which {} uses", d.shader(), pass.name);
                assert!(used, "KERNELS lacks {} with {:?}, which {} uses", d.kernel, d.spec, pass.name);
            }
        }
    }
}
