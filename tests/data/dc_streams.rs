//! Streams of an initiator of dynamic connections: an error stops one, and the others go on.

use common::{LIMIT, device, filled, impatient, is_plain, is_siw, local, pattern};
use uverbs::dc::{DcDestination, DcTarget, DciStreams};
use uverbs::transport::Dci;
use uverbs::{
    AccessFlags, Any, Completed, CompletionQueue, Context, Errno, Error, ExposedMemory,
    ProtectionDomain, QpState, QueuePair, Remote, SharedReceiveQueue, Status,
};

/// A target with exposed memory, and an initiator with streams, on one open device.
struct Pair {
    qp: QueuePair<Any, Dci>,
    cq: CompletionQueue,
    to: DcDestination,
    memory: ExposedMemory,
    pd: ProtectionDomain,
    _target: DcTarget,
    _srq: SharedReceiveQueue,
    context: Context,
}

const STREAMS: DciStreams = DciStreams { log_concurrent: 2, log_errored: 1 };

/// Returns `None` on a device without dynamic connections.
fn pair(streams: Option<DciStreams>) -> Option<Pair> {
    if is_plain() || is_siw() {
        common::skip("dynamic connections are mlx5's");
        return None;
    }
    let context = device().open().expect("open");
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.create_cq(512).expect("create_cq");
    let builder = context.queue_pair(&pd, &cq).dci().max_send_wr(32).max_inline_data(32);
    let mut qp = match streams.into_iter().fold(builder, |of, streams| of.streams(streams)).build()
    {
        Err(Error::Unsupported { what, .. }) => {
            common::skip(&what);
            return None;
        }
        built => built.expect("create_qp"),
    };
    qp.bring_up(&impatient()).expect("bring_up");
    let srq = context.shared_receive_queue(&pd).build().expect("create_srq");
    let mut target = context.dc_target(&pd, &cq, &srq, 7).expect("a target");
    let at = target.bring_up(&local()).expect("bring_up");
    let memory = pd.expose(4096, AccessFlags::REMOTE_WRITE).expect("expose");
    let to = qp.destination(&at).expect("an address");
    Some(Pair { qp, cq, to, memory, pd, _target: target, _srq: srq, context })
}

impl Pair {
    /// A WRITE by a stream. It fails if `good` is false: its address is not registered.
    fn write(&mut self, id: u64, stream: u16, good: bool) {
        let nowhere = Remote { addr: 0, rkey: 0 };
        let remote = if good { self.memory.remote(id as usize * 8) } else { nowhere };
        let frame = filled(&self.pd, 8, id as u8);
        let to = self.to.clone().on_stream(stream);
        assert_eq!(to.stream(), stream);
        let mut batch = self.qp.batch();
        batch.write_to(id, frame, remote, &to).expect("post");
        batch.ring();
    }

    fn status(&mut self, id: u64) -> Result<Completed, Status> {
        let done = self.cq.wait(LIMIT).expect("a completion");
        assert_eq!(done.id, id, "in turn");
        assert!(done.frame.is_some(), "its frame comes back");
        done.result.map_err(|failure| failure.status)
    }

    fn arrived(&self, id: u64) -> bool {
        let mut there = [0; 8];
        self.memory.read(id as usize * 8, &mut there).expect("read");
        there[..] == pattern(8, id as u8)[..]
    }
}

#[test]
fn an_error_stops_its_stream_alone_until_that_is_reset() {
    let Some(mut pair) = pair(Some(STREAMS)) else { return };
    pair.write(1, 5, true);
    assert_eq!(pair.status(1), Ok(Completed::Write));
    pair.write(2, 5, false);
    assert_eq!(pair.status(2), Err(Status::RemoteAccess));
    for (id, stream) in [(3, 5), (4, 6), (5, 5), (6, 0xffff)] {
        pair.write(id, stream, true);
        let want = if stream == 5 { Err(Status::Flushed) } else { Ok(Completed::Write) };
        assert_eq!(pair.status(id), want, "stream {stream}");
        assert_eq!(pair.arrived(id), stream != 5, "stream {stream}");
    }
    assert_eq!(pair.qp.query().expect("query").state, QpState::ReadyToSend);
    pair.qp.reset_stream(5).expect("it goes on");
    pair.write(7, 5, true);
    assert_eq!(pair.status(7), Ok(Completed::Write));
    assert!(pair.arrived(7) && pair.arrived(1) && !pair.arrived(2));
}

#[test]
fn as_many_errors_as_it_was_made_for_stop_the_initiator() {
    let Some(mut pair) = pair(Some(STREAMS)) else { return };
    for round in 0..3 {
        // One at a time may fail for ever.
        pair.write(round, 9, false);
        assert_eq!(pair.status(round), Err(Status::RemoteAccess));
        pair.qp.reset_stream(9).expect("it goes on");
    }
    for (id, stream) in [(10, 1), (11, 2)] {
        pair.write(id, stream, false);
        assert_eq!(pair.status(id), Err(Status::RemoteAccess));
    }
    assert_eq!(pair.qp.query().expect("query").state, QpState::Error);
    pair.write(12, 3, true);
    assert_eq!(pair.status(12), Err(Status::Flushed));
}

#[test]
fn without_streams_one_error_stops_the_initiator() {
    let Some(mut pair) = pair(None) else { return };
    // Posts may still name streams, which have no effect.
    pair.write(1, 3, true);
    assert_eq!(pair.status(1), Ok(Completed::Write));
    let refused = pair.qp.reset_stream(3).expect_err("it has none");
    assert_eq!((refused.verb(), refused.to_errno()), (Some("dci_stream_id_reset"), Errno::EINVAL));
    pair.write(2, 3, false);
    assert_eq!(pair.status(2), Err(Status::RemoteAccess));
    pair.write(3, 4, true);
    assert_eq!(pair.status(3), Err(Status::Flushed));
}

#[test]
fn more_streams_than_the_device_has_and_wrong_states_are_refused_by_name() {
    let Some(mut pair) = pair(Some(STREAMS)) else { return };
    for (streams, what) in [
        (DciStreams { log_concurrent: 40, log_errored: 0 }, "log_concurrent"),
        (DciStreams { log_concurrent: 1, log_errored: 41 }, "log_errored"),
    ] {
        let over = pair.context.queue_pair(&pair.pd, &pair.cq).dci().streams(streams).build();
        let over = over.expect_err("more than there are");
        let Error::Limit { verb: "create_qp", what: named, value: 40 | 41, limit } = over else {
            panic!("{over}")
        };
        assert!(named == what && limit < 40, "{over}");
    }
    pair.qp.fail().expect("fail");
    let state = pair.qp.reset_stream(1).expect_err("in ERR");
    assert!(matches!(state, Error::State { needs: QpState::ReadyToSend, .. }), "{state}");
}
