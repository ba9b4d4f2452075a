//! Regions over memory of other devices, by file descriptor.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use common::{Side, is_rxe, local, only_on_softhca, page_size, pair, soft};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, Errno, Error, MemoryRegion, Remote, Status};

const OPEN: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

const ONLY: &str = "only the software HCA in process takes a memfd for a dma-buf";

/// Memory file that stands for an exporter's memory.
fn exported(len: i64, seal: SealFlag) -> File {
    let file = memfd_create("exported", MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(seal)).unwrap();
    file.into()
}

fn bytes(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

fn register(side: &Side, file: &File, offset: u64, len: usize, iova: u64) -> MemoryRegion {
    side.pd.register_dmabuf(file.as_fd(), offset, len, iova, OPEN).unwrap()
}

fn write(side: &mut Side, byte: u8, addr: u64, region: &MemoryRegion) -> Option<Status> {
    side.qp.post_write_inline(1, &[byte; 8], Remote { addr, rkey: region.rkey() }).unwrap();
    side.wait().result.err().map(|failure| failure.status)
}

#[test]
fn a_peer_writes_into_it() {
    if !only_on_softhca(ONLY) {
        return;
    }
    let (mut client, server) = pair();
    let page = page_size() as u64;
    let file = exported(3 * page as i64, SealFlag::F_SEAL_SHRINK);
    let region = register(&server, &file, page + 100, 5000, 0x70_0064);
    assert_eq!((region.addr(), region.len()), (0x70_0064, 5000));
    assert_eq!(write(&mut client, 7, 0x70_0064 + 4992, &region), None);
    assert_eq!(bytes(&file, page + 100 + 4991, 10), [0, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
    assert_eq!(write(&mut client, 7, 0x70_0064 + 4993, &region), Some(Status::RemoteAccess));
}

#[test]
fn the_descriptor_may_be_closed() {
    if !only_on_softhca(ONLY) {
        return;
    }
    let (mut client, server) = pair();
    let file = exported(4096, SealFlag::F_SEAL_SHRINK);
    let other = file.try_clone().unwrap();
    let region = register(&server, &other, 0, 4096, 0);
    drop(other);
    assert_eq!(write(&mut client, 5, 8, &region), None);
    assert_eq!(bytes(&file, 8, 8), [5; 8]);
    region.deregister().unwrap();
}

#[test]
fn memory_that_moves_is_found_where_it_is() {
    if !only_on_softhca(ONLY) {
        return;
    }
    let (mut client, server) = pair();
    let file = exported(8192, SealFlag::F_SEAL_SHRINK);
    let region = register(&server, &file, 0, 8192, 0);
    assert_eq!(write(&mut client, 5, 4096, &region), None);
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, hole, 4096, 4096).unwrap();
    assert_eq!(bytes(&file, 4096, 8), [0; 8], "the pages are gone");
    assert_eq!(write(&mut client, 6, 4100, &region), None);
    assert_eq!(bytes(&file, 4096, 16), [[0; 4], [6; 4], [6; 4], [0; 4]].concat());
}

#[test]
fn it_gets_other_rights_and_keeps_its_memory() {
    if !only_on_softhca(ONLY) {
        return;
    }
    let (mut client, server) = pair();
    let file = exported(4096, SealFlag::F_SEAL_SHRINK);
    let region = register(&server, &file, 0, 4096, 0);
    let change = uverbs::memory::Reregistration::default().access(AccessFlags::LOCAL_WRITE);
    #[allow(unsafe_code, reason = "changes a region")]
    // SAFETY: the memory is the file's; no work request is outstanding.
    let region = unsafe { region.reregister(&change) }.unwrap();
    assert_eq!(write(&mut client, 5, 0, &region), Some(Status::RemoteAccess));
    let (mut client, server) = pair();
    let region = register(&server, &file, 0, 4096, 0);
    assert_eq!(write(&mut client, 5, 0, &region), None);
    assert_eq!(bytes(&file, 0, 8), [5; 8]);
}

/// A card with a direct path to GPUs takes it, and another one says that it has none.
#[test]
fn the_direct_path_is_taken_where_there_is_one() {
    if !only_on_softhca(ONLY) {
        return;
    }
    let file = exported(8192, SealFlag::F_SEAL_SHRINK);
    for has in [true, false] {
        let hca = SoftHca::builder().hca(|config| config.data_direct = has).build().unwrap();
        let mut side = Side::new(&soft(&hca), &local(), |builder| builder);
        side.qp.connect_to_self().unwrap();
        let direct = |iova| side.pd.register_dmabuf_direct(file.as_fd(), 4096, 4096, iova, OPEN);
        let errno = direct(8).unwrap_err().errno();
        assert!([Some(Errno::EOPNOTSUPP), Some(Errno::EINVAL)].contains(&errno), "{errno:?}");
        match (direct(0x10_0000), has) {
            (Ok(region), true) => {
                assert_eq!(write(&mut side, 9, 0x10_0000, &region), None);
                assert_eq!(bytes(&file, 4096, 8), [9; 8]);
            }
            (Err(error), false) => assert_eq!(error.errno(), Some(Errno::EINVAL), "{error}"),
            (other, _) => panic!("{other:?}"),
        }
        // The usual path needs no such card.
        register(&side, &file, 0, 4096, 0);
    }
}

fn refused(side: &Side, file: &impl AsFd, (offset, len, iova): (u64, usize, u64)) -> Errno {
    let error = side.pd.register_dmabuf(file.as_fd(), offset, len, iova, OPEN).unwrap_err();
    assert_eq!(error.verb(), Some("reg_dmabuf_mr"), "{error}");
    error.errno().unwrap()
}

/// Linux and the software HCA reject the same files.
#[test]
fn what_is_no_dma_buf_is_refused() {
    let side = Side::new(&common::device(), &local(), |builder| builder);
    let page = (0, 4096, 0);
    let (pipe, _writer) = nix::unistd::pipe().unwrap();
    if is_rxe() {
        assert!([Errno::EOPNOTSUPP, Errno::EPROTONOSUPPORT].contains(&refused(&side, &pipe, page)));
        return common::skip("soft-RoCE takes no dma-buf");
    }
    let unsealed = exported(4096, SealFlag::F_SEAL_GROW);
    let files: [&OwnedFd; 2] = [&pipe, &unsealed.into()];
    for file in files {
        let errno = refused(&side, file, page);
        if errno == Errno::EOPNOTSUPP {
            return common::skip("the driver has no on-demand paging, and so no dma-bufs");
        }
        assert_eq!(errno, Errno::EINVAL);
    }
    assert_eq!(refused(&side, &pipe, (100, 4096, 0)), Errno::EINVAL, "another place in the page");
    let number = pipe.as_raw_fd();
    drop(pipe);
    #[allow(unsafe_code, reason = "a descriptor that isn't open")]
    // SAFETY: the command only checks that the descriptor is open, and never closes it.
    let closed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    assert_eq!(refused(&side, &closed, page), Errno::EBADF);
}

#[test]
fn bad_ranges_and_rights_are_refused() {
    if !only_on_softhca(ONLY) {
        return;
    }
    let side = Side::new(&common::device(), &local(), |builder| builder);
    let file = exported(8192, SealFlag::F_SEAL_SHRINK);
    for range in [(0, 8193, 0), (8192, 1, 0), (1 << 40, 4096, 0), (u64::MAX - 4095, 4096, 0)] {
        assert_eq!(refused(&side, &file, range), Errno::EINVAL, "{range:?}");
    }
    assert_eq!(refused(&side, &file, (4095, 10, 4094)), Errno::EINVAL);
    let nothing = side.pd.register_dmabuf(file.as_fd(), 0, 0, 0, OPEN).unwrap_err();
    assert!(matches!(nothing, Error::Limit { what: "length", value: 0, .. }), "{nothing}");
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::ON_DEMAND, AccessFlags::MW_BIND] {
        let error = side.pd.register_dmabuf(file.as_fd(), 0, 4096, 0, access).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EINVAL), "{access:?}");
    }
    // Its owner keeps it from being written.
    let sealed = exported(4096, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_WRITE);
    assert_eq!(refused(&side, &sealed, (0, 4096, 0)), Errno::EPERM);
}
