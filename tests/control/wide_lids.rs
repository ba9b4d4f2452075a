//! LIDs of more than 16 bits, which Omni-Path's ports may have (`tests/vm/wide_lid.sh`).

use common::{End, LIMIT, device, impatient, is_rdmavt, skip};
use uverbs::transport::{Rc, Ud};
use uverbs::{Completed, Destination, GRH_LEN, Gid, Local, Status};

/// LID of a path whose GID has the LID.
const PERMISSIVE: u16 = 0xffff;
/// LID of the port, set by the script.
const LID: u32 = 0x12345;

/// GID that carries a LID (kernel `opa_addr.h`, OPA_MAKE_ID).
fn gid(lid: u32) -> Gid {
    let [a, b, c, d] = lid.to_be_bytes();
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x06, 0x6a, 0, a, b, c, d])
}

/// Skips the test unless the port's LID is too long for the kernel's answer, which then has 0
/// (kernel `opa_addr.h`, OPA_TO_IB_UCAST_LID).
fn is_wide() -> bool {
    let context = device().open().expect("open");
    let is_wide = is_rdmavt() && context.query_port(1).expect("port 1").lid == 0;
    if !is_wide {
        skip("the port's LID has 16 bits");
    }
    is_wide
}

fn with_grh() -> Local {
    Local { gid_index: Some(0), ..impatient() }
}

/// Status of a message to the other end of a connection, whose LID this is.
fn sent_to(lid: u32) -> Result<Completed, Status> {
    let device = device();
    let (mut one, mut other) = (End::<Rc>::new(&device), End::<Rc>::new(&device));
    let at = [&mut one, &mut other].map(|end| end.qp.prepare(&with_grh()).expect("prepare"));
    let at =
        at.map(|endpoint| uverbs::Endpoint { lid: PERMISSIVE, gid: Some(gid(lid)), ..endpoint });
    one.qp.connect(&at[1]).expect("connect");
    other.qp.connect(&at[0]).expect("connect");
    other.expect(7, 64);
    let frame = one.filled(64, 3);
    let mut batch = one.qp.batch();
    batch.send(1, frame).expect("a send");
    batch.ring();
    one.cq.wait(LIMIT).expect("a completion").result.map_err(|failure| failure.status)
}

#[test]
fn a_connection_goes_by_the_lid_in_its_gid() {
    if !is_wide() {
        return;
    }
    assert_eq!(sent_to(LID), Ok(Completed::Send));
    // Another LID leads to no port.
    assert_eq!(sent_to(LID + 1), Err(Status::RetryExceeded));
}

#[test]
fn a_datagram_goes_by_the_lid_in_its_gid() {
    if !is_wide() {
        return;
    }
    let device = device();
    let (mut one, mut other) = (End::<Ud>::new(&device), End::<Ud>::new(&device));
    let [_, at] = [&mut one, &mut other].map(|end| end.qp.bring_up(&with_grh()).expect("up"));
    for (id, lid) in [(1, LID + 1), (2, LID)] {
        other.expect(id, GRH_LEN + 64);
        let to = uverbs::DatagramEndpoint { lid: PERMISSIVE, gid: Some(gid(lid)), ..at };
        let to: Destination = one.qp.destination(&to).expect("an address handle");
        let mut batch = one.qp.batch();
        batch.send_inline_to(id, &id.to_be_bytes(), &to).expect("a send");
        batch.ring();
        one.done();
    }
    let received = other.done();
    assert_eq!((received.id, received.byte_len as usize), (1, GRH_LEN + 8));
    assert_eq!(received.frame.expect("a frame")[GRH_LEN..], 2u64.to_be_bytes(), "the second one");
}
