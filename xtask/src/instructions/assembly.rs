//! Machine code of the data path: forbidden instructions and calls, and changes.
//!
//! Reads the functions of `benches/counts/hot.rs` in the built program. No compiler may put a
//! forbidden instruction or call into them. For one compiler the instructions must also equal the
//! reviewed listings in `benches/counts/x86_64`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use goblin::elf::sym::STT_FUNC;
use goblin::elf::{Elf, Reloc};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, Instruction, Mnemonic, NasmFormatter, OpKind,
    Register, SymbolResolver, SymbolResult,
};
use rustc_demangle::demangle;

use crate::compiler::{compiler, other_compiler};
use crate::step::Outcome;

/// Module of the hot functions.
const HOT: &str = "counts::hot::";
/// Exits: functions that the single-owner path may call, each on an uncommon branch. Their code is
/// checked, too.
const EXITS: [&str; 13] = [
    // The ring looks full: reads the consumer index of the polling side.
    "uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room",
    "uverbs_mlx5::recv::queue::Rq::make_room",
    // A WQE changed keys: the next WQE gets a fence.
    "uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr",
    // A batch was forgotten (`mem::forget`): takes its frames back.
    "uverbs_mlx5::send::queue::Sq::disown",
    "uverbs_mlx5::recv::queue::Rq::disown",
    // A WQE of several WQEBBs wraps at the ring's end.
    "uverbs_mlx5::send::wqe::Ring::write_wrapped",
    // A receive filled more than one frame.
    "uverbs_core::memory::registered::Registered::spread",
    // A failed completion, or a completion of an unknown queue pair.
    "uverbs_mlx5::cq::slow::<impl uverbs_mlx5::cq::Cq>::next_slow",
    "uverbs_mlx5::cqe::Cqe::failure",
    // A shared receive queue matches tags.
    "uverbs_mlx5::cqe::Cqe::decoded_of_tags",
    // More than 256 queue pairs: prefetches.
    "uverbs_mlx5::cq::Cq::look_ahead",
    // A long burst, or messages: handles the messages, and gives CQEs back.
    "uverbs::cq::queue::CompletionQueue<P>::begin",
    "uverbs::cq::queue::CompletionQueue<P>::go_on",
];
/// Ends of the check: these functions share data between owners, so they may lock.
const ENDS: [&str; 10] = [
    // If `learn` runs out of memory, unwinding drops its values. The other functions never panic,
    // which this file checks, but the compiler does not know.
    "_Unwind_Resume",
    // Queue pairs came or went: takes a lock, and grows a table.
    "uverbs_mlx5::cq::known::<impl uverbs_mlx5::cq::Cq>::learn",
    "uverbs_kernel_rings::cq::Cq<D>::learn",
    // An empty queue: an in-process device does its work on the polling thread.
    "uverbs_core::objects::cq::CqCore::found_nothing",
    // A shared receive queue: any of its completion queues gives slots back.
    "uverbs_mlx5::cq::take::take_shared",
    // A page fault of the device ended a shared receive: its poster, behind a lock, posts it again.
    "uverbs_core::queues::srq::SrqShared::repost",
    // A tag-matching shared receive queue, and its list of tags.
    "uverbs_mlx5::cq::tags::take",
    // The device rejected a change of the list of tags: gives its buffer back.
    "uverbs_core::queues::tag_table::TagTable::refused",
    // A dropped frame returns to its slab, which all threads share. The last frame may free the
    // slab.
    "uverbs_core::memory::registered::give_back",
    // Frames of unsignaled work requests and shared frames return to their slabs.
    "uverbs_core::queues::slots::SlotTable::pass_over",
];
/// Functions that exits may call, and hot functions may not.
const COLD: [&str; 3] = ["memcpy", "memset", "memmove"];

/// Checks the program's hot functions, and compares them with the folder's files. `bless` replaces
/// the files instead.
pub(crate) fn check(program: &Path, folder: &Path, bless: bool) -> Outcome {
    let outcome =
        std::fs::read(program).map_err(|error| format!("{}: {error}", program.display())).and_then(
            |bytes| Code::new(&bytes).and_then(|code| Ok((code.faults(HOT)?, code.listings(HOT)?))),
        );
    let (faults, hot) = match outcome {
        Ok(found) => found,
        Err(why) => return Outcome::Failed(why),
    };
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        return Outcome::Failed(format!("{} things that must not be there", faults.len()));
    }
    let result = if bless { write(folder, &hot) } else { compare(folder, &hot) };
    result.unwrap_or_else(|error| Outcome::Failed(format!("{}: {error}", folder.display())))
}

