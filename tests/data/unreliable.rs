//! UC and UD: operations, refusals, and the origin of a datagram.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

use std::time::{Duration, Instant};

use common::{End, LIMIT, device, is_rxe, pattern};
use uverbs::raw::{Data, SendOp};
use uverbs::transport::{Uc, Ud};
use uverbs::{
    AccessFlags, Completed, DatagramEndpoint, Destination, Error, GRH_LEN, LinkLayer, Local,
    PostError, QpState, Remote, Status,
};

fn uc_pair() -> (End<Uc>, End<Uc>) {
    common::uc_pair(&Local { access: AccessFlags::REMOTE_WRITE, ..Local::default() })
}

fn ud_pair() -> (End<Ud>, End<Ud>, [DatagramEndpoint; 2]) {
    let device = device();
    let (mut one, mut other) = (End::<Ud>::new(&device), End::<Ud>::new(&device));
    let at = [one.qp.bring_up(&Local::default()), other.qp.bring_up(&Local::default())];
    let at = at.map(|endpoint| endpoint.unwrap());
    (one, other, at)
}

/// The longest datagram.
fn mtu(end: &End<Ud>) -> usize {
    end.context.query_port(1).unwrap().active_mtu.bytes().unwrap() as usize
}

#[test]
fn uc_sends_and_writes_every_size() {
    let (mut client, mut server) = uc_pair();
    assert_eq!(client.qp.state(), QpState::ReadyToSend);
    let memory = server.pd.expose((1 << 16) + 64, AccessFlags::REMOTE_WRITE).unwrap();
    for (round, size) in [0, 1, 255, 4095, 4096, 4097, 65_537].into_iter().enumerate() {
        let seed = round as u8;
        server.expect(7, size);
        let frame = client.filled(size, seed);
        let mut batch = client.qp.batch();
        batch.send_imm(1, frame, 0xabc).unwrap();
        batch.ring();
        let received = server.done();
        assert_eq!((received.id, received.result), (7, Ok(Completed::Recv)));
        assert_eq!((received.byte_len as usize, received.immediate), (size, Some(0xabc)));
        assert!(*received.frame.unwrap() == pattern(size, seed)[..], "{size} bytes differ");
        assert_eq!(client.done().result, Ok(Completed::Send));

        let size = size.min(1 << 16);
        server.expect(8, 1);
        let frame = client.filled(size, seed + 50);
        let mut batch = client.qp.batch();
        batch.write(2, frame, memory.remote(32)).unwrap();
        batch.write_imm_inline(3, &[], memory.remote(0), 5).unwrap();
        batch.ring();
        // The first WRITE is complete when the second one's immediate data arrives: RC keeps the
        // order.
        let told = server.done();
        assert_eq!((told.id, told.result), (8, Ok(Completed::RecvWriteImm)));
        let mut there = vec![0; size];
        memory.read(32, &mut there).unwrap();
        assert!(there == pattern(size, seed + 50), "{size} bytes differ");
        assert_eq!([client.done().id, client.done().id], [2, 3]);
    }
}

#[test]
fn uc_has_no_answers() {
    let (mut client, _server) = uc_pair();
    let nowhere = Remote { addr: 0, rkey: 0 };
    let mut batch = client.qp.batch();
    for op in [
        SendOp::Read(nowhere),
        SendOp::FetchAdd { remote: nowhere, add: 1 },
        SendOp::CompareSwap { remote: nowhere, compare: 0, swap: 0 },
    ] {
        // SAFETY: nothing is posted, and nothing rung.
        let refused = unsafe { batch.raw().post(1, op, Data::List(&[])) };
        assert_eq!(refused, Err(PostError::BadOperation));
    }
}

