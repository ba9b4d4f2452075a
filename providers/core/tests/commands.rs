//! The commands as sent, compared with the commands of libibverbs 44, and the wrappers around a
//! door.
//!
//! The expected lines are the attributes in wire order: id, and length in bytes; `idr` is a handle
//! or descriptor.
#![allow(
    unsafe_code,
    reason = "the fake device accesses memory at a command's addresses, as the kernel does"
)]

use std::os::fd::{AsFd, IntoRawFd};
use std::sync::Arc;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use uverbs_core::Errno;
use uverbs_core::Error;
use uverbs_core::attr::{AccessFlags, Gid, GidType, Mtu};
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::cq::CreateCq;
use uverbs_core::commands::qp::CreateQp;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::doors::words;
use uverbs_core::doors::{Faulty, Recorder};
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::ioctl::{UVERBS_ATTR_F_VALID_OUTPUT, ib_uverbs_attr};
use uverbs_kernel_abi::qp::{ib_uverbs_modify_qp, ib_uverbs_qp_cap};
use zerocopy::transmute;

/// Answers each command: outputs are filled with the byte 1, then 2…, handles are 0x70, descriptors
/// are new pipes.
#[derive(Debug, Default)]
struct FakeDevice;

fn attrs_of(command: &[u64]) -> impl Iterator<Item = ib_uverbs_attr> + '_ {
    words::parse(command).into_iter().flat_map(|(_, attrs)| attrs)
}

/// Which attributes of a method are outputs, new handles and new descriptors.
fn directions(object: u16, method: u16) -> (&'static [u16], &'static [u16], &'static [u16]) {
    match (object, method) {
        (0, 0) => (&[1, 0x1001], &[], &[]),
        (0, 3) => (&[0, 1, 0x1001], &[], &[]),
        (0, 2) => (&[1], &[], &[]),
        (0, 5) => (&[2, 3], &[], &[]),
        (0, 6) => (&[3], &[], &[]),
        (3, 0) => (&[6, 0x1001], &[0], &[]),
        (4, 0) => (&[0xd, 0xe, 0x1001], &[0], &[]),
        (3 | 4, 1) => (&[1], &[], &[]),
        (16, 0) => (&[], &[], &[0]),
        _ => (&[], &[], &[]),
    }
}

// SAFETY: no device is behind it, and no memory is handed out.
unsafe impl UverbsDoor for FakeDevice {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        let (header, attrs) = words::parse(command).ok_or(Errno::EINVAL)?;
        let (outputs, handles, fds) = directions(header.object_id, header.method_id);
        // CREATE_COMP_CHANNEL has its descriptor in a response.
        let channel = attrs_of(command)
            .any(|attr| header.object_id == 0 && attr.attr_id == 2 && attr.data == 17);
        let mut fill = 0;
        for (at, mut attr) in attrs.collect::<Vec<_>>().into_iter().enumerate() {
            if outputs.contains(&attr.attr_id) {
                fill += 1;
                let to = std::ptr::with_exposed_provenance_mut::<u8>(attr.data as usize);
                // SAFETY: the trait's contract: outputs are valid to write for their length.
                unsafe { to.write_bytes(fill, attr.len.into()) };
                if channel {
                    let fd = std::io::pipe().unwrap().0.into_raw_fd();
                    // SAFETY: the same, and the response is four bytes.
                    unsafe { to.cast::<i32>().write_unaligned(fd) };
                }
                attr.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
            } else if handles.contains(&attr.attr_id) {
                attr.data = 0x70;
            } else if fds.contains(&attr.attr_id) {
                attr.data = std::io::pipe().unwrap().0.into_raw_fd() as u64;
            }
            let words: [u64; 2] = transmute!(attr);
            command[3 + 2 * at..][..2].copy_from_slice(&words);
        }
        Ok(())
    }

    fn mmap(&self, len: usize, _: u64) -> Result<Pages, Errno> {
        Pages::anonymous(len)
    }
}

fn recorded() -> (Arc<Recorder>, Uverbs) {
    let recorder = Arc::new(Recorder::new(Arc::new(FakeDevice)));
    let uverbs = Uverbs::new(recorder.clone(), 1);
    (recorder, uverbs)
}

/// The one command since the last time, as text.
fn line(recorder: &Recorder) -> String {
    let all = recorder.take();
    assert_eq!(all.len(), 1);
    all[0].to_string()
}

fn create_cq(channel: bool, flags: u32) -> CreateCq<'static> {
    static STDIN: std::sync::LazyLock<std::io::Stdin> = std::sync::LazyLock::new(std::io::stdin);
    let fd = STDIN.as_fd();
    CreateCq {
        entries: 255,
        user_handle: 0x1234_5678_9abc,
        comp_vector: 3,
        channel: channel.then_some(fd),
        event_fd: Some(fd),
        flags,
        driver: None,
    }
}

