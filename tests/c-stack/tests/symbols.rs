//! Symbols that our libraries export, and their versions.

use std::collections::BTreeSet;
use std::path::Path;

use c_stack::CStack;
use goblin::elf::Elf;

/// `NAME@VERSION` of each symbol that a shared object defines, or imports if `defined` is false;
/// `NAME` without a version.
fn symbols(path: &Path, defined: bool) -> BTreeSet<String> {
    let bytes = std::fs::read(path).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let mut nodes = Vec::new();
    for node in elf.verdef.iter().flat_map(|section| section.iter()) {
        let name = node.iter().next().unwrap().vda_name;
        nodes.push((node.vd_ndx, elf.dynstrtab.get_at(name).unwrap().to_owned()));
    }
    for file in elf.verneed.iter().flat_map(|section| section.iter()) {
        for node in file.iter() {
            let name = elf.dynstrtab.get_at(node.vna_name).unwrap().to_owned();
            nodes.push((node.vna_other, name));
        }
    }
    let mut found = BTreeSet::new();
    for (at, symbol) in elf.dynsyms.iter().enumerate() {
        let name = elf.dynstrtab.get_at(symbol.st_name).unwrap();
        if name.is_empty() || (symbol.st_shndx != 0) != defined {
            continue;
        }
        let version = elf.versym.as_ref().and_then(|all| all.get_at(at)).map(|v| v.vs_val & 0x7fff);
        let node = nodes.iter().find(|(number, _)| Some(*number) == version);
        match node {
            // The symbol of a version node itself.
            Some((_, node)) if node == name => {}
            Some((_, node)) => assert!(found.insert(format!("{name}@{node}")), "{name} twice"),
            None => assert!(found.insert(name.to_owned()), "{name} twice"),
        }
    }
    found
}

/// Tests for functions from before 2009, whose structs differ.
fn is_ancient(symbol: &str, all: &BTreeSet<String>) -> bool {
    symbol
        .strip_suffix("@IBVERBS_1.0")
        .is_some_and(|name| all.contains(&format!("{name}@IBVERBS_1.1")))
}

/// Symbols of rdma-core 65, from its version scripts.
fn newest() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../c-abi/symbols");
    let read = |name| std::fs::read_to_string(folder.join(name)).unwrap();
    let names = ["libibverbs-65.txt", "libefa-65.txt", "libmlx5-65.txt", "librdmacm-65.txt"];
    let all = names.map(read).concat();
    all.lines().map(str::to_owned).collect()
}

#[test]
fn the_newest_releases_names_are_there_and_no_others() {
    let ours = symbols(&c_stack::our_library(), true);
    let newest = newest();
    let missing: Vec<_> = newest.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(newest.len() > 390, "the lists are cut short");
    // Also private names, under the version nodes of other releases.
    let is_private = |symbol: &str| symbol.contains("@IBVERBS_PRIVATE_");
    let more: Vec<_> = ours.difference(&newest).filter(|symbol| !is_private(symbol)).collect();
    assert!(more.is_empty(), "{more:?}");
}

/// Functions that rdma-core 65's librspreload interposes (`librspreload.map`), without versions.
const PRELOADED: &str = "accept accept4 bind close connect dup dup2 epoll_create epoll_create1 \
    epoll_ctl epoll_wait fcntl fcntl64 getpeername getsockname getsockopt listen poll read readv \
    recv recvfrom recvmsg select send sendfile sendfile64 sendmsg sendto setsockopt shutdown \
    socket write writev";

/// Functions that ours interposes in addition: node.js, libuv and Python need them.
const PRELOADED_BY_US: &str = "epoll_pwait epoll_pwait2 ioctl ppoll pselect";

#[test]
fn the_preloaded_library_has_these_names_and_no_others() {
    let ours = symbols(&c_stack::built("librspreload.so"), true);
    let names =
        |list: &str| -> BTreeSet<String> { list.split_whitespace().map(str::to_owned).collect() };
    let theirs = names(PRELOADED);
    assert_eq!(theirs.len(), 34);
    assert_eq!(ours, &theirs | &names(PRELOADED_BY_US));
}

