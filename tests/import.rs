//! Devices, domains and regions imported by descriptor and handle: objects that are shared, objects
//! that are not, and imports whose end leaves the original alive.
#![allow(unsafe_code, reason = "imports domains, posts by key, and takes descriptors by number")]

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use common::{LIMIT, done, is_rxe, local, pattern, soft};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use uverbs::event::AsyncEventKind;
use uverbs::raw::{Data, SendOp};
use uverbs::softhca::SoftHca;
use uverbs::{
    AccessFlags, CompletionQueue, Context, Device, Errno, Error, ExposedMemory, ProtectionDomain,
    QueuePair, Remote, Wr,
};

/// Sends a descriptor, and numbers with it.
fn send(socket: &UnixStream, file: &OwnedFd, text: &str) {
    let fds = [file.as_raw_fd()];
    let message = [IoSlice::new(text.as_bytes())];
    let rights = [ControlMessage::ScmRights(&fds)];
    let flags = MsgFlags::empty();
    sendmsg::<()>(socket.as_raw_fd(), &message, &rights, flags, None).expect("sendmsg");
}

fn receive(socket: &UnixStream) -> (OwnedFd, String) {
    let mut bytes = [0; 512];
    let mut room = nix::cmsg_space!([i32; 1]);
    let (len, fd) = {
        let mut message = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message =
            recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut message, Some(&mut room), flags).unwrap();
        let fd = message.cmsgs().unwrap().find_map(|message| match message {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
            _ => None,
        });
        (message.bytes, fd.expect("a descriptor"))
    };
    // SAFETY: the message just brought the descriptor, and nothing else owns it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    (file, String::from_utf8(bytes[..len].to_vec()).unwrap())
}

/// A descriptor after a journey through a socket.
fn sent(file: &OwnedFd) -> OwnedFd {
    let (from, to) = UnixStream::pair().unwrap();
    send(&from, file, "a device");
    receive(&to).0
}

/// soft-RoCE's driver cannot repeat its answer to the opening of the file, so the import is refused
/// by name.
fn refused_on_rxe() -> bool {
    if !is_rxe() {
        return false;
    }
    let context = common::device().open().unwrap();
    let error = uverbs::import(context.export().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "import_device", .. }), "{error:?}");
    common::skip("soft-RoCE's devices can't be imported");
    true
}

/// An open device and its import.
struct Shared {
    owner: Context,
    pd: ProtectionDomain,
    /// Memory of the owner's.
    memory: ExposedMemory,
    guest: Context,
}

impl Shared {
    fn new(device: &Device) -> Self {
        let owner = device.open().unwrap();
        let pd = owner.alloc_pd().unwrap();
        let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let memory = pd.expose(4096, access).unwrap();
        memory.write(0, &pattern(2048, 7)).unwrap();
        let guest = uverbs::import(sent(&owner.export().unwrap())).unwrap();
        Self { owner, pd, memory, guest }
    }

    fn guest_pd(&self) -> ProtectionDomain {
        // SAFETY: the owner is this struct, and keeps it.
        unsafe { self.guest.import_pd(self.pd.handle()) }.unwrap()
    }
}

/// A queue pair of a context, connected to itself.
fn loopback(context: &Context, pd: &ProtectionDomain) -> (QueuePair, CompletionQueue) {
    let cq = context.create_cq(64).unwrap();
    let builder = context.queue_pair(pd, &cq).max_send_wr(16).max_recv_wr(16);
    let mut qp = builder.build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    (qp, cq)
}

/// Copies the first half of the region with this handle to its second half, by key alone.
fn copy(qp: &mut QueuePair, cq: &mut CompletionQueue, pd: &ProtectionDomain, handle: u32) {
    let region = pd.import_region(handle).unwrap();
    assert_eq!((region.len(), region.handle()), (4096, handle));
    let to = Remote { addr: region.addr() + 2048, rkey: region.rkey() };
    let mut batch = qp.batch();
    // SAFETY: the owner keeps the region until the completion, and looks at it through atomics.
    unsafe {
        let data = [region.sge(0, 2048)];
        batch.raw().post(Wr::new(1), SendOp::Write(to), Data::List(&data)).unwrap();
    }
    batch.ring();
    done(cq);
}