fn create_qp(create_flags: u32, srq: Option<u32>) -> CreateQp<'static> {
    CreateQp {
        pd: 1,
        send_cq: 2,
        recv_cq: Some(3),
        srq,
        user_handle: 4,
        qp_type: 2,
        cap: ib_uverbs_qp_cap { max_send_wr: 16, max_recv_wr: 8, ..Default::default() },
        create_flags,
        event_fd: create_cq(false, 0).event_fd,
    }
}

#[test]
fn attributes_go_out_in_libibverbs_order() {
    let (log, uverbs) = recorded();
    let context = uverbs.get_context(&[0; 32], &mut [0; 72]).unwrap();
    assert_eq!(line(&log), "0.3 0:4> 1:8> 1000:32 1001:72> = ok");
    assert_eq!(
        (context.num_comp_vectors, context.core_support),
        (0x0101_0101, 0x0202_0202_0202_0202)
    );

    let device = uverbs.query_device_ex(&mut [0; 104]).unwrap();
    assert_eq!(line(&log), "0.0(0x80000001) 2:8 0:8 1:304> 1001:104> = ok");
    assert_eq!((device.max_qp, device.max_dm_size), (0x0101_0101, 0x0101_0101_0101_0101));

    let port = uverbs.query_port(1).unwrap();
    assert_eq!(line(&log), "0.2 0:8 1:48> = ok");
    assert_eq!((port.active_mtu, port.lid), (Mtu::Mtu256, 0x0101));

    let entry = uverbs.query_gid_entry(1, 3).unwrap();
    assert_eq!(line(&log), "0.6 0:8 1:8 2:4 3:32> = ok");
    assert_eq!((entry.gid, entry.kind), (Gid([1; 16]), GidType::Unknown(0x0101_0101)));

    drop(uverbs.alloc_async_fd().unwrap());
    assert_eq!(line(&log), "10.0 0:idr = ok");

    let channel = uverbs.create_comp_channel().unwrap();
    assert_eq!(line(&log), "0.0(0x11) 2:8 0:8 1:4> = ok");
    // A pipe whose other end is closed: readable, at its end.
    assert_eq!(nix::unistd::read(&channel, &mut [0; 8]), Ok(0));

    assert_eq!(uverbs.alloc_pd(&mut [0; 4]).unwrap(), 0x0101_0101);
    assert_eq!(line(&log), "0.0(0x3) 2:8 0:8 1:4> 1001:4> = ok");
    // SAFETY: the fake follows no address in a payload.
    unsafe { uverbs.invoke_write("resize_cq", 19, &[0; 16], &mut [0; 8], &[0; 16], &mut [0; 4]) }
        .unwrap();
    assert_eq!(line(&log), "0.0(0x13) 2:8 0:16 1:8> 1000:16 1001:4> = ok");
    // SAFETY: the fake has no objects, here and below.
    unsafe { uverbs.dealloc_pd(1) }.unwrap();
    assert_eq!(line(&log), "1.0 0:idr = ok");

    // SAFETY: the fake registers nothing.
    let keys = unsafe { uverbs.reg_mr(1, 0x1000, 4096, 0x1000, AccessFlags::LOCAL_WRITE) }.unwrap();
    assert_eq!(line(&log), "0.0(0x9) 2:8 0:40 1:12> = ok");
    assert_eq!(keys.rkey, 0x0101_0101);
    // SAFETY: the fake registers nothing.
    unsafe { uverbs.dereg_mr(keys.handle) }.unwrap();
    assert_eq!(line(&log), "7.1 0:idr = ok");

    // SAFETY: the fake follows no address in a payload.
    let create = |attr| unsafe { uverbs.create_cq(&attr, &[0; 32], &mut [0; 8]) }.unwrap();
    let cq = create(create_cq(true, 0));
    assert_eq!(line(&log), "3.0 0:idr 6:4> 1:4 2:8 3:idr 4:4 7:idr 1000:32 1001:8> = ok");
    assert_eq!((cq.handle, cq.entries), (0x70, 0x0101_0101));
    create(create_cq(false, 1));
    assert_eq!(line(&log), "3.0 0:idr 6:4> 1:4 2:8 4:4 7:idr 5:4 1000:32 1001:8> = ok");
    uverbs.req_notify_cq(cq.handle, true).unwrap();
    assert_eq!(line(&log), "0.0(0x17) 2:8 0:8 = ok");
    // SAFETY: the fake follows no address in a payload.
    let events = unsafe { uverbs.destroy_cq(cq.handle) }.unwrap();
    assert_eq!(line(&log), "3.1 1:8> 0:idr = ok");
    assert_eq!((events.comp_events, events.async_events), (0x0101_0101, 0x0101_0101));

    // SAFETY: the fake follows no address in a payload.
    let create = |attr| unsafe { uverbs.create_qp(&attr, &[0; 56], &mut [0; 40]) }.unwrap();
    let qp = create(create_qp(0, None));
    assert_eq!(
        line(&log),
        "4.0 2:idr 4:idr 5:idr 0:idr 9:8 7:8 8:20 c:idr d:20> e:4> 1000:56 1001:40> = ok"
    );
    assert_eq!((qp.handle, qp.qpn, qp.cap.max_inline_data), (0x70, 0x0202_0202, 0x0101_0101));
    create(create_qp(1 << 12, Some(9)));
    assert_eq!(
        line(&log),
        "4.0 2:idr 4:idr 5:idr 0:idr 9:8 7:8 8:20 c:idr a:4 3:idr d:20> e:4> 1000:56 1001:40> = ok"
    );
    // SAFETY: there is no queue pair.
    unsafe { uverbs.modify_qp(&ib_uverbs_modify_qp::default()) }.unwrap();
    assert_eq!(line(&log), "0.0(0x1a) 2:8 0:112 = ok");
    assert_eq!(uverbs.query_qp(qp.handle, 1).unwrap().qkey, 0x0101_0101);
    assert_eq!(line(&log), "0.0(0x19) 2:8 0:16 1:128> = ok");
    // SAFETY: there is no queue pair.
    assert_eq!(unsafe { uverbs.destroy_qp(qp.handle) }.unwrap(), 0x0101_0101);
    assert_eq!(line(&log), "4.1 1:4> 0:idr = ok");
}

