//! The software HCA's UDP wire, and Linux's soft-RoCE at its other end, which decides what is
//! right.
//!
//! soft-RoCE takes its port for all addresses of a network namespace, so the software HCA's sockets
//! are in another one: `UVERBS_TEST_FAR` has the namespace's name and the device's addresses in it.
//! `tests/vm/interop.sh` makes both ends. With `UVERBS_TEST_LOSS` the network between them loses.
#![cfg(feature = "softhca")]
#![allow(unsafe_code, reason = "enters a network namespace, and registers memory by its address")]

use std::fs::File;
use std::net::IpAddr;
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use common::operations::{every_operation, rarer_operations};
use common::placing::place;
use common::{End, Side, local, pattern, skip, soft};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use uverbs::attr::DeviceCaps;
use uverbs::placement::{FlushLevel, PlacementTypes};
use uverbs::raw::{Data, SendOp};
use uverbs::softhca::wire::Feth;
use uverbs::softhca::{Carrier, HcaStats, SoftHca, Udp};
use uverbs::softhca::{Key, Placement};
use uverbs::transport::{Uc, Ud};
use uverbs::{AccessFlags, Completed, Device, GRH_LEN, Local, MemoryRegion, Remote, Status};

/// One packet and its neighbours, several packets, and more than what either side has under way.
const SIZES: [usize; 8] = [1, 255, 1023, 1024, 1025, 4097, 100_000, 1 << 20];
/// The devices, in the order of [`devices`].
const NAMES: [&str; 2] = ["soft-RoCE", "the software HCA"];
/// How long one of the long messages may take: a GiB under an emulator, beside other work.
const LONG: Duration = Duration::from_secs(2000);

/// The software HCA in its namespace, one for all tests; without one the test is skipped.
fn far() -> Option<&'static SoftHca> {
    static FAR: OnceLock<SoftHca> = OnceLock::new();
    let Ok(far) = std::env::var("UVERBS_TEST_FAR") else {
        skip("UVERBS_TEST_FAR names no network namespace");
        return None;
    };
    let build = move || {
        let mut words = far.split_whitespace();
        let name = words.next().expect("a namespace");
        let file = File::open(format!("/run/netns/{name}")).expect("the namespace");
        // SAFETY: a descriptor that is open and a constant. This thread is the test's own.
        let entered = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
        let mut addresses = words.map(|word| word.parse::<IpAddr>().expect("an address"));
        let udp = Udp::at(addresses.next().expect("an address")).by(Carrier::Udp);
        // The device's own thread is in the namespace of the thread that makes it.
        let builder = SoftHca::builder().udp(addresses.fold(udp, Udp::and)).memory_placement();
        builder.build().expect("a software HCA")
    };
    Some(FAR.get_or_init(|| thread::spawn(build).join().expect("a software HCA")))
}

/// Soft-RoCE and the software HCA.
fn devices() -> Option<[Device; 2]> {
    let far = soft(far()?);
    Some([common::device(), far])
}

fn loses() -> bool {
    std::env::var_os("UVERBS_TEST_LOSS").is_some()
}

/// An IPv4 or a global IPv6 address among a device's GIDs.
fn gid_index(device: &Device, v4: bool) -> u32 {
    let gids = device.open().unwrap().query_gid_table().unwrap();
    let mut gids = gids.iter().filter(|entry| entry.gid.0[0] != 0xfe);
    gids.find(|entry| entry.gid.is_ipv4_mapped() == v4).expect("such an address").index
}

/// Attributes for requests that are refused. A refusal ends the queue pair that answers, so it is
/// told once. At a count of 7 soft-RoCE would repeat an unanswered request for ever (`rxe_comp.c`,
/// `rxe_completer`).
fn refused() -> Local {
    Local { retry_count: 6, rnr_retry: 2, ..local() }
}

/// True if a request failed as it should, or the network may have lost the refusal.
fn is_told(status: Status, wanted: Status) -> bool {
    status == wanted || loses() && status == Status::RetryExceeded
}

