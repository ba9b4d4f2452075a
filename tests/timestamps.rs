//! The device's clock in completions.

mod common;

use std::time::Instant;

use common::{LIMIT, Side, impatient, is_rxe, pair, pair_with};
use uverbs::Remote;

/// The timestamp of the next completion.
fn stamp(side: &mut Side) -> Option<u64> {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        let mut stamp = None;
        let count = side.cq.poll_with(1, |completion| stamp = Some(completion.timestamp()));
        if count == 1 {
            return stamp.unwrap();
        }
        std::thread::yield_now();
    }
    panic!("no completion");
}

#[test]
fn completions_tell_when_they_were() {
    let (mut client, mut server) = pair();
    let attr = client.context.query_device().unwrap();
    if is_rxe() {
        assert_eq!((attr.completion_timestamp_mask, attr.hca_core_clock), (0, 0));
        return common::skip("it has no clock");
    }
    assert!(attr.completion_timestamp_mask > u64::from(u32::MAX) && attr.hca_core_clock > 0);
    let mut last = 0;
    for id in 0..10 {
        server.expect(id, 8);
        client.qp.post_send_inline(id, b"now").unwrap();
        let received = stamp(&mut server).expect("a clock");
        let sent = stamp(&mut client).expect("a clock");
        assert!(last <= received && received <= sent, "{last} {received} {sent}");
        last = sent;
    }
    // A quarter of a second by the device's clock, as far as the machine's own says so at all.
    let begun = Instant::now();
    std::thread::sleep(std::time::Duration::from_millis(250));
    server.expect(11, 8);
    client.qp.post_send_inline(11, b"later").unwrap();
    let later = stamp(&mut client).expect("a clock");
    let waited = (later - last) / attr.hca_core_clock;
    let most = begun.elapsed().as_millis() as u64 + 1000;
    assert!((200..most).contains(&waited), "{waited} ms of {most}");
}

#[test]
fn a_failed_completion_tells_no_time() {
    let (mut client, _server) = pair_with(&impatient(), |builder| builder);
    client.qp.post_write_inline(1, &[1], Remote { addr: 0, rkey: 0 }).unwrap();
    assert_eq!(stamp(&mut client), None);
}