#[test]
fn uc_loses_a_message_without_a_receive_and_goes_on() {
    let (mut client, mut server) = uc_pair();
    let memory = server.pd.expose(8, AccessFlags::REMOTE_WRITE).unwrap();
    let mut batch = client.qp.batch();
    batch.send_inline(1, b"lost").unwrap();
    batch.write_inline(2, &[1], memory.remote(0)).unwrap();
    batch.ring();
    assert_eq!(client.done().result, Ok(Completed::Send), "nobody tells that it was lost");
    assert_eq!(client.done().result, Ok(Completed::Write));
    // Messages are taken in order: the first one is lost once the WRITE is there.
    let (start, mut byte) = (Instant::now(), [0]);
    while byte != [1] {
        assert!(start.elapsed() < LIMIT, "the WRITE does not arrive");
        memory.read(0, &mut byte).unwrap();
    }
    server.expect(2, 16);
    let mut batch = client.qp.batch();
    batch.send_inline(3, b"kept").unwrap();
    batch.ring();
    assert_eq!(&server.done().frame.unwrap()[..], b"kept");
}

#[test]
fn datagrams_arrive_with_their_source_behind_40_bytes() {
    let (mut one, mut other, at) = ud_pair();
    let mtu = mtu(&one);
    let to = one.qp.destination(&at[1]).unwrap();
    for (round, size) in [0, 1, 63, 64, 255, mtu - 1, mtu].into_iter().enumerate() {
        let seed = round as u8;
        for imm in [None, Some(77)] {
            other.expect(5, GRH_LEN + mtu);
            let frame = one.filled(size, seed);
            let mut batch = one.qp.batch();
            match imm {
                None => batch.send_to(1, frame, &to).unwrap(),
                Some(imm) => batch.send_imm_to(1, frame, imm, &to).unwrap(),
            }
            batch.ring();
            let received = other.done();
            assert_eq!((received.id, received.result), (5, Ok(Completed::Recv)));
            assert_eq!((received.byte_len as usize, received.immediate), (GRH_LEN + size, imm));
            assert_eq!(received.sender.qpn(), one.qp.qpn());
            assert_eq!(received.sender.has_grh(), at[0].gid.is_some());
            if at[0].gid.is_none() {
                assert_eq!(received.sender.lid(), at[0].lid);
            }
            let frame = received.frame.unwrap();
            assert!(frame[GRH_LEN..] == pattern(size, seed)[..], "{size} bytes differ");
            if let (Some(from), true) = (at[0].gid, received.sender.has_grh()) {
                // IPv6 and InfiniBand have the sender's GID in bytes 8 to 24, IPv4 its address in
                // the header at 20.
                let there = if from.is_ipv4_mapped() { &frame[32..36] } else { &frame[8..24] };
                assert!(from.0.ends_with(there), "{from} isn't in {there:x?}");
            }
            assert_eq!(one.done().result, Ok(Completed::Send));
        }
    }
}

#[test]
fn inline_datagrams_pass_the_end_of_the_ring_at_every_length() {
    let (mut one, mut other, at) = ud_pair();
    let to = one.qp.destination(&at[1]).unwrap();
    let limit = one.qp.cap().max_inline_data as usize;
    assert!(limit >= 100);
    // Twice around: lengths of one to several WQEBBs begin everywhere.
    for round in 0..2 * one.qp.cap().max_send_wr as usize {
        let size = round % (limit + 1);
        other.expect(5, GRH_LEN + limit);
        let mut batch = one.qp.batch();
        batch.send_imm_inline_to(1, &pattern(size, 9), round as u32, &to).unwrap();
        batch.ring();
        let received = other.done();
        assert_eq!(received.immediate, Some(round as u32));
        assert!(received.frame.unwrap()[GRH_LEN..] == pattern(size, 9)[..], "round {round}");
        one.done();
    }
    let mut batch = one.qp.batch();
    assert_eq!(
        batch.send_inline_to(1, &vec![0; limit + 1], &to),
        Err(PostError::InlineTooLong),
        "and no more"
    );
}