/// Two connected sides, soft-RoCE's first.
fn sides(devices: &[Device; 2], local: &Local, v4: bool) -> [Side; 2] {
    let mut sides = [0, 1].map(|at| {
        let gid_index = Some(gid_index(&devices[at], v4));
        Side::new(&devices[at], &Local { gid_index, ..local.clone() }, |builder| builder)
    });
    let [one, other] = &mut sides;
    one.qp.connect(&other.endpoint).expect("connect soft-RoCE");
    other.qp.connect(&one.endpoint).expect("connect the software HCA");
    sides
}

#[test]
fn rc_does_everything_both_ways() {
    let Some(devices) = devices() else { return };
    let again = |stats: &HcaStats| stats.retransmits + stats.duplicates + stats.out_of_sequence;
    let (before, udp_before) =
        (again(&far().unwrap().stats()), far().unwrap().udp_stats().unwrap());
    for v4 in [true, false] {
        let [mut near, mut far] = sides(&devices, &local(), v4);
        let sizes = if loses() { &SIZES[..7] } else { &SIZES };
        for &size in sizes {
            every_operation(&mut near, &mut far, size);
            every_operation(&mut far, &mut near, size);
        }
        for size in [1, 1024, 5000] {
            rarer_operations(&mut near, &mut far, size);
            rarer_operations(&mut far, &mut near, size);
        }
    }
    let (after, udp) = (far().unwrap().stats(), far().unwrap().udp_stats().unwrap());
    let bad = (udp.bad_icrc - udp_before.bad_icrc, udp.malformed - udp_before.malformed);
    assert_eq!(bad, (0, 0), "{udp:?}");
    assert!(!loses() || again(&after) > before + 10, "the network lost nothing: {after:?}");
}

#[test]
fn rc_refusals_are_told_both_ways() {
    let Some(devices) = devices() else { return };
    for from in [0, 1] {
        let mut sides = sides(&devices, &refused(), true);
        sides.rotate_left(from);
        let [mut client, server] = sides;
        let memory = server.pd.expose(64, AccessFlags::REMOTE_READ).unwrap();
        client.qp.post_write_inline(1, b"no", memory.remote(0)).unwrap();
        let status = client.wait().result.unwrap_err().status;
        assert!(is_told(status, Status::RemoteAccess), "{status:?}: {} asks", NAMES[from]);
    }
    for from in [0, 1] {
        let mut sides = sides(&devices, &refused(), true);
        sides.rotate_left(from);
        let [mut client, _server] = sides;
        let frame = client.filled(10, 1);
        client.qp.post_send(1, frame).unwrap();
        assert_eq!(client.wait().result.unwrap_err().status, Status::RnrRetryExceeded);
    }
    for from in [0, 1] {
        let mut sides = sides(&devices, &refused(), true);
        sides.rotate_left(from);
        let [mut client, mut server] = sides;
        server.expect(1, 9);
        let frame = client.filled(5000, 1);
        client.qp.post_send(1, frame).unwrap();
        // soft-RoCE calls a receive that is too short its own fault (rxe_resp.c, `send_data_in`).
        let why = [Status::RemoteInvalidRequest, Status::RemoteOperation][from];
        let status = client.wait().result.unwrap_err().status;
        assert!(is_told(status, why), "{status:?}: {} sends", NAMES[from]);
    }
}

#[test]
fn rc_waits_for_a_late_receive_both_ways() {
    let Some(devices) = devices() else { return };
    let mut sides = sides(&devices, &local(), true);
    for name in NAMES {
        let [client, server] = &mut sides;
        let frame = client.filled(3000, 1);
        client.qp.post_send(1, frame).unwrap();
        thread::sleep(Duration::from_millis(20));
        server.expect(2, 3000);
        let sent = client.wait();
        assert!(sent.result.is_ok(), "{name} sends: {sent:?}, {:?}", far().unwrap().stats());
        assert!(server.done().frame.unwrap()[..] == pattern(3000, 1)[..]);
        sides.reverse();
    }
}

/// Attributes for a FLUSH and its memory. `None`, and skips the test, if soft-RoCE lacks FLUSH or
/// ATOMIC WRITE.
fn placing(devices: &[Device; 2]) -> Option<Local> {
    let caps = devices[0].open().unwrap().query_device().unwrap().caps_ex;
    if !caps.contains(DeviceCaps::FLUSH_GLOBAL | DeviceCaps::ATOMIC_WRITE) {
        skip("the device has no FLUSH, or no ATOMIC WRITE");
        return None;
    }
    Some(Local { access: local().access | AccessFlags::FLUSH_GLOBAL, ..local() })
}

