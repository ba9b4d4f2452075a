//! A process that forks: objects that its child drops stay the parent's.
#![allow(unsafe_code, reason = "forks, and maps memory at chosen places")]

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

use common::{LIMIT, Side, pair, pattern};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use uverbs::provider::AnySq;
use uverbs::{AccessFlags, Error};

/// Seconds until a child that hangs is ended.
const PATIENCE: u32 = 60;

/// Runs `child` in a forked child: status 0 is success. It prints nothing and doesn't panic, since
/// other threads may have held locks.
fn in_child(child: impl FnOnce() -> i32) {
    // SAFETY: only this thread goes on in the child, which allocates (glibc keeps its locks usable)
    // and takes no other lock.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // SAFETY: a system call by numbers.
            unsafe { libc::alarm(PATIENCE) };
            let code = child();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
}

/// One message each way.
fn talk(one: &mut Side, other: &mut Side, round: u8) {
    say(one, other, round);
    say(other, one, round);
}

fn say(from: &mut Side, to: &mut Side, round: u8) {
    to.expect(1, 64);
    let frame = from.filled(64, round);
    let mut batch = from.qp.batch();
    batch.send(2, frame).unwrap();
    batch.ring();
    assert_eq!(*to.done().frame.unwrap(), pattern(64, round)[..]);
    assert_eq!(from.done().id, 2);
}

#[test]
fn what_a_child_drops_goes_on_in_the_parent() {
    let (mut client, mut server) = pair();
    talk(&mut client, &mut server, 1);
    // In flight while it forks, and exposed.
    let memory = server.pd.expose(4096, AccessFlags::REMOTE_WRITE).unwrap();
    let mut slab = Some(server.pd.slab(64, 2).unwrap());
    let frame = slab.as_ref().and_then(|slab| slab.take()).unwrap();
    server.qp.post_recv(9, frame).unwrap();
    let mut all = Some((client, server, memory));
    in_child(|| {
        drop((all.take(), slab.take()));
        0
    });
    let (mut client, mut server, memory) = all.unwrap();
    let mut batch = client.qp.batch();
    batch.write_inline(3, &[7; 8], memory.remote(0)).unwrap();
    batch.send_inline(4, b"still there").unwrap();
    batch.ring();
    assert_eq!((client.done().id, client.done().id), (3, 4));
    assert_eq!(*server.done().frame.unwrap(), *b"still there");
    assert_eq!(memory.load(0).unwrap().to_ne_bytes(), [7; 8]);
    talk(&mut client, &mut server, 2);
    let slab = slab.unwrap();
    assert_eq!(std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len(), 2);
}

#[test]
fn a_child_s_own_memory_at_the_same_place_stays() {
    let (mut client, server) = pair();
    let memory = server.pd.expose(4096, AccessFlags::REMOTE_WRITE).unwrap();
    let frame = client.slab(4096, 1).take().unwrap();
    let mut places = vec![memory.addr() as usize, frame.as_ptr().addr()];
    // SAFETY: looked at, and left as it is.
    if let AnySq::Mlx5(sq) = unsafe { client.qp.send_queue().provider_mut() } {
        let raw = sq.raw_parts();
        places.extend([raw.buf.addr(), raw.dbrec.addr(), raw.uar.addr()]);
    }
    places.iter_mut().for_each(|place| *place &= !4095);
    places.sort_unstable();
    places.dedup();
    let mut all = Some((client, server, memory, frame));
    in_child(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        for &place in &places {
            let at: *mut c_void = with_exposed_provenance_mut(place);
            // SAFETY: a new mapping, at an address where no mapping exists.
            let mapped = unsafe { libc::mmap(at, 4096, rights, flags, -1, 0) };
            if mapped != at {
                return 2;
            }
            // SAFETY: just mapped.
            unsafe { mapped.cast::<u64>().write_volatile(0x5555) };
        }
        drop(all.take());
        let stays = |&place: &usize| {
            let mut resident = 0u8;
            let at: *mut c_void = with_exposed_provenance_mut(place);
            // SAFETY: one page, whose state is one byte; an address that isn't mapped is an error.
            if unsafe { libc::mincore(at, 4096, &raw mut resident) } != 0 {
                return false;
            }
            // SAFETY: mapped, as the kernel just said.
            unsafe { at.cast::<u64>().read_volatile() == 0x5555 }
        };
        if places.iter().all(stays) { 0 } else { 3 }
    });
    let (mut client, mut server, ..) = all.unwrap();
    talk(&mut client, &mut server, 1);
}

#[test]
fn a_child_s_commands_are_refused_unsent() {
    let (mut client, mut server) = pair();
    let channel = client.context.create_comp_channel().unwrap();
    let mut all = Some((client, server));
    in_child(|| {
        let Some((client, server)) = all.take() else { return 2 };
        let refused = |error| matches!(error, Error::OtherProcess { .. });
        let Side { mut qp, pd, context, .. } = client;
        let all = [
            context.alloc_pd().err(),
            context.async_events().try_next().err(),
            channel.try_next().err(),
            channel.next_within(LIMIT).err(),
            context.query_port(1).err(),
            context.create_cq(8).err(),
            pd.slab(64, 1).err(),
            qp.fail().err(),
            qp.query().err(),
            qp.destroy().err().map(Error::from),
        ];
        drop(server);
        if all.into_iter().all(|error| error.is_some_and(refused)) { 0 } else { 3 }
    });
    (client, server) = all.unwrap();
    talk(&mut client, &mut server, 1);
}
