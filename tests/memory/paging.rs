//! On-demand paging: pages that are not pinned are faulted in, or the work request fails.
#![allow(unsafe_code, reason = "maps and registers memory by address")]

use common::{Side, page_size, pair, pattern, soft};
use uverbs::memory::Prefetch;
use uverbs::raw::Sge;
use uverbs::softhca::SoftHca;
use uverbs::{
    AccessFlags, Completed, Errno, Error, MemoryRegion, ProtectionDomain, Remote, Status,
};

const OWN: AccessFlags = AccessFlags::LOCAL_WRITE;
const OPEN: AccessFlags = OWN
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Pages without access rights until [`Pages::open`].
struct Pages {
    at: *mut u8,
    count: usize,
}

impl Pages {
    fn new(count: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), count * page_size(), libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at: at.cast(), count }
    }

    fn open(&self) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is this object's, and there are no references into it.
        assert_eq!(unsafe { libc::mprotect(self.at.cast(), self.count * page_size(), rights) }, 0);
    }

    fn opened(count: usize) -> Self {
        let pages = Self::new(count);
        pages.open();
        pages
    }

    fn byte(&self, at: usize) -> u8 {
        assert!(at < self.count * page_size());
        // SAFETY: within the mapping, which is open.
        unsafe { self.at.wrapping_add(at).read_volatile() }
    }

    /// Residence in memory of each page.
    fn present(&self) -> Vec<bool> {
        let mut state = vec![0u8; self.count];
        // SAFETY: the mapping is this object's; the vector has a byte for each page.
        let done =
            unsafe { libc::mincore(self.at.cast(), self.count * page_size(), state.as_mut_ptr()) };
        assert_eq!(done, 0);
        state.into_iter().map(|byte| byte & 1 == 1).collect()
    }

    fn register(&self, pd: &ProtectionDomain, access: AccessFlags) -> Result<MemoryRegion, Error> {
        // SAFETY: there are no references into it, and it outlives the region in each test.
        unsafe { pd.register_on_demand(self.at, self.count * page_size(), access) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's.
        unsafe { libc::munmap(self.at.cast(), self.count * page_size()) };
    }
}

fn has_paging(side: &Side) -> bool {
    let odp = side.context.query_device().unwrap().odp;
    if !odp.supported {
        common::skip("the device has no on-demand paging");
    }
    odp.supported
}

fn write(side: &mut Side, bytes: &[u8], to: Remote) -> Option<Status> {
    side.qp.post_write_inline(1, bytes, to).unwrap();
    side.wait().result.err().map(|failure| failure.status)
}

fn at(region: &MemoryRegion, offset: u64) -> Remote {
    Remote { addr: region.addr() + offset, rkey: region.rkey() }
}

#[test]
fn pages_come_when_they_are_needed() {
    let (mut client, mut server) = pair();
    if !has_paging(&server) {
        return;
    }
    let pages = Pages::opened(4);
    let region = pages.register(&server.pd, OPEN).unwrap();
    assert_eq!(pages.present(), [false; 4], "nothing is pinned");
    assert_eq!(write(&mut client, &[7; 8], at(&region, 2 * page_size() as u64 - 4)), None);
    assert_eq!(pages.present(), [false, true, true, false]);
    assert_eq!(pages.byte(2 * page_size() - 4), 7);
    let frame = client.slab(8, 1).take().unwrap();
    let mut batch = client.qp.batch();
    let place = Remote { addr: region.addr() + 3 * page_size() as u64, ..at(&region, 0) };
    batch.fetch_add(2, frame, place, 5).unwrap();
    batch.ring();
    assert_eq!(client.done().result, Ok(Completed::FetchAdd));
    assert_eq!(pages.byte(3 * page_size()), 5);
    // As a receive's place, over all pages.
    let mut batch = server.qp.recv_batch();
    let list = [region.sge(0, 4 * page_size() as u32)];
    // SAFETY: registered and mapped until the end of the test.
    unsafe { batch.post_raw(3, &list) }.unwrap();
    batch.ring();
    let frame = client.filled(4 * page_size(), 9);
    client.qp.post_send(4, frame).unwrap();
    assert_eq!(server.done().byte_len as usize, 4 * page_size());
    let there: Vec<u8> = (0..4 * page_size()).map(|at| pages.byte(at)).collect();
    assert!(there == pattern(4 * page_size(), 9));
    region.deregister().unwrap();
}

#[test]
fn a_page_that_can_not_be_faulted_in_is_an_error() {
    let pages = Pages::new(2);
    let (mut client, server) = pair();
    if !has_paging(&server) {
        return;
    }
    // SAFETY: refused.
    let pinned = unsafe { server.pd.register(pages.at, 2 * page_size(), OPEN) }.unwrap_err();
    assert_eq!(pinned.to_errno(), Errno::EFAULT);
    let region = pages.register(&server.pd, OPEN).unwrap();
    let refused = write(&mut client, &[7; 8], at(&region, 0));
    assert!(refused.is_some(), "nobody may touch them");
    drop(region);

    let (mut client, mut server) = pair();
    let region = pages.register(&server.pd, OPEN).unwrap();
    let mut batch = server.qp.recv_batch();
    // SAFETY: registered until the end of the test.
    unsafe { batch.post_raw(3, &[region.sge(0, 16)]) }.unwrap();
    batch.ring();
    client.qp.post_send_inline(4, &[7; 16]).unwrap();
    let failed = server.wait().result.unwrap_err();
    assert_eq!(failed.status, Status::LocalProtection);
    assert!(client.wait().result.is_err());

    // A WRITE to the region succeeds once its pages are accessible.
    let (mut client, server) = pair();
    let region = pages.register(&server.pd, OPEN).unwrap();
    pages.open();
    assert_eq!(write(&mut client, &[7; 8], at(&region, 0)), None);
    assert_eq!(pages.byte(0), 7);
}