/// Replaces the files.
fn write(folder: &Path, hot: &BTreeMap<String, String>) -> std::io::Result<Outcome> {
    if folder.is_dir() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    for (name, text) in hot {
        let text = format!("; {}\n{text}", compiler());
        std::fs::write(folder.join(name).with_extension("asm"), text)?;
    }
    Ok(Outcome::Counted(format!("{} functions noted", hot.len())))
}

fn compare(folder: &Path, hot: &BTreeMap<String, String>) -> std::io::Result<Outcome> {
    let mut expected = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        expected.insert(name, std::fs::read_to_string(&path)?);
    }
    if let Some(skipped) = expected.values().find_map(|text| other_compiler(text)) {
        return Ok(skipped);
    }
    let mut changed = Vec::new();
    for name in expected.keys().chain(hot.keys()).collect::<BTreeSet<_>>() {
        let was = expected.get(name).and_then(|text| text.split_once('\n')).map(|(_, text)| text);
        let is = hot.get(name).map(String::as_str);
        if was != is {
            println!("{name}:");
            show(was.unwrap_or_default(), is.unwrap_or_default());
            changed.push(name.as_str());
        }
    }
    Ok(if changed.is_empty() {
        Outcome::Counted(format!("{} functions as noted", hot.len()))
    } else {
        let changed = changed.join(", ");
        Outcome::Failed(format!("{changed} changed (cargo xtask counts --bless, if that is meant)"))
    })
}

/// Prints the lines from the first to the last difference.
fn show(was: &str, is: &str) {
    let (was, is): (Vec<_>, Vec<_>) = (was.lines().collect(), is.lines().collect());
    let same = was.iter().zip(&is).take_while(|(was, is)| was == is).count();
    let rest = was[same..].iter().rev().zip(is[same..].iter().rev());
    let tail = rest.take_while(|(was, is)| was == is).count();
    for (sign, lines) in [('-', &was), ('+', &is)] {
        for line in &lines[same..lines.len() - tail] {
            println!("{sign} {line}");
        }
    }
}

/// Range of a function, and its name without the hash, which changes with each build.
struct Function {
    name: String,
    size: u64,
}

/// Code of a program.
struct Code<'a> {
    functions: BTreeMap<u64, Function>,
    /// Names in the slots that the dynamic linker fills. Calls to other libraries, and some calls
    /// to our functions, go through these slots.
    slots: BTreeMap<u64, String>,
    elf: Elf<'a>,
    bytes: &'a [u8],
}

