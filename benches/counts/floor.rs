//! The least that posts and polls can do: loops written by hand, for one queue pair, over a ring of
//! plain memory.
//!
//! They check for room, write the same bytes at the same addresses as the library, keep a number
//! for each work request, ring by BlueFlame with the same fences, and find a completion's work
//! request by its counter. They believe the caller and the device. *Floor* posts memory by address
//! and key; *kept* posts buffers out of a stack, and keeps each in a table until its completion.
//!
//! # Safety
//!
//! Rings and tables have as many places as the masks say. The harness plays the device.
#![allow(unsafe_code, reason = "rings and registers are raw memory")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a work request is written as a whole")]

use std::hint::black_box;
use std::ptr::null_mut;

use uverbs_core::order::doorbell_memory::DoorbellMemory;
use uverbs_core::order::{fence, mmio};
use uverbs_mlx5_prm::cqe::{CqeOpcode, MLX5_CQE_OWNER_MASK};
use uverbs_mlx5_prm::opcode::Opcode;

use crate::device::{CqRing, Event};
use crate::ops::{Area, LINES, PAYLOAD};
use crate::{Kind, OPS, count};

/// WQEBBs or receives of a ring, and entries of a completion queue, as in `main.rs`.
const UNITS: usize = 256;
const RECVS: usize = 128;
const CQES: usize = 128;
/// Words of a WQEBB.
const BLOCK: usize = 8;
/// Words of half of a BlueFlame register.
const HALF: usize = 32;
/// Words of a receive's WQE, which has room for one SGE.
const RECV: usize = 2;
const QPN: u32 = 0x55;
const SIGNALED: u64 = 8 << 24;

/// Memory that is registered.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    addr: u64,
    len: u32,
    lkey: u32,
}

/// Kinds of posts.
trait Post {
    const UNITS: u32 = 1;
    /// Units of 16 bytes.
    const DS: u32 = 2;
    const OPCODE: Opcode = Opcode::SEND;

    /// Writes what follows the control segment; `next` is the WQEBB behind it.
    unsafe fn write(at: *mut u64, next: *mut u64, floor: &Floor, buffer: Buffer, id: u64);
}

struct Send64;
struct WriteInline8;
struct UdSend64;
struct Gather4;

#[inline(always)]
fn both(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32 | u64::from(low)).to_be()
}

#[inline(always)]
unsafe fn segment(at: *mut u64, buffer: Buffer) {
    // SAFETY: a segment of a free WQE.
    unsafe {
        at.write(both(buffer.len, buffer.lkey));
        at.add(1).write(buffer.addr.to_be());
    }
}

impl Post for Send64 {
    #[inline(always)]
    unsafe fn write(at: *mut u64, _: *mut u64, _: &Floor, buffer: Buffer, _: u64) {
        // SAFETY: the WQE is free.
        unsafe { segment(at.add(2), buffer) };
    }
}

impl Post for WriteInline8 {
    const DS: u32 = 3;
    const OPCODE: Opcode = Opcode::RDMA_WRITE;

    #[inline(always)]
    unsafe fn write(at: *mut u64, _: *mut u64, floor: &Floor, buffer: Buffer, id: u64) {
        let bytes = floor.area.bytes[(id % LINES) as usize][0];
        // SAFETY: the WQE is free.
        unsafe {
            at.add(2).write(buffer.addr.to_be());
            at.add(3).write(both(floor.area.rkey, 0));
            at.add(4).write(u64::from(0x8000_0008_u32.to_be()) | bytes << 32);
            at.add(5).write(bytes >> 32);
        }
    }
}

impl Post for UdSend64 {
    const UNITS: u32 = 2;
    const DS: u32 = 5;

    #[inline(always)]
    unsafe fn write(at: *mut u64, next: *mut u64, floor: &Floor, buffer: Buffer, _: u64) {
        // SAFETY: the WQE is free.
        unsafe {
            at.add(2).write(both(floor.qkey, 0));
            at.add(3).write(floor.vector[0] | both(floor.peer, 0));
            for word in 1..5 {
                at.add(3 + word).write(floor.vector[word]);
            }
            segment(next, buffer);
        }
    }
}

