//! Hand-written CQEs with scattered data: errors that a lying device can't hide.
#![allow(unsafe_code, reason = "posts, and memory that work requests name")]

use std::sync::Arc;

use uverbs_core::provider::{CqOps, Polled, View};
use uverbs_core::queues::completion::{Completed, Failure, Status};
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::user_index::UserIndexes;
use uverbs_mlx5_prm::ctrl::DS_BYTES;

use super::cq::{Cqe, RESP_SEND};
use super::fixture::{Heap, PollSide};
use crate::cq::scattered::WorkRings;

const REQ: u8 = 0;
const READ: u8 = 0x10;
/// Bits of a CQE's last byte: data in its first half; data before it, in a 128-byte CQE.
const IN_HALF: u8 = 4;
const BEFORE: u8 = 8;
/// Number of WQEs of each ring, and size of a WQE.
const WQES: u32 = 8;
const STRIDE: usize = 64;

/// A queue pair whose receive `i` has number `200 + i`, and send `i` number `100 + i`, a READ; each
/// with one SGE of `room` bytes at its place in `memory`.
struct World {
    side: PollSide,
    shared: Arc<QpShared>,
    memory: Arc<Heap>,
}

fn word(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

impl World {
    fn new(shift: u32, room: u32) -> Self {
        let [send, recv, record, memory] =
            [512, 512, 64, 1024].map(|bytes| Arc::new(Heap::new(bytes)));
        for wqe in 0..WQES as usize {
            let place = memory.at(wqe * STRIDE).expose_provenance() as u64;
            let piece = [&word(room)[..], &word(7), &place.to_be_bytes()].concat();
            let end = [&word(0)[..], &word(0x100), &[0; 8]].concat();
            let at = wqe * STRIDE;
            recv.write(at, &piece);
            recv.write(at + DS_BYTES, &end);
            // Control segment for three units, remote address, SGE.
            send.write(at, &[&word(READ.into())[..], &word(3)].concat());
            send.write(at + 2 * DS_BYTES, &piece);
        }
        record.write(0, &word(WQES));
        let rings = WorkRings {
            send: send.at(0),
            send_mask: WQES as usize * STRIDE - 1,
            recv: recv.at(0),
            recv_mask: WQES as usize * STRIDE - 1,
            recv_stride: STRIDE,
            posted: record.at(0).cast(),
            nothing: None,
            _memory: Arc::new((send, recv, record)),
        };
        let shared = Arc::new(QpShared {
            user_index: UserIndexes::default().take("create_qp").unwrap(),
            send: SlotTable::new(WQES),
            recv: SlotTable::new(WQES),
            srq: None,
            qpn: 1,
            special: Some(Box::new(rings)),
        });
        for i in 0..WQES {
            // SAFETY: the test is the only poster.
            unsafe { shared.send.slots().put(i, 100 + u64::from(i), i + 1) };
            // SAFETY: the test is the only poster.
            unsafe { shared.recv.slots().put(i, 200 + u64::from(i), i + 1) };
        }
        let side = PollSide::new(16, shift);
        side.attach(&shared);
        Self { side, shared, memory }
    }

    /// Writes a CQE with `bytes` of data, filled with 0xa5 as far as it has room, at the position
    /// given by `data`.
    fn complete(&mut self, cqe: Cqe, bytes: u32, data: u8) {
        let Cqe(mut entry) = cqe.bytes(bytes);
        entry[63] |= data;
        if data == IN_HALF {
            entry[..32].fill(0xa5);
        }
        self.side.complete(entry);
    }

    fn receive(&mut self, counter: u16, bytes: u32, data: u8) {
        let cqe = Cqe::new(RESP_SEND, self.shared.user_index.value()).counter(counter);
        self.complete(cqe, bytes, data);
    }

    fn send(&mut self, counter: u16, sop: u8, bytes: u32, data: u8) {
        let cqe = Cqe::new(REQ, self.shared.user_index.value()).sop(sop).counter(counter);
        self.complete(cqe, bytes, data);
    }

    #[track_caller]
    fn finds(&mut self, id: u64, is_recv: bool, result: Result<Completed, Status>) {
        self.side.cq.settle();
        let Polled { view, wr_id, .. } = self.side.cq.next().unwrap();
        let status = |failure: Failure| failure.status;
        assert_eq!((wr_id, view.is_recv()), (id, is_recv));
        assert_eq!(view.result().map_err(status), result);
        let decoded = view.decode();
        assert_eq!((decoded.result.map_err(status), decoded.is_recv), (result, is_recv));
        if result.is_err() {
            assert_eq!((decoded.byte_len, view.byte_len()), (0, 0));
        }
    }

    fn filled(&self, wqe: usize) -> usize {
        self.memory.read(wqe * STRIDE, STRIDE).iter().filter(|byte| **byte == 0xa5).count()
    }
}

/// rdma-core `qp.c:copy_to_scat` copies as much as fits, and reports `IBV_WC_LOC_LEN_ERR`.
#[test]
fn data_that_is_longer_than_its_list_fails_its_work_request_alone() {
    let mut world = World::new(6, 20);
    world.receive(0, 20, IN_HALF);
    world.finds(200, true, Ok(Completed::Recv));
    world.receive(1, 21, IN_HALF);
    world.finds(201, true, Err(Status::LocalLength));
    world.receive(2, 7, IN_HALF);
    world.finds(202, true, Ok(Completed::Recv));
    assert_eq!([0, 1, 2, 3].map(|wqe| world.filled(wqe)), [20, 20, 7, 0]);
    world.send(3, READ, 32, IN_HALF);
    world.finds(103, false, Err(Status::LocalLength));
    world.send(4, READ, 3, IN_HALF);
    world.finds(104, false, Ok(Completed::Read));
    assert_eq!([3, 4, 5].map(|wqe| world.filled(wqe)), [20, 3, 0]);
    assert_eq!((world.shared.send.retired(), world.shared.recv.retired()), (5, 3));
    assert_eq!(world.side.cq.strays(), 0);
}

/// rdma-core `qp.c:mlx5_copy_to_send_wqe` returns `IBV_WC_REM_INV_REQ_ERR` for a send with another
/// opcode.
#[test]
fn data_that_nothing_asked_for_fails_its_work_request() {
    let mut world = World::new(6, 20);
    world.send(0, 0x0a, 4, IN_HALF);
    world.finds(100, false, Err(Status::RemoteInvalidRequest));
    // A 64-byte CQE has no data before it.
    world.receive(0, 4, BEFORE);
    world.finds(200, true, Err(Status::General));
    world.send(1, READ, 4, BEFORE);
    world.finds(101, false, Err(Status::General));
    world.receive(1, 4, IN_HALF);
    world.finds(201, true, Ok(Completed::Recv));
    assert_eq!(world.side.cq.strays(), 0);
}

/// Data without a work request is dropped and counted.
#[test]
fn data_of_a_work_request_that_is_not_outstanding_is_dropped() {
    let mut world = World::new(6, 20);
    world.receive(5, 4, IN_HALF);
    world.send(9, READ, 4, IN_HALF);
    world.side.cq.settle();
    assert!(world.side.cq.next().is_none());
    assert_eq!(world.side.cq.strays(), 2);
    assert!((0..8).all(|wqe| world.filled(wqe) == 0));
    world.receive(0, 4, IN_HALF);
    world.finds(200, true, Ok(Completed::Recv));
}