#[test]
fn many_destinations_in_one_batch() {
    let device = device();
    let mut hub = End::<Ud>::new(&device);
    hub.qp.bring_up(&Local::default()).unwrap();
    let mut spokes: Vec<_> = (0..5).map(|_| End::<Ud>::new(&device)).collect();
    let to: Vec<Destination> = spokes
        .iter_mut()
        .zip(0..)
        .map(|(spoke, number)| {
            // Each peer asks for a different Q_Key.
            let local = Local { qkey: 100 + number, ..Local::default() };
            let at = spoke.qp.bring_up(&local).unwrap();
            spoke.expect(1, GRH_LEN + 64);
            hub.qp.destination(&at).unwrap()
        })
        .collect();
    let mut batch = hub.qp.batch();
    for (number, to) in to.iter().enumerate() {
        batch.send_inline_to(number as u64, &[number as u8; 40], to).unwrap();
    }
    // The work request keeps the address handle alive, so the batch does not need it any more.
    drop(to);
    batch.ring();
    for (number, spoke) in spokes.iter_mut().enumerate() {
        let frame = spoke.done().frame.unwrap();
        assert_eq!(frame[GRH_LEN..], [number as u8; 40]);
    }
    for number in 0..5 {
        assert_eq!(hub.done().id, number);
    }
}

#[test]
fn a_wrong_key_and_a_missing_receive_lose_the_datagram_alone() {
    let device = device();
    let [mut one, mut other, mut behind] = std::array::from_fn(|_| End::<Ud>::new(&device));
    let mut bring_up = |end: &mut End<Ud>| end.qp.bring_up(&Local::default()).unwrap();
    let at = [&mut one, &mut other, &mut behind].map(&mut bring_up);
    let good = one.qp.destination(&at[1]).unwrap();
    let last = one.qp.destination(&at[2]).unwrap();
    let bad = good.address_handle().to(at[1].qpn, at[1].qkey ^ 1);
    other.expect(5, GRH_LEN + 16);
    behind.expect(7, GRH_LEN + 16);
    let mut batch = one.qp.batch();
    batch.send_inline_to(1, b"wrong key", &bad).unwrap();
    batch.send_inline_to(2, b"good", &good).unwrap();
    // The one receive is used up.
    batch.send_inline_to(3, b"late", &good).unwrap();
    batch.send_inline_to(4, b"behind", &last).unwrap();
    batch.ring();
    assert_eq!([1, 2, 3, 4].map(|_| one.done().id), [1, 2, 3, 4]);
    assert_eq!(&other.done().frame.unwrap()[GRH_LEN..], b"good");
    // The late one is lost once the last one is there.
    assert_eq!(behind.done().id, 7);
    if is_rxe() {
        // Another thread takes the other queue pair's datagrams.
        std::thread::sleep(Duration::from_millis(20));
    }
    other.expect(6, GRH_LEN + 16);
    let mut batch = one.qp.batch();
    batch.send_inline_to(4, b"again", &good).unwrap();
    batch.ring();
    let received = other.done();
    assert_eq!((received.id, &received.frame.unwrap()[GRH_LEN..]), (6, &b"again"[..]));
}

#[test]
fn what_is_of_another_domain_is_refused_and_given_back() {
    let (mut one, other, at) = ud_pair();
    let own = one.qp.destination(&at[1]).unwrap();
    let foreign = other.qp.destination(&at[0]).unwrap();
    let frame = one.filled(8, 1);
    let mut batch = one.qp.batch();
    let rejected = batch.send_to(1, frame, &foreign).unwrap_err();
    assert_eq!(rejected.error, PostError::ForeignAddress);
    assert_eq!(batch.send_inline_to(1, b"x", &foreign), Err(PostError::ForeignAddress));
    let rejected = batch.send_to(1, other.filled(8, 1), &own).unwrap_err();
    assert_eq!(rejected.error, PostError::ForeignBuffer);
    // SAFETY: the data is copied.
    let refused = unsafe { batch.raw().post_to(1, SendOp::Send, Data::Inline(b"x"), &foreign) };
    assert_eq!(refused, Err(PostError::ForeignAddress));
    let remote = Remote { addr: 0, rkey: 0 };
    // SAFETY: nothing is posted.
    let refused = unsafe { batch.raw().post_to(1, SendOp::Write(remote), Data::List(&[]), &own) };
    assert_eq!(refused, Err(PostError::BadOperation));
    batch.ring();
    assert!(one.cq.wait(Duration::from_millis(5)).is_err(), "nothing was posted");
}