impl Post for Gather4 {
    const UNITS: u32 = 2;
    const DS: u32 = 6;
    const OPCODE: Opcode = Opcode::RDMA_WRITE;

    #[inline(always)]
    unsafe fn write(at: *mut u64, next: *mut u64, floor: &Floor, buffer: Buffer, _: u64) {
        let sge = |nth| floor.area.sge(nth, PAYLOAD);
        let piece = |nth| Buffer { addr: sge(nth).addr, len: PAYLOAD, lkey: floor.area.lkey };
        // SAFETY: the WQE is free.
        unsafe {
            at.add(2).write(buffer.addr.to_be());
            at.add(3).write(both(floor.area.rkey, 0));
            segment(at.add(4), buffer);
            segment(at.add(6), piece(1));
            segment(next, piece(2));
            segment(next.add(2), piece(3));
        }
    }
}

/// Both sides of one queue pair, and its completion queue.
struct Floor {
    sends: *mut u64,
    send_ids: *mut u64,
    send_kept: *mut *mut Buffer,
    /// Producer and consumer index.
    pi: u32,
    retired: u32,
    mask: u32,
    qpn_shifted: u32,
    record: *mut u32,
    register: *mut u64,
    half: usize,
    recvs: *mut u64,
    recv_ids: *mut u64,
    recv_kept: *mut *mut Buffer,
    recv_pi: u32,
    recv_retired: u32,
    recv_mask: u32,
    recv_record: *mut u32,
    cqes: *mut u8,
    ci: u32,
    cq_mask: u32,
    cq_record: *mut u32,
    qpn: u32,
    area: Area,
    peer: u32,
    qkey: u32,
    vector: [u64; 5],
    /// Free buffers.
    free: Vec<*mut Buffer>,
    sum: u64,
}

/// Memory of this size, which lives as long as the program.
fn leak<T: Clone>(value: T, count: usize) -> *mut T {
    Box::leak(vec![value; count + 64 / size_of::<T>()].into_boxed_slice()).as_mut_ptr()
}

fn aligned<T: Clone>(value: T, count: usize) -> *mut T {
    let at = leak(value, count);
    at.wrapping_byte_add(at.cast::<u8>().align_offset(64))
}

impl Floor {
    fn new() -> Self {
        let bytes: &'static [[u64; 8]; LINES as usize] = &[[1; 8]; LINES as usize];
        let area =
            Area { addr: bytes.as_ptr().expose_provenance() as u64, lkey: 7, rkey: 8, bytes };
        let buffers = leak(Buffer { addr: area.addr, len: PAYLOAD, lkey: area.lkey }, UNITS);
        let cqes = aligned(0xf1_u8, CQES * 64);
        Self {
            sends: aligned(0, UNITS * BLOCK),
            send_ids: leak(0, UNITS),
            send_kept: leak(null_mut(), UNITS),
            pi: 0,
            retired: 0,
            mask: UNITS as u32 - 1,
            qpn_shifted: QPN << 8,
            record: leak(0, 2),
            register: aligned(0, 2 * HALF),
            half: 0,
            recvs: aligned(0, RECVS * RECV),
            recv_ids: leak(0, RECVS),
            recv_kept: leak(null_mut(), RECVS),
            recv_pi: 0,
            recv_retired: 0,
            recv_mask: RECVS as u32 - 1,
            recv_record: leak(0, 2),
            cqes,
            ci: 0,
            cq_mask: CQES as u32 - 1,
            cq_record: leak(0, 2),
            qpn: QPN,
            area,
            peer: QPN,
            qkey: 0x1111,
            vector: [1, 2, 3, 4, 5],
            free: (0..UNITS).map(|nth| buffers.wrapping_add(nth)).collect(),
            sum: 0,
        }
    }

