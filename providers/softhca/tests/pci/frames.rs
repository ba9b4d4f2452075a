//! Frames from a send queue to receive queues, through tables that were created by commands.

use proptest::prelude::*;
use uverbs_mlx5_prm::cmd::flow;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::qp;
use uverbs_mlx5_prm::cmd::rq::wq;
use uverbs_mlx5_prm::cmd::{nic, sq, steering};

use crate::driver::{Cq, Driver, LOG_CQES, with_page};
use crate::ethernet::modify_port;
use crate::station::*;

/// Event type (`MLX5_EVENT_TYPE_WQ_CATAS_ERROR`).
const WQ_CATAS_ERROR: u8 = 5;

#[test]
fn a_frame_gets_to_whom_an_entry_names() {
    let (mut driver, mut a, mut b, table) = scene();
    table.add(&mut driver, 0, B, &b);
    let data: Vec<u8> = (0..100).collect();
    for round in 0..40 {
        b.post(&driver, ROOM);
        let frame = packet(B, None, UDP, &data[round..]);
        a.send(&mut driver, &frame, 0);
        let (got, cqe) = b.arrival(&mut driver);
        assert_eq!(got, frame);
        assert_eq!(cqe[35], 0x66, "user index");
        assert_eq!(cqe[57..60], [0, 0xa, 0xbc], "flow tag");
    }
    // A frame without entry is dropped. A later frame with entry proves it.
    b.post(&driver, ROOM);
    a.send(&mut driver, &packet(A, None, UDP, b"nobody"), 0);
    a.send(&mut driver, &packet(B, None, UDP, b"somebody"), 0);
    let (got, _) = b.arrival(&mut driver);
    assert!(got.windows(8).any(|part| part == b"somebody"));
    // A short frame is padded to Ethernet's minimum.
    b.post(&driver, ROOM);
    let short = packet(B, None, UDP, b"");
    a.send(&mut driver, &short, 0);
    let (got, _) = b.arrival(&mut driver);
    assert_eq!((got.len(), &got[..short.len()]), (60, &short[..]));
    assert!(got[short.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn multicast_reaches_others_and_oneself_if_wanted() {
    let (mut driver, mut a, mut b, table) = scene();
    let mut input = table.entry(0, EVERYBODY, Some(a.tirn), None);
    let context = flow::set_fte_in::FLOW_CONTEXT.of_mut(&mut input);
    flow::flow_context::DESTINATION_LIST_SIZE.set(context, 2);
    input.extend((2 << 24 | b.tirn).to_be_bytes());
    input.extend([0; 4]);
    driver.ok(CmdOpcode::SET_FLOW_TABLE_ENTRY, 0, &input, 16);
    for bits in [0u64, 2, 1] {
        let mut input = [0; steering::modify_tir_in::SIZE];
        steering::modify_tir_in::TIRN.set(&mut input, a.tirn.into());
        // Bit self_lb_en of the bitmask.
        steering::modify_tir_in::BITMASK.set(&mut input, 1 << 4);
        let context = steering::modify_tir_in::CTX.of_mut(&mut input);
        steering::tirc::SELF_LB_BLOCK.set(context, bits);
        driver.ok(CmdOpcode::MODIFY_TIR, 0, &input, 16);
        a.post(&driver, ROOM);
        b.post(&driver, ROOM);
        let frame = packet(EVERYBODY, None, UDP, &[bits as u8; 60]);
        a.send(&mut driver, &frame, 0);
        assert_eq!(b.arrival(&mut driver).0, frame);
        if bits == 2 {
            assert_eq!(a.arrival(&mut driver).0, frame);
        }
    }
    // No other frame came: the next completion is for the next frame.
    let frame = packet(EVERYBODY, None, UDP, b"the last of them, and the only one for both");
    b.send(&mut driver, &frame, 0);
    assert_eq!(a.arrival(&mut driver).0, frame);
    assert_ne!(a.domain, b.domain);
}

/// Blocks or allows the device's own frames (Linux `core/vport.c`,
/// `mlx5_nic_vport_update_local_lb`).
fn block_own(driver: &mut Driver, unicast: bool, multicast: bool) {
    use nic::modify_nic_vport_field_select as select;
    use nic::nic_vport_context as context;
    let uc = (select::DISABLE_UC_LOCAL_LB, context::DISABLE_UC_LOCAL_LB, unicast.into());
    let mc = (select::DISABLE_MC_LOCAL_LB, context::DISABLE_MC_LOCAL_LB, multicast.into());
    assert_eq!(modify_port(driver, &[uc, mc], &[]), CmdStatus::OK);
    let len = nic::query_nic_vport_context_out::SIZE;
    let told = driver.ok(CmdOpcode::QUERY_NIC_VPORT_CONTEXT, 0, &[0; 16], len);
    let told = nic::query_nic_vport_context_out::NIC_VPORT_CONTEXT.of(&told);
    assert_eq!(context::DISABLE_UC_LOCAL_LB.is_set(told), unicast);
    assert_eq!(context::DISABLE_MC_LOCAL_LB.is_set(told), multicast);
}

#[test]
fn a_function_hears_itself_unless_the_driver_forbids_it() {
    let (mut driver, mut a, mut b, table) = scene();
    table.add(&mut driver, 0, B, &b);
    table.add(&mut driver, 1, EVERYBODY, &b);
    b.post(&driver, ROOM);
    for (unicast, multicast) in [(true, false), (false, true), (true, true), (false, false)] {
        block_own(&mut driver, unicast, multicast);
        for (to, blocked) in [(B, unicast), (EVERYBODY, multicast)] {
            let frame = packet(to, None, UDP, &[u8::from(unicast), u8::from(multicast), to[5]]);
            a.send(&mut driver, &frame, 0);
            // A blocked frame would take the receive of the next one.
            if !blocked {
                let (got, _) = b.arrival(&mut driver);
                assert_eq!(got[..frame.len()], frame);
                b.post(&driver, ROOM);
            }
        }
    }
}

#[test]
fn checksums_are_computed_and_verified() {
    let (mut driver, mut a, mut b, table) = scene();
    table.add(&mut driver, 0, B, &b);
    let checks = |cqe: &[u8]| (cqe[28] & 7, cqe[29] >> 2 & 3, cqe[29] >> 4 & 7);
    for (protocol, kind) in [(TCP, 4), (UDP, 2)] {
        for payload in [&b"even"[..], b"odd bytes"] {
            let frame = packet(B, None, protocol, payload);
            // Without checksum flags, TCP's and IPv4's are wrong, and UDP's is absent.
            b.post(&driver, ROOM);
            a.send(&mut driver, &frame, 0);
            let (_, cqe) = b.arrival(&mut driver);
            let l4_ok = if protocol == UDP { 4 } else { 0 };
            assert_eq!(checks(&cqe), (1 | l4_ok, 2, kind));
            b.post(&driver, ROOM);
            a.send(&mut driver, &frame, 0xc0);
            let (got, cqe) = b.arrival(&mut driver);
            assert_eq!(checks(&cqe), (7, 2, kind));
            let ip = &got[14..frame.len()];
            assert_eq!(sum(&ip[..20]), 0xffff);
            let mut segment = ip[12..20].to_vec();
            segment.extend([0, protocol, 0, (ip.len() - 20) as u8]);
            segment.extend(&ip[20..]);
            assert_eq!(sum(&segment), 0xffff);
            // The checksum field for the driver covers the whole IP packet.
            let whole = u32::from(u16::from_be_bytes([cqe[20], cqe[21]]));
            assert_eq!(whole, sum(ip));
            // Bytes behind the packet are ignored.
            b.post(&driver, ROOM);
            a.send(&mut driver, &[&got[..], &[0xee; 7]].concat(), 0);
            let (_, cqe) = b.arrival(&mut driver);
            assert_eq!(checks(&cqe), (7, 2, kind));
            assert_eq!(u32::from(u16::from_be_bytes([cqe[20], cqe[21]])), whole);
            // A frame corrupted in transit.
            let mut broken = got.clone();
            broken[frame.len() - 1] ^= 1;
            b.post(&driver, ROOM);
            a.send(&mut driver, &broken, 0);
            assert_eq!(checks(&b.arrival(&mut driver).1), (3, 2, kind));
        }
    }
}

#[test]
fn tags_are_inserted_and_stripped() {
    let (mut driver, mut a, b, table) = scene();
    let cq = Cq { ..b.cq };
    let (at, record) = (driver.page(), driver.page());
    let rqn = receive_queue(&mut driver, &cq, at, record, false);
    assert_eq!(modify(&mut driver, CmdOpcode::MODIFY_RQ, rqn, 0, 1), CmdStatus::OK);
    let tirn = tir(&mut driver, b.domain, rqn);
    let mut b = Station { rqn, receive_ring: at, receive_record: record, tirn, cq, ..b };
    table.add(&mut driver, 0, B, &b);
    let plain = packet(B, None, UDP, &[7; 80]);
    b.post(&driver, ROOM);
    a.send(&mut driver, &packet(B, Some(0xa123), UDP, &[7; 80]), 0);
    let (got, cqe) = b.arrival(&mut driver);
    assert_eq!(got, plain);
    assert_eq!((cqe[29] & 1, &cqe[30..32]), (1, &[0xa1, 0x23][..]));
    assert_eq!(cqe[29] >> 4 & 7, 2, "what is behind the tag is seen");
    // A frame without VLAN tag is unchanged.
    b.post(&driver, ROOM);
    a.send(&mut driver, &plain, 0);
    let (got, cqe) = b.arrival(&mut driver);
    assert_eq!((got, cqe[29] & 1), (plain.clone(), 0));
    // Stripping is off, and the WQE inserts a tag: type 1 of the segment, with the tag in the place
    // of an inline header.
    let mut input = [0; sq::modify_rq_in::SIZE];
    sq::modify_rq_in::RQN.set(&mut input, rqn.into());
    sq::modify_rq_in::RQ_STATE.set(&mut input, 1);
    sq::modify_rq_in::MODIFY_BITMASK.set(&mut input, 2);
    let context = sq::modify_rq_in::CTX.of_mut(&mut input);
    sq::rqc::STATE.set(context, 1);
    sq::rqc::VSD.set(context, 1);
    driver.ok(CmdOpcode::MODIFY_RQ, 0, &input, 16);
    b.post(&driver, ROOM);
    let mut segment = [0; 16];
    segment[12..].copy_from_slice(&[0x80, 0, 0xa1, 0x23]);
    a.send_wqe(&mut driver, 0x0a, &segment, &plain);
    driver.poll(&mut a.cq);
    let (got, cqe) = b.arrival(&mut driver);
    assert_eq!((got, cqe[29] & 1), (packet(B, Some(0xa123), UDP, &[7; 80]), 0));
}

#[test]
fn a_large_send_is_cut() {
    let (mut driver, mut a, mut b, table) = scene();
    table.add(&mut driver, 0, B, &b);
    for _ in 0..3 {
        b.post(&driver, ROOM);
    }
    let header = packet(B, None, TCP, b"");
    let mut segment = [0; 80];
    segment[4] = 0xc0;
    segment[6..8].copy_from_slice(&500u16.to_be_bytes());
    segment[13] = header.len() as u8;
    segment[14..14 + header.len()].copy_from_slice(&header);
    let segment = &segment[..(14 + header.len()).next_multiple_of(16)];
    let payload: Vec<u8> = (0..1300u32).map(|at| (at / 5) as u8).collect();
    a.send_wqe(&mut driver, 0x0e, segment, &payload);
    driver.poll(&mut a.cq);
    let mut stream: Vec<u8> = Vec::new();
    for number in 0..3u32 {
        let (got, cqe) = b.arrival(&mut driver);
        assert_eq!(cqe[28] & 7, 7, "checksums are right");
        assert_eq!(got[38..42], (9 + 500 * number).to_be_bytes(), "sequence number");
        assert_eq!(got[47], if number == 2 { 0x18 } else { 0x10 }, "PSH in the last");
        stream.extend(&got[header.len()..]);
    }
    assert_eq!(stream, payload);
}

#[test]
fn drops_are_counted_where_a_counter_is() {
    let (mut driver, mut a, mut b, table) = scene();
    let counter = driver.ok(CmdOpcode::ALLOC_FLOW_COUNTER, 0, &[0; 16], 16);
    let counter = flow::alloc_flow_counter_out::FLOW_COUNTER_ID.get32(&counter);
    let input = table.entry(0, B, None, Some(counter));
    driver.ok(CmdOpcode::SET_FLOW_TABLE_ENTRY, 0, &input, 16);
    let frame = packet(B, None, UDP, &[1; 100]);
    b.post(&driver, ROOM);
    for _ in 0..3 {
        a.send(&mut driver, &frame, 0);
    }
    let query = |driver: &mut Driver, clear: u64| {
        let mut input = [0; flow::query_flow_counter_in::SIZE];
        flow::query_flow_counter_in::FLOW_COUNTER_ID.set(&mut input, counter.into());
        flow::query_flow_counter_in::CLEAR.set(&mut input, clear);
        let answer = driver.ok(CmdOpcode::QUERY_FLOW_COUNTER, 0, &input, 32);
        let counted = flow::query_flow_counter_out::FLOW_STATISTICS.of(&answer);
        (flow::traffic_counter::PACKETS.get(counted), flow::traffic_counter::OCTETS.get(counted))
    };
    assert_eq!(query(&mut driver, 1), (3, 3 * frame.len() as u64));
    assert_eq!(query(&mut driver, 0), (0, 0));
    // The entry forwards from now on.
    let mut input = table.entry(0, B, Some(b.tirn), Some(counter));
    flow::set_fte_in::MODIFY_ENABLE_MASK.set(&mut input, 0b1101);
    driver.ok(CmdOpcode::SET_FLOW_TABLE_ENTRY, 1, &input, 16);
    a.send(&mut driver, &frame, 0);
    assert_eq!(b.arrival(&mut driver).0, frame);
    assert_eq!(query(&mut driver, 0).0, 1);
    let number = flow::dealloc_flow_counter_in::FLOW_COUNTER_ID;
    assert_eq!(driver.about(CmdOpcode::DEALLOC_FLOW_COUNTER, number, counter), CmdStatus::OK);
    assert_ne!(driver.about(CmdOpcode::DEALLOC_FLOW_COUNTER, number, counter), CmdStatus::OK);
}

/// Queries of the last possible numbers: no counter has them.
#[test]
fn counters_at_the_end_of_all_numbers_count_nothing() {
    let mut driver = scene().0;
    for (first, count) in [(u32::MAX, 1), (u32::MAX - 1, 2), (u32::MAX, 4)] {
        let mut input = [0; flow::query_flow_counter_in::SIZE];
        flow::query_flow_counter_in::FLOW_COUNTER_ID.set(&mut input, first.into());
        flow::query_flow_counter_in::NUM_OF_COUNTERS.set(&mut input, count);
        let size = 16 + count as usize * 16;
        let answer = driver.ok(CmdOpcode::QUERY_FLOW_COUNTER, 0, &input, size);
        assert!(answer[16..].iter().all(|&byte| byte == 0));
    }
}

/// DESTROY_QP refuses raw packet queues, whose numbers are of the same kind.
#[test]
fn queues_of_frames_are_no_queue_pairs() {
    let (mut driver, mut a, mut b, table) = scene();
    table.add(&mut driver, 0, B, &b);
    for number in [a.sqn, b.rqn] {
        let field = qp::destroy_qp_in::QPN;
        assert_ne!(driver.about(CmdOpcode::DESTROY_QP, field, number), CmdStatus::OK);
    }
    let frame = packet(B, None, UDP, &[1; 100]);
    b.post(&driver, ROOM);
    a.send(&mut driver, &frame, 0);
    assert_eq!(b.arrival(&mut driver).0, frame);
}

#[test]
fn a_queue_of_queues_takes_its_share() {
    let (mut driver, mut a, mut b, table) = scene();
    let (at, record) = (driver.page(), driver.page());
    let second = receive_queue(&mut driver, &b.cq, at, record, true);
    let list = |rqns: &[u32]| {
        let mut input = vec![0; steering::create_rqt_in::SIZE];
        let context = steering::create_rqt_in::RQT_CONTEXT.of_mut(&mut input);
        steering::rqtc::RQT_MAX_SIZE.set(context, 4);
        steering::rqtc::RQT_ACTUAL_SIZE.set(context, rqns.len() as u64);
        input.extend(rqns.iter().flat_map(|rqn| rqn.to_be_bytes()));
        input
    };
    let refused =
        |driver: &mut Driver, rqns: &[u32]| driver.run(CmdOpcode::CREATE_RQT, 0, &list(rqns), 16).0;
    assert_eq!(refused(&mut driver, &[b.rqn, 0x12345]), CmdStatus::BAD_RES_ERR);
    assert_eq!(refused(&mut driver, &[b.rqn; 5]), CmdStatus::BAD_PARAM_ERR);
    assert_eq!(refused(&mut driver, &[]), CmdStatus::BAD_PARAM_ERR);
    let rqtn = number(&driver.ok(CmdOpcode::CREATE_RQT, 0, &list(&[second, b.rqn]), 16));
    let mut input = [0; steering::create_tir_in::SIZE];
    let context = steering::create_tir_in::CTX.of_mut(&mut input);
    steering::tirc::TRANSPORT_DOMAIN.set(context, b.domain.into());
    steering::tirc::DISP_TYPE.set(context, 1);
    steering::tirc::INDIRECT_TABLE.set(context, rqtn.into());
    steering::tirc::RX_HASH_FN.set(context, 1);
    let fields = steering::tirc::RX_HASH_FIELD_SELECTOR_OUTER.of_mut(context);
    // UDP over IPv4, source port.
    fields.copy_from_slice(&(1u32 << 30 | 1 << 2).to_be_bytes());
    b.tirn = number(&driver.ok(CmdOpcode::CREATE_TIR, 0, &input, 16));
    table.add(&mut driver, 0, B, &b);
    // The first queue isn't ready, so only the frame whose port selects the second queue arrives.
    for port in [0u16, 0x80] {
        b.post(&driver, ROOM);
        let mut frame = packet(B, None, UDP, &[3; 60]);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        a.send(&mut driver, &frame, 0);
        if port != 0 {
            let (got, cqe) = b.arrival(&mut driver);
            assert_eq!(got, frame);
            // 0x80 reversed; hashed field: the source port of UDP.
            assert_eq!((&cqe[12..16], cqe[16]), (&[0, 0, 0, 1][..], 0b10 << 4));
        }
    }
    // Both entries are the ready queue now.
    let mut input = list(&[b.rqn, b.rqn]);
    steering::modify_rqt_in::RQTN.set(&mut input, rqtn.into());
    steering::modify_rqt_in::BITMASK.set(&mut input, 1);
    driver.ok(CmdOpcode::MODIFY_RQT, 0, &input, 16);
    let mut frame = packet(B, None, UDP, &[3; 60]);
    frame[34..36].copy_from_slice(&[0, 0]);
    a.send(&mut driver, &frame, 0);
    assert_eq!(b.arrival(&mut driver).0, frame);
}

#[test]
fn what_has_no_room_is_dropped_and_what_has_too_little_is_an_error() {
    let (mut driver, mut a, mut b, table) = scene();
    table.add(&mut driver, 0, B, &b);
    // Without a receive the frame is dropped, and no error occurs.
    a.send(&mut driver, &packet(B, None, UDP, b"early"), 0);
    b.post(&driver, ROOM);
    a.send(&mut driver, &packet(B, None, UDP, b"in time"), 0);
    assert!(b.arrival(&mut driver).0.windows(7).any(|part| part == b"in time"));
    // Longer than the port's limit.
    let mut input = [0; nic::modify_nic_vport_context_in::SIZE];
    nic::modify_nic_vport_context_in::FIELD_SELECT.set(&mut input, 1 << 6);
    let context = nic::modify_nic_vport_context_in::NIC_VPORT_CONTEXT.of_mut(&mut input);
    nic::nic_vport_context::MTU.set(context, 100);
    driver.ok(CmdOpcode::MODIFY_NIC_VPORT_CONTEXT, 0, &input, 16);
    b.post(&driver, ROOM);
    a.send(&mut driver, &packet(B, None, UDP, &[5; 59]), 0);
    a.send(&mut driver, &packet(B, None, UDP, &[5; 58]), 0);
    assert_eq!(b.arrival(&mut driver).0.len(), 100);
    b.post(&driver, 80);
    // One byte longer than the receive: local length error, the queue goes to error, and its
    // receives are flushed.
    a.send(&mut driver, &packet(B, None, UDP, &[6; 39]), 0);
    let cqe = driver.poll(&mut b.cq);
    assert_eq!((cqe[63] >> 4, cqe[55]), (14, 1), "{cqe:x?}");
    b.post(&driver, ROOM);
    let cqe = driver.poll(&mut b.cq);
    assert_eq!((cqe[63] >> 4, cqe[55]), (14, 5), "{cqe:x?}");
    let mut query = [0; 16];
    sq::query_rq_in::RQN.set(&mut query, b.rqn.into());
    let answer = driver.ok(CmdOpcode::QUERY_RQ, 0, &query, sq::query_rq_out::SIZE);
    assert_eq!(sq::rqc::STATE.get(sq::query_rq_out::RQ_CONTEXT.of(&answer)), 3);
    // The queue works again after a reset.
    assert_eq!(modify(&mut driver, CmdOpcode::MODIFY_RQ, b.rqn, 1, 0), CmdStatus::BAD_PARAM_ERR);
    assert_eq!(modify(&mut driver, CmdOpcode::MODIFY_RQ, b.rqn, 3, 0), CmdStatus::OK);
    driver.host.write(b.receive_record, &[0; 4]);
    b.received = 0;
    assert_eq!(modify(&mut driver, CmdOpcode::MODIFY_RQ, b.rqn, 0, 1), CmdStatus::OK);
    b.post(&driver, ROOM);
    a.send(&mut driver, &packet(B, None, UDP, b"again"), 0);
    assert!(b.arrival(&mut driver).0.windows(5).any(|part| part == b"again"));
}

/// Events tell the kind of a queue, since drivers know each kind apart (Linux `hw/mlx5/qpc.c`,
/// `rsc_event_notifier`).
#[test]
fn an_overrun_is_told_of_both_kinds_of_queue() {
    let mut driver = Driver::ethernet();
    let (eqn, asynchronous) = (driver.eq(1, 0), driver.eq(2, 1 << WQ_CATAS_ERROR));
    let mut a = Station::new(&mut driver, eqn);
    let mut segment = [0; 32];
    segment[13] = INLINE as u8;
    for _ in 0..=1 << LOG_CQES {
        a.send_wqe(&mut driver, 0x0a, &segment, b"nobody");
        // The store reaches the device before the command.
        driver.ok(CmdOpcode::QUERY_ISSI, 0, &[0; 16], 112);
    }
    let told = [(); 2].map(|()| {
        let eqe = driver.eqe(asynchronous);
        (eqe[1], eqe[52], u32::from_be_bytes(eqe[56..60].try_into().unwrap()))
    });
    let both = [(WQ_CATAS_ERROR, 2, a.sqn), (WQ_CATAS_ERROR, 1, a.rqn)];
    assert!(both.iter().all(|queue| told.contains(queue)), "{told:x?}");
}

#[test]
fn what_does_not_exist_is_refused() {
    let (mut driver, a, b, table) = scene();
    let set = |driver: &mut Driver, input: &[u8]| {
        driver.run(CmdOpcode::SET_FLOW_TABLE_ENTRY, 0, input, 16).0
    };
    let good = table.entry(0, B, Some(b.tirn), None);
    assert_eq!(set(&mut driver, &good[..good.len() - 8]), CmdStatus::BAD_PARAM_ERR);
    assert_eq!(set(&mut driver, &table.entry(0, B, Some(0x777), None)), CmdStatus::BAD_RES_ERR);
    assert_eq!(set(&mut driver, &table.entry(0, B, None, Some(9))), CmdStatus::BAD_RES_ERR);
    for (field, value) in [
        (flow::flow_context::ACTION, 0x4 | 0x80),
        (flow::flow_context::ACTION, 0x4 | 0x2),
        (flow::flow_context::EXTENDED_DESTINATION, 1),
        (flow::flow_context::DESTINATION_LIST_SIZE, 0xff_ffff),
        (flow::flow_context::GROUP_ID, 99),
    ] {
        let mut input = good.clone();
        field.set(flow::set_fte_in::FLOW_CONTEXT.of_mut(&mut input), value);
        assert_eq!(set(&mut driver, &input), CmdStatus::BAD_PARAM_ERR, "{field:?}");
    }
    // Unknown objects: a packet reformat, and a modify header context.
    for (action, number) in [
        (0x10, flow::flow_context::PACKET_REFORMAT_ID),
        (0x40, flow::flow_context::MODIFY_HEADER_ID),
    ] {
        let mut input = good.clone();
        let context = flow::set_fte_in::FLOW_CONTEXT.of_mut(&mut input);
        flow::flow_context::ACTION.set(context, 0x4 | action);
        number.set(context, 0x777);
        assert_eq!(set(&mut driver, &input), CmdStatus::BAD_RES_ERR, "{action:#x}");
    }
    assert_eq!(set(&mut driver, &good), CmdStatus::OK);
    // Invalid rings.
    let queue = |driver: &mut Driver, change: &dyn Fn(&mut [u8])| {
        let mut input = with_page(sq::create_rq_in::SIZE, a.receive_ring);
        let context = sq::create_rq_in::CTX.of_mut(&mut input);
        sq::rqc::CQN.set(context, a.cq.number.into());
        ring(driver, sq::rqc::WQ.of_mut(context), 4, a.receive_record);
        change(context);
        driver.run(CmdOpcode::CREATE_RQ, 0, &input, 16).0
    };
    assert_eq!(queue(&mut driver, &|_| {}), CmdStatus::OK);
    for (field, value) in [
        (wq::WQ_TYPE, 0),
        (wq::WQ_TYPE, 2),
        (wq::LOG_WQ_SZ, 31),
        (wq::LOG_WQ_STRIDE, 15),
        (wq::WQ_SIGNATURE, 1),
    ] {
        let change = |context: &mut [u8]| field.set(sq::rqc::WQ.of_mut(context), value);
        assert_eq!(queue(&mut driver, &change), CmdStatus::BAD_PARAM_ERR, "{field:?} {value}");
    }
    let no_cq = |context: &mut [u8]| sq::rqc::CQN.set(context, 0xfff);
    assert_eq!(queue(&mut driver, &no_cq), CmdStatus::BAD_RES_ERR);
    let no_pool = |context: &mut [u8]| {
        sq::rqc::MEM_RQ_TYPE.set(context, 1);
        sq::rqc::RMPN.set(context, 0xfff);
    };
    assert_eq!(queue(&mut driver, &no_pool), CmdStatus::BAD_RES_ERR);
}

/// Valid commands of the frame path, with the offset at which bytes may be spoilt.
fn commands(driver: &Driver, a: &Station, table: &Table) -> Vec<(CmdOpcode, Vec<u8>, usize)> {
    let about_table = |size: usize| {
        let mut input = vec![0; size];
        flow::delete_fte_in::TABLE_ID.set(&mut input, table.number.into());
        input
    };
    let mut send = with_page(sq::create_sq_in::SIZE, a.send_ring);
    let context = sq::create_sq_in::CTX.of_mut(&mut send);
    sq::sqc::CQN.set(context, a.cq.number.into());
    ring(driver, sq::sqc::WQ.of_mut(context), 6, a.record);
    let mut receive = with_page(sq::create_rq_in::SIZE, a.receive_ring);
    let context = sq::create_rq_in::CTX.of_mut(&mut receive);
    sq::rqc::CQN.set(context, a.cq.number.into());
    ring(driver, sq::rqc::WQ.of_mut(context), 4, a.receive_record);
    let mut change = vec![0; sq::modify_rq_in::SIZE];
    sq::modify_rq_in::RQN.set(&mut change, a.rqn.into());
    let mut interface = vec![0; steering::create_tir_in::SIZE];
    let context = steering::create_tir_in::CTX.of_mut(&mut interface);
    steering::tirc::INLINE_RQN.set(context, a.rqn.into());
    let mut own = vec![0; steering::modify_tir_in::SIZE];
    steering::modify_tir_in::TIRN.set(&mut own, a.tirn.into());
    let mut queues = vec![0; steering::create_rqt_in::SIZE];
    let context = steering::create_rqt_in::RQT_CONTEXT.of_mut(&mut queues);
    steering::rqtc::RQT_MAX_SIZE.set(context, 2);
    steering::rqtc::RQT_ACTUAL_SIZE.set(context, 2);
    queues.extend([a.rqn.to_be_bytes(); 2].concat());
    vec![
        (CmdOpcode::CREATE_SQ, send, 32),
        (CmdOpcode::CREATE_RQ, receive, 32),
        (CmdOpcode::MODIFY_RQ, change, 8),
        (CmdOpcode::CREATE_TIR, interface, 32),
        (CmdOpcode::MODIFY_TIR, own, 8),
        (CmdOpcode::CREATE_RQT, queues, 32),
        (CmdOpcode::CREATE_FLOW_TABLE, vec![0; flow::create_flow_table_in::SIZE], 8),
        (CmdOpcode::MODIFY_FLOW_TABLE, about_table(flow::modify_flow_table_in::SIZE), 8),
        (CmdOpcode::SET_FLOW_TABLE_ROOT, about_table(flow::set_flow_table_root_in::SIZE), 8),
        (CmdOpcode::CREATE_FLOW_GROUP, about_table(flow::create_flow_group_in::SIZE), 24),
        (CmdOpcode::SET_FLOW_TABLE_ENTRY, table.entry(1, A, Some(a.tirn), None), 24),
        (CmdOpcode::SET_FLOW_TABLE_ENTRY, table.entry(2, B, Some(a.tirn), Some(1)), 64),
        (CmdOpcode::DELETE_FLOW_TABLE_ENTRY, about_table(flow::delete_fte_in::SIZE), 24),
        (CmdOpcode::QUERY_FLOW_COUNTER, vec![0; flow::query_flow_counter_in::SIZE], 8),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Commands with wrong bytes, send rings and frames of arbitrary content: the function goes on,
    /// and untouched queues work.
    #[test]
    fn anything_about_frames_is_answered(
        steps in prop::collection::vec(
            (0usize..14, prop::collection::vec((any::<u16>(), any::<u8>()), 0..6), any::<u8>()),
            1..20,
        ),
        wqes in prop::collection::vec(prop::collection::vec(any::<u8>(), 48), 0..8),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 19..120), 0..8),
    ) {
        let (mut driver, mut a, b, table) = scene();
        driver.ok(CmdOpcode::ALLOC_FLOW_COUNTER, 0, &[0; 16], 16);
        for (which, flips, op_mod) in steps {
            let (opcode, mut input, from) = commands(&driver, &b, &table).swap_remove(which);
            let len = input.len();
            for (at, byte) in flips {
                input[from + usize::from(at) % (len - from)] = byte;
            }
            driver.run(opcode, u16::from(op_mod < 64), &input, 64);
        }
        for frame in frames {
            a.send(&mut driver, &frame, 0xf0);
        }
        // Arbitrary Ethernet segments in otherwise valid WQEs; the queue may go to error.
        for (number, bytes) in wqes.iter().enumerate() {
            let opcode = if number % 2 == 0 { 0x0a } else { 0x0e };
            a.send_wqe(&mut driver, opcode, bytes, &[7; 300]);
        }
        let (status, _) = driver.run(CmdOpcode::QUERY_ISSI, 0, &[0; 16], 112);
        prop_assert_eq!(status, CmdStatus::OK);
        let eqn = driver.eq(2, 0);
        let (mut c, mut d) = (Station::new(&mut driver, eqn), Station::new(&mut driver, eqn));
        let table = Table::root(&mut driver);
        table.add(&mut driver, 0, B, &d);
        d.post(&driver, ROOM);
        let frame = packet(B, None, UDP, &[9; 90]);
        c.send(&mut driver, &frame, 0);
        prop_assert_eq!(d.arrival(&mut driver).0, frame);
    }
}
