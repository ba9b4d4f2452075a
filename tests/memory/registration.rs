//! Registration: regions that are changed, and registrations that are kept.
#![allow(unsafe_code, reason = "registers memory by address")]

use std::sync::Arc;

use common::{Side, is_rxe, local, page_size, pair, pattern, soft};
use uverbs::memory::{RegisteredBytes, RegistrationCache, Reregistration};
use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, Completed, Errno, Error, MemoryRegion, Remote, Status};

const OWN: AccessFlags = AccessFlags::LOCAL_WRITE;
const OPEN: AccessFlags = OWN.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// Pages that stay.
fn pages(len: usize) -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(len, page_size()).unwrap();
    // SAFETY: the length isn't 0. Leaked.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!memory.is_null());
    memory
}

fn byte(memory: *mut u8, at: usize) -> u8 {
    // SAFETY: within what `pages` gave, which is never freed.
    unsafe { memory.wrapping_add(at).read_volatile() }
}

fn register(side: &Side, memory: *mut u8, len: usize, access: AccessFlags) -> MemoryRegion {
    // SAFETY: never freed, and there are no references into it.
    unsafe { side.pd.register(memory, len, access) }.unwrap()
}

fn reregister(
    region: MemoryRegion,
    change: Reregistration,
) -> Result<MemoryRegion, uverbs::Refused<MemoryRegion>> {
    // SAFETY: as in `register`; nothing is outstanding.
    unsafe { region.reregister(&change) }
}

fn write(side: &mut Side, to: Remote, value: u8) -> Option<Status> {
    side.qp.post_write_inline(1, &[value; 8], to).unwrap();
    side.wait().result.err().map(|failure| failure.status)
}

/// True if the device supports reregistration: soft-RoCE does in new kernels.
fn changes_regions(side: &Side) -> bool {
    let region = register(side, pages(4096), 4096, OWN);
    let same = reregister(region, Reregistration::default().access(OWN));
    let none = same.is_err_and(|refused| refused.error.to_errno() == Errno::EOPNOTSUPP);
    if none {
        common::skip("its kernel has no reregistration");
    }
    !none
}

#[test]
fn a_region_gets_other_rights() {
    let (mut client, server) = pair();
    if !changes_regions(&server) {
        return;
    }
    let memory = pages(8192);
    let region = register(&server, memory, 8192, OPEN);
    let place = |region: &MemoryRegion| Remote { addr: region.addr() + 100, rkey: region.rkey() };
    assert_eq!(write(&mut client, place(&region), 1), None);
    let region = reregister(region, Reregistration::default().access(OPEN)).unwrap();
    assert_eq!(write(&mut client, place(&region), 2), None);
    assert_eq!([byte(memory, 100), byte(memory, 107), byte(memory, 108)], [2, 2, 0]);
    let region = reregister(region, Reregistration::default().access(OWN)).unwrap();
    assert_eq!((region.addr(), region.len()), (memory.addr() as u64, 8192));
    assert_eq!(write(&mut client, place(&region), 3), Some(Status::RemoteAccess));
    assert_eq!(byte(memory, 100), 2);
}

#[test]
fn a_region_gets_other_memory() {
    if common::not_on_rdmavt("its kernel has no reregistration") {
        return;
    }
    if is_rxe() {
        return common::skip("it changes rights and domain only");
    }
    let (mut client, server) = pair();
    let (first, second) = (pages(4096), pages(8192));
    let region = register(&server, first, 4096, OPEN);
    let change = Reregistration::default().memory_at(second, 8192, 0x7000_0000);
    let region = reregister(region, change).unwrap();
    assert_eq!((region.addr(), region.len()), (0x7000_0000, 8192));
    let to = Remote { addr: 0x7000_0000 + 5000, rkey: region.rkey() };
    assert_eq!(write(&mut client, to, 9), None);
    assert_eq!([byte(second, 5000), byte(second, 5007), byte(second, 5008)], [9, 9, 0]);
    assert_eq!(byte(first, 0), 0);
    region.deregister().unwrap();
}

#[test]
fn a_region_gets_another_domain() {
    let (mut client, server) = pair();
    if !changes_regions(&server) {
        return;
    }
    let memory = pages(4096);
    let region = register(&server, memory, 4096, OPEN);
    let other = server.context.alloc_pd().unwrap();
    let region = reregister(region, Reregistration::default().domain(&other)).unwrap();
    let to = Remote { addr: region.addr(), rkey: region.rkey() };
    assert_eq!(write(&mut client, to, 1), Some(Status::RemoteAccess), "of another domain");
    let _again = reregister(region, Reregistration::default().domain(&server.pd)).unwrap();
}