#[test]
fn rc_writes_atomically_both_ways() {
    let Some(devices) = devices() else { return };
    let Some(local) = placing(&devices) else { return };
    let hca = far().unwrap();
    // soft-RoCE's has address 0 when it is sent again (`rxe_req.c`, `req_retry`).
    let both = !loses();
    for v4 in [true, false] {
        let [mut near, mut far] = sides(&devices, &local, v4);
        let memories = [&near, &far].map(|side| side.pd.expose(8192, local.access).unwrap());
        for seed in 0..40 {
            // Several packets, so that a network which loses loses some before the word.
            let (one, other) = (near.filled(5000, seed), far.filled(5000, seed + 100));
            let words = [seed + 1, seed + 101].map(|seed| [seed, 2, 3, 4, 5, 6, 7, seed]);
            let mut batch = near.qp.batch();
            batch.write(1, one, memories[1].remote(64)).unwrap();
            if both {
                batch.atomic_write(2, memories[1].remote(8), words[0]).unwrap();
            }
            batch.ring();
            far.qp.post_write(1, other, memories[0].remote(64)).unwrap();
            let Remote { addr: va, rkey } = memories[0].remote(8);
            let word = Placement::AtomicWrite { va, rkey: Key(rkey), data: words[1] };
            place(hca, &mut far, 2, word);
            for id in 1..=1 + u64::from(both) {
                assert_eq!(near.done().id, id);
            }
            let done = [far.done(), far.done()].map(|done| done.result);
            assert_eq!(done, [Completed::Write, Completed::Other(0)].map(Ok));
            let word = if both { words[0] } else { [0; 8] };
            let expected = [(words[1], seed + 100), (word, seed)];
            for (memory, (word, seed)) in memories.iter().zip(expected) {
                let mut there = vec![0; 5064];
                memory.read(0, &mut there).unwrap();
                assert_eq!(there[..24], [[0; 8], word, [0; 8]].concat());
                assert!(there[64..] == pattern(5000, seed), "record {seed} differs");
            }
        }
    }
}

#[test]
fn rc_atomic_writes_are_refused_both_ways() {
    let Some(devices) = devices() else { return };
    let Some(Local { access, .. }) = placing(&devices) else { return };
    let local = Local { access, ..refused() };
    let hca = far().unwrap();
    // The right of the key, and where.
    for (rights, at) in [(AccessFlags::REMOTE_READ, 0), (AccessFlags::REMOTE_WRITE, 64)] {
        for from in [0, 1] {
            let [mut near, mut far] = sides(&devices, &local, true);
            let target = if from == 0 { &far.pd } else { &near.pd };
            let memory = target.expose(64, rights).unwrap();
            let start = memory.remote(0);
            let remote = Remote { addr: start.addr + at, ..start };
            let status = if from == 0 {
                let mut batch = near.qp.batch();
                batch.atomic_write(1, remote, [1; 8]).unwrap();
                batch.ring();
                near.wait().result.unwrap_err().status
            } else {
                let (va, rkey) = (remote.addr, Key(remote.rkey));
                place(hca, &mut far, 1, Placement::AtomicWrite { va, rkey, data: [1; 8] });
                far.wait().result.unwrap_err().status
            };
            let is_told = is_told(status, Status::RemoteAccess);
            assert!(is_told, "{status:?}: {rights:?} at {at}, {} asks", NAMES[from]);
            let mut there = [0; 64];
            memory.read(0, &mut there).unwrap();
            assert_eq!(there, [0; 64]);
        }
    }
}

