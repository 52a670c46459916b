//! The interface of a SPIR-V module: what it binds, pushes and specialises, and which device features it needs.
//!
//! A walk over the instructions by hand: it steps over whatever it does not know, so new instructions do no harm.
//! (spirq refuses valid kernels: it evaluates constant expressions and knows no `Select`.)

use std::collections::{HashMap, HashSet};

/// Vulkan guarantees no more, and the oldest driver that we test offers no more.
const MAX_PUSH: u32 = 128;

/// What a pipeline layout and a device check are made from.
#[derive(Default, Debug)]
pub struct Interface {
    /// (set, binding, access), ordered.
    pub bindings: Vec<(u32, u32, Access)>,
    pub push_size: u32,
    pub spec_ids: Vec<u32>,
    /// Numbers of the SPIR-V capabilities, ordered.
    pub capabilities: Vec<u32>,
    pub local_size: [u32; 3],
    pub local_size_ids: [Option<u32>; 3],
}

/// What the shader declares of a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

/// Reflects a compute module with one entry point.
pub fn interface(words: &[u32]) -> Result<Interface, String> {
    let module = Module::read(words)?;
    let mut out = Interface {
        push_size: module.push_size()?,
        bindings: module.bindings()?,
        spec_ids: module.decorated(SPEC_ID).map(|(_, id)| id).collect(),
        capabilities: module.capabilities.clone(),
        local_size: module.local_size,
        local_size_ids: [None; 3],
    };
    if let Some((target, _)) = module.decorated(BUILT_IN).find(|&(_, what)| what == WORKGROUP_SIZE) {
        // The built-in takes the place of the execution mode.
        let parts = module.composites.get(&target).copied().ok_or("a workgroup size that is no composite")?;
        out.local_size = parts.map(|id| module.constants.get(&id).copied().unwrap_or(1));
        out.local_size_ids = parts.map(|id| module.decoration(id, SPEC_ID));
    }
    if out.push_size > MAX_PUSH {
        return Err(format!("{} bytes of push constants, the limit is {MAX_PUSH}", out.push_size));
    }
    out.spec_ids.sort_unstable();
    out.spec_ids.dedup();
    out.capabilities.sort_unstable();
    Ok(out)
}

// Numbers of the SPIR-V specification, section 3: decorations and what they carry, storage classes.
const SPEC_ID: u32 = 1;
const BUILT_IN: u32 = 11;
const NON_WRITABLE: u32 = 24;
const NON_READABLE: u32 = 25;
const BINDING: u32 = 33;
const DESCRIPTOR_SET: u32 = 34;
const OFFSET: u32 = 35;
const ARRAY_STRIDE: u32 = 6;
const WORKGROUP_SIZE: u32 = 25;
const LOCAL_SIZE: u32 = 17;
const UNIFORM_CONSTANT: u32 = 0;
const UNIFORM: u32 = 2;
const PUSH_CONSTANT: u32 = 9;
const STORAGE_BUFFER: u32 = 12;
const PHYSICAL_STORAGE_BUFFER: u32 = 5349;

/// What a type is, as far as sizes need it.
enum Type {
    Scalar { bits: u32 },
    Vector { of: u32, count: u32 },
    Array { count: u32 },
    Struct { members: Vec<u32> },
    Pointer { storage: u32, to: u32 },
}

/// The parts of a module that make its interface, by id.
#[derive(Default)]
struct Module {
    entries: usize,
    capabilities: Vec<u32>,
    local_size: [u32; 3],
    /// (target, decoration): its first operand, or 0 for a decoration without one.
    decorations: HashMap<(u32, u32), u32>,
    /// (struct, member, decoration), likewise.
    member_decorations: HashMap<(u32, u32, u32), u32>,
    types: HashMap<u32, Type>,
    constants: HashMap<u32, u32>,
    composites: HashMap<u32, [u32; 3]>,
    /// (id, pointer type, storage class).
    variables: Vec<(u32, u32, u32)>,
}

impl Module {
    fn read(words: &[u32]) -> Result<Self, String> {
        let mut module = Self::default();
        if words.first() != Some(&0x0723_0203) {
            return Err("not SPIR-V".into());
        }
        let mut rest = words.get(5..).unwrap_or_default();
        while let Some(&head) = rest.first() {
            let length = (head >> 16) as usize;
            if length == 0 || length > rest.len() {
                return Err("an instruction of impossible length".into());
            }
            let (instruction, tail) = rest.split_at(length);
            module.instruction(head & 0xffff, &instruction[1..]);
            rest = tail;
        }
        match module.entries {
            1 => Ok(module),
            n => Err(format!("{n} entry points instead of one")),
        }
    }

