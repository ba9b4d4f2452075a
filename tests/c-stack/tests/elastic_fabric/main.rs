//! libefa of Debian 13, and where named of Debian 12, on a software Elastic Fabric Adapter: work
//! requests in the device's memory, receives, completions, doorbells and commands, byte for byte
//! beside our provider.
#![allow(unsafe_code, reason = "posts by address, to compare with C's posts")]

mod ours;
mod programs;
mod script;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use c_stack::{CStack, log};

use script::Step;

/// Cases of a text in order, by name.
fn cases(text: &str) -> Vec<(String, Vec<String>)> {
    let mut cases: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("case "), cases.last_mut()) {
            (Some(name), _) => cases.push((name.to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line.to_owned()),
            (None, None) => panic!("{line} before the first case"),
        }
    }
    cases.iter_mut().for_each(|(_, lines)| lines.sort());
    cases
}

/// Commands that are compared by nothing: queries of port and GID, which each library makes when it
/// wants to, and GET_CONTEXT as a write command, which libibverbs tries first.
const LEFT_OUT: [&str; 5] = ["0.0(0x1) ", "0.2 ", "0.5 ", "0.6 ", "mmap "];

/// Attributes that only libefa sends: the file of asynchronous events, which is the context's own
/// (CQ_CREATE, QP_CREATE), and the number of a PD, which only programs on the bare device need.
const THEIRS: [(&str, &str); 3] = [("3.0", "7"), ("4.0", "c"), ("0.0(0x3)", "1001")];

/// Bytes of an attribute that hold an address of the process or a descriptor.
fn hidden(command: &str, attr: &str) -> usize {
    match (command, attr) {
        // CQ_CREATE: user handle, channel. QP_CREATE: user handle.
        ("3.0", "2" | "3") | ("4.0", "7") => 8,
        // ASYNC_EVENT_ALLOC, CREATE_COMP_CHANNEL.
        ("10.0", "0") | ("0.0(0x11)", "1") => 4,
        // CREATE_AH: place of the answer, user handle.
        ("0.0(0x5)", "0") => 16,
        // Place of the answer of a write command.
        (command, "0") if command.starts_with("0.0(") => 8,
        _ => 0,
    }
}

/// Commands of a log without addresses and descriptors.
fn commands(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.strip_prefix("fd ")?.split_once(' '));
    let lines = lines.map(|(_, command)| command);
    let lines = lines.filter(|line| !LEFT_OUT.iter().any(|name| line.starts_with(name)));
    let shown = |line: &str| {
        let mut words = line.split(' ');
        let command = words.next().unwrap();
        let words = words.filter_map(|word| {
            let Some((attr, rest)) = word.split_once(':') else { return Some(word.to_owned()) };
            let (kind, value) = rest.split_once('=').unwrap();
            let hide = (hidden(command, attr) * 2).min(value.len());
            let shown = format!("{attr}:{kind}={}{}", ".".repeat(hide), &value[hide..]);
            (!THEIRS.contains(&(command, attr))).then_some(shown)
        });
        format!("{command} {}", words.collect::<Vec<_>>().join(" "))
    };
    lines.map(shown).collect()
}

/// Compiles a program of `c/` for libefa.
fn compile(name: &str) -> Option<(CStack, PathBuf)> {
    let stack = c_stack::trixie()?;
    let program = compile_for(&stack, name)?;
    Some((stack, program))
}

fn compile_for(stack: &CStack, name: &str) -> Option<PathBuf> {
    stack.compile_with(name, &["-libverbs", "-lefa", "-Wl,--allow-shlib-undefined"])
}

/// Runs the script by a command of the C program. Returns its output and the log of its commands.
fn in_c(mut command: Command, log: &Path, steps: &[Step]) -> (String, String) {
    let _ = std::fs::remove_file(log);
    command.env("UVERBS_SOFTHCA_STEPPED", "1").env("UVERBS_SOFTHCA_LOG", log);
    let script: String = steps.iter().map(|step| format!("{step}\n")).collect();
    let run = c_stack::run_with_input(&mut command, script.into_bytes()).ok();
    let text = run.stdout.strip_suffix("ok\n").expect("ok").to_owned();
    (text, std::fs::read_to_string(log).unwrap())
}

