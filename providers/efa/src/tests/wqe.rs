//! Golden bytes of work requests, and the refusals.

use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge};
use uverbs_kernel_rings::elements::ElementLimits;
use zerocopy::IntoBytes;

use crate::wqe::{Block, LONG_WQE, Rdma, Rules, To, WQE, check, recv_sge, req_id, write_send};

const SGE: Sge = Sge { addr: 0x11_2233_4455, len: 16, lkey: 0xab_cde };
const REMOTE: Remote = Remote { addr: 0x8877_6655_4433_2211, rkey: 0x0102_0304 };
const RULES: Rules = Rules {
    room: ElementLimits { max_sge: 2, max_inline: 80 },
    rdma_sge: 1,
    rdma_inline: 80,
    message: 8192,
    rdma: 1 << 30,
    has: Some(Rdma { read: true, write: true }),
};
const TO: To = To { ah: 3, qpn: 7, qkey: 0x1111_1111 };

/// Bytes of a send as groups of four, in memory order.
fn send(op: SendOp, data: Data<'_>, len: usize, (id, phase): (u16, u8)) -> Vec<String> {
    let checked = check(&op, SendFlags::SIGNALED, &data, &RULES).unwrap();
    let mut wqe = vec![Block([u64::MAX; 8]); len / WQE];
    write_send(&mut wqe, id, phase, checked, TO, &data);
    wqe.as_bytes()
        .chunks(4)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect()
}

/// Compares a send with the groups of four bytes that are not zero.
fn assert_groups(wqe: &[String], expected: &[(usize, &str)]) {
    for (index, group) in wqe.iter().enumerate() {
        let of = expected.iter().find(|(at, _)| at / 4 == index);
        assert_eq!(group, of.map_or("00000000", |(_, group)| group), "at {}", index * 4);
    }
}

#[test]
fn a_send_has_the_bytes_of_the_layout() {
    let head = [(0, "0000801c"), (4, "07000100"), (12, "03000000"), (16, "11111111")];
    let sge = [(32, "10000000"), (36, "debc0a00"), (40, "55443322"), (44, "11000000")];
    let wqe = send(SendOp::Send, Data::One(SGE), WQE, (0, 0));
    assert_groups(&wqe, &[&head[..], &sge[..]].concat());
    // The second turn, another number, and a key whose upper bits are not the device's.
    let wqe = send(SendOp::Send, Data::One(Sge { lkey: 0xff0a_bcde, ..SGE }), WQE, (0x4321, 1));
    assert_eq!((wqe[0].as_str(), wqe[9].as_str()), ("2143801d", "debc0a00"));
    let wqe = send(SendOp::SendImm(0x0403_0201), Data::List(&[SGE, SGE]), WQE, (0, 0));
    assert_eq!((wqe[0].as_str(), wqe[1].as_str()), ("0000901c", "07000200"));
    assert_eq!((wqe[2].as_str(), &wqe[8..12]), ("01020304", &wqe[12..16]));
}

#[test]
fn inline_data_follows_the_head() {
    let head = [(0, "0000a01c"), (4, "07000500"), (12, "03000000"), (16, "11111111")];
    let wqe = send(SendOp::Send, Data::InlineList(&[b"abc", b"de"]), WQE, (0, 0));
    assert_groups(&wqe, &[&head[..], &[(32, "61626364"), (36, "65000000")]].concat());
    let wqe = send(SendOp::Send, Data::Inline(&[7; 80]), LONG_WQE, (0, 0));
    assert_eq!((wqe.len(), wqe[1].as_str()), (32, "07005000"));
    assert!(wqe[8..28].iter().all(|group| group == "07070707"));
    assert!(wqe[28..].iter().all(|group| group == "00000000"));
}