    #[inline(always)]
    fn block(&self, index: u32) -> *mut u64 {
        self.sends.wrapping_add((index & self.mask) as usize * BLOCK)
    }

    /// Writes a WQE at `pi`; false if the ring is full.
    #[inline(always)]
    unsafe fn post<O: Post>(&self, pi: u32, id: u64, last: bool, buffer: Buffer) -> bool {
        if pi.wrapping_sub(self.retired) > self.mask + 1 - O::UNITS {
            return false;
        }
        let (at, next) = (self.block(pi), self.block(pi.wrapping_add(1)));
        let index = u32::from(pi as u16) << 8 | u32::from(O::OPCODE.0);
        // SAFETY: the WQE is free.
        unsafe {
            at.write(both(index, self.qpn_shifted | O::DS));
            at.add(1).write(if last { SIGNALED } else { 0 });
            O::write(at, next, self, buffer, id);
            self.send_ids.add((pi & self.mask) as usize).write(id);
        }
        true
    }

    /// Rings for WQEs up to `pi`, whose last one is alone if `COPY`.
    #[inline(always)]
    unsafe fn ring<O: Post, const COPY: bool>(&mut self, pi: u32) {
        self.pi = pi;
        fence::wqe_before_record();
        let first = pi.wrapping_sub(O::UNITS);
        let to = self.register.wrapping_add(self.half);
        // SAFETY: record and register are memory, and the WQE is written.
        unsafe {
            self.record.add(1).write_volatile((pi & 0xffff).to_be());
            fence::record_before_doorbell(DoorbellMemory::WriteCombining);
            if COPY {
                for nth in 0..O::UNITS {
                    let from = self.block(first.wrapping_add(nth));
                    mmio::copy_block::<4>(to.add(nth as usize * BLOCK), from);
                }
            } else {
                to.write_volatile(self.block(first).read_volatile());
            }
        }
        fence::doorbell_flush(DoorbellMemory::WriteCombining);
        self.half ^= HALF;
    }

    /// `batches` doorbells of `N` work requests.
    #[inline(never)]
    fn posts<O: Post, const N: usize, const KEPT: bool>(&mut self, batches: usize) {
        let mut id = u64::from(self.pi);
        for _ in 0..batches {
            let mut pi = self.pi;
            for at in 0..N {
                // SAFETY: the memory lives.
                unsafe {
                    if KEPT {
                        let buffer = self.free.pop().expect("a buffer");
                        assert!(self.post::<O>(pi, id, at + 1 == N, *buffer), "room");
                        self.send_kept.add((pi & self.mask) as usize).write(buffer);
                    } else {
                        let addr = self.area.sge(id, PAYLOAD).addr;
                        let buffer = Buffer { addr, len: PAYLOAD, lkey: self.area.lkey };
                        assert!(self.post::<O>(pi, id, at + 1 == N, buffer), "room");
                    }
                }
                pi = pi.wrapping_add(O::UNITS);
                id += 1;
            }
            // SAFETY: the WQEs were written.
            unsafe { if N == 1 { self.ring::<O, true>(pi) } else { self.ring::<O, false>(pi) } };
        }
    }

    #[inline(always)]
    unsafe fn post_recv(&self, pi: u32, id: u64, buffer: Buffer) -> bool {
        if pi.wrapping_sub(self.recv_retired) > self.recv_mask {
            return false;
        }
        let place = (pi & self.recv_mask) as usize;
        let at = self.recvs.wrapping_add(place * RECV);
        // SAFETY: the WQE is free.
        unsafe {
            segment(at, buffer);
            self.recv_ids.add(place).write(id);
        }
        true
    }

    #[inline(always)]
    unsafe fn ring_recv(&mut self, pi: u32) {
        self.recv_pi = pi;
        fence::wqe_before_record();
        // SAFETY: the record is memory.
        unsafe { self.recv_record.write_volatile((pi & 0xffff).to_be()) };
    }