#[test]
fn all_of_memory_is_one_region() {
    let (mut client, server) = pair();
    if !has_paging(&server) {
        return;
    }
    if !server.context.query_device().unwrap().odp.implicit {
        return common::skip("the device has no implicit regions");
    }
    // SAFETY: the client is this test's own, and names what the test owns.
    let region = unsafe { server.pd.register_everything(OPEN) }.unwrap();
    assert_eq!((region.addr(), region.len()), (0, usize::MAX));
    // Mapped afterwards.
    let (pages, place) = (Pages::opened(2), page_size() + 900);
    let to = Remote { addr: pages.at.addr() as u64 + place as u64, rkey: region.rkey() };
    assert_eq!(write(&mut client, &[7; 8], to), None);
    assert_eq!([place - 1, place, place + 8].map(|at| pages.byte(at)), [0, 7, 0]);
    assert_eq!(pages.present(), [false, true]);
    // Address 8 is never mapped.
    assert!(write(&mut client, &[7; 8], Remote { addr: 8, rkey: region.rkey() }).is_some());

    // Page faults of sends and receives.
    let (mut client, mut server) = pair();
    // SAFETY: no right for peers; what is named below stays mapped.
    let [from, to] =
        [&client, &server].map(|side| unsafe { side.pd.register_everything(OWN) }.unwrap());
    let (source, target) = (Pages::opened(3), Pages::opened(3));
    let name = |region: &MemoryRegion, pages: &Pages| {
        region.sge(pages.at.addr() as u64, 3 * page_size() as u32)
    };
    server.pd.prefetch(&[name(&to, &target)], Prefetch::Write, true).unwrap();
    assert_eq!(target.present(), [true; 3]);
    let mut batch = server.qp.recv_batch();
    // SAFETY: mapped until the end of the test.
    unsafe { batch.post_raw(1, &[name(&to, &target)]) }.unwrap();
    batch.ring();
    let mut batch = client.qp.batch();
    // SAFETY: mapped until the end of the test.
    unsafe { batch.raw().send(2, uverbs::raw::Data::One(name(&from, &source))) }.unwrap();
    batch.ring();
    assert_eq!(server.done().byte_len as usize, 3 * page_size());
    client.done();
}

#[test]
fn pages_are_made_ready_beforehand() {
    let (_client, server) = pair();
    if !has_paging(&server) {
        return;
    }
    let pages = Pages::opened(4);
    let region = pages.register(&server.pd, OPEN).unwrap();
    let page =
        |index: u64, count: u32| region.sge(index * page_size() as u64, count * page_size() as u32);
    server.pd.prefetch(&[page(0, 4)], Prefetch::Present, true).unwrap();
    assert_eq!(pages.present(), [false; 4]);
    server.pd.prefetch(&[page(1, 1), page(3, 1)], Prefetch::Write, true).unwrap();
    assert_eq!(pages.present(), [false, true, false, true]);
    server.pd.prefetch(&[page(0, 4)], Prefetch::Write, true).unwrap();
    assert_eq!(pages.present(), [true; 4]);
    server.pd.prefetch(&[page(0, 4)], Prefetch::Read, false).unwrap();
}

#[test]
fn a_bad_advice_is_refused() {
    let (_client, server) = pair();
    if !has_paging(&server) {
        return;
    }
    let pages = Pages::opened(2);
    let region = pages.register(&server.pd, AccessFlags::REMOTE_READ).unwrap();
    let sge = region.sge(0, page_size() as u32);
    let errno = |pd: &ProtectionDomain, sge: Sge, what| {
        pd.prefetch(&[sge], what, true).unwrap_err().to_errno()
    };
    let pinned = server.pd.expose(page_size(), AccessFlags::empty()).unwrap();
    assert_eq!(errno(&server.pd, pinned.sge(0, 8), Prefetch::Read), Errno::ENOENT);
    let unknown = Sge { lkey: 0xffff_ff00, ..sge };
    assert_eq!(errno(&server.pd, unknown, Prefetch::Read), Errno::ENOENT);
    assert_eq!(errno(&server.pd, sge, Prefetch::Write), Errno::EPERM);
    let other = server.context.alloc_pd().unwrap();
    assert_eq!(errno(&other, sge, Prefetch::Read), Errno::EPERM);
    assert_eq!(
        errno(&server.pd, region.sge(page_size() as u64, 2 * page_size() as u32), Prefetch::Read),
        Errno::EFAULT
    );
    assert!(server.pd.prefetch(&[], Prefetch::Read, true).is_err(), "of nothing");
    let closed = Pages::new(1);
    let region = closed.register(&server.pd, OWN).unwrap();
    assert_eq!(errno(&server.pd, region.sge(0, 8), Prefetch::Write), Errno::EFAULT);
}

#[test]
fn what_is_not_pinned_does_not_count_as_locked() {
    if !common::only_on_softhca("the limit of a real machine is not the test's to lower") {
        return;
    }
    let hca = SoftHca::builder().memlock_limit(1 << 20).build().unwrap();
    let context = soft(&hca).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let pages = Pages::opened(4096);
    // SAFETY: refused.
    let pinned = unsafe { pd.register(pages.at, 4096 * page_size(), OWN) }.unwrap_err();
    assert!(matches!(pinned, Error::Memlock { .. }), "{pinned}");
    let region = pages.register(&pd, OWN).unwrap();
    region.deregister().unwrap();
}