impl<'a> Code<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, String> {
        let elf = Elf::parse(bytes).map_err(|error| error.to_string())?;
        let mut functions = BTreeMap::new();
        for symbol in elf.syms.iter().filter(|symbol| symbol.st_type() == STT_FUNC) {
            let name = elf.strtab.get_at(symbol.st_name).unwrap_or_default();
            let name = format!("{:#}", demangle(name));
            functions.insert(symbol.st_value, Function { name, size: symbol.st_size });
        }
        let target = |relocation: &Reloc| {
            if relocation.r_sym == 0 {
                let at = relocation.r_addend.unwrap_or_default() as u64;
                return functions.get(&at).map(|function: &Function| function.name.clone());
            }
            let symbol = elf.dynsyms.get(relocation.r_sym)?;
            elf.dynstrtab.get_at(symbol.st_name).map(str::to_owned)
        };
        let relocations = elf.dynrelas.iter().chain(elf.dynrels.iter()).chain(elf.pltrelocs.iter());
        let slots = relocations
            .map(|relocation| {
                let name = target(&relocation).unwrap_or_else(|| "?".to_owned());
                (relocation.r_offset, name)
            })
            .collect();
        Ok(Self { functions, slots, elf, bytes })
    }

    /// Listings of the functions whose names begin with `hot`, by the rest of their names.
    fn listings(&self, hot: &str) -> Result<BTreeMap<String, String>, String> {
        self.called(hot)
            .map(|(at, name)| Ok((name[hot.len()..].to_owned(), self.listing(at)?)))
            .collect()
    }

    /// Functions whose names begin with `hot`.
    fn called(&self, hot: &str) -> impl Iterator<Item = (u64, &str)> {
        let all = self.functions.iter().map(|(at, function)| (*at, function.name.as_str()));
        all.filter(move |(_, name)| name.starts_with(hot))
    }

    /// Forbidden instructions and calls in the hot functions and in their exits.
    fn faults(&self, hot: &str) -> Result<Vec<String>, String> {
        let mut faults = Vec::new();
        let mut exits = BTreeSet::new();
        let mut count = 0;
        for (at, name) in self.called(hot) {
            count += 1;
            for target in self.walk(at, name, &mut faults)? {
                if EXITS.contains(&target.as_str()) {
                    exits.insert(target);
                } else if !ENDS.contains(&target.as_str()) {
                    faults.push(format!("{name} calls {target}"));
                }
            }
        }
        if count == 0 {
            return Err(format!("no function of the program is called {hot}*"));
        }
        // Exits, and the exits that they call.
        let mut seen = BTreeSet::new();
        while let Some(name) = exits.pop_first() {
            let Some((at, _)) = self.functions.iter().find(|(_, other)| other.name == name) else {
                faults.push(format!("{name} is not in the program"));
                continue;
            };
            for target in self.walk(*at, &name, &mut faults)? {
                if ENDS.contains(&target.as_str()) || COLD.contains(&target.as_str()) {
                    continue;
                }
                if !target.starts_with("uverbs_") {
                    faults.push(format!("{name}, which a hot function calls, calls {target}"));
                } else if !seen.contains(&target) {
                    exits.insert(target);
                }
            }
            seen.insert(name);
        }
        Ok(faults)
    }

    /// Functions that a function calls or jumps to. Adds its forbidden instructions to `faults`.
    fn walk(
        &self,
        at: u64,
        name: &str,
        faults: &mut Vec<String>,
    ) -> Result<BTreeSet<String>, String> {
        let mut targets = BTreeSet::new();
        let (instructions, range) = self.decode(at)?;
        let mut before = &Instruction::default();
        let mut loaded = BTreeSet::new();
        for load in instructions.iter().filter(|load| load.mnemonic() == Mnemonic::Mov) {
            if let Some(name) = self.slot(load) {
                targets.insert(name.to_owned());
                loaded.insert(load.op0_register());
            }
        }
        for instruction in &instructions {
            let locked = instruction.has_lock_prefix();
            let exchanges = instruction.mnemonic() == Mnemonic::Xchg
                && (0..2).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
            if locked || exchanges {
                faults.push(format!("{name} has an atomic read-modify-write"));
            }
            if instruction.mnemonic() == Mnemonic::Syscall {
                faults.push(format!("{name} makes a system call"));
            }
            match instruction.flow_control() {
                FlowControl::Call
                | FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch => {
                    let to = instruction.near_branch_target();
                    if !range.contains(&to) || instruction.flow_control() == FlowControl::Call {
                        targets.insert(self.name_of(to));
                    }
                }
                // A `match` by a jump table adds an offset to the table's address.
                FlowControl::IndirectBranch
                    if before.mnemonic() == Mnemonic::Add
                        && instruction.op0_kind() == OpKind::Register
                        && before.op0_register() == instruction.op0_register() => {}
                // The register was loaded from a slot, whose name is a target already.
                FlowControl::IndirectCall
                    if instruction.op0_kind() == OpKind::Register
                        && loaded.contains(&instruction.op0_register()) => {}
                FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                    targets.insert(match self.slot(instruction) {
                        Some(name) => name.to_owned(),
                        None => "an address that it computes".to_owned(),
                    });
                }
                _ => {}
            }
            before = instruction;
        }
        Ok(targets)
    }

    fn name_of(&self, at: u64) -> String {
        // A stub of the procedure linkage table jumps through a slot, which has the name.
        let stub = || {
            let (instructions, _) = self.decode_at(at, 16).ok()?;
            instructions.iter().find_map(|instruction| self.slot(instruction)).map(str::to_owned)
        };
        match self.functions.get(&at) {
            Some(function) => function.name.clone(),
            None => stub().unwrap_or_else(|| "something without a name".to_owned()),
        }
    }

    /// Name in the slot that this instruction reads.
    fn slot(&self, instruction: &Instruction) -> Option<&str> {
        if instruction.memory_base() != Register::RIP {
            return None;
        }
        self.slots.get(&instruction.memory_displacement64()).map(String::as_str)
    }

    fn decode(&self, at: u64) -> Result<(Vec<Instruction>, std::ops::Range<u64>), String> {
        self.decode_at(at, self.functions.get(&at).map_or(0, |function| function.size))
    }

    fn decode_at(
        &self,
        at: u64,
        size: u64,
    ) -> Result<(Vec<Instruction>, std::ops::Range<u64>), String> {
        let range = at..at + size;
        let bytes = self.code(&range).ok_or_else(|| format!("no code at {at:#x}"))?;
        Ok((Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).iter().collect(), range))
    }

    /// Bytes that are loaded at these addresses.
    fn code(&self, range: &std::ops::Range<u64>) -> Option<&'a [u8]> {
        let sections = &self.elf.section_headers;
        let section = sections.iter().find(|section| {
            let all = section.vm_range();
            section.is_alloc() && all.start as u64 <= range.start && range.end <= all.end as u64
        })?;
        let from = section.file_range()?.start + (range.start - section.sh_addr) as usize;
        self.bytes.get(from..from + (range.end - range.start) as usize)
    }

    /// Instructions of a function, with labels, names of functions, and sections for the rest.
    fn listing(&self, at: u64) -> Result<String, String> {
        let (instructions, range) = self.decode(at)?;
        let targets: BTreeSet<u64> = instructions
            .iter()
            .filter(|instruction| {
                instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near()
            })
            .map(Instruction::near_branch_target)
            .filter(|to| range.contains(to))
            .collect();
        let labels: BTreeMap<u64, String> =
            targets.into_iter().zip(1..).map(|(at, label)| (at, format!(".{label}"))).collect();
        let names = Names {
            labels: labels.clone(),
            functions: instructions
                .iter()
                .map(Instruction::near_branch_target)
                .filter(|to| !range.contains(to) && *to != 0)
                .map(|to| (to, self.name_of(to)))
                .collect(),
            slots: self.slots.clone(),
            sections: self
                .elf
                .section_headers
                .iter()
                .map(|section| {
                    let name = self.elf.shdr_strtab.get_at(section.sh_name).unwrap_or("?");
                    (section.sh_addr..section.sh_addr + section.sh_size, name.to_owned())
                })
                .collect(),
        };
        let mut formatter = NasmFormatter::with_options(Some(Box::new(names)), None);
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_show_branch_size(false);
        let mut text = String::new();
        // Padding before aligned labels depends on the function's address.
        let instructions = instructions.iter().filter(|one| one.mnemonic() != Mnemonic::Nop);
        for instruction in instructions {
            if let Some(label) = labels.get(&instruction.ip()) {
                let _ = writeln!(text, "{label}:");
            }
            let mut line = String::new();
            formatter.format(instruction, &mut line);
            let _ = writeln!(text, "    {line}");
        }
        Ok(text)
    }
}