/// Commands of the C program over libefa and over our library.
fn both(stack: &CStack, program: &Path) -> [Command; 2] {
    let mut commands = [stack.command(program), stack.ours_on_preloaded(program)];
    commands.iter_mut().for_each(|command| stack.on_efa(command));
    commands
}

/// Limits, refusals, operations and completions of a C program through `efadv.h`.
#[test]
fn a_c_program_has_srd_as_by_libefa() {
    let Some((stack, program)) = compile("srd") else { return };
    let [theirs, ours] = both(&stack, &program).map(|mut command| c_stack::run(&mut command).ok());
    assert!(theirs.stdout.ends_with("ok\n") && theirs.stdout.lines().count() > 100, "{theirs:?}");
    let members =
        ["unsolicited 0 gid 0 1 handle 0", "129 bytes 81 unsolicited 1", "done 4 11 vendor 14 "];
    for member in members {
        assert!(theirs.stdout.contains(member), "{member}: {theirs:?}");
    }
    for (theirs, ours) in theirs.stdout.lines().zip(ours.stdout.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.stdout.len(), theirs.stdout.len());
}

/// The script by the C program, also over our library.
#[test]
fn rings_of_a_c_program_are_as_libefa_writes_them() {
    let Some((stack, program)) = compile("efa") else { return };
    let steps = script::steps(true);
    let [theirs, ours] = both(&stack, &program);
    let (theirs, _) = in_c(theirs, &program.with_extension("theirs"), &steps);
    let (ours, _) = in_c(ours, &program.with_extension("ours"), &steps);
    let (theirs, ours) = (cases(&theirs), cases(&ours));
    assert_eq!(ours.len(), theirs.len());
    for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        assert!(ours == theirs, "{name}\nours   {ours:#?}\ntheirs {theirs:#?}");
    }
}

/// Compares the cases of our provider with libefa's.
fn compare(own: &str, other: &str) {
    let (own, other) = (cases(own), cases(other));
    assert_eq!(own.len(), other.len());
    let mut counts = BTreeMap::new();
    for ((name, own), (other_name, other)) in own.iter().zip(&other) {
        assert_eq!(name, other_name);
        assert!(own == other, "{name}\nours   {own:#?}\ntheirs {other:#?}");
        for line in own {
            *counts.entry(line.split(' ').next().unwrap()).or_insert(0) += 1;
        }
    }
    println!("{} cases, {counts:?}", own.len());
    assert_eq!(counts.len(), 7, "each part of the device, and completions");
}

/// Completions of 32 bytes beside Debian 13's libefa, and of 16 bytes, on a device without WRITEs,
/// beside libefa 44, whose commands are of an earlier version.
#[test]
fn rings_and_commands_are_as_libefa_writes_them() {
    if let Some(stack) = c_stack::unpacked()
        && let Some(program) = compile_for(&stack, "efa")
    {
        let mut theirs = stack.command(&program);
        stack.on_efa(&mut theirs);
        theirs.arg("reads").env("UVERBS_SOFTHCA_EFA", "reads");
        let steps = script::steps(false);
        let (text, _) = in_c(theirs, &program.with_extension("short"), &steps);
        compare(&ours::run(&steps, false).0, &text);
    }
    let steps = script::steps(true);
    let Some((stack, program)) = compile("efa") else { return };
    let [theirs, _] = both(&stack, &program);
    let (text, log) = in_c(theirs, &program.with_extension("log"), &steps);
    let (own_text, own_commands) = ours::run(&steps, true);
    compare(&own_text, &text);

    let own: String = own_commands.iter().map(|command| log::line(0, command)).collect();
    let (own, other) = (commands(&own), commands(&log));
    for (at, (own, other)) in own.iter().zip(&other).enumerate() {
        assert!(own == other, "command {at}\nours   {own}\ntheirs {other}");
    }
    assert_eq!(own.len(), other.len());
}