    /// Takes what it knows; opcodes are those of section 3.49 of the specification.
    fn instruction(&mut self, opcode: u32, operands: &[u32]) {
        match (opcode, operands) {
            (15, _) => self.entries += 1,
            (16, &[_, LOCAL_SIZE, x, y, z]) => self.local_size = [x, y, z],
            (17, &[number]) => self.capabilities.push(number),
            (21, &[id, bits, _]) => self.add(id, Type::Scalar { bits }),
            (22, &[id, bits, ..]) => self.add(id, Type::Scalar { bits }),
            (23, &[id, of, count]) => self.add(id, Type::Vector { of, count }),
            (28, &[id, _, length]) => {
                let count = self.constants.get(&length).copied().unwrap_or(0);
                self.add(id, Type::Array { count });
            }
            (29, &[id, _]) => self.add(id, Type::Array { count: 0 }),
            (30, &[id, ref members @ ..]) => self.add(id, Type::Struct { members: members.to_vec() }),
            (32, &[id, storage, to]) => self.add(id, Type::Pointer { storage, to }),
            (43 | 50, &[_, id, value]) => drop(self.constants.insert(id, value)),
            (44 | 51, &[_, id, x, y, z]) => drop(self.composites.insert(id, [x, y, z])),
            (59, &[pointer, id, storage, ..]) => self.variables.push((id, pointer, storage)),
            (71, &[id, what, ref more @ ..]) => {
                self.decorations.insert((id, what), more.first().copied().unwrap_or(0));
            }
            (72, &[id, member, what, ref more @ ..]) => {
                self.member_decorations.insert((id, member, what), more.first().copied().unwrap_or(0));
            }
            _ => {}
        }
    }

    fn add(&mut self, id: u32, ty: Type) {
        self.types.insert(id, ty);
    }

    fn decoration(&self, id: u32, what: u32) -> Option<u32> {
        self.decorations.get(&(id, what)).copied()
    }

    /// Everything with a decoration: (id, its operand).
    fn decorated(&self, what: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.decorations.iter().filter(move |((_, d), _)| *d == what).map(|(&(id, _), &value)| (id, value))
    }

    fn pointee(&self, pointer: u32) -> Option<u32> {
        match self.types.get(&pointer) {
            Some(Type::Pointer { to, .. }) => Some(*to),
            _ => None,
        }
    }

    fn push_size(&self) -> Result<u32, String> {
        let Some(&(_, pointer, _)) = self.variables.iter().find(|v| v.2 == PUSH_CONSTANT) else { return Ok(0) };
        let bytes = self.pointee(pointer).and_then(|block| self.size(block));
        Ok(bytes.ok_or("push constants of a type whose size is unknown")?.next_multiple_of(4))
    }

    fn size(&self, ty: u32) -> Option<u32> {
        match self.types.get(&ty)? {
            Type::Scalar { bits } => Some(bits / 8),
            Type::Vector { of, count } => Some(self.size(*of)? * count),
            Type::Array { count } => Some(self.decoration(ty, ARRAY_STRIDE)? * count),
            Type::Struct { members } => {
                let ends = members.iter().zip(0..).map(|(&member, i)| {
                    Some(self.member_decorations.get(&(ty, i, OFFSET)).copied()? + self.size(member)?)
                });
                ends.collect::<Option<Vec<u32>>>().map(|ends| ends.into_iter().max().unwrap_or(0))
            }
            Type::Pointer { storage, .. } => (*storage == PHYSICAL_STORAGE_BUFFER).then_some(8),
        }
    }

    fn bindings(&self) -> Result<Vec<(u32, u32, Access)>, String> {
        let mut seen = HashSet::new();
        let mut out = Vec::new();
        let bound = [UNIFORM_CONSTANT, UNIFORM, STORAGE_BUFFER];
        for &(id, pointer, storage) in self.variables.iter().filter(|v| bound.contains(&v.2)) {
            let set = self.decoration(id, DESCRIPTOR_SET).unwrap_or(0);
            let binding = self.decoration(id, BINDING).unwrap_or(0);
            let block = self.pointee(pointer).and_then(|block| Some((block, self.types.get(&block)?)));
            let (STORAGE_BUFFER, Some((block, Type::Struct { members }))) = (storage, block) else {
                return Err(format!(
                    "set {set} binding {binding} is not one storage buffer; kernels bind nothing else"
                ));
            };
            if !seen.insert((set, binding)) {
                return Err(format!("set {set} binding {binding} is declared twice"));
            }
            out.push((set, binding, self.access(id, block, members.len())));
        }
        out.sort();
        Ok(out)
    }

    /// Compilers put `readonly` on the variable or on each member of its block.
    fn access(&self, variable: u32, block: u32, members: usize) -> Access {
        let has = |what| {
            let on_member = |i: usize| self.member_decorations.contains_key(&(block, i as u32, what));
            self.decoration(variable, what).is_some() || (members > 0 && (0..members).all(on_member))
        };
        match (has(NON_WRITABLE), has(NON_READABLE)) {
            (true, _) => Access::Read,
            (false, true) => Access::Write,
            (false, false) => Access::ReadWrite,
        }
    }
}