/// soft-RoCE counts the headers of a FLUSH into the packet's checksum twice, because its opcode
/// table lacks the offset of the (empty) payload (`rxe_opcode.c`, `IB_OPCODE_RC_FLUSH`;
/// `rxe_icrc.c`). So only soft-RoCE accepts its FLUSH.
#[test]
fn rc_soft_roces_flush_has_another_checksum() {
    let Some(devices) = devices() else { return };
    let Some(local) = placing(&devices) else { return };
    let hca = far().unwrap();
    let local = Local { access: local.access, ..common::impatient() };
    let rights = AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_GLOBAL;
    let [mut near, far] = sides(&devices, &local, true);
    let memory = far.pd.expose(64, rights).unwrap();
    let bad = || hca.udp_stats().unwrap().bad_icrc;
    let before = bad();
    let mut batch = near.qp.batch();
    let types = PlacementTypes::GLOBAL;
    batch.flush(1, memory.remote(0), 64, types, FlushLevel::Range).unwrap();
    batch.ring();
    let sent = near.wait();
    assert!(bad() > before, "a kernel that counts them once: {sent:?}");
    let [near, mut far] = sides(&devices, &local, true);
    let memory = near.pd.expose(64, rights).unwrap();
    let Remote { addr: va, rkey } = memory.remote(0);
    let header = Feth::new(Feth::GLOBAL, Feth::RANGE);
    place(hca, &mut far, 1, Placement::Flush { va, rkey: Key(rkey), len: 64, header });
    let failed = [sent, far.wait()].map(|done| done.result.map_err(|failure| failure.status));
    assert_eq!(failed, [Err(Status::RetryExceeded); 2]);
}

#[test]
fn uc_sends_and_writes_both_ways() {
    let Some(devices) = devices() else { return };
    let local = local();
    let mut ends = devices.each_ref().map(End::<Uc>::new);
    let at = ends.each_mut().map(|end| end.qp.prepare(&local).expect("prepare"));
    ends[0].qp.connect(&at[1]).unwrap();
    ends[1].qp.connect(&at[0]).unwrap();
    for (size, seed) in [1, 1023, 1024, 1025, 9000, 60_000].into_iter().zip(0..) {
        for _ in [0, 1] {
            let [client, server] = &mut ends;
            let memory = server.pd.expose(size, AccessFlags::REMOTE_WRITE).unwrap();
            server.expect(1, size);
            server.expect(2, 1);
            let frames = [seed, seed + 50].map(|seed| client.filled(size, seed));
            let mut batch = client.qp.batch();
            let [one, other] = frames;
            batch.send_imm(1, one, 0xabc).unwrap();
            batch.write_imm(2, other, memory.remote(0), 5).unwrap();
            batch.ring();
            let sent = server.done();
            assert_eq!((sent.byte_len as usize, sent.immediate), (size, Some(0xabc)));
            assert!(*sent.frame.unwrap() == pattern(size, seed)[..], "{size} bytes differ");
            let written = server.done();
            assert_eq!(written.result, Ok(Completed::RecvWriteImm));
            let mut there = vec![0; size];
            memory.read(0, &mut there).unwrap();
            assert!(there == pattern(size, seed + 50), "{size} bytes differ");
            assert_eq!([client.done().id, client.done().id], [1, 2]);
            ends.reverse();
        }
    }
}

#[test]
fn ud_tells_who_sent_both_ways() {
    let Some(devices) = devices() else { return };
    for v4 in [true, false] {
        let mut ends = devices.each_ref().map(End::<Ud>::new);
        let at = [0, 1].map(|at| {
            let gid_index = Some(gid_index(&devices[at], v4));
            let local = Local { gid_index, traffic_class: 0x68, hop_limit: 33, ..local() };
            ends[at].qp.bring_up(&local).unwrap()
        });
        for (from, size) in [(0, 1), (1, 1), (0, 1023), (1, 1023), (0, 1024), (1, 1024)] {
            let to = ends[from].qp.destination(&at[1 - from]).unwrap();
            ends[1 - from].expect(5, GRH_LEN + size);
            let frame = ends[from].filled(size, 7);
            let mut batch = ends[from].qp.batch();
            batch.send_imm_to(1, frame, 77, &to).unwrap();
            batch.ring();
            let received = ends[1 - from].done();
            assert_eq!(
                (received.byte_len as usize, received.immediate),
                (GRH_LEN + size, Some(77))
            );
            assert_eq!(received.sender.qpn(), ends[from].qp.qpn());
            let frame = received.frame.unwrap();
            assert!(frame[GRH_LEN..] == pattern(size, 7)[..], "{size} bytes differ");
            let (gid, class) = (at[from].gid.unwrap().0, if v4 { frame[21] } else { frame[1] });
            let there = if v4 { &frame[32..36] } else { &frame[8..24] };
            assert!(gid.ends_with(there), "{gid:x?} isn't in {:x?}", &frame[..GRH_LEN]);
            let hops = if v4 { frame[28] } else { frame[7] };
            let class = if v4 { class } else { class >> 4 | frame[0] << 4 };
            // Linux takes the route's own limit (core/verbs.c, `ib_resolve_unicast_gid_dmac`).
            assert_eq!(
                (class, hops),
                (0x68, [64, 33][from]),
                "{} sends: {:x?}",
                NAMES[from],
                &frame[..GRH_LEN]
            );
            ends[from].done();
        }
    }
}