#[test]
fn addresses_that_lead_nowhere_are_refused_by_name() {
    let mut end = End::<Ud>::new(&device());
    let peer = DatagramEndpoint { lid: 0, qpn: 1, qkey: 1, gid: None };
    let early = end.qp.destination(&peer).unwrap_err();
    assert!(matches!(early, Error::State { verb: "create_ah", .. }), "{early}");
    let at = end.qp.bring_up(&Local::default()).unwrap();
    if at.gid.is_some() {
        let without = end.qp.destination(&peer).unwrap_err();
        assert!(matches!(without, Error::MissingAttribute { .. }), "{without}");
    }
    let attr = uverbs::AhAttr {
        port: 1,
        path: uverbs::attr::Path {
            dlid: 1,
            grh: Some(uverbs::attr::GlobalRoute {
                dgid: at.gid.unwrap_or_default(),
                sgid_index: 0,
                hop_limit: 1,
                traffic_class: 0,
                flow_label: 1 << 20,
            }),
            service_level: 16,
            src_path_bits: 0,
            static_rate: 0,
        },
    };
    let level = end.context.create_ah(&end.pd, &attr).unwrap_err();
    assert!(matches!(level, Error::Limit { what: "service level", limit: 15, .. }), "{level}");
    let path = uverbs::attr::Path { service_level: 0, ..attr.path };
    let label = end.context.create_ah(&end.pd, &uverbs::AhAttr { path, ..attr }).unwrap_err();
    assert!(matches!(label, Error::Limit { what: "flow label", .. }), "{label}");
    let path = uverbs::attr::Path { grh: None, ..path };
    let port = end.context.create_ah(&end.pd, &uverbs::AhAttr { port: 99, path }).unwrap_err();
    if is_rxe() {
        // Its ports are all of Ethernet, so the route is missed before the port is.
        assert!(matches!(port, Error::MissingAttribute { .. }), "{port}");
    } else {
        // On InfiniBand libmlx5's way asks for the port; others name it here.
        let verb = if common::is_rdmavt() { "create_ah" } else { "query_port" };
        assert_eq!(port, Error::Limit { verb, what: "port", value: 99, limit: 1 });
    }
    let used: Vec<_> = end.context.query_gid_table().unwrap().iter().map(|gid| gid.index).collect();
    let table = end.context.query_port(1).unwrap().gid_table_len.min(256);
    let free = (0..table).find(|index| !used.contains(index));
    // On InfiniBand the kernel isn't asked: the handle is made here, as libmlx5 makes it.
    let ethernet = end.context.query_port(1).unwrap().link_layer == LinkLayer::Ethernet;
    if let Some(free) = free.filter(|_| ethernet) {
        let sgid_index = free as u8;
        let grh =
            attr.path.grh.map(|grh| uverbs::attr::GlobalRoute { sgid_index, flow_label: 0, ..grh });
        let attr = uverbs::AhAttr { port: 1, path: uverbs::attr::Path { grh, ..path } };
        let empty = end.context.create_ah(&end.pd, &attr).unwrap_err();
        assert!(matches!(empty, Error::EmptyGid { index, .. } if index == free), "{empty}");
    }
    let elsewhere = device().open().unwrap().alloc_pd().unwrap();
    let foreign = end.context.create_ah(&elsewhere, &uverbs::AhAttr { port: 1, path });
    assert!(matches!(foreign, Err(Error::Invalid { what: "protection domain", .. })));
}

#[test]
fn a_reset_datagram_queue_pair_starts_over() {
    let (mut one, mut other, at) = ud_pair();
    let to = one.qp.destination(&at[1]).unwrap();
    for _ in 0..2 {
        other.expect(5, GRH_LEN + 8);
        let mut batch = one.qp.batch();
        batch.send_inline_to(1, b"datagram", &to).unwrap();
        batch.ring();
        assert_eq!(&other.done().frame.unwrap()[GRH_LEN..], b"datagram");
        one.done();
        let End { qp, cq, .. } = &mut one;
        qp.reset(&mut [cq]).unwrap();
        qp.bring_up(&Local::default()).unwrap();
    }
    one.expect(9, 64);
    one.qp.fail().unwrap();
    let flushed = one.cq.wait(LIMIT).unwrap();
    assert_eq!(flushed.result.unwrap_err().status, Status::Flushed);
    assert!(flushed.frame.is_some());
}
