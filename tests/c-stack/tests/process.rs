//! Effects of our libraries on the process that loads them (docs/PROCESS.md): threads, signals,
//! descriptors, cancellation, errno, and pointers that are null.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use c_stack::{CStack, run};
use goblin::elf::Elf;

/// First column of the table below a heading of docs/PROCESS.md.
fn names_below(heading: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PROCESS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" |").next());
    let names = cells.flat_map(|cell| cell.split('`'));
    names.filter(|name| !name.trim_matches([',', ' ']).is_empty()).map(str::to_owned).collect()
}

/// Checks each fact of docs/PROCESS.md on an in-process device and on a network device, which
/// closes its peers' descriptors on a thread.
#[test]
fn a_process_stays_as_it_was() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("process") else { return };
    let variables = names_below("Environment");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.join(format!("process-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (device, threads, gid) in [("softhca0", "1", "3"), ("softhca@loopback", "2", "0")] {
        let mut command = stack.on_ours(&program, device);
        let run = run(command.args([threads, gid]).current_dir(&folder));
        let asked: Vec<_> =
            run.stderr.lines().filter_map(|line| line.strip_prefix("asks for ")).collect();
        assert!(asked.len() > 3, "{}", run.stderr);
        let unknown: Vec<_> = asked.iter().filter(|name| !variables.contains(**name)).collect();
        assert!(unknown.is_empty(), "not in docs/PROCESS.md: {unknown:?}");
        run.checks(150);
    }
    // Fails if a file was made there.
    std::fs::remove_dir(folder).unwrap();
    std::fs::remove_file(program).unwrap();
}

#[test]
fn a_cancelled_thread_ends_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("cancel") else { return };
    run(&mut stack.command(&program)).checks(16);
    run(stack.on_ours(&program, "softhca0").arg("ours")).checks(60);
    std::fs::remove_file(program).unwrap();
}

/// With librspreload, a thread that waits in a libc function for a foreign file is cancelled like
/// without the library.
#[test]
fn a_thread_is_cancelled_behind_the_preloaded_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile_with("passes", &[]) else { return };
    run(&mut Command::new(&program)).checks(12);
    let mut preloaded = stack.on_ours(&program, "softhca0");
    run(preloaded.env("LD_PRELOAD", c_stack::built("librspreload.so"))).checks(12);
    std::fs::remove_file(program).unwrap();
}

/// Functions that a library imports, without versions.
fn imports(library: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(library).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let names = elf.dynsyms.iter().filter(|symbol| symbol.st_shndx == 0);
    names.map(|symbol| elf.dynstrtab.get_at(symbol.st_name).unwrap().to_owned()).collect()
}

/// glibc's cancellation points that a Rust library might call: pthreads(7), both lists. `fcntl` is
/// one if it waits for a lock (`F_SETLKW`), which this library never does. `cargo xtask c-abi`
/// compares the optimised library with the list.
const POINTS: &str = include_str!("../cancellation_points.txt");

/// Explicit cancellation point, called by the waits of `c-abi/src/base/cancel.rs`.
const IN_WAITS: [&str; 1] = ["pthread_testcancel"];

#[test]
fn all_cancellation_points_that_are_called_are_replaced() {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../c-abi/build.rs");
    let build = std::fs::read_to_string(build).unwrap();
    let list = build.split_once("REPLACED").unwrap().1.split_once("];").unwrap().0;
    let replaced: BTreeSet<_> = list.split('"').skip(1).step_by(2).collect();
    assert!(replaced.len() > 20, "{replaced:?}");
    let imports = imports(&c_stack::our_library());
    let open: Vec<_> = POINTS
        .split_whitespace()
        .filter(|name| imports.contains(*name))
        .filter(|name| !replaced.contains(name) && !IN_WAITS.contains(name))
        .collect();
    assert!(
        open.is_empty(),
        "not replaced in c-abi/build.rs and c-abi/src/base/cancel.rs: {open:?}"
    );
}

/// Functions that change the process for good, or run our code when it forks or ends.
const NEVER: &str = "\
    __cxa_atexit __register_atfork _exit at_quick_exit atexit bsd_signal chdir chroot clearenv \
    daemon dup2 dup3 execve exit fchdir fork freopen kill longjmp mlock mlock2 mlockall munlock \
    nice on_exit popen posix_spawn posix_spawnp prlimit prlimit64 pthread_atfork pthread_cancel \
    pthread_kill pthread_setaffinity_np pthread_setschedparam putenv quick_exit raise \
    sched_setaffinity sched_setscheduler setenv setgid setitimer setlocale setpriority setresgid \
    setresuid setrlimit setrlimit64 setsid setuid shm_open shmget sigaction signal system \
    sysv_signal timer_create umask unsetenv uselocale vfork";