/// Bytes of the long messages: a GiB takes minutes in an emulated machine.
fn long() -> usize {
    let usual = if loses() { 4 << 20 } else { 32 << 20 };
    std::env::var("UVERBS_TEST_BYTES").map_or(usual, |bytes| bytes.parse().unwrap())
}

/// Bytes of a long range that have separate pages.
const FOLD: usize = 2 << 20;

/// A registered range of any length whose pages are the same few over and over, so that a GiB fits
/// into a small machine.
struct Folded {
    region: MemoryRegion,
    memory: *mut u8,
}

impl Folded {
    fn new(side: &Side, len: usize) -> Self {
        let file = memfd_create("folded", MFdFlags::MFD_CLOEXEC).unwrap();
        nix::unistd::ftruncate(&file, FOLD as i64).unwrap();
        let [whole, fold] = [len, FOLD].map(|len| NonZero::new(len).expect("some bytes"));
        assert_eq!(len % FOLD, 0);
        // SAFETY: a new mapping, wherever the kernel puts it. It stays.
        let base = unsafe {
            mmap_anonymous(None, whole, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE).unwrap()
        };
        for at in (0..len).step_by(FOLD) {
            let place = base.addr().checked_add(at);
            let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
            // SAFETY: within the mapping above, which is still unused.
            unsafe { mmap(place, fold, prot, flags, &file, 0) }.unwrap();
        }
        let memory = base.as_ptr().cast();
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        // SAFETY: mapped for good, and there are no references into it.
        let region = unsafe { side.pd.register(memory, len, access) }.unwrap();
        Self { region, memory }
    }

    fn fill(&self, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: within the first fold.
            unsafe { self.memory.wrapping_add(at).write_volatile(*byte) }
        }
    }

    fn holds(&self, bytes: &[u8]) -> bool {
        // SAFETY: within the first fold.
        let byte = |at| unsafe { self.memory.wrapping_add(at).read_volatile() };
        bytes.iter().enumerate().all(|(at, expected)| byte(at) == *expected)
    }
}

#[test]
fn rc_moves_long_messages_both_ways() {
    let Some(devices) = devices() else { return };
    let len = long();
    let mut sides = sides(&devices, &local(), true);
    let mut folded = sides.each_ref().map(|side| Folded::new(side, len));
    for round in 0..4 {
        let [one, other] = &folded;
        let read = round >= 2;
        let (from, to) = if read { (other, one) } else { (one, other) };
        let bytes = pattern(FOLD, round);
        from.fill(&bytes);
        to.fill(&[0; FOLD]);
        let remote = Remote { addr: other.region.addr(), rkey: other.region.rkey() };
        let op = if read { SendOp::Read(remote) } else { SendOp::Write(remote) };
        let list = [one.region.sge(0, len as u32)];
        let [client, _] = &mut sides;
        let began = Instant::now();
        let mut batch = client.qp.batch();
        // SAFETY: the memory stays, and so do the regions until the completion.
        unsafe { batch.raw().post(1, op, Data::List(&list)) }.unwrap();
        batch.ring();
        let completion = client.cq.wait(LONG).expect("a completion");
        completion.result.unwrap();
        println!("{op:?} of {len} bytes: {:?}", began.elapsed());
        assert!(to.holds(&bytes), "round {round}");
        sides.reverse();
        folded.reverse();
    }
}