    #[inline(never)]
    fn recvs<const N: usize, const KEPT: bool>(&mut self, batches: usize) {
        let mut id = u64::from(self.recv_pi);
        for _ in 0..batches {
            let mut pi = self.recv_pi;
            for _ in 0..N {
                // SAFETY: the memory lives.
                unsafe {
                    if KEPT {
                        let buffer = self.free.pop().expect("a buffer");
                        assert!(self.post_recv(pi, id, *buffer), "room");
                        self.recv_kept.add((pi & self.recv_mask) as usize).write(buffer);
                    } else {
                        let addr = self.area.sge(id, PAYLOAD).addr;
                        let buffer = Buffer { addr, len: PAYLOAD, lkey: self.area.lkey };
                        assert!(self.post_recv(pi, id, buffer), "room");
                    }
                }
                pi = pi.wrapping_add(1);
                id += 1;
            }
            // SAFETY: the WQEs were written.
            unsafe { self.ring_recv(pi) };
        }
    }

    /// `polls` polls of up to `N`. Gives the completions seen.
    #[inline(never)]
    fn polls<const N: usize, const KEPT: bool>(&mut self, polls: usize) -> usize {
        let mut seen = 0;
        for _ in 0..polls {
            let begin = self.ci;
            for _ in 0..N {
                // SAFETY: in the ring, whose entries behind the owner's byte are written.
                if !unsafe { self.next::<KEPT>() } {
                    break;
                }
                seen += 1;
            }
            if self.ci != begin {
                // SAFETY: the record is memory.
                unsafe { self.cq_record.write_volatile((self.ci & 0xff_ffff).to_be()) };
            }
        }
        seen
    }

    #[inline(always)]
    unsafe fn next<const KEPT: bool>(&mut self) -> bool {
        let cqe = self.cqes.wrapping_add((self.ci & self.cq_mask) as usize * 64);
        // SAFETY: an entry.
        let op_own = unsafe { cqe.add(63).read_volatile() };
        if (op_own & MLX5_CQE_OWNER_MASK != 0) != (self.ci & (self.cq_mask + 1) != 0) {
            return false;
        }
        fence::cqe_owner_before_body();
        let opcode = op_own >> 4;
        // SAFETY: an entry that the harness wrote.
        let (qpn, counter) = unsafe {
            let qpn = u32::from_be(cqe.add(56).cast::<u32>().read_volatile()) & 0xff_ffff;
            let counter = u16::from_be(cqe.add(60).cast::<u16>().read_volatile());
            (qpn, u32::from(counter))
        };
        if qpn != self.qpn || opcode > CqeOpcode::RESP_SEND_INV.0 {
            unusual();
        }
        // SAFETY: the counter is of a work request.
        unsafe {
            if opcode == CqeOpcode::REQ.0 {
                let place = (counter & self.mask) as usize;
                self.sum += *self.send_ids.add(place);
                self.retired = counter + 1;
                if KEPT {
                    self.free.push(*self.send_kept.add(place));
                }
            } else {
                let place = (self.recv_retired & self.recv_mask) as usize;
                let len = u32::from_be(cqe.add(44).cast::<u32>().read_volatile());
                self.sum += *self.recv_ids.add(place) + u64::from(len);
                self.recv_retired = self.recv_retired.wrapping_add(1);
                if KEPT {
                    let buffer = *self.recv_kept.add(place);
                    (*buffer).len = len;
                    self.free.push(buffer);
                }
            }
        }
        self.ci = self.ci.wrapping_add(1);
        true
    }

    /// As if all that was posted were complete.
    fn forget(&mut self) {
        for index in self.retired..self.pi {
            // SAFETY: in the table.
            let kept =
                unsafe { self.send_kept.add((index & self.mask) as usize).replace(null_mut()) };
            self.free.extend((!kept.is_null()).then_some(kept));
        }
        for index in self.recv_retired..self.recv_pi {
            let at = self.recv_kept.wrapping_add((index & self.recv_mask) as usize);
            // SAFETY: in the table.
            let kept = unsafe { at.replace(null_mut()) };
            self.free.extend((!kept.is_null()).then_some(kept));
        }
        (self.retired, self.recv_retired) = (self.pi, self.recv_pi);
    }
}

