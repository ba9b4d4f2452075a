//! Compares the crate with the kernel's headers: every field's offset and size, every struct's
//! size, every constant's value, in both directions. The fixtures come from
//! `xtask/layouts/kernel_abi.py`, and `cargo xtask layouts` holds them to the headers of the day;
//! EFA's come from `xtask/layouts/efa.py`, which needs rdma-core's sources.
//!
//! `tables` lists the crate's items. A struct's line there is destructured exhaustively, so a field
//! it lacks does not compile; and an item of the sources that no line names fails
//! `tables_name_every_item`.
//!
//! The layouts hold on 64-bit little-endian Linux and on every other ABI that aligns
//! `__aligned_u64` to 8.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod tables;

/// Struct, field, offset (both empty in the struct's row) and size, as a line of `layout.tsv`.
type Row = String;

/// Size of what an accessor of a field returns.
const fn size_behind<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Adds the rows of one struct.
macro_rules! table {
    ($rows:ident, $name:ident { $($field:ident),+ }) => {
        if false {
            let $name { $($field: _),+ } = $name::default();
        }
        $($rows.push(format!(
            "{}\t{}\t{}\t{}",
            stringify!($name),
            stringify!($field).trim_start_matches("r#"),
            core::mem::offset_of!($name, $field),
            crate::size_behind::<$name, _>(|s| &s.$field),
        ));)+
        $rows.push(format!("{}\t\t\t{}", stringify!($name), size_of::<$name>()));
    };
}
pub(crate) use table;

/// Adds the names and values of constants.
macro_rules! values {
    ($all:ident, $($name:ident),+) => {
        $($all.push((stringify!($name), i128::from($name as u64)));)+
    };
}
pub(crate) use values;

/// Constants that no header names: ours, or the kernel's internal headers'.
const NOT_IN_HEADERS: [&str; 2] = ["UVERBS_ATTR_INLINE_MAX", "MLX5_IB_MMAP_CMD_SHIFT"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn fixture(name: &str) -> String {
    fs::read_to_string(root().join("tests/fixtures").join(name)).unwrap()
}

/// The differences of two sets, one line each, or nothing.
fn differences(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<String> {
    let extra = ours.difference(theirs).map(|row| format!("only here:       {row}"));
    let missing = theirs.difference(ours).map(|row| format!("only in headers: {row}"));
    extra.chain(missing).collect()
}

#[test]
fn structs_are_laid_out_as_in_c() {
    let ours: BTreeSet<_> = tables::structs::rows().into_iter().collect();
    let tables = ["layout.tsv", "layout_later.tsv", "layout_efa.tsv"];
    let theirs: BTreeSet<_> =
        tables.map(fixture).iter().flat_map(|table| table.lines()).map(str::to_owned).collect();
    assert!(theirs.len() > 1000, "fixture is cut short");
    let differences = differences(&ours, &theirs);
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn constants_have_their_values() {
    let ours: BTreeSet<_> = tables::constants::constants()
        .iter()
        .map(|(name, value)| format!("{name}\t{value}"))
        .collect();
    let tables = [
        "constants.tsv",
        "constants_uapi_later.tsv",
        "constants_verbs.tsv",
        "constants_later.tsv",
        "constants_efa.tsv",
    ];
    let theirs: BTreeSet<_> =
        tables.map(fixture).iter().flat_map(|table| table.lines()).map(str::to_owned).collect();
    assert!(theirs.len() > 850, "fixture is cut short");
    let differences = differences(&ours, &theirs);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Names after `keyword` at the start of a line, in all sources below `dir`.
fn declared(dir: &Path, keyword: &str, names: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            declared(&path, keyword, names);
            continue;
        }
        for line in fs::read_to_string(&path).unwrap().lines() {
            if let Some(rest) = line.strip_prefix(keyword) {
                let name: String =
                    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                names.insert(name, path.clone());
            }
        }
    }
}

/// Kinds of items that the tables have no place for.
#[test]
fn sources_hold_structs_and_constants_only() {
    for keyword in ["pub union ", "pub enum ", "pub static ", "pub type "] {
        let mut found = BTreeMap::new();
        declared(&root().join("src"), keyword, &mut found);
        assert!(found.is_empty(), "{keyword}is compared with nothing: {found:#?}");
    }
}

#[test]
fn tables_name_every_item() {
    let mut structs = BTreeMap::new();
    declared(&root().join("src"), "pub struct ", &mut structs);
    let rows = tables::structs::rows();
    let named: BTreeSet<_> = rows.iter().filter_map(|row| row.split('\t').next()).collect();
    structs.retain(|name, _| !named.contains(name.as_str()));
    assert!(structs.is_empty(), "no line in tables/structs.rs: {structs:#?}");

    let mut constants = BTreeMap::new();
    declared(&root().join("src"), "pub const ", &mut constants);
    let table = tables::constants::constants();
    let named: BTreeSet<_> = table.iter().map(|(name, _)| *name).chain(NOT_IN_HEADERS).collect();
    constants.retain(|name, _| !named.contains(name.as_str()) && name != "fn");
    assert!(constants.is_empty(), "no line in tables/constants.rs: {constants:#?}");
}