fn read(memory: &ExposedMemory) -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    memory.read(2048, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_domain_and_a_region_are_shared() {
    if refused_on_rxe() {
        return;
    }
    let shared = Shared::new(&common::device());
    let Shared { owner, pd, memory, guest } = &shared;
    assert_eq!(guest.device().name(), owner.device().name());
    assert_eq!(guest.query_device().unwrap(), owner.query_device().unwrap());
    let guest_pd = shared.guest_pd();
    assert_eq!(guest_pd.handle(), pd.handle());
    let (mut qp, mut cq) = loopback(guest, &guest_pd);
    copy(&mut qp, &mut cq, &guest_pd, memory.handle());
    assert_eq!(read(memory), pattern(2048, 7));
    // A domain of the guest's own doesn't reach it.
    let (mut qp, mut cq) = loopback(guest, &guest.alloc_pd().unwrap());
    let region = guest_pd.import_region(memory.handle()).unwrap();
    let mut batch = qp.batch();
    let to = Remote { addr: region.addr(), rkey: region.rkey() };
    batch.write_inline(1, b"no", to).unwrap();
    batch.ring();
    // Both ends are one queue pair: the end that fails first flushes the other.
    cq.wait(LIMIT).unwrap().result.unwrap_err();
    let mut bytes = [0; 2];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, pattern(2, 7)[..]);
}

