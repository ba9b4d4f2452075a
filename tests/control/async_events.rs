//! Asynchronous events: each names its object, reaches the contexts it concerns, and is not
//! delivered after the object is gone.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::{
    LIMIT, Side, impatient, local, not_on_linux_rdmavt, not_on_rxe, only_on_softhca, pair_with,
    soft,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::attr::{GlobalRoute, Path, RtrAttr};
use uverbs::event::{AsyncElement, AsyncEventKind};
use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, Context, Endpoint, Error, Remote, RnrTimer, Status};

/// Time without an event after which none is expected.
const SILENCE: Duration = Duration::from_millis(300);

/// The next event of a context, in time.
fn next(context: &Context) -> (AsyncEventKind, AsyncElement) {
    let event = context.async_event(LIMIT).unwrap().expect("an event");
    (event.kind, event.element)
}

/// All events of a context until none comes.
fn all(context: &Context) -> Vec<(AsyncEventKind, AsyncElement)> {
    let events = std::iter::from_fn(|| context.async_event(SILENCE).unwrap());
    events.map(|event| (event.kind, event.element)).collect()
}

/// Makes the client write to memory for which it has no rights.
fn violate(client: &mut Side) {
    let mut batch = client.qp.batch();
    batch.write_inline(1, b"x", Remote { addr: 0, rkey: 0xdead_0000 }).unwrap();
    batch.ring();
    assert_eq!(client.wait().result.unwrap_err().status, Status::RemoteAccess);
}

#[test]
fn nothing_is_waited_for_longer_than_asked() {
    let context = common::device().open().unwrap();
    let events = context.async_events();
    assert_eq!(events.try_next(), Ok(None));
    let started = Instant::now();
    let error = events.next_within(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { verb: "get_async_event", .. }), "{error:?}");
    assert!(started.elapsed() >= Duration::from_millis(20));
    let mut file = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut file, PollTimeout::ZERO), Ok(0));
}

#[test]
fn an_event_comes_to_the_context_of_its_queue_pair_and_to_no_other() {
    let (mut client, server) = pair_with(&impatient(), |qp| qp);
    violate(&mut client);
    let got = all(&server.context);
    let lacks = || {
        not_on_rxe("kernels up to 6.12 at least raise no such event")
            || not_on_linux_rdmavt("it raises no such event")
    };
    if got.is_empty() && lacks() {
        return;
    }
    let expected = (AsyncEventKind::QpAccessError, AsyncElement::Qp(server.qp.event_id()));
    assert!(got.contains(&expected), "{got:?}");
    assert!(all(&client.context).is_empty());
}

#[test]
fn a_queue_pair_that_goes_takes_its_unread_events_along() {
    let (mut client, server) = pair_with(&impatient(), |qp| qp);
    violate(&mut client);
    let Side { qp, context, cq, .. } = server;
    let mut file = [PollFd::new(context.async_events().as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(Duration::from_secs(2)).unwrap();
    if poll(&mut file, limit) == Ok(0)
        && not_on_rxe("kernels up to 6.12 at least raise no such event")
    {
        return;
    }
    let gone = AsyncElement::Qp(qp.event_id());
    drop(qp.destroy().expect("destroyed, read or not"));
    let left = all(&context);
    assert!(left.iter().all(|(_, element)| *element != gone), "{left:?}");
    drop(cq);
}

#[test]
fn a_packet_for_a_queue_pair_that_is_ready_to_receive_tells_that_the_peer_is() {
    if !only_on_softhca("kernels raise it or not, as their drivers are") {
        return;
    }
    let device = common::device();
    let mut client = Side::new(&device, &local(), |qp| qp);
    let mut server = Side::new(&device, &local(), |qp| qp);
    client.qp.connect(&server.endpoint).unwrap();
    let Endpoint { qpn, psn, mtu, gid, lid, .. } = client.endpoint;
    let index = server.context.best_gid(1).unwrap().map_or(0, |entry| entry.index as u8);
    let route = |dgid| GlobalRoute {
        dgid,
        sgid_index: index,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
    };
    let attr = RtrAttr {
        dest_qpn: qpn,
        rq_psn: psn,
        path_mtu: mtu,
        path: Path {
            dlid: lid,
            grh: gid.map(route),
            service_level: 0,
            src_path_bits: 0,
            static_rate: 0,
        },
        max_dest_rd_atomic: 1,
        min_rnr_timer: RnrTimer::DEFAULT,
    };
    server.qp.ready_to_receive(&attr).unwrap();
    server.expect(1, 64);
    client.qp.post_send_inline(2, b"are you there?").unwrap();
    let id = server.qp.event_id();
    assert_eq!(
        next(&server.context),
        (AsyncEventKind::CommunicationEstablished, AsyncElement::Qp(id))
    );
    assert_eq!(server.done().id, 1);
}

#[test]
fn a_completion_queue_that_overruns_is_named_with_its_queue_pairs() {
    if !only_on_softhca("an overrun of a real device's queue is the driver's to survive") {
        return;
    }
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let small = context.create_cq(2).unwrap();
    let builder = context.queue_pair(&pd, &small).max_send_wr(64).max_recv_wr(1).overcommit();
    let mut qp = builder.build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let memory = pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    for id in 0..64 {
        let mut batch = qp.batch();
        batch.write_inline(id, b"x", memory.remote(0)).unwrap();
        batch.ring();
    }
    let got = all(&context);
    let cq = (AsyncEventKind::CqError, AsyncElement::Cq(small.event_id()));
    assert!(got.contains(&cq), "{got:?}");
    assert!(
        got.iter().any(|&(kind, element)| kind == AsyncEventKind::QpFatal
            && element == AsyncElement::Qp(qp.event_id())),
        "{got:?}"
    );
}

#[test]
fn what_happens_to_port_and_device_everybody_hears() {
    if !only_on_softhca("the test unplugs cable and device") {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    let contexts = [0, 1].map(|_| soft(&hca).open().unwrap());
    hca.link_down();
    hca.link_up();
    assert!(!contexts.iter().any(Context::is_gone));
    hca.unplug();
    for context in &contexts {
        assert!(context.is_gone());
        assert_eq!(next(context), (AsyncEventKind::PortError, AsyncElement::Port(1)));
        assert_eq!(next(context), (AsyncEventKind::PortActive, AsyncElement::Port(1)));
        assert_eq!(next(context), (AsyncEventKind::DeviceFatal, AsyncElement::Device));
        assert_eq!(context.async_events().try_next(), Ok(None), "and that was all");
    }
}
