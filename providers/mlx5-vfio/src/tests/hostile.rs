//! Devices and servers that lie: no panic, no hang, no memory unmapped under a live device, no
//! access beyond a region.
#![allow(unsafe_code, reason = "memory of the test is given to a server")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use proptest::prelude::*;
use uverbs_core::memory::pages::Pages;
use uverbs_mlx5_prm::eqe::{MLX5_PORT_CHANGE_SUBTYPE_DOWN, mlx5_eqe};

use super::fake::{Fake, Twist, limits};
use crate::error::Error;
use crate::function::Function;
use crate::fuzzing::{live, serve};
use crate::transport::vfio_user::VfioUser;
use crate::transport::{Purpose, Transport};

/// Limit of a run: every wait has a limit, and few follow each other.
const LIMIT: Duration = Duration::from_secs(20);

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..most)
}

/// Offsets of registers, mostly those that the driver reads.
fn offset() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0x0, 0x4, 0x14, 0x1fc, 0x23c, 0x1010])
}

fn twist() -> impl Strategy<Value = Option<Twist>> {
    prop_oneof![
        12 => Just(None),
        1 => any::<u8>().prop_map(|status| Some(Twist::Refuse(status))),
        1 => any::<u8>().prop_map(|status| Some(Twist::Deliver(status))),
        1 => Just(Some(Twist::Keep)),
        4 => bytes(600).prop_map(|bytes| Some(Twist::Output(bytes))),
        4 => bytes(65).prop_map(|bytes| Some(Twist::Event(bytes))),
        2 => (any::<i32>(), any::<bool>()).prop_map(|(count, owner)| {
            // A request for pages, with either owner.
            let mut eqe = vec![0; 64];
            eqe[1] = 0xb;
            eqe[36..40].copy_from_slice(&(count >> 16).to_be_bytes());
            eqe[63] = owner.into();
            Some(Twist::Event(eqe))
        }),
        1 => (offset(), any::<u32>()).prop_map(|(at, value)| Some(Twist::Register(at, value))),
        2 => (any::<u16>(), bytes(4096)).prop_map(|(at, bytes)| Some(Twist::Memory(at, bytes))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Answers, events, registers and memory of a device that lies.
    #[test]
    fn a_device_that_lies_does_no_harm(twists in prop::collection::vec(twist(), 0..80)) {
        // A program's area is unmapped with its last user.
        for (act, tears) in [(live as fn(&_, _) -> _, false), (serve, true)] {
            let fake = Fake::new();
            fake.state().twists = twists.clone().into();
            let start = Instant::now();
            let _ = act(&fake, limits());
            prop_assert!(start.elapsed() < LIMIT);
            fake.wait_for_the_end();
            let state = fake.state();
            prop_assert_eq!((state.maps.len(), state.live), (0, false));
            prop_assert!(tears || !state.torn);
        }
    }

    /// A server that answers properly for a while, and then with wrong headers, lengths and bodies.
    #[test]
    fn a_server_that_lies_does_no_harm(
        proper in 0usize..40,
        lies in prop::collection::vec(lie(), 0..24),
    ) {
        let lies = std::iter::repeat_n(Lie::None, proper).chain(lies).collect();
        let (client, serves) = server(lies);
        let start = Instant::now();
        if let Ok(device) = VfioUser::on(client, Duration::from_millis(50)) {
            let _ = device.bar_read(0);
            let _ = device.bar_read(u64::MAX);
            let _ = device.config_write(4, &[0; 2]);
            let _ = device.ring(0x1_0000, 1);
            let _ = Function::open(device, limits()).map(drop);
        }
        prop_assert!(start.elapsed() < LIMIT);
        serves.join().unwrap();
    }
}

/// Deviation of a reply.
#[derive(Clone, Debug)]
enum Lie {
    None,
    /// Another header from this byte on.
    Header(usize, Vec<u8>),
    /// Another length, told and sent.
    Len(usize),
    /// Another body.
    Body(Vec<u8>),
    /// No reply.
    Silence,
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        4 => Just(Lie::None),
        2 => (0usize..15, bytes(5)).prop_map(|(at, bytes)| Lie::Header(at, bytes)),
        2 => (0usize..80).prop_map(Lie::Len),
        2 => bytes(64).prop_map(Lie::Body),
        1 => Just(Lie::Silence),
    ]
}

/// Starts a server that answers as a PCI function with zeros in its registers. Each reply takes a
/// lie. It ends when its client leaves.
fn server(lies: Vec<Lie>) -> (UnixStream, JoinHandle<()>) {
    let (client, mut server) = UnixStream::pair().unwrap();
    let serves = std::thread::spawn(move || {
        let mut lies = lies.into_iter();
        let mut header = [0; 16];
        while server.read_exact(&mut header).is_ok() {
            let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
            let mut body = vec![0; word(4) as usize - 16];
            if server.read_exact(&mut body).is_err() {
                return;
            }
            // A doorbell.
            if word(8) & 1 << 4 != 0 {
                continue;
            }
            let mut reply = proper(header[2], body);
            let lie = lies.next().unwrap_or(Lie::None);
            match &lie {
                Lie::Len(len) => reply.resize(*len, 0xa5),
                Lie::Body(bytes) => reply.clone_from(bytes),
                Lie::Silence => continue,
                Lie::None | Lie::Header(..) => {}
            }
            header[4..8].copy_from_slice(&(16 + reply.len() as u32).to_ne_bytes());
            header[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            if let Lie::Header(at, bytes) = &lie {
                header.iter_mut().skip(*at).zip(bytes).for_each(|(to, from)| *to = *from);
            }
            if server.write_all(&[&header, &reply[..]].concat()).is_err() {
                return;
            }
        }
    });
    (client, serves)
}

/// Body of a proper reply.
fn proper(command: u8, mut body: Vec<u8>) -> Vec<u8> {
    match command {
        // DEVICE_GET_INFO: resets, and is PCI.
        4 => body[4] = 3,
        // DEVICE_GET_REGION_INFO: bytes of each region.
        5 => body[16..24].copy_from_slice(&0x2_0000u64.to_ne_bytes()),
        // DEVICE_GET_IRQ_INFO: vectors.
        7 => body[12] = 4,
        // REGION_READ: Mellanox's number at the start of configuration space, zeros elsewhere.
        9 => {
            let len = u32::from_ne_bytes(body[12..16].try_into().unwrap()) as usize;
            let start = body[..12] == [[0; 8].as_slice(), &[7, 0, 0, 0]].concat();
            body.resize(16 + len, 0);
            if start && len == 4 {
                body[16..20].copy_from_slice(&[0xb3, 0x15, 0x1d, 0x10]);
            }
        }
        _ => {}
    }
    body
}

/// Answers `count` messages of a client.
fn answer(server: &mut UnixStream, count: usize) {
    for _ in 0..count {
        let (mut header, body) = message(server);
        let reply = proper(header[2], body);
        header[4..8].copy_from_slice(&(16 + reply.len() as u32).to_ne_bytes());
        header[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        server.write_all(&[&header, &reply[..]].concat()).unwrap();
    }
}

/// Reads a message.
fn message(server: &mut UnixStream) -> ([u8; 16], Vec<u8>) {
    let mut header = [0; 16];
    server.read_exact(&mut header).unwrap();
    let size = u32::from_ne_bytes(header[4..8].try_into().unwrap());
    let mut body = vec![0; size as usize - 16];
    server.read_exact(&mut body).unwrap();
    (header, body)
}

/// The errno of a DMA_READ or DMA_WRITE of some bytes, 0 if it succeeds.
fn transfer(server: &mut UnixStream, command: u8, at: u64, count: u64) -> u32 {
    let data = if command == 12 { vec![0x5a; count as usize] } else { Vec::new() };
    let words = [at, count].map(u64::to_ne_bytes).concat();
    let mut header = [7, 0, command, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[4..8].copy_from_slice(&(32 + data.len() as u32).to_ne_bytes());
    server.write_all(&[&header, &words[..], &data].concat()).unwrap();
    u32::from_ne_bytes(message(server).0[12..16].try_into().unwrap())
}

/// A server reaches a region's bytes, by the region's rights, and only while the region exists.
#[test]
fn a_server_reaches_the_bytes_of_a_region_alone() {
    const READ: u8 = 11;
    const WRITE: u8 = 12;
    const FAULT: u32 = 14;
    let (client, mut server) = UnixStream::pair().unwrap();
    let connects = std::thread::spawn(move || VfioUser::on(client, LIMIT).unwrap());
    answer(&mut server, 5);
    let device = connects.join().unwrap();
    let memory = Pages::anonymous(3 << 12).unwrap();
    let start = memory.as_ptr().expose_provenance() as u64;
    let (pages, used) = (start..start + (3 << 12), start + 100..start + 5100);
    for purpose in [Purpose::Read, Purpose::Write, Purpose::Record] {
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&mut server, 1));
            // SAFETY: nothing refers to the memory while the device is asked to access it.
            unsafe { device.map_process(0x20_0000, pages.clone(), used.clone(), purpose) }.unwrap();
        });
        let mut to = |command, at, count| transfer(&mut server, command, at, count);
        let stores = if purpose.is_writable() { 0 } else { FAULT };
        assert_eq!([to(READ, 0x20_0064, 5000), to(WRITE, 0x20_0064, 5000)], [0, stores]);
        for (at, count) in [(0x20_0063, 1), (0x20_0000, 4096), (0x20_0064, 5001), (0x20_13ec, 1)] {
            assert_eq!([to(READ, at, count), to(WRITE, at, count)], [FAULT; 2], "{at:#x}");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&mut server, 1));
            device.unmap(0x20_0000, 3 << 12).unwrap();
        });
        assert_eq!(transfer(&mut server, READ, 0x20_0064, 1), FAULT);
    }
    // SAFETY: all of the mapping, which the device no longer reaches.
    let memory = unsafe { std::slice::from_raw_parts(memory.as_ptr(), 3 << 12) };
    assert!(memory[100..5100].iter().all(|byte| *byte == 0x5a));
    assert!(memory[..100].iter().chain(&memory[5100..]).all(|byte| *byte == 0));
}