#[test]
fn nothing_is_imported_that_changes_the_process() {
    let imports = imports(&c_stack::our_library());
    assert!(imports.len() > 50, "{imports:?}");
    let found: Vec<_> = NEVER.split_whitespace().filter(|name| imports.contains(*name)).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// `dlclose` does not unload the library: its threads run its code as long as the process lives.
#[test]
fn dlclose_leaves_the_library() {
    let bytes = std::fs::read(c_stack::our_library()).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let flags = elf.dynamic.map(|dynamic| dynamic.info.flags_1).unwrap_or_default();
    assert_ne!(flags & goblin::elf::dynamic::DF_1_NODELETE, 0, "{flags:#x}");
}

/// Functions without a result: their return register is not compared.
const NO_ANSWER: &str =
    "ibv_ack_cq_events@cq ibv_unimport_pd@pd rdma_free_devices rdma_freeaddrinfo";

/// Intended differences from C's library, and functions for which C's library has no device or
/// connection manager here.
const DIFFERENT: [(&str, &str); 13] = [
    ("ibv_read_ibdev_sysfs_file", "a private name, of C's providers"),
    ("mlx5dv_qp_ex_from_ibv_qp_ex", "a place behind the null pointer"),
    ("ibv_import_device", "descriptor 0 is no device: C's command says ENOTTY, we ENODEV"),
    ("ibv_is_fork_initialized", "the preloaded device answers no netlink"),
    ("mlx5dv_alloc_var@context", "not written"),
    ("mlx5dv_dr_action_create_dest_array", "not written"),
    ("mlx5dv_dr_action_create_pop_vlan", "not written"),
    ("mlx5dv_dr_action_create_push_vlan", "not written"),
    ("mlx5dv_pp_alloc@context", "not written"),
    ("mlx5dv_sched_node_create@context", "not written"),
    ("rclose", "C's gives EBADF itself, ours -1 and EBADF, as close(2)"),
    ("rdma_create_event_channel", "the preloaded device has no connection manager"),
    ("rdma_create_id", "the preloaded device has no connection manager"),
];

/// Functions that are called with an object, and zeros as other arguments.
const WITH_OBJECTS: &str = "ibv_alloc_pd@context ibv_create_comp_channel@context \
    ibv_create_cq@context ibv_query_device@context ibv_query_port@context ibv_query_gid@context \
    ibv_query_pkey@context ibv_get_pkey_index@context ibv_import_pd@context ibv_import_dm@context \
    _ibv_query_gid_ex@context _ibv_query_gid_table@context ibv_close_device@context \
    ibv_create_qp@pd ibv_create_srq@pd ibv_reg_mr@pd ibv_reg_mr_iova@pd ibv_reg_mr_iova2@pd \
    ibv_reg_dmabuf_mr@pd ibv_create_ah@pd ibv_create_ah_from_wc@pd ibv_import_mr@pd \
    ibv_unimport_pd@pd ibv_dealloc_pd@pd ibv_modify_qp@qp ibv_query_qp@qp ibv_attach_mcast@qp \
    ibv_detach_mcast@qp ibv_set_ece@qp ibv_query_ece@qp ibv_qp_to_qp_ex@qp \
    ibv_query_qp_data_in_order@qp ibv_destroy_qp@qp ibv_resize_cq@cq ibv_ack_cq_events@cq \
    ibv_destroy_cq@cq mlx5dv_query_device@context mlx5dv_create_cq@context \
    mlx5dv_create_qp@context mlx5dv_create_wq@context mlx5dv_devx_obj_create@context \
    mlx5dv_devx_general_cmd@context mlx5dv_devx_alloc_uar@context mlx5dv_devx_umem_reg@context \
    mlx5dv_devx_query_eqn@context mlx5dv_devx_create_cmd_comp@context \
    mlx5dv_devx_create_event_channel@context mlx5dv_alloc_dm@context \
    mlx5dv_dr_domain_create@context mlx5dv_get_clock_info@context mlx5dv_set_context_attr@context \
    mlx5dv_create_flow_matcher@context mlx5dv_create_mkey@pd mlx5dv_alloc_var@context \
    mlx5dv_pp_alloc@context mlx5dv_reserved_qpn_alloc@context mlx5dv_sched_node_create@context \
    mlx5dv_dek_create@context mlx5dv_crypto_login@context mlx5dv_qp_ex_from_ibv_qp_ex@qp \
    mlx5dv_query_qp_lag_port@qp mlx5dv_modify_qp_lag_port@qp mlx5dv_modify_qp_udp_sport@qp \
    mlx5dv_modify_qp_sched_elem@qp mlx5dv_map_ah_to_qp@qp";

/// Result of a call: low half of the return value, and errno. `None`: it crashed.
type Answer = Option<(i32, i32)>;

/// Results of these functions of a library, as printed by the program.
fn answers(mut command: Command, library: &str, names: &[String]) -> Vec<(String, Answer)> {
    let run = run(command.arg(library).args(names));
    let mut found = Vec::new();
    for line in run.stdout.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            [name, number, "errno", errno] => {
                found.push((
                    name.to_owned(),
                    Some((number.parse().unwrap(), errno.parse().unwrap())),
                ));
            }
            [name, "crashes"] => found.push((name.to_owned(), None)),
            [_, "missing"] => {}
            _ => panic!("{line}"),
        }
    }
    if let ([name], true) = (names, found.is_empty()) {
        found.push((name.clone(), None));
    }
    found
}