#[test]
fn rdma_names_the_peers_memory_first() {
    let remote = [(32, "10000000"), (36, "04030201"), (40, "11223344"), (44, "55667788")];
    let local = [(48, "10000000"), (52, "debc0a00"), (56, "55443322"), (60, "11000000")];
    for (op, head, imm) in [
        (SendOp::Read(REMOTE), "0000811c", "00000000"),
        (SendOp::Write(REMOTE), "0000821c", "00000000"),
        (SendOp::WriteImm(REMOTE, 5), "0000921c", "05000000"),
    ] {
        let head = [(0, head), (4, "07000100"), (8, imm), (12, "03000000"), (16, "11111111")];
        let wqe = send(op, Data::One(SGE), WQE, (0, 0));
        assert_groups(&wqe, &[&head[..], &remote[..], &local[..]].concat());
    }
    let wqe = send(SendOp::Write(REMOTE), Data::Inline(b"data"), LONG_WQE, (0, 0));
    assert_eq!((wqe[0].as_str(), wqe[8].as_str()), ("0000a21c", "04000000"));
    assert_eq!((wqe[11].as_str(), wqe[12].as_str()), ("55667788", "64617461"));
}

#[test]
fn what_the_device_lacks_is_refused() {
    let one = Data::One(SGE);
    let refused = |op, flags, data: &Data<'_>, rules: &Rules| {
        check(&op, SendFlags::SIGNALED | flags, data, rules).unwrap_err()
    };
    let none = SendFlags::empty();
    let ud = Rules { has: None, ..RULES };
    let old = Rules { has: Some(Rdma { read: true, write: false }), ..RULES };
    let short = Rules { rdma_inline: 0, ..RULES };
    let read = SendOp::Read(REMOTE);
    let write = SendOp::Write(REMOTE);
    let add = SendOp::FetchAdd { remote: REMOTE, add: 1 };
    let cases = [
        (refused(add, none, &one, &RULES), PostError::BadOperation),
        (refused(SendOp::SendInvalidate(1), none, &one, &RULES), PostError::BadOperation),
        (refused(SendOp::Send, SendFlags::FENCE, &one, &RULES), PostError::BadOperation),
        (refused(SendOp::Send, SendFlags::SOLICITED, &one, &RULES), PostError::BadOperation),
        (refused(write, none, &one, &ud), PostError::BadOperation),
        (refused(write, none, &one, &old), PostError::NotOnDevice),
        (refused(read, none, &Data::Inline(b"x"), &RULES), PostError::BadData),
        (refused(write, none, &Data::Inline(b"x"), &short), PostError::InlineTooLong),
        (refused(SendOp::Send, none, &Data::Inline(&[0; 81]), &RULES), PostError::InlineTooLong),
        (refused(read, none, &Data::List(&[SGE; 2]), &RULES), PostError::TooManySges),
        (refused(SendOp::Send, none, &Data::List(&[SGE; 3]), &RULES), PostError::TooManySges),
        (
            refused(SendOp::Send, none, &Data::One(Sge { len: 8193, ..SGE }), &RULES),
            PostError::MessageTooLong,
        ),
    ];
    for (index, (error, expected)) in cases.into_iter().enumerate() {
        assert_eq!(error, expected, "case {index}");
    }
    assert!(check(&read, SendFlags::SIGNALED, &one, &old).is_ok());
}

#[test]
fn a_receive_marks_its_first_and_last_sge() {
    let bytes = |list: &[Sge], index| {
        let sge = recv_sge(list, index, 0x1234);
        sge.as_bytes()
            .chunks(4)
            .map(|group| {
                group.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(bytes(&[SGE], 0), ["55443322", "11000000", "34121000", "debc0ac0"]);
    assert_eq!(bytes(&[SGE, SGE], 0), ["55443322", "11000000", "34121000", "debc0a40"]);
    let long = Sge { len: 1 << 20, ..SGE };
    assert_eq!(bytes(&[SGE, long], 1), ["55443322", "11000000", "0000ffff", "debc0a80"]);
    assert_eq!(bytes(&[], 0), ["00000000", "00000000", "34120000", "000000c0"]);
}

#[test]
fn a_number_has_slot_and_user_index() {
    assert_eq!(req_id(5, 3, 7), 5 << 7 | 3);
    assert_eq!(req_id(5, 128 + 3, 7), 5 << 7 | 3);
    assert_eq!(req_id(0x1_0003, 1, 14), 3 << 14 | 1);
    assert_eq!(req_id(7, 0, 0), 7);
    assert_eq!(req_id(5, 0xffff, 16), 0xffff);
}