/// A server that reads no messages stops no doorbell of the driver; they come in order.
#[test]
fn doorbells_never_wait() {
    const COUNT: u64 = 2000;
    let (client, mut server) = UnixStream::pair().unwrap();
    let connects = std::thread::spawn(move || VfioUser::on(client, LIMIT).unwrap());
    answer(&mut server, 5);
    let device = connects.join().unwrap();
    std::thread::scope(|scope| {
        // A request without an answer is under way, too.
        let reads = scope.spawn(|| device.bar_read(4));
        let (header, body) = message(&mut server);
        let start = Instant::now();
        (0..COUNT).for_each(|word| device.ring_soon(0x1_0800, word).unwrap());
        // A later word of the last queue.
        device.ring_soon(0x1_0800, 1 << 32 | (COUNT - 1)).unwrap();
        assert!(start.elapsed() < LIMIT / 2);
        for word in (0..COUNT - 1).chain([1 << 32 | (COUNT - 1)]) {
            device.flush().unwrap();
            let (_, body) = message(&mut server);
            assert_eq!(body[16..], word.to_be_bytes());
        }
        let reply = proper(header[2], body);
        let mut header = header;
        header[4..8].copy_from_slice(&(16 + reply.len() as u32).to_ne_bytes());
        header[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        server.write_all(&[&header, &reply[..]].concat()).unwrap();
        assert_eq!(reads.join().unwrap(), Ok(0));
    });
}

/// A server that offers no doorbell pages is driven, but programs can't ring. It may ask to have
/// the pages armed that no one mapped.
#[test]
fn a_server_without_doorbell_pages_is_told_by_name() {
    let (client, mut server) = UnixStream::pair().unwrap();
    let connects = std::thread::spawn(move || VfioUser::on(client, LIMIT).unwrap());
    answer(&mut server, 5);
    let device = connects.join().unwrap();
    let refused = device.bar_file(0x1_0000, 0x1000).map(drop);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    assert!(device.watch().is_none());
    let arm = |len: u32| {
        let size = (16 + len).to_ne_bytes();
        [&[0, 0, 0, 0x80], &size[..], &[1 << 4, 0, 0, 0], &[0; 4], &vec![0; len as usize]].concat()
    };
    server.write_all(&arm(0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&mut server, 1));
        assert_eq!(device.bar_read(4), Ok(0));
    });
    server.write_all(&arm(4)).unwrap();
    assert!(device.bar_read(4).is_err(), "a command of an invalid length");
}