#[test]
fn a_refused_change_gives_the_region_back() {
    if common::not_on_rdmavt("its kernel has no reregistration") {
        return;
    }
    let (mut client, server) = pair();
    let memory = pages(4096);
    let region = register(&server, memory, 4096, OPEN);
    let to = Remote { addr: region.addr(), rkey: region.rkey() };
    let refused = |change, region| {
        let refused = reregister(region, change).unwrap_err();
        refused.into_parts()
    };
    let (error, region) = refused(Reregistration::default(), region);
    assert!(matches!(error, Error::Invalid { verb: "rereg_mr", what: "change", .. }), "{error}");
    let (error, region) = refused(Reregistration::default().memory(memory, 0), region);
    assert!(matches!(error, Error::Limit { what: "length", value: 0, .. }), "{error}");
    let elsewhere = Side::new(&common::device(), &local(), |builder| builder);
    let (error, region) = refused(Reregistration::default().domain(&elsewhere.pd), region);
    assert!(matches!(error, Error::Invalid { what: "protection domain", .. }), "{error}");
    let remote_alone = Reregistration::default().access(AccessFlags::REMOTE_WRITE);
    let (error, region) = refused(remote_alone, region);
    assert!(matches!(error.to_errno(), Errno::EINVAL | Errno::EOPNOTSUPP), "{error}");
    assert_eq!(write(&mut client, to, 5), None, "it is as it was");
    if !is_rxe() {
        let hole = std::ptr::without_provenance_mut(0x10_0000);
        let (error, region) = refused(Reregistration::default().memory(hole, 4096), region);
        assert_eq!(error.to_errno(), Errno::EFAULT);
        assert_eq!((region.addr(), region.len()), (memory.addr() as u64, 4096));
        assert_eq!(write(&mut client, to, 6), None, "it is as it was");
        region.deregister().unwrap();
    }
    assert_eq!(byte(memory, 0), if is_rxe() { 5 } else { 6 });
}

fn send(side: &mut Side, id: u64, bytes: RegisteredBytes) {
    let mut batch = side.qp.batch();
    batch.send(id, bytes).unwrap();
    batch.ring();
}

fn shared(len: usize, seed: u8) -> Arc<[u8]> {
    Arc::from(pattern(len, seed))
}

#[test]
fn bytes_are_sent_from_where_they_are() {
    let (mut client, mut server) = pair();
    let bytes = shared(100_000, 3);
    let registered = client.pd.register_bytes(&bytes).unwrap();
    assert!(Arc::ptr_eq(registered.whole(), &bytes) && registered[..] == bytes[..]);
    server.expect(1, 100_000);
    send(&mut client, 2, registered.clone());
    let received = server.done();
    assert!(received.frame.unwrap()[..] == bytes[..]);
    let done = client.done();
    assert_eq!(done.result, Ok(Completed::Send));
    assert!(done.frame.is_none(), "nothing comes back");
    // A part; bytes beyond the end are left out.
    let part = registered.part(99_990..200_000);
    assert_eq!(part[..], bytes[99_990..]);
    assert!(part.part(20..).is_empty() && registered.part(7..7).is_empty());
    assert_eq!(part.part(..=2).part(1..)[..], bytes[99_991..99_993]);
    let memory = server.pd.expose(16, AccessFlags::REMOTE_WRITE).unwrap();
    let mut batch = client.qp.batch();
    batch.write(3, part, memory.remote(2)).unwrap();
    batch.ring();
    client.done();
    let mut there = [0; 16];
    memory.read(0, &mut there).unwrap();
    assert_eq!((&there[2..12], &there[12..]), (&bytes[99_990..], &[0; 4][..]));
    // A post keeps its memory alive.
    server.expect(4, 100_000);
    drop(bytes);
    send(&mut client, 5, registered);
    assert!(server.done().frame.unwrap()[..] == pattern(100_000, 3)[..]);
}

#[test]
fn peers_get_no_right_to_registered_bytes() {
    let (mut client, server) = pair();
    let bytes = shared(4096, 1);
    let registered = server.pd.register_bytes(&bytes).unwrap();
    let to = Remote { addr: bytes.as_ptr().addr() as u64, rkey: registered.lkey() };
    assert_eq!(write(&mut client, to, 9), Some(Status::RemoteAccess));
    assert_eq!(bytes[..], pattern(4096, 1)[..]);
}

