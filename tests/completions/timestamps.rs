//! The device's clock in completions.

use std::time::{Duration, Instant, SystemTime};

use common::{LIMIT, Side, impatient, is_plain, pair, pair_with};
use uverbs::{Error, Remote};

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
    if is_plain() {
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
    // A quarter of a second by the device's clock, within the accuracy of the system's clock.
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(250));
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

#[test]
fn completions_tell_the_time_of_day() {
    let (mut client, mut server) = pair();
    let clock = match server.context.clock() {
        Ok(clock) => clock,
        Err(Error::Unsupported { verb: "query_rt_values", .. }) if is_plain() => {
            return common::skip("it has no clock");
        }
        Err(error) => panic!("{error}"),
    };
    assert!(clock.read().unwrap().good_for() > Duration::from_secs(1));
    for id in 0..5 {
        let before = SystemTime::now();
        server.expect(id, 8);
        client.qp.post_send_inline(id, b"now").unwrap();
        let received = stamp(&mut server).expect("a clock");
        let after = SystemTime::now();
        let told = clock.read().unwrap().time_of(received);
        // Both clocks run independently, and the kernel's page may be seconds old.
        let slack = Duration::from_millis(100);
        assert!(before - slack <= told && told <= after + slack, "{before:?} {told:?} {after:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_clock_itself_can_be_read() {
    let (mut client, server) = pair();
    let clock = match client.context.clock() {
        Err(_) if is_plain() => return common::skip("it has no clock"),
        clock => clock.unwrap(),
    };
    let before = match clock.ticks() {
        Err(Error::Unsupported { verb: "query_rt_values", .. })
            if std::env::var_os("UVERBS_TEST_DEVICE").is_none() =>
        {
            return common::skip("a page of the software HCA in process doesn't tick");
        }
        Err(Error::Unsupported { .. }) if common::is_function() => {
            return common::skip("the page of a function's clock isn't mapped");
        }
        ticks => ticks.unwrap(),
    };
    let memory = server.pd.expose(8, uverbs::AccessFlags::REMOTE_WRITE).unwrap();
    client.qp.post_write_inline(1, &[], memory.remote(0)).unwrap();
    let done = stamp(&mut client).expect("a clock");
    let after = clock.ticks().unwrap();
    assert!(before <= done && done <= after, "{before} {done} {after}");
}