/// Symbols that replace addresses in a listing.
struct Names {
    labels: BTreeMap<u64, String>,
    /// Functions that are called.
    functions: BTreeMap<u64, String>,
    slots: BTreeMap<u64, String>,
    sections: Vec<(std::ops::Range<u64>, String)>,
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        let is_address = instruction.is_ip_rel_memory_operand()
            || instruction.is_jcc_short_or_near()
            || instruction.is_jmp_short_or_near()
            || instruction.is_call_near();
        if !is_address {
            return None;
        }
        let known = [&self.labels, &self.slots, &self.functions];
        let name = known.into_iter().find_map(|names| names.get(&address)).or_else(|| {
            let found = self.sections.iter().find(|(range, _)| range.contains(&address));
            found.map(|(_, name)| name)
        })?;
        Some(SymbolResult::with_string(address, name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    mod good {
        #[inline(never)]
        pub(super) fn adds(numbers: &[u32; 4], index: u32) -> u32 {
            match numbers.get(index as usize & 3) {
                Some(number) => *number,
                None => 0,
            }
        }
    }

    mod bad {
        use super::{AtomicU32, Ordering};

        #[inline(never)]
        pub(super) fn counts(number: &AtomicU32) -> u32 {
            number.swap(2, Ordering::Relaxed)
        }

        #[inline(never)]
        pub(super) fn panics(numbers: &[u32], index: usize) -> u32 {
            numbers[index]
        }

        #[inline(never)]
        pub(super) fn allocates(number: u32) -> Box<u32> {
            Box::new(number)
        }
    }

    /// Checks the test program itself.
    #[test]
    fn what_must_not_be_there_is_found() {
        assert_eq!(good::adds(&[1, 2, 3, 4], 6), 3);
        assert_eq!(bad::counts(&AtomicU32::new(1)), 1);
        assert_eq!((bad::panics(&[1], 0), *bad::allocates(1)), (1, 1));
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let code = Code::new(&bytes).unwrap();
        let module = module_path!();
        assert!(code.faults(&format!("{module}::none::")).is_err());
        let bad = code.faults(&format!("{module}::bad::")).unwrap();
        for name in ["counts", "panics", "allocates"] {
            assert!(bad.iter().any(|fault| fault.contains(&format!("bad::{name} "))), "{bad:?}");
        }
        let listings = code.listings(&format!("{module}::good::")).unwrap();
        assert!(listings["adds"].lines().any(|line| line.trim() == "ret"), "{listings:?}");
    }
}
