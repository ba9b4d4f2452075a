//! The distribution's C programs on the network: each process has a software HCA, and they exchange
//! RoCEv2 over UDP.

use c_stack::both::{both, free_port};

#[test]
fn ping_pong_between_two_processes() {
    let Some(stack) = c_stack::unpacked() else { return };
    // Sizes below, at and above the MTU; datagrams are one packet.
    for (name, sizes) in [
        ("ibv_rc_pingpong", &["1", "4096", "100000"][..]),
        ("ibv_uc_pingpong", &["1", "4096"]),
        ("ibv_ud_pingpong", &["1", "2048"]),
    ] {
        for (size, carrier) in sizes.iter().flat_map(|size| [(size, ",shm"), (size, ",udp")]) {
            let port = free_port();
            let end = |address: &str, host: &[&str]| {
                let mut command = stack.program(name);
                command.env("UVERBS_SOFTHCA_UDP", address);
                command.args(["-g", "0", "-n", "50", "-s", size, "-p", &port]).args(host);
                command
            };
            let id = std::process::id() as u8;
            let addresses = [1, 2].map(|last| format!("127.55.{id}.{last}{carrier}"));
            let server = end(&addresses[0], &[]);
            let client = end(&addresses[1], &["127.0.0.1"]);
            for run in both(server, client, &port) {
                let text = run.ok().stdout;
                assert!(text.contains("50 iters in"), "{name} {size}{carrier}: {text}");
            }
        }
    }
}

#[test]
fn an_address_that_is_none_is_said() {
    let Some(stack) = c_stack::unpacked() else { return };
    let run = c_stack::run(stack.program("ibv_devices").env("UVERBS_SOFTHCA_UDP", "here"));
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("UVERBS_SOFTHCA_UDP=here: no address"), "{run:?}");
}
