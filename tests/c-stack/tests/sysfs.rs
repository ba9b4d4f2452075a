//! Unmodified programs that read sysfs, on the software HCA by `uverbs run`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use c_stack::CStack;
use uverbs_softhca::{SoftHca, Udp};

/// Command line and unpacked packages; `None` with a stated skip.
fn tools() -> Option<(CStack, String)> {
    let stack = c_stack::unpacked()?;
    let tool = std::env::var("UVERBS_TOOL").ok().filter(|path| !path.is_empty());
    if tool.is_none() {
        c_stack::skip("UVERBS_TOOL is not set (`cargo xtask judge` sets it)");
    }
    Some((stack, tool?))
}

/// `uverbs run` of words on a device.
fn on(stack: &CStack, tool: &str, device: &str, words: &[&str]) -> Command {
    let mut command = stack.program_on_ours(tool, "");
    command.env_remove("UVERBS_DEVICE");
    command.arg("run").arg("--libraries").arg(c_stack::our_folder());
    command.args(["-d", device, "--"]).args(words);
    command
}

/// An address that no other process and no other test has; `test` is at most 3.
fn address(test: u8) -> String {
    let [_, b, c, d] = (std::process::id() | 1 << 20).to_be_bytes();
    format!("127.{}.{c}.{}", b | test << 6, d | 1)
}

#[test]
fn each_function_of_libc_finds_a_device() {
    let Some((stack, tool)) = tools() else { return };
    let Some(program) = stack.compile("sysfs") else { return };
    let program = program.to_str().unwrap();
    for (device, name) in [
        ("softhca@loopback".to_owned(), "softhca_0"),
        (format!("softhca@{}=mlx5_0", address(0)), "mlx5_0"),
    ] {
        let run = c_stack::run(&mut on(&stack, &tool, &device, &[program, name]));
        let tree = run.stderr.lines().find_map(|line| line.strip_prefix("tree "));
        let tree = PathBuf::from(tree.unwrap_or_default());
        run.checks(76);
        assert!(tree.to_str().unwrap().contains("uverbs-sysfs-"), "{tree:?}");
        assert!(!tree.exists(), "the process left {tree:?}");
    }
    std::fs::remove_file(program).unwrap();
}

/// Another process has the device, and each `cat` is one more.
#[test]
fn scripts_read_what_the_device_has() {
    let Some((stack, tool)) = tools() else { return };
    let at = address(1);
    let device = format!("softhca@{at}=mlx5_0");
    let _taken = SoftHca::builder().udp(Udp::at(at.parse().unwrap())).build().unwrap();
    let script = "cat /sys/class/infiniband/*/ports/1/gids/3 && \
                  cat /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3 && \
                  ls /sys/class/infiniband /sys/class/infiniband_verbs/ && \
                  ls -l /sys/class/infiniband/mlx5_0/device/net && \
                  readlink -f /sys/class/infiniband/mlx5_0/device";
    let text = c_stack::run(&mut on(&stack, &tool, &device, &["sh", "-c", script])).ok().stdout;
    let [a, b, c, d] = at.parse::<Ipv4Addr>().unwrap().octets();
    let gid = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}\nRoCE v2\n");
    assert!(text.starts_with(&gid), "{text}");
    assert!(text.contains("\nmlx5_0\n") && text.contains("uverbs0\n"), "{text}");
    let end = " lo -> /sys/class/net/lo\n/sys/devices/pcica05:00/ca05:00:00.0\n";
    assert!(text.ends_with(end), "{text}");
}

/// Names of the kernel's devices come first, and stand for a device that is not there.
#[test]
fn a_name_without_a_device_is_not_shown() {
    let Some((stack, tool)) = tools() else { return };
    let device = format!("near:lo,mlx5_9,softhca@{}=mlx5_0", address(2));
    let words = ["ls", "-l", "/sys/class/infiniband", "/sys/class/infiniband/"];
    let text = c_stack::run(&mut on(&stack, &tool, &device, &words)).ok().stdout;
    let shown = text.lines().filter(|line| line.contains(" -> "));
    assert!(shown.clone().all(|line| line.contains(" mlx5_0 -> ")), "{text}");
    assert_eq!(shown.count(), 2, "{text}");
}

#[test]
fn infiniband_s_diagnostics_describe_the_port() {
    let Some((stack, tool)) = tools() else { return };
    let programs = stack.root().join("usr/sbin");
    let path = |name: &str| programs.join(name).to_str().unwrap().to_owned();
    let [_, b, c, _] = address(3).parse::<Ipv4Addr>().unwrap().octets();
    let device = format!("softhca@127.{b}.{}.7,ib", c & 0x7f);
    let lid = u16::from_be_bytes([c & 0x7f, 7]);
    let text = c_stack::run(&mut on(&stack, &tool, &device, &[&path("ibstat")])).ok().stdout;
    for part in ["CA 'softhca_0'", "CA type: MT4125", "State: Active", "Rate: 100", "InfiniBand"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains(&format!("Base lid: {lid}")), "{text}");
    let device = "softhca@loopback";
    let text = c_stack::run(&mut on(&stack, &tool, device, &["sh", &path("ibstatus")])).ok().stdout;
    for part in ["'softhca_0' port 1", "4: ACTIVE", "Ethernet", "100 Gb/sec (4X EDR)"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
