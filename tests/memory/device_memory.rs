//! Device memory: copies in and out, regions over it, and its limits.
#![allow(unsafe_code, reason = "posts by address and key")]

use common::{Side, is_plain, local, pair, pattern};
use uverbs::memory::DeviceMemory;
use uverbs::raw::Data;
use uverbs::{AccessFlags, Completed, Errno, Error, MemoryRegion, OutOfRange, Remote, Status};

const OPEN: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// True on a card without device memory.
fn lacking() -> bool {
    common::card_lacks("device memory", &["connectx-4", "connectx-4lx"])
}

/// `len` bytes of it, where the device has some.
fn allocate(side: &Side, len: usize) -> Option<DeviceMemory> {
    if lacking() {
        return None;
    }
    match side.context.alloc_device_memory(len, 0) {
        Ok(memory) => Some(memory),
        Err(Error::Unsupported { verb: "alloc_dm", .. }) if is_plain() => {
            common::skip("the device has no device memory");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn register(side: &Side, memory: &DeviceMemory, offset: usize, len: usize) -> MemoryRegion {
    side.pd.register_device_memory(memory, offset, len, OPEN).unwrap()
}

fn bytes(memory: &DeviceMemory, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_copied_in_comes_out() {
    let side = Side::new(&common::device(), &local(), |builder| builder);
    let Some(memory) = allocate(&side, 6000) else { return };
    assert_eq!(memory.len(), 6000);
    assert_eq!(bytes(&memory, 0, 6000), vec![0; 6000]);
    memory.write(4000, &pattern(2000, 5)).unwrap();
    assert_eq!(bytes(&memory, 4000, 2000), pattern(2000, 5));
    assert_eq!(bytes(&memory, 3996, 8)[..4], [0; 4]);
    // A second allocation is another one.
    let other = allocate(&side, 64).unwrap();
    other.write(0, &[9; 64]).unwrap();
    assert_eq!(bytes(&memory, 0, 64), [0; 64]);
    memory.write(0, &[]).unwrap();
}

#[test]
fn peers_and_own_work_requests_reach_it() {
    let (mut client, mut server) = pair();
    let Some(memory) = allocate(&server, 8192) else { return };
    let region = register(&server, &memory, 4096, 4096);
    assert_eq!((region.addr(), region.len()), (0, 4096), "addresses count from its start");
    let at = |addr| Remote { addr, rkey: region.rkey() };
    client.qp.post_write_inline(1, &[7; 8], at(4088)).unwrap();
    client.done();
    assert_eq!(bytes(&memory, 8180, 12), [[0; 4], [7; 4], [7; 4]].concat());
    assert_eq!(bytes(&memory, 0, 4096), [0; 4096], "nothing before its offset");

    memory.write(4096, &40u64.to_ne_bytes()).unwrap();
    let frame = client.slab(8, 1).take().unwrap();
    let mut batch = client.qp.batch();
    batch.fetch_add(2, frame, at(0), 2).unwrap();
    batch.ring();
    let done = client.done();
    assert_eq!(done.result, Ok(Completed::FetchAdd));
    assert_eq!(done.frame.unwrap()[..8], 40u64.to_ne_bytes());
    assert_eq!(bytes(&memory, 4096, 8), 42u64.to_ne_bytes());

    // Sent from it.
    client.expect(3, 64);
    let mut batch = server.qp.batch();
    // SAFETY: registered until the end of the test.
    unsafe { batch.raw().send(4, Data::One(region.sge(0, 8))) }.unwrap();
    batch.ring();
    assert_eq!(client.done().frame.unwrap()[..], 42u64.to_ne_bytes());
    server.done();

    // Over the region's end, though not the memory's page.
    client.qp.post_write_inline(5, &[7; 8], at(4089)).unwrap();
    assert_eq!(client.wait().result.unwrap_err().status, Status::RemoteAccess);
}

#[test]
fn a_region_keeps_the_memory() {
    let (mut client, server) = pair();
    let Some(memory) = allocate(&server, 4096) else { return };
    let region = register(&server, &memory, 0, 4096);
    drop(memory);
    client.qp.post_write_inline(1, &[7; 8], Remote { addr: 0, rkey: region.rkey() }).unwrap();
    client.done();
    region.deregister().unwrap();
}

#[test]
fn it_ends_and_comes_back() {
    let side = Side::new(&common::device(), &local(), |builder| builder);
    if allocate(&side, 64).is_none() {
        return;
    }
    let most = side.context.query_device().unwrap().max_dm_size as usize;
    for _ in 0..3 {
        let mut all = Vec::new();
        let error = loop {
            match side.context.alloc_device_memory(most / 4, 0) {
                Ok(memory) => all.push(memory),
                Err(error) => break error,
            }
        };
        assert_eq!(all.len(), 4, "{error}");
        assert_eq!((error.verb(), error.errno()), (Some("alloc_dm"), Some(Errno::ENOMEM)));
    }
}

#[test]
fn bad_input_is_refused() {
    let side = Side::new(&common::device(), &local(), |builder| builder);
    let Some(memory) = allocate(&side, 4096) else { return };
    let most = side.context.query_device().unwrap().max_dm_size;
    for (len, limit) in [(0, 1), (most + 1, most)] {
        let error = side.context.alloc_device_memory(len as usize, 0).unwrap_err();
        let expected = Error::Limit { verb: "alloc_dm", what: "length", value: len, limit };
        assert_eq!(error, expected);
    }
    let error = side.context.alloc_device_memory(64, 40).unwrap_err();
    assert_eq!((error.verb(), error.errno()), (Some("alloc_dm"), Some(Errno::EINVAL)));

    for (offset, len) in [(0, 4097), (4096, 4), (usize::MAX, 4)] {
        let error = Error::OutOfRange(OutOfRange { offset, wanted: len, len: 4096 });
        assert_eq!(memory.write(offset, &vec![0; len]), Err(error.clone()));
        assert_eq!(memory.read(offset, &mut vec![0; len]), Err(error.clone()));
        let refused = side.pd.register_device_memory(&memory, offset, len, OPEN);
        assert_eq!(refused.unwrap_err(), error);
    }
    for (offset, len, what) in [(2, 4, "offset"), (4, 3, "length")] {
        let error = memory.write(offset, &vec![0; len]).unwrap_err();
        assert!(matches!(error, Error::Invalid { what: it, .. } if it == what), "{error}");
    }
    let error = side.pd.register_device_memory(&memory, 0, 0, OPEN).unwrap_err();
    assert!(matches!(error, Error::Limit { what: "length", value: 0, .. }), "{error}");
    for access in [AccessFlags::MW_BIND, AccessFlags::REMOTE_WRITE] {
        let error = side.pd.register_device_memory(&memory, 0, 64, access).unwrap_err();
        assert_eq!((error.verb(), error.errno()), (Some("reg_dm_mr"), Some(Errno::EINVAL)));
    }
    let elsewhere = Side::new(&common::device(), &local(), |builder| builder);
    let error = elsewhere.pd.register_device_memory(&memory, 0, 64, OPEN).unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "device memory", .. }), "{error}");
    // The region can't be given other memory.
    let region = register(&side, &memory, 0, 64);
    let change = uverbs::memory::Reregistration::default().access(AccessFlags::LOCAL_WRITE);
    // SAFETY: it stays over device memory.
    let refused = unsafe { region.reregister(&change) }.unwrap_err();
    assert_eq!(refused.error.errno(), Some(Errno::EINVAL));
    refused.into_object().deregister().unwrap();
}

#[test]
fn all_of_it_is_given_back() {
    if lacking() || !common::only_on_softhca("it looks at the device's own count") {
        return;
    }
    let hca = uverbs::softhca::SoftHca::builder().build().unwrap();
    let side = Side::new(&common::soft(&hca), &local(), |builder| builder);
    let most = side.context.query_device().unwrap().max_dm_size as usize;
    let memory = side.context.alloc_device_memory(most, 0).unwrap();
    let region = register(&side, &memory, 0, most);
    drop(memory);
    let none = side.context.alloc_device_memory(64, 0).unwrap_err();
    assert_eq!(none.errno(), Some(Errno::ENOMEM), "the region holds all of it");
    drop(region);
    let memory = side.context.alloc_device_memory(most, 0).unwrap();
    drop((memory, side));
    let again = Side::new(&common::soft(&hca), &local(), |builder| builder);
    drop(again.context.alloc_device_memory(most, 0).unwrap());
}
