//! Every operation of a reliable connection, with a look at each byte.

use uverbs::{AccessFlags, Completed};

use super::{Side, pattern};

const ACCESS: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// A message of this size, and the receiver's bytes.
pub fn message(client: &mut Side, server: &mut Side, size: usize) {
    server.expect(size as u64, size);
    let frame = client.filled(size, size as u8);
    client.qp.post_send(size as u64, frame).unwrap();
    let received = server.done();
    assert_eq!(received.byte_len as usize, size);
    assert!(received.frame.unwrap()[..size] == pattern(size, size as u8)[..], "{size} bytes");
    client.done();
}

/// SEND, WRITE, READ and an atomic.
pub fn every_operation(client: &mut Side, server: &mut Side, size: usize) {
    message(client, server, size);
    let memory = server.pd.expose(size.next_multiple_of(8) + 8, ACCESS).unwrap();
    let counter = size.next_multiple_of(8);
    memory.write(counter, &40u64.to_ne_bytes()).unwrap();
    let frame = client.filled(size, 3);
    let mut batch = client.qp.batch();
    batch.write(1, frame, memory.remote(0)).unwrap();
    batch.ring();
    let mut frame = client.done().frame.unwrap();
    let mut seen = vec![0; size];
    memory.read(0, &mut seen).unwrap();
    assert!(seen == pattern(size, 3), "WRITE of {size} bytes");
    memory.write(0, &pattern(size, 4)).unwrap();
    frame.fill(0);
    let result = client.slab(8, 1).take().unwrap();
    let mut batch = client.qp.batch();
    batch.read(2, frame, memory.remote(0)).unwrap();
    batch.fetch_add(3, result, memory.remote(counter), 2).unwrap();
    batch.ring();
    assert!(client.done().frame.unwrap()[..] == pattern(size, 4)[..], "READ of {size} bytes");
    assert_eq!(client.done().frame.unwrap()[..8], 40u64.to_ne_bytes());
    let mut after = [0; 8];
    memory.read(counter, &mut after).unwrap();
    assert_eq!(after, 42u64.to_ne_bytes());
}

/// Exchanges a SEND and a WRITE with immediate data and two COMPARE_SWAPs, and checks each result.
pub fn rarer_operations(client: &mut Side, server: &mut Side, size: usize) {
    let memory = server.pd.expose(size.next_multiple_of(8) + 8, ACCESS).unwrap();
    server.expect(1, size);
    server.expect(2, 1);
    let counter = memory.remote(size.next_multiple_of(8));
    let frames = [1, 2].map(|seed| client.filled(size, seed));
    let results = client.slab(8, 2);
    let mut batch = client.qp.batch();
    let [one, other] = frames;
    batch.send_imm(1, one, 0xabc).unwrap();
    batch.write_imm(2, other, memory.remote(0), 0xdef).unwrap();
    batch.compare_swap(3, results.take().unwrap(), counter, 0, 7).unwrap();
    batch.compare_swap(4, results.take().unwrap(), counter, 0, 9).unwrap();
    batch.ring();
    let sent = server.done();
    assert_eq!((sent.result, sent.immediate), (Ok(Completed::Recv), Some(0xabc)));
    assert!(sent.frame.unwrap()[..size] == pattern(size, 1)[..], "SEND of {size} bytes");
    let written = server.done();
    assert_eq!((written.result, written.immediate), (Ok(Completed::RecvWriteImm), Some(0xdef)));
    let mut seen = vec![0; size];
    memory.read(0, &mut seen).unwrap();
    assert!(seen == pattern(size, 2), "WRITE with immediate of {size} bytes");
    let found = [(); 4].map(|()| client.done()).map(|done| done.frame.unwrap());
    assert_eq!(found[2][..8], 0u64.to_ne_bytes());
    assert_eq!(found[3][..8], 7u64.to_ne_bytes());
}