#[cold]
#[inline(never)]
fn unusual() -> ! {
    panic!("a failed completion, or of an unknown queue pair");
}

fn posts<O: Post, const N: usize>(case: &str, kept: bool) {
    let batches = OPS as usize / N;
    let mut floor = Floor::new();
    let post = |floor: &mut Floor| floor.posts::<O, N, false>(batches);
    count(&format!("{case} floor"), OPS, &mut floor, |_| (), post, Floor::forget);
    if kept {
        let post = |floor: &mut Floor| floor.posts::<O, N, true>(batches);
        count(&format!("{case} kept"), OPS, &mut floor, |_| (), post, Floor::forget);
    }
}

fn recvs<const N: usize>(case: &str) {
    let batches = OPS as usize / N;
    let mut floor = Floor::new();
    let post = |floor: &mut Floor| floor.recvs::<N, false>(batches);
    count(&format!("{case} floor"), OPS, &mut floor, |_| (), post, Floor::forget);
    let post = |floor: &mut Floor| floor.recvs::<N, true>(batches);
    count(&format!("{case} kept"), OPS, &mut floor, |_| (), post, Floor::forget);
}

fn polls<const N: usize, const KEPT: bool>(case: &str, kind: Kind) {
    let (polls, wanted) = match kind {
        Kind::Nothing => (OPS as usize, 0),
        _ => (OPS as usize / N, OPS as usize),
    };
    let mut floor = Floor::new();
    let mut ring = CqRing::new(floor.cqes, CQES as u32, 64);
    let fill = |(floor, ring): &mut (&mut Floor, &mut CqRing)| {
        let first = floor.pi;
        match kind {
            Kind::Send => floor.posts::<Send64, 1, KEPT>(OPS as usize),
            Kind::Recv => floor.recvs::<1, KEPT>(OPS as usize),
            Kind::Nothing => return,
        }
        for nth in 0..OPS {
            let send = Event::Send(first.wrapping_add(nth));
            ring.complete(0, QPN, if kind == Kind::Send { send } else { Event::Recv });
        }
    };
    count(
        case,
        OPS,
        &mut (&mut floor, &mut ring),
        fill,
        |(floor, _)| assert_eq!(floor.polls::<N, KEPT>(polls), wanted, "completions"),
        |(floor, _)| {
            black_box(floor.sum);
        },
    );
}

/// All cases.
pub(crate) fn all() {
    posts::<WriteInline8, 1>("post_write_inline8_1", false);
    posts::<WriteInline8, 32>("post_write_inline8_32", false);
    posts::<Send64, 1>("post_send64_1", true);
    posts::<Send64, 32>("post_send64_32", true);
    posts::<UdSend64, 1>("post_ud_send64_1", true);
    posts::<UdSend64, 32>("post_ud_send64_32", true);
    posts::<Gather4, 1>("post_gather4_1", false);
    posts::<Gather4, 32>("post_gather4_32", false);
    recvs::<1>("recv_1");
    recvs::<32>("recv_32");
    polls::<1, false>("poll_req_1 floor", Kind::Send);
    polls::<1, true>("poll_req_1 kept", Kind::Send);
    polls::<16, false>("poll_req_16 floor", Kind::Send);
    polls::<16, true>("poll_req_16 kept", Kind::Send);
    polls::<1, false>("poll_resp_1 floor", Kind::Recv);
    polls::<1, true>("poll_resp_1 kept", Kind::Recv);
    polls::<16, false>("poll_resp_16 floor", Kind::Recv);
    polls::<16, true>("poll_resp_16 kept", Kind::Recv);
    polls::<16, false>("poll_empty floor", Kind::Nothing);
}