/// Compares two results: numbers by value, pointers by being null, `errno` for failures.
fn is_same((number, errno): (i32, i32), (ours, our_errno): (i32, i32)) -> bool {
    let is_number = |number: i32| number.unsigned_abs() < 4096;
    match number {
        -1 => (ours, our_errno) == (-1, errno),
        0 if errno != 0 => (ours, our_errno) == (0, errno),
        _ if is_number(number) => ours == number,
        _ => ours != 0 && !(ours < 0 && is_number(ours)),
    }
}

/// Compares the results of both libraries. If C's crashes, any result is accepted.
fn compare(
    theirs: &[(String, Answer)],
    ours: &[(String, Answer)],
    differ: &mut Vec<String>,
) -> usize {
    let mut count = 0;
    for (name, answer) in theirs {
        let Some(answer) = answer else { continue };
        if DIFFERENT.iter().any(|(different, _)| different == name) {
            continue;
        }
        count += 1;
        let our = ours.iter().find(|(our, _)| our == name).and_then(|(_, our)| *our);
        let has_answer = !NO_ANSWER.split_whitespace().any(|void| void == name);
        let good = our.is_some_and(|our| !has_answer || is_same(*answer, our));
        if !good {
            differ.push(format!("{name}: C {answer:?}, ours {our:?}"));
        }
    }
    count
}

/// Public names exported by a library of the distribution.
fn exports(library: &Path) -> Vec<String> {
    let bytes = std::fs::read(library).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let names = elf.dynsyms.iter().filter(|symbol| symbol.st_shndx != 0 && symbol.is_function());
    let names = names.map(|symbol| elf.dynstrtab.get_at(symbol.st_name).unwrap().to_owned());
    let public = |name: &String| {
        let name = name.strip_prefix('_').unwrap_or(name);
        ["ibv_", "mbps_", "mult_", "mlx5dv_", "rdma_"].iter().any(|begin| name.starts_with(begin))
            && !name.starts_with("ibv_cmd_")
            || name.starts_with('r') && !name.contains('_')
    };
    names.filter(public).collect::<BTreeSet<_>>().into_iter().collect()
}

fn both(stack: &CStack, program: &Path) -> [Command; 2] {
    let mut theirs = stack.command(program);
    theirs.env("UVERBS_SOFTHCA_LINK", "eth");
    let mut ours = stack.on_ours(program, "softhca0");
    // Ours may crash where C's does; no backtrace then.
    ours.env("RUST_BACKTRACE", "0");
    [theirs, ours]
}

/// Our libraries take each null pointer that C's take, and give the same answer: in every function
/// of the three libraries.
#[test]
fn null_pointers_are_taken_as_by_the_c_libraries() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("nulls") else { return };
    let mut differ = Vec::new();
    let mut count = 0;
    for (library, least) in [("libibverbs.so.1", 70), ("libmlx5.so.1", 120), ("librdmacm.so.1", 60)]
    {
        let names = exports(&stack.library_folders()[0].join(library));
        assert!(names.len() >= least, "{library}: {names:?}");
        let [theirs, ours] =
            both(&stack, &program).map(|command| answers(command, library, &names));
        count += compare(&theirs, &ours, &mut differ);
    }
    assert!(count >= 45, "{count} of C's functions survive");
    for name in WITH_OBJECTS.split_whitespace() {
        let library = if name.starts_with("mlx5dv") { "libmlx5.so.1" } else { "libibverbs.so.1" };
        let names = [name.to_owned()];
        let [theirs, ours] =
            both(&stack, &program).map(|command| answers(command, library, &names));
        count += compare(&theirs, &ours, &mut differ);
    }
    assert!(count >= 85, "{count} of C's functions survive");
    assert!(differ.is_empty(), "{differ:#?}");
    std::fs::remove_file(program).unwrap();
}
