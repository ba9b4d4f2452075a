//! The null region: it discards received data, and sends zeros.
#![allow(unsafe_code, reason = "posts by address and key")]

use common::{Side, is_plain, local, pair, pair_with};
use uverbs::memory::NullRegion;
use uverbs::raw::{Data, Sge};
use uverbs::{AccessFlags, Error, ExposedMemory, PostError, Remote, Status};

/// The region, where the device has one.
fn nothing(side: &Side) -> Option<NullRegion> {
    match side.context.null_region() {
        Ok(region) => Some(region),
        Err(Error::Unsupported { verb: "alloc_null_mr", .. }) if is_plain() => {
            common::skip("the device has no region of no memory");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn bytes(memory: &ExposedMemory, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    memory.read(0, &mut bytes).unwrap();
    bytes
}

fn receive(side: &mut Side, list: &[Sge]) {
    let mut batch = side.qp.recv_batch();
    // SAFETY: what is named stays registered until the end of the test.
    unsafe { batch.post_raw(1, list) }.unwrap();
    batch.ring();
}

#[test]
fn a_part_of_a_message_is_not_wanted() {
    let (mut client, mut server) = pair_with(&local(), |builder| builder.max_recv_sge(3));
    let Some(nothing) = nothing(&server) else { return };
    let memory = server.pd.expose(4096, AccessFlags::empty()).unwrap();
    receive(&mut server, &[memory.sge(0, 4), nothing.sge(5000), memory.sge(4, 100)]);
    let frame = client.filled(5010, 3);
    let sent = frame.to_vec();
    client.qp.post_send(2, frame).unwrap();
    assert_eq!(server.done().byte_len, 5010);
    client.done();
    assert_eq!(bytes(&memory, 11), [&sent[..4], &sent[5004..], &[0]].concat());
}

#[test]
fn what_is_sent_from_it_is_zeros() {
    let (mut client, mut server) = pair_with(&local(), |builder| builder.max_send_sge(3));
    let Some(nothing) = nothing(&client) else { return };
    let memory = server.pd.expose(4096, AccessFlags::empty()).unwrap();
    memory.write(0, &[9; 20]).unwrap();
    receive(&mut server, &[memory.sge(0, 4096)]);
    let own = client.pd.expose(8, AccessFlags::empty()).unwrap();
    own.write(0, &[7; 8]).unwrap();
    let mut batch = client.qp.batch();
    let list = [own.sge(0, 3), nothing.sge(10), own.sge(0, 3)];
    // SAFETY: registered until the end of the test.
    unsafe { batch.raw().send(2, Data::List(&list)) }.unwrap();
    batch.ring();
    assert_eq!(server.done().byte_len, 16);
    client.done();
    assert_eq!(bytes(&memory, 20), [&[7; 3][..], &[0; 10], &[7; 3], &[9; 4]].concat());
}

#[test]
fn what_is_read_into_it_is_gone() {
    let (mut client, server) = pair();
    let Some(nothing) = nothing(&client) else { return };
    let memory = server.pd.expose(4096, AccessFlags::REMOTE_READ).unwrap();
    let mut batch = client.qp.batch();
    // SAFETY: there is no memory.
    unsafe { batch.raw().read(2, &[nothing.sge(4096)], memory.remote(0)) }.unwrap();
    batch.ring();
    client.done();
}

#[test]
fn it_is_of_every_domain_and_none_of_a_peer() {
    let (mut client, server) = pair();
    let Some(nothing) = nothing(&server) else { return };
    assert_eq!(server.context.null_region().unwrap(), nothing);
    // Its key is for own work requests.
    let refused = client.qp.post_write_inline(1, &[7; 8], Remote { addr: 0, rkey: nothing.lkey() });
    assert_eq!(refused, Ok::<(), PostError>(()));
    assert_eq!(client.wait().result.unwrap_err().status, Status::RemoteAccess);
}
