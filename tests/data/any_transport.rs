//! Queue pairs whose transport is chosen at run time: messages both ways, and refusals.

use common::{LIMIT, device, pattern};
use uverbs::any_transport::{AnyEndpoint, AnyQueuePair, AnyReceives, TransportName};
use uverbs::{CompletionQueue, Context, Error, Frame, Local, PostError, ProtectionDomain, Wr};

struct Ends {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

fn ends() -> Ends {
    let context = device().open().unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
    Ends { context, pd, cq }
}

impl Ends {
    /// A queue pair, or `None` of a transport that the device lacks.
    fn build(&self, transport: TransportName, receives: &AnyReceives) -> Option<AnyQueuePair> {
        let builder = self.context.queue_pair(&self.pd, &self.cq);
        let sized = builder.max_send_wr(16).max_recv_wr(16);
        match AnyQueuePair::build(sized, transport, receives) {
            Ok(qp) => Some(qp),
            Err(error) => {
                let connected = matches!(transport, TransportName::Rc | TransportName::Uc);
                assert!(!connected && transport != TransportName::Ud, "{transport}: {error}");
                None
            }
        }
    }

    fn receives(&self, transport: TransportName, shared: bool) -> Option<AnyReceives> {
        match shared {
            true => AnyReceives::shared(&self.context, &self.pd, &self.cq, transport, 16).ok(),
            false => Some(AnyReceives::own()),
        }
    }

    fn frame(&self, len: usize) -> Frame {
        self.pd.slab(len, 1).unwrap().take().unwrap()
    }
}

/// Sends `len` bytes, and checks them where they arrive.
fn message(
    ends: &mut Ends,
    (from, to): (&mut AnyQueuePair, &mut AnyQueuePair),
    receives: &mut AnyReceives,
    (transport, len): (TransportName, usize),
) {
    let offset = transport.recv_offset();
    receives.post(to.recv_queue(), 7, ends.frame(offset + len)).unwrap();
    let mut frame = ends.frame(len);
    frame.set_len(len);
    frame.copy_from_slice(&pattern(len, 3));
    let mut batch = from.batch();
    batch.send(8, frame).unwrap();
    batch.ring();
    for _ in 0..2 {
        let done = ends.cq.wait(LIMIT).unwrap();
        done.result.unwrap();
        if done.id == 7 {
            assert_eq!(done.byte_len as usize, offset + len, "{transport}");
            assert!(done.frame.unwrap()[offset..] == pattern(len, 3)[..], "{transport}");
        }
    }
}

#[test]
fn each_transport_moves_messages_both_ways() {
    for transport in TransportName::ALL {
        for shared in [false, true] {
            if transport.needs_shared_receives() && !shared {
                continue;
            }
            let mut ends = ends();
            let Some(mut receives) = ends.receives(transport, shared) else { continue };
            let Some(mut one) = ends.build(transport, &receives) else { continue };
            let Some(mut other) = ends.build(transport, &receives) else { continue };
            let local = Local::default();
            let at = [one.bring_up(&local).unwrap(), other.bring_up(&local).unwrap()];
            // The endpoints travel as text.
            let [here, there] = at.map(|at| at.to_string().parse::<AnyEndpoint>().unwrap());
            assert_eq!([here, there], at, "{transport}");
            one.connect(&there).unwrap();
            other.connect(&here).unwrap();
            for len in [1, 100, 1000] {
                message(&mut ends, (&mut one, &mut other), &mut receives, (transport, len));
                message(&mut ends, (&mut other, &mut one), &mut receives, (transport, len));
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let ends = ends();
    let own = AnyReceives::own();
    let mut rc = ends.build(TransportName::Rc, &own).unwrap();
    let mut ud = ends.build(TransportName::Ud, &own).unwrap();
    let (rc_at, ud_at) = (rc.bring_up(&Local::default()), ud.bring_up(&Local::default()));
    // An endpoint of another transport.
    let refused = rc.connect(&ud_at.unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "the peer's endpoint", .. }), "{refused}");
    let refused = ud.connect(&rc_at.unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "the peer's endpoint", .. }), "{refused}");
    // A datagram before its destination is known gives its frame back.
    let mut batch = ud.batch();
    assert_eq!(batch.send_inline(Wr::new(1), b"to whom?"), Err(PostError::State));
    let back = batch.send(2, ends.frame(64)).unwrap_err();
    assert_eq!((back.error, back.data.capacity()), (PostError::State, 64));
    // XRC and DC without a shared queue, where the device has them at all.
    for transport in [TransportName::Xrc, TransportName::Dc] {
        if ends.receives(transport, true).and_then(|with| ends.build(transport, &with)).is_none() {
            continue;
        }
        let builder = ends.context.queue_pair(&ends.pd, &ends.cq);
        let refused = AnyQueuePair::build(builder, transport, &own).unwrap_err().to_string();
        assert!(refused.contains(&format!("not made for {transport}")), "{refused}");
    }
    let refused = "RD".parse::<TransportName>().unwrap_err().to_string();
    assert!(refused.contains("RC, UC, UD, XRC, DC or SRD"), "{refused}");
}