#[test]
fn the_gid_table_is_cut_to_what_was_answered() {
    let (log, uverbs) = recorded();
    // The fake says that there are more entries than room for them.
    let table = uverbs.query_gid_table(3).unwrap();
    assert_eq!(line(&log), "0.5 0:8 1:4 2:96> 3:8> = ok");
    assert_eq!(table.len(), 3);
    assert_eq!(uverbs.query_gid_table(0).unwrap(), []);
    assert_eq!(log.take(), []);
    // One attribute holds 2,047 entries.
    uverbs.query_gid_table(1 << 20).unwrap();
    assert_eq!(line(&log), "0.5 0:8 1:4 2:65504> 3:8> = ok");
}

#[test]
fn payloads_are_kept_before_and_after() {
    let (log, uverbs) = recorded();
    // SAFETY: the fake follows no address in a payload.
    unsafe { uverbs.create_cq(&create_cq(true, 0), &[0x55; 32], &mut [0x66; 12]) }.unwrap();
    uverbs.alloc_pd(&mut [0x66; 4]).unwrap();
    let all = log.take();
    let attr = |id| all[0].attr(id).unwrap();
    assert_eq!(all[0].driver_id, 1);
    assert_eq!(attr(1).sent.as_deref(), Some(&255u32.to_ne_bytes()[..]));
    assert_eq!(attr(2).sent.as_deref(), Some(&0x1234_5678_9abc_u64.to_ne_bytes()[..]));
    assert_eq!(attr(0x1000).sent.as_deref(), Some(&[0x55; 32][..]));
    assert_eq!(attr(0x1000).received, None);
    assert_eq!(attr(0x1001).sent.as_deref(), Some(&[0x66; 12][..]));
    assert_eq!(attr(0x1001).received.as_deref(), Some(&[2; 12][..]));
    assert_eq!(attr(6).received.as_deref(), Some(&[1; 4][..]));
    assert_eq!((attr(0).before.data, attr(0).after.data), (0, 0x70));
    assert_eq!((&attr(0).sent, &attr(0).received), (&None, &None));
    // A driver's output attribute is recognised even if it is short.
    assert_eq!(all[1].attr(0x1001).unwrap().sent.as_deref(), Some(&[0x66; 4][..]));
    // Only the event file may be skipped by an old kernel.
    let optional = |attr: &&ib_uverbs_attr| attr.flags & 1 == 0;
    let skippable: Vec<_> = all[0].attrs.iter().map(|attr| &attr.before).filter(optional).collect();
    assert_eq!(skippable.iter().map(|attr| attr.attr_id).collect::<Vec<_>>(), [7]);
}