/// Makes `process_vm_readv` of this thread fail with EPERM, as a sandbox does (seccomp(2)).
fn refuse_process_vm_readv() {
    let step = |code, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let number = libc::SYS_process_vm_readv as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: a call by numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program has `len` steps.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
}

/// A region that the server could not reach is refused when it is registered.
#[test]
fn memory_is_refused_where_the_kernel_copies_none() {
    let (client, mut server) = UnixStream::pair().unwrap();
    let connects = std::thread::spawn(move || VfioUser::on(client, LIMIT).unwrap());
    answer(&mut server, 5);
    let device = connects.join().unwrap();
    let memory = Pages::anonymous(4096).unwrap();
    let start = memory.as_ptr().expose_provenance() as u64;
    let range = start..start + 4096;
    let refused = std::thread::scope(|scope| {
        let maps = scope.spawn(|| {
            refuse_process_vm_readv();
            // SAFETY: nothing refers to the memory.
            unsafe { device.map_process(0x20_0000, range.clone(), range, Purpose::Write) }
        });
        maps.join().unwrap()
    });
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    assert_eq!(transfer(&mut server, 11, 0x20_0000, 1), 14);
}

#[test]
fn a_message_that_is_no_reply_is_refused() {
    for (at, bytes, says) in [
        (8, vec![0], "a message that is no reply"),
        (0, vec![99], "a reply to another message"),
        (2, vec![10], "a reply to another message"),
    ] {
        let (client, serves) = server([vec![Lie::None; 5], vec![Lie::Header(at, bytes)]].concat());
        let device = VfioUser::on(client, Duration::from_secs(20)).unwrap();
        assert_eq!(device.bar_read(4), Err(Error::Protocol { what: says }));
        // The stream has no known position any more.
        assert!(matches!(device.bar_read(4), Err(Error::System { .. })));
        drop(device);
        serves.join().unwrap();
    }
}