/// Memory on the device is the same one from both contexts, also for the device itself.
#[test]
fn device_memory_is_shared() {
    if refused_on_rxe() {
        return;
    }
    let shared = Shared::new(&common::device());
    let own = shared.owner.alloc_device_memory(256, 0).unwrap();
    own.write(64, &pattern(128, 9)).unwrap();
    // SAFETY: the owner is this test, and keeps it.
    let import = |handle| unsafe { shared.guest.import_device_memory(handle) };
    let same = import(own.handle()).unwrap();
    assert_eq!((same.len(), same.handle()), (256, own.handle()));
    let bytes = |memory: &uverbs::memory::DeviceMemory| {
        let mut bytes = vec![0; 128];
        memory.read(64, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(bytes(&same), pattern(128, 9));
    same.write(64, &pattern(128, 10)).unwrap();
    assert_eq!(bytes(&own), pattern(128, 10));
    // The device writes it by a region of the guest's.
    let pd = shared.guest.alloc_pd().unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = pd.register_device_memory(&same, 64, 128, access).unwrap();
    let (mut qp, mut cq) = loopback(&shared.guest, &pd);
    let mut batch = qp.batch();
    let to = Remote { addr: 0, rkey: region.rkey() };
    batch.write_inline(1, &pattern(32, 11), to).unwrap();
    batch.ring();
    done(&mut cq);
    assert_eq!(bytes(&own)[..32], pattern(32, 11));
    // Dropping the imports leaves the exporter's objects alive; an unknown handle is refused.
    drop((region, same));
    assert_eq!(bytes(&own)[32..], pattern(128, 10)[32..]);
    let error = import(0xffff).unwrap_err();
    assert!(matches!(error, Error::Kernel { verb: "import_dm", .. }), "{error:?}");
}

#[test]
fn what_ends_here_ends_nothing_there() {
    if refused_on_rxe() {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    let on_softhca = std::env::var_os("UVERBS_TEST_DEVICE").is_none();
    let device = if on_softhca { soft(&hca) } else { common::device() };
    let shared = Shared::new(&device);
    let guest_pd = shared.guest_pd();
    let (mut qp, mut cq) = loopback(&shared.guest, &guest_pd);
    copy(&mut qp, &mut cq, &guest_pd, shared.memory.handle());
    drop((qp, cq));
    let region = guest_pd.import_region(shared.memory.handle()).unwrap();
    let Shared { owner, pd, memory, guest } = shared;
    drop((region, guest_pd, guest));
    // The doorbell pages of the guest, too, are given back.
    let left: Vec<_> = hca.objects().into_values().collect();
    if on_softhca {
        assert_eq!(left, [1, 1, 1], "a domain, a region, and the owner's page");
    }
    let (mut qp, mut cq) = loopback(&owner, &pd);
    copy(&mut qp, &mut cq, &pd, memory.handle());
    assert_eq!(read(&memory), pattern(2048, 7));
}

#[test]
fn the_owner_may_go_first() {
    if refused_on_rxe() {
        return;
    }
    let Shared { owner, pd, memory, guest } = Shared::new(&common::device());
    // SAFETY: the file keeps the domain, which is in use here and so can't be deallocated.
    let guest_pd = unsafe { guest.import_pd(pd.handle()) }.unwrap();
    let (mut qp, mut cq) = loopback(&guest, &guest_pd);
    drop(memory);
    drop(pd);
    drop(owner);
    let memory = guest_pd.expose(4096, AccessFlags::REMOTE_WRITE).unwrap();
    memory.write(0, &pattern(2048, 9)).unwrap();
    copy(&mut qp, &mut cq, &guest_pd, memory.handle());
    assert_eq!(read(&memory), pattern(2048, 9));
}

#[test]
fn events_go_to_whoever_made_the_object() {
    if refused_on_rxe() {
        return;
    }
    let shared = Shared::new(&common::device());
    let guest_pd = shared.guest_pd();
    let guest = &shared.guest;
    let mut srq = guest.shared_receive_queue(&guest_pd).max_wr(8).limit(2).build().unwrap();
    let mut cq = guest.create_cq(64).unwrap();
    let builder = guest.queue_pair(&guest_pd, &cq).shared_receives(&srq);
    let mut qp = builder.max_send_wr(16).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let slab = guest_pd.slab(64, 4).unwrap();
    for id in 0..2 {
        srq.post(id, slab.take().unwrap()).unwrap();
    }
    srq.set_limit(2).unwrap();
    qp.post_send_inline(1, b"takes one").unwrap();
    done(&mut cq);
    let kinds = |context: &Context| {
        let wait = if std::ptr::eq(context, guest) { LIMIT } else { LIMIT / 100 };
        std::iter::from_fn(|| context.async_event(wait).unwrap()).map(|event| event.kind).next()
    };
    assert_eq!(kinds(guest), Some(AsyncEventKind::SrqLimitReached));
    assert_eq!(kinds(&shared.owner), None);
}

#[test]
fn objects_of_the_two_contexts_do_not_mix() {
    if refused_on_rxe() {
        return;
    }
    let shared = Shared::new(&common::device());
    let cq = shared.guest.create_cq(256).unwrap();
    let error = shared.guest.queue_pair(&shared.pd, &cq).build().unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "protection domain", .. }), "{error:?}");
    let error = shared.owner.queue_pair(&shared.pd, &cq).build().unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "send completion queue", .. }), "{error:?}");
}

#[test]
fn what_is_none_is_refused() {
    if refused_on_rxe() {
        return;
    }
    let device = common::device();
    let shared = Shared::new(&device);
    let guest = &shared.guest;
    let named = |error: Error| match error {
        Error::Invalid { verb, what: "handle", value, why } => (verb, value, why),
        other => panic!("{other:?}"),
    };
    // SAFETY: there is no such domain.
    let import_pd = |handle| named(unsafe { guest.import_pd(handle) }.unwrap_err());
    let import_mr = |handle| named(shared.pd.import_region(handle).unwrap_err());
    let nothing = "the open file has no object of this handle";
    let other = "an object of another kind has this handle";
    let (memory, pd) = (shared.memory.handle(), shared.pd.handle());
    assert_eq!(import_pd(0xffff), ("import_pd", "65535".to_owned(), nothing));
    assert_eq!(import_pd(memory), ("import_pd", memory.to_string(), other));
    assert_eq!(import_mr(0xffff), ("import_mr", "65535".to_owned(), nothing));
    assert_eq!(import_mr(pd), ("import_mr", pd.to_string(), other));

    let null = File::open("/dev/null").unwrap();
    let error = uverbs::import(&null).unwrap_err();
    let Error::NoSuchDevice { name, .. } = &error else { panic!("{error:?}") };
    assert_eq!(name, "character device 1:3");
    let error = uverbs::import(File::open("/").unwrap()).unwrap_err();
    let Error::Invalid { verb: "import_device", what, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*what, "file descriptor");
    let error = device.import::<uverbs::Any>(&null).unwrap_err();
    let errno = error.errno();
    assert!(matches!(errno, Some(Errno::EINVAL | Errno::ENODEV)), "{error:?}");
    // A descriptor of another device.
    let other = SoftHca::builder().build().unwrap();
    let foreign = soft(&other).open().unwrap();
    let error = device.import::<uverbs::Any>(foreign.export().unwrap()).unwrap_err();
    assert!(matches!(error.errno(), Some(Errno::EINVAL | Errno::ENODEV)), "{error:?}");
    // Which in process ends with its last context.
    let file = foreign.export().unwrap();
    drop(foreign);
    let error = uverbs::import(&file).unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "file descriptor", .. }), "{error:?}");
}