#[test]
fn a_wrong_address_is_a_payload_that_is_missing() {
    let recorder = Recorder::new(Arc::new(FakeDevice));
    let mut command = [0; 5];
    let attr = ib_uverbs_attr { attr_id: 9, len: 64, data: 8, ..Default::default() };
    let header = uverbs_kernel_abi::ioctl::ib_uverbs_ioctl_hdr {
        length: 40,
        object_id: 9,
        num_attrs: 1,
        ..Default::default()
    };
    let (head, tail): ([u64; 3], [u64; 2]) = (transmute!(header), transmute!(attr));
    command[..3].copy_from_slice(&head);
    command[3..].copy_from_slice(&tail);
    // SAFETY: the fake follows no address of this method, and the recorder asks the kernel to.
    unsafe { recorder.ioctl(&mut command) }.unwrap();
    let all = recorder.take();
    assert_eq!((&all[0].attrs[0].sent, &all[0].attrs[0].received), (&None, &None));
}

#[test]
fn faults_come_at_the_chosen_call_and_once() {
    let recorder = Arc::new(Recorder::new(Arc::new(FakeDevice)));
    let faulty = Arc::new(Faulty::new(recorder.clone()));
    let uverbs = Uverbs::new(faulty.clone(), 1);
    faulty.fail(3, 1, 2, Errno::EBUSY);
    faulty.fail_write(0x1a, 1, Errno::EINVAL);
    faulty.fail_mmap(2, Errno::ENOMEM);

    // SAFETY: the fake has no objects.
    let destroy_cq = || unsafe { uverbs.destroy_cq(1) };
    assert!(destroy_cq().is_ok());
    // SAFETY: the fake has no objects.
    assert!(unsafe { uverbs.destroy_qp(1) }.is_ok());
    assert_eq!(destroy_cq(), Err(Error::kernel("destroy_cq", Errno::EBUSY)));
    assert!(destroy_cq().is_ok());
    assert_eq!(
        // SAFETY: there is no queue pair.
        unsafe { uverbs.modify_qp(&ib_uverbs_modify_qp::default()) },
        Err(Error::kernel("modify_qp", Errno::EINVAL))
    );
    assert!(uverbs.alloc_pd(&mut []).is_ok());
    assert!(uverbs.door().mmap(4096, 0).is_ok());
    assert_eq!(uverbs.door().mmap(4096, 0).map(drop), Err(Errno::ENOMEM));
    assert_eq!(faulty.pending(), 0);
    // The failed command was not sent.
    assert_eq!(recorder.take().len(), 4);
}

#[test]
fn two_faults_at_one_call_count_both() {
    let faulty = Arc::new(Faulty::new(Arc::new(FakeDevice)));
    let uverbs = Uverbs::new(faulty.clone(), 1);
    faulty.fail(3, 1, 1, Errno::EBUSY);
    faulty.fail(3, 1, 2, Errno::EIO);
    // SAFETY: the fake has no objects.
    let errno = || unsafe { uverbs.destroy_cq(1) }.err().and_then(|error| error.errno());
    assert_eq!([errno(), errno(), errno()], [Some(Errno::EBUSY), Some(Errno::EIO), None]);
}

#[test]
fn errors_name_the_verb() {
    let faulty = Arc::new(Faulty::new(Arc::new(FakeDevice)));
    let uverbs = Uverbs::new(faulty.clone(), 1);
    let verb = |error: Error| error.verb().unwrap();
    faulty.fail(4, 0, 1, Errno::ENOMEM);
    // SAFETY: the fake follows no address in a payload.
    let error = unsafe { uverbs.create_qp(&create_qp(0, None), &[], &mut []) }.unwrap_err();
    assert_eq!(verb(error), "create_qp");
    faulty.fail_write(9, 1, Errno::EFAULT);
    // SAFETY: the fake registers nothing.
    let error = unsafe { uverbs.reg_mr(1, 0, 0, 0, AccessFlags::empty()) }.unwrap_err();
    assert_eq!(verb(error), "reg_mr");
    faulty.fail(0, 6, 1, Errno::ENODATA);
    let error = uverbs.query_gid_entry(1, 9).unwrap_err();
    assert_eq!((error.errno(), verb(error)), (Some(Errno::ENODATA), "query_gid"));
}

/// A child's commands are refused unsent, but where its program asked for them.
#[test]
fn a_forked_child_sends_what_its_program_wants_sent() {
    let uverbs = Uverbs::new(Arc::new(FakeDevice), 7);
    let in_child = |wanted: fn(&Result<(), Error>) -> bool| {
        // SAFETY: the child calls nothing that another thread of the parent could have locked.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: a command by a number, of no device.
                let done = unsafe { uverbs.free_dm(3) };
                // SAFETY: ends the child at once, with no destructors of the parent's.
                unsafe { libc::_exit(i32::from(!wanted(&done))) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            }
        }
    };
    in_child(|done| matches!(done, Err(Error::OtherProcess { .. })));
    assert!(uverbs.is_own() && uverbs.may_send());
    // SAFETY: no object was made.
    unsafe { uverbs.clone().share_with_children() };
    in_child(Result::is_ok);
}