/// Replies of wrong lengths to a read of a register, the seventh message.
#[test]
fn a_reply_has_the_length_of_its_request() {
    for (len, says) in [
        (0, Some("a reply that is too short")),
        (16, Some("a read of another length")),
        (19, Some("a read of another length")),
        (20, None),
        (21, Some("a read of another length")),
        (5000, Some("a reply of an invalid length")),
    ] {
        let (client, serves) = server([vec![Lie::None; 6], vec![Lie::Len(len)]].concat());
        let device = VfioUser::on(client, Duration::from_secs(20)).unwrap();
        device.bar_read(0).unwrap();
        let wrong = says.map(|what| Error::Protocol { what });
        assert_eq!(device.bar_read(4).err(), wrong, "{len}");
        drop(device);
        serves.join().unwrap();
    }
}

/// A reply that comes in drops has the limit of a whole one.
#[test]
fn a_server_that_drips_is_given_up() {
    let (client, mut server) = UnixStream::pair().unwrap();
    let limit = Duration::from_millis(200);
    let drips = std::thread::spawn(move || {
        while server.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    let start = Instant::now();
    let error = VfioUser::on(client, limit).map(drop).unwrap_err();
    assert!(matches!(error, Error::System { what: "VERSION", .. }), "{error:?}");
    assert!(start.elapsed() >= limit && start.elapsed() < 20 * limit);
    drips.join().unwrap();
}

/// A server shares the flags of the driver's eventfd, and may make reads of it block.
#[test]
fn an_eventfd_that_blocks_does_not_stop_the_thread() {
    let fake = Fake::new();
    let function = Function::open(fake.clone(), limits()).unwrap();
    let event = fake.state().event.as_ref().unwrap().try_clone().unwrap();
    fcntl(&event, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    // Looks at the health, without an interrupt.
    std::thread::sleep(3 * limits().health);
    assert_eq!(function.close(), Ok(()));
}

/// Each interrupt wakes the driver's thread, before its next look at the health.
#[test]
fn interrupts_wake_the_thread() {
    let fake = Fake::new();
    let mut limits = limits();
    limits.health = 10 * LIMIT;
    let function = Function::open(fake.clone(), limits).unwrap();
    for _ in 0..20 {
        fake.report(&mlx5_eqe::port(MLX5_PORT_CHANGE_SUBTYPE_DOWN, 1));
        fake.wait(|_| function.take_event());
    }
    function.close().unwrap();
}
