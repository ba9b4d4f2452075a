//! A process that takes a message and exits, without destroying anything.
#![cfg(feature = "softhca")]
#![allow(unsafe_code, reason = "the standard library has one way to exit")]

use std::ffi::c_int;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use common::{Side, local, only_on_softhca};

/// Messages that are replied to.
const ROUNDS: u64 = 16;
/// The way in which the process exits, set for that process.
const ROLE: &str = "UVERBS_TEST_EXIT";

unsafe extern "C" {
    /// POSIX: calls no function registered with `atexit`.
    safe fn _exit(status: c_int) -> !;
}

fn side() -> Side {
    let device = uverbs::device("softhca@loopback,udp").unwrap();
    Side::new(&device, &local(), |builder| builder.max_inline_data(64))
}

/// Waits for one of a side's messages; completions of its sends have other numbers.
fn message(side: &mut Side, id: u64) {
    while side.done().id != id {}
}

/// The process that exits; it checks nothing when the test program is run whole.
#[test]
fn exiting_process() {
    let Some(way) = std::env::var_os(ROLE) else { return };
    let mut side = side();
    for id in 0..=ROUNDS {
        side.expect(id, 64);
    }
    println!("said {}", side.endpoint);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    side.qp.connect(&line.trim().parse().unwrap()).unwrap();
    println!("said ready");
    for id in 0..ROUNDS {
        message(&mut side, id);
        side.qp.post_send_inline(100, b"a reply").unwrap();
    }
    message(&mut side, ROUNDS);
    match way.to_str() {
        Some("command") => {
            side.qp.query().unwrap();
            _exit(0)
        }
        _ => std::process::exit(0),
    }
}

/// The acknowledgement waits for the program's reply, and leaves without it.
#[test]
fn a_process_that_exits_with_its_last_message_has_acknowledged_it() {
    if !only_on_softhca("the answer of a device in this process") {
        return;
    }
    for round in 0..24 {
        let way = ["exit", "command"][round % 2];
        let mut ours = side();
        let mut child = common::this_program();
        child.args(["--exact", "exiting_process", "--nocapture"]).env(ROLE, way);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut said = lines.filter_map(|line| Some(line.split_once("said ")?.1.to_owned()));
        ours.qp.connect(&said.next().unwrap().parse().unwrap()).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{}", ours.endpoint).unwrap();
        assert_eq!(said.next().as_deref(), Some("ready"));
        for id in 0..ROUNDS {
            ours.expect(id, 64);
            ours.qp.post_send_inline(100, b"a message").unwrap();
            message(&mut ours, id);
        }
        ours.qp.post_send_inline(200, b"the last").unwrap();
        message(&mut ours, 200);
        assert!(child.wait().unwrap().success());
    }
}