#[test]
fn the_distributions_names_are_there() {
    let Some(stack) = c_stack::unpacked() else { return };
    let ours = symbols(&c_stack::our_library(), true);
    let theirs = symbols(&stack.their_library(), true);
    let direct = |stack: &CStack, name| symbols(&stack.their_library().with_file_name(name), true);
    let mut direct_verbs = direct(&stack, "libmlx5.so.1");
    // Debian 13's libefa has more functions than Debian 12's.
    let efa = c_stack::trixie().map(|stack| direct(&stack, "libefa.so.1"));
    direct_verbs.extend(efa.unwrap_or_else(|| direct(&stack, "libefa.so.1")));
    let missing: Vec<_> = theirs
        .iter()
        .chain(&direct_verbs)
        .filter(|symbol| symbol.contains('@') && !ours.contains(*symbol))
        .filter(|symbol| !is_ancient(symbol, &theirs))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(theirs.iter().filter(|symbol| is_ancient(symbol, &theirs)).count(), 33);
}

/// README.md lists the functions that return `EOPNOTSUPP`, and only these.
#[test]
fn the_readme_lists_what_is_not_implemented() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../c-abi");
    let read = |name| std::fs::read_to_string(home.join("src/exports").join(name)).unwrap();
    let exports = ["verbs.rs", "efa.rs"].map(read).concat();
    let readme = std::fs::read_to_string(home.join("README.md")).unwrap();
    let stubs: BTreeSet<_> = exports
        .lines()
        .filter(|line| line.contains("= stubs::"))
        .filter_map(|line| line.trim().split(" = ").next())
        .collect();
    let (_, section) = readme.split_once("## Not implemented").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let verb = |word: &&str| {
        word.starts_with("efadv_") || word.contains("ibv_") && !word.starts_with("mlx5dv_")
    };
    let listed: BTreeSet<_> = section.split('`').skip(1).step_by(2).filter(verb).collect();
    assert_eq!(stubs, listed);
    // For mlx5dv it lists the implemented functions.
    let exports = read("mlx5.rs");
    let exported = exports.lines().filter_map(|line| line.trim().split_once(" = "));
    let done = exported.filter(|(_, function)| !function.starts_with("stubs::"));
    // Names called by the header's inline functions begin with underscores.
    let done = done.map(|(name, _)| name.trim_start_matches('_'));
    let done: BTreeSet<_> = done.filter(|name| name.starts_with("mlx5dv_")).collect();
    assert!(done.len() > 20, "{done:?}");
    let (_, besides) = section.split_once("All of mlx5dv but").expect("what there is of mlx5dv");
    let listed: BTreeSet<_> =
        besides.split('`').skip(1).step_by(2).filter(|word| word.starts_with("mlx5dv_")).collect();
    assert_eq!(done, listed);
}

/// The distribution's programs are bound at start, and pyverbs' modules may import more than their
/// tests call.
#[test]
fn programs_find_all_that_they_import() {
    let Some(stack) = c_stack::unpacked() else { return };
    let ours = symbols(&c_stack::our_library(), true);
    let devinfo = stack.program("ibv_devinfo");
    let bin = Path::new(devinfo.get_program()).parent().unwrap();
    let pyverbs = bin.with_file_name("lib").join("python3/dist-packages/pyverbs");
    let mut names = BTreeSet::new();
    for (folder, least) in [
        (bin, 30),
        (&pyverbs, 9),
        (&pyverbs.join("providers/mlx5"), 10),
        (&pyverbs.join("providers/efa"), 1),
    ] {
        let mut importing = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let is_elf = std::fs::read(&path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
            if !is_elf {
                continue;
            }
            let imports = symbols(&path, false);
            let nodes = ["@IBVERBS_", "@EFA_", "@MLX5_", "@RDMACM_"];
            let verbs = |symbol: &&String| nodes.iter().any(|node| symbol.contains(node));
            let imports: BTreeSet<_> = imports.iter().filter(verbs).cloned().collect();
            let missing: Vec<_> = imports.difference(&ours).collect();
            assert!(missing.is_empty(), "{}: {missing:?}", path.display());
            importing += usize::from(!imports.is_empty());
            names.extend(imports);
        }
        assert!(importing >= least, "{}: {importing}", folder.display());
    }
    assert!(names.len() > 180, "{}", names.len());
}