#[test]
fn the_device_does_not_write_registered_bytes_either() {
    let (mut client, mut server) = pair();
    let bytes = shared(64, 1);
    let registered = server.pd.register_bytes(&bytes).unwrap();
    let sge =
        uverbs::raw::Sge { addr: bytes.as_ptr().addr() as u64, len: 64, lkey: registered.lkey() };
    let mut batch = server.qp.recv_batch();
    // SAFETY: the region can't be written, which is what the test shows.
    unsafe { batch.post_raw(1, &[sge]) }.unwrap();
    batch.ring();
    client.qp.post_send_inline(2, &[9; 8]).unwrap();
    assert!(server.wait().result.is_err());
    assert_eq!(bytes[..], pattern(64, 1)[..]);
}

#[test]
fn a_cache_keeps_what_was_used_last() {
    let side = Side::new(&common::device(), &local(), |builder| builder);
    let mut cache = RegistrationCache::new(&side.pd, 3, 10_000);
    let all: Vec<_> = (0..5).map(|seed| shared(1000, seed)).collect();
    let counts = |cache: &RegistrationCache| {
        let counts = cache.counts();
        (counts.hits, counts.misses, counts.evictions, counts.invalidations)
    };
    let key = cache.get(&all[0]).unwrap().lkey();
    cache.get(&all[1]).unwrap();
    cache.get(&all[2]).unwrap();
    assert_eq!((cache.len(), cache.bytes(), counts(&cache)), (3, 3000, (0, 3, 0, 0)));
    assert_eq!(cache.get(&all[0]).unwrap().lkey(), key, "registered once");
    // The second one is the oldest now.
    cache.get(&all[3]).unwrap();
    assert_eq!((cache.len(), counts(&cache)), (3, (1, 4, 1, 0)));
    assert_eq!(cache.get(&all[0]).unwrap().lkey(), key);
    cache.get(&all[1]).unwrap();
    assert_eq!(counts(&cache), (2, 5, 2, 0), "the third one went");
    // Bytes count, too: one that needs room for itself.
    cache.get(&shared(9500, 9)).unwrap();
    assert_eq!((cache.len(), cache.bytes(), counts(&cache)), (1, 9500, (2, 6, 5, 0)));
    // And one that is longer than all is registered, and not kept.
    let long = cache.get(&shared(10_001, 9)).unwrap();
    assert_eq!((long.len(), cache.len(), counts(&cache)), (10_001, 1, (2, 7, 5, 0)));
    assert!(cache.get(&Arc::from([])).is_err(), "no bytes");
    assert_eq!(counts(&cache), (2, 7, 5, 0));
}

#[test]
fn an_owner_takes_its_memory_out_of_the_cache() {
    let (mut client, mut server) = pair();
    let mut cache = RegistrationCache::new(&client.pd, 8, 1 << 20);
    let bytes = shared(5000, 1);
    let registered = cache.get(&bytes).unwrap();
    assert_eq!(Arc::strong_count(&bytes), 1 + 3, "the region, its entry, and the handle");
    assert!(cache.invalidate(&bytes));
    assert!(!cache.invalidate(&bytes), "once");
    assert_eq!((cache.is_empty(), cache.bytes(), cache.counts().invalidations), (true, 0, 1));
    // Registrations that were handed out stay valid.
    server.expect(1, 5000);
    send(&mut client, 2, registered);
    assert!(server.done().frame.unwrap()[..] == bytes[..]);
    client.done();
    assert_eq!(Arc::strong_count(&bytes), 1, "nobody else has it");
    cache.get(&bytes).unwrap();
    cache.clear();
    assert_eq!((cache.len(), Arc::strong_count(&bytes)), (0, 1));
}

#[test]
fn a_cache_gives_up_what_the_limit_of_locked_memory_needs() {
    if !common::only_on_softhca("the limit of a real machine is not the test's to lower") {
        return;
    }
    let hca = SoftHca::builder().memlock_limit(1 << 20).build().unwrap();
    let context = soft(&hca).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cache = RegistrationCache::new(&pd, 100, usize::MAX);
    let all: Vec<_> = (0..6).map(|seed| shared(300_000, seed)).collect();
    for bytes in &all {
        cache.get(bytes).unwrap();
    }
    assert!(cache.counts().evictions >= 3 && cache.len() <= 3, "{:?}", cache.counts());
    let too_much = cache.get(&shared(2 << 20, 1)).unwrap_err();
    assert!(matches!(too_much, Error::Memlock { .. }), "{too_much}");
    assert!(cache.is_empty(), "all of it did not suffice");
}