#[test]
fn a_device_that_goes_is_gone_for_both() {
    if !common::only_on_softhca("a device that may be taken away") {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    let shared = Shared::new(&soft(&hca));
    let guest_pd = shared.guest_pd();
    let (qp, _cq) = loopback(&shared.guest, &guest_pd);
    let file = shared.owner.export().unwrap();
    hca.unplug();
    for context in [&shared.owner, &shared.guest] {
        let event = context.async_event(LIMIT).unwrap().expect("an event");
        assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
        assert_eq!(context.alloc_pd().unwrap_err().errno(), Some(Errno::EIO));
    }
    assert_eq!(uverbs::import(&file).unwrap_err().errno(), Some(Errno::EIO));
    let _ = qp.destroy().expect("what is gone counts as destroyed");
}

/// Names the socket on which the second process hears of the device.
const SOCKET: &str = "UVERBS_TEST_IMPORT_SOCKET";

/// The other process: uses what is sent to it, and ends.
fn second_process(socket: &UnixStream) {
    let (file, text) = receive(socket);
    let mut words = text.split(' ').map(|word| word.parse::<u32>().unwrap());
    let (pd, region) = (words.next().unwrap(), words.next().unwrap());
    let context = uverbs::import(file).unwrap();
    // SAFETY: its owner sent it, and waits.
    let pd = unsafe { context.import_pd(pd) }.unwrap();
    let (mut qp, mut cq) = loopback(&context, &pd);
    copy(&mut qp, &mut cq, &pd, region);
}

#[test]
fn two_processes_share_a_device() {
    if let Ok(number) = std::env::var(SOCKET) {
        // SAFETY: this process was started with it, for this.
        let socket = unsafe { OwnedFd::from_raw_fd(number.parse().unwrap()) };
        return second_process(&UnixStream::from(socket));
    }
    if refused_on_rxe() {
        return;
    }
    if std::env::var_os("UVERBS_TEST_DEVICE").is_none() {
        return common::skip("a software HCA is its process's own");
    }
    let Shared { owner, pd, memory, guest } = Shared::new(&common::device());
    drop(guest);
    let (ours, theirs) = UnixStream::pair().unwrap();
    fcntl(theirs.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut child = common::this_program()
        .args(["--exact", "two_processes_share_a_device", "--nocapture"])
        .env(SOCKET, theirs.as_raw_fd().to_string())
        .spawn()
        .unwrap();
    drop(theirs);
    let handles = format!("{} {}", pd.handle(), memory.handle());
    send(&ours, &owner.export().unwrap(), &handles);
    assert!(child.wait().unwrap().success(), "the other process");
    assert_eq!(read(&memory), pattern(2048, 7), "its device moved this process's bytes");
    // The importing side still works.
    let (mut qp, mut cq) = loopback(&owner, &pd);
    memory.write(0, &pattern(2048, 8)).unwrap();
    copy(&mut qp, &mut cq, &pd, memory.handle());
    assert_eq!(read(&memory), pattern(2048, 8));
}
