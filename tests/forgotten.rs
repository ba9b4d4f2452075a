//! A batch that is dropped with work requests in it: debug builds say so, once in a process.
#![cfg(debug_assertions)]

use common::pair;

/// Set for the process that forgets.
const CHILD: &str = "UVERBS_TEST_FORGETS";

/// Body of the child process; without the variable it does nothing.
#[test]
fn forget() {
    let Some(how) = std::env::var_os(CHILD) else { return };
    let (mut client, mut server) = pair();
    for _ in 0..2 {
        let frame = client.filled(8, 1);
        let mut sends = client.qp.batch();
        sends.send(1, frame).unwrap();
        sends.send_inline(2, b"x").unwrap();
        let slab = server.slab(8, 1);
        let mut receives = server.qp.recv_batch();
        if how == "ring" {
            receives.post(1, slab.take().unwrap()).unwrap();
            receives.ring();
            server.expect(2, 8);
            sends.ring();
        }
    }
}

fn said(how: &str) -> String {
    let mut child = common::this_program();
    child.args(["--exact", "forget", "--nocapture"]).env(CHILD, how);
    let output = child.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_forgotten_ring_is_told_once() {
    let said = said("drop");
    assert_eq!(said.matches("without ring()").count(), 1, "{said}");
    assert!(said.contains("a batch of 2 work requests"), "{said}");
}

#[test]
fn a_batch_that_is_rung_or_empty_says_nothing() {
    let said = said("ring");
    assert!(!said.contains("ring()"), "{said}");
}
