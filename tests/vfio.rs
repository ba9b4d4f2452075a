//! ConnectX functions without a kernel driver, on softhca's vfio-user server in another process. No
//! privileges are needed.
#![allow(unsafe_code, reason = "registers the program's own memory, and forks")]

mod functions;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{LIMIT, Side, impatient, local, pair_on, pattern};
use functions::{Elsewhere, Machine, SOCKETS, device, role};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use uverbs::attr::{self, GlobalRoute};
use uverbs::event::AsyncEventKind;
use uverbs::flow::{EthMatch, FlowRule, MacAddr};
use uverbs::memory::Reregistration;
use uverbs::packet::{Checksums, RawPacketQueuePair};
use uverbs::{
    AccessFlags, AhAttr, Completed, CompletionQueue, Context, Device, Errno, Error, Failure, Local,
    Remote, Slab, Status,
};
use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_softhca::LinkLayer;

/// Socket of a client's function, set for its process.
const CLIENT: &str = "UVERBS_TEST_VFIO_CLIENT";
/// Folder of the sockets, set for the process that posts.
const POSTER: &str = "UVERBS_TEST_VFIO_POSTER";
/// Pause in which a server goes to sleep, and number of posts after one.
const REST: Duration = Duration::from_millis(30);
const ROUNDS: u8 = 20;

#[test]
fn server() {
    functions::serve();
}

/// Sends a message, which the other side takes.
fn send(from: &mut Side, to: &mut Side, len: usize, seed: u8) {
    to.expect(7, len);
    let frame = from.filled(len, seed);
    let mut batch = from.qp.batch();
    batch.send(1, frame).unwrap();
    batch.ring();
    let received = to.done();
    assert_eq!((received.id, received.result), (7, Ok(Completed::Recv)));
    assert!(*received.frame.unwrap() == pattern(len, seed)[..]);
    assert_eq!(from.done().result, Ok(Completed::Send));
}

/// Sends one message each way, and a WRITE.
fn talk(one: &mut Side, other: &mut Side, len: usize, seed: u8) {
    send(one, other, len, seed);
    send(other, one, len, seed);
    let memory = other.pd.expose(len, AccessFlags::REMOTE_WRITE).unwrap();
    let frame = one.filled(len, seed);
    let mut batch = one.qp.batch();
    batch.write(2, frame, memory.remote(0)).unwrap();
    batch.ring();
    assert_eq!(one.done().result, Ok(Completed::Write));
    let mut back = vec![0; len];
    memory.read(0, &mut back).unwrap();
    assert!(back == pattern(len, seed));
}

#[test]
fn two_functions_of_one_process_talk() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    // Below a page, over pages, and more than the 2 MiB from which keys have large pages.
    for (seed, len) in (0..).zip([1, 4096, 70_000, 5 << 20]) {
        talk(&mut one, &mut other, len, seed);
    }
    drop((one, other, a, b));
    // All is given back: each server takes its next client, which a device that is still open
    // would not be.
    for at in 0..SOCKETS.len() {
        VfioUser::connect(&machine.socket(at)).unwrap();
    }
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    talk(&mut one, &mut other, 64, 9);
}

/// A descriptor names its open device, in this process.
#[test]
fn a_device_is_imported_by_its_descriptor() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (owner, other) = (a.open().unwrap(), b.open().unwrap());
    let pd = owner.alloc_pd().unwrap();
    let guest = uverbs::import(owner.export().unwrap()).unwrap();
    // SAFETY: the domain is there until the end.
    drop(unsafe { guest.import_pd(pd.handle()) }.unwrap());
    let foreign = b.import::<uverbs::Any>(owner.export().unwrap()).unwrap_err();
    assert_eq!(foreign.errno(), Some(Errno::ENODEV));
    drop((guest, other));
}

/// The link-local GIDs come from the ports' MAC addresses.
#[test]
fn two_functions_talk_over_roce() {
    let machine = Machine::of(LinkLayer::Ethernet);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    talk(&mut one, &mut other, 70_000, 5);
}

/// A port of raw packets, in its own open of the device.
struct Port {
    qp: RawPacketQueuePair,
    cq: CompletionQueue,
    slab: Slab,
    context: Context,
}

impl Port {
    fn new(device: &Device) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(512).unwrap();
        let mut qp = context.queue_pair(&pd, &cq).raw_packet().build().unwrap();
        qp.bring_up(1).unwrap();
        let slab = pd.slab(2048, 16).unwrap();
        Self { qp, cq, slab, context }
    }

    fn send(&mut self, packet: &[u8]) {
        let mut frame = self.slab.take().unwrap();
        frame.set_len(packet.len());
        frame.copy_from_slice(packet);
        let mut batch = self.qp.batch();
        batch.send_packet(1, frame, Checksums::AsTheyAre).unwrap();
        batch.ring();
        assert_eq!(self.cq.wait(LIMIT).unwrap().result, Ok(Completed::Send));
    }

    /// Bytes and flow tag of the next packet.
    fn next(&mut self) -> (Vec<u8>, u32) {
        let done = self.cq.wait(LIMIT).unwrap();
        assert_eq!(done.result, Ok(Completed::Recv));
        (done.frame.unwrap().to_vec(), done.qpn)
    }
}

/// A frame of a kind that no protocol has, to a station.
fn packet(to: MacAddr, data: u8) -> Vec<u8> {
    [&to.0[..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb5], &[data; 86]].concat()
}

/// Send queues, receive queues, TIRs, flow tables and counters are firmware's; another file of the
/// same function hears a file's frames, and that file does not.
#[test]
fn raw_packets_go_where_rules_lead() {
    let machine = Machine::of(LinkLayer::Ethernet);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, mut other, mut third) = (Port::new(&a), Port::new(&b), Port::new(&a));
    let station = MacAddr([2, 0, 0, 0, 0, 2]);
    let rule = FlowRule::new().eth(EthMatch { dst: Some(station.into()), ..Default::default() });
    let counters = other.context.flow_counters().unwrap();
    let flow = other.qp.steer_counted(&rule.clone().tag(7), &counters).unwrap();
    let rule = rule.tag(9);
    let _flows = [one.qp.steer(&rule).unwrap(), third.qp.steer(&rule).unwrap()];
    for port in [&mut one, &mut other, &mut third] {
        for id in 0..8 {
            let frame = port.slab.take().unwrap();
            port.qp.post_recv(id, frame).unwrap();
        }
    }
    for data in 1..4 {
        one.send(&packet(MacAddr([2, 0, 0, 0, 0, 3]), 0));
        one.send(&packet(station, data));
        assert_eq!(other.next(), (packet(station, data), 7));
        assert_eq!(third.next(), (packet(station, data), 9));
    }
    assert!(one.cq.poll(1).next().is_none(), "the sender's own frame");
    let count = counters.read().unwrap();
    assert_eq!((count.packets, count.bytes), (3, 3 * packet(station, 0).len() as u64));
    // Without the rule there is no way to the queue.
    drop(flow);
    one.send(&packet(station, 5));
    assert_eq!(third.next().0, packet(station, 5));
    assert!(other.cq.poll(1).next().is_none());
}

/// A region has another key afterwards, and the old key leads nowhere.
#[test]
fn a_region_changes_its_memory_and_its_rights() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, other) = pair_on(&a, &b, &local(), |builder| builder);
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let [first, second] = [(); 2].map(|()| Box::leak(vec![0u8; 8192].into_boxed_slice()));
    let (first, second) = (first.as_mut_ptr(), second.as_mut_ptr());
    // SAFETY: the memory is leaked, and reached by raw pointers alone.
    let region = unsafe { other.pd.register(first, 8192, access) }.unwrap();
    let old = Remote { addr: region.addr(), rkey: region.rkey() };
    let change = Reregistration::default().memory(second, 8192);
    // SAFETY: no work uses the region.
    let region = unsafe { region.reregister(&change) }.unwrap();
    let new = Remote { addr: region.addr(), rkey: region.rkey() };
    let mut write = |to, result: fn(&Result<Completed, Failure>) -> bool| {
        let frame = one.filled(64, 3);
        let mut batch = one.qp.batch();
        batch.write(1, frame, to).unwrap();
        batch.ring();
        let done = one.wait().result;
        assert!(result(&done), "{done:?}");
    };
    write(new, |done| *done == Ok(Completed::Write));
    // SAFETY: the WRITE is over.
    let read = |at: *mut u8| unsafe { std::slice::from_raw_parts(at, 64).to_vec() };
    assert!(read(second) == pattern(64, 3)[..] && read(first) == [0; 64]);
    // SAFETY: no work uses the region.
    let region =
        unsafe { region.reregister(&Reregistration::default().access(AccessFlags::REMOTE_READ)) };
    let region = region.unwrap();
    assert_ne!(old.rkey, region.rkey());
    write(old, Result::is_err);
}

/// Without an address of the port a GID must contain its MAC address.
#[test]
fn address_handles_have_the_mac_of_their_gid() {
    let machine = Machine::of(LinkLayer::Ethernet);
    let context = machine.device(0).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let create = |first: [u8; 2]| {
        let mut dgid = [7; 16];
        dgid[..2].copy_from_slice(&first);
        let dgid = uverbs::Gid(dgid);
        let (sgid_index, hop_limit, traffic_class, flow_label) = (0, 1, 0, 0);
        let grh = Some(GlobalRoute { dgid, sgid_index, hop_limit, traffic_class, flow_label });
        let (dlid, service_level, src_path_bits, static_rate) = (0, 0, 0, 0);
        let path = attr::Path { dlid, grh, service_level, src_path_bits, static_rate };
        context.create_ah(&pd, &AhAttr { port: 1, path })
    };
    assert!(create([0xff, 0x0e]).is_ok(), "a multicast group");
    let error = create([0x20, 0x01]).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENETUNREACH));
}

/// Memory of the program's own, which the other process reaches by messages.
#[test]
fn memory_from_elsewhere_is_read_and_written() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, other) = pair_on(&a, &b, &local(), |builder| builder);
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    for (seed, len) in (0..).zip([1, 5000, 3 << 20]) {
        let own = Box::leak(vec![0u8; len + 7].into_boxed_slice()).as_mut_ptr();
        let at = own.wrapping_add(7);
        // SAFETY: the memory is leaked, and reached by raw pointer alone.
        let region = unsafe { other.pd.register(at, len, access) }.unwrap();
        let remote = Remote { addr: region.addr(), rkey: region.rkey() };
        let frame = one.filled(len, seed);
        let mut batch = one.qp.batch();
        batch.write(1, frame, remote).unwrap();
        batch.ring();
        assert_eq!(one.done().result, Ok(Completed::Write));
        // SAFETY: the device has answered, so that it no longer writes.
        let written = unsafe { std::slice::from_raw_parts(at, len) };
        assert!(written == pattern(len, seed));
        let frame = one.filled(len, seed + 1);
        let mut batch = one.qp.batch();
        batch.read(2, frame, remote).unwrap();
        batch.ring();
        let done = one.done();
        assert_eq!(done.result, Ok(Completed::Read));
        assert!(*done.frame.unwrap() == pattern(len, seed)[..]);
        drop(region);
    }
}

/// The server reads WQEs and doorbell records, and writes CQEs, by messages.
#[test]
fn queues_may_be_in_memory_from_elsewhere() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let [a, b] = [0, 1].map(|at| {
        let source = Arc::clone(machine.device(at).source());
        Device::from_source(Arc::new(Elsewhere(source)))
    });
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    // More messages than the rings hold.
    for round in 0..100 {
        talk(&mut one, &mut other, 1 + 700 * usize::from(round % 16), round);
    }
    talk(&mut one, &mut other, 300_000, 1);
    one.cq.resize(1024).unwrap();
    talk(&mut one, &mut other, 4096, 2);
    drop((one, other, a, b));
    for at in 0..SOCKETS.len() {
        VfioUser::connect(&machine.socket(at)).unwrap();
    }
}

/// The server's limit of ranges is the program's error. The device stays whole.
#[test]
fn too_many_regions_are_refused_by_the_server() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    let at = Box::leak(vec![7u8; 64].into_boxed_slice()).as_mut_ptr();
    let mut regions = Vec::new();
    let refused: Error = loop {
        assert!(regions.len() < 70_000);
        // SAFETY: the memory is leaked, and reached by raw pointer alone.
        match unsafe { other.pd.register(at, 64, AccessFlags::REMOTE_READ) } {
            Ok(region) => regions.push(region),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno(), Some(Errno::ENOSPC));
    drop(regions);
    talk(&mut one, &mut other, 64, 1);
}

/// A forked child drops its copies of all objects. The device still reaches the parent's memory.
#[test]
fn what_a_child_drops_stays_the_parents() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (one, other) = pair_on(&a, &b, &local(), |builder| builder);
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let exposed = other.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let at = Box::leak(vec![0u8; 64].into_boxed_slice()).as_mut_ptr();
    // SAFETY: the memory is leaked, and reached by raw pointer alone.
    let region = unsafe { other.pd.register(at, 64, access) }.unwrap();
    let slab = one.slab(64, 2);
    let mut all = Some((one, other, exposed, region, slab, a, b));
    // SAFETY: only this thread goes on in the child, which allocates and takes no lock that another
    // thread may hold.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // SAFETY: a system call by a number.
            unsafe { libc::alarm(60) };
            drop(all.take());
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
    let (mut one, mut other, exposed, region, slab, ..) = all.unwrap();
    let own = Remote { addr: region.addr(), rkey: region.rkey() };
    for (id, remote) in [(1, exposed.remote(0)), (2, own)] {
        let mut frame = slab.take().unwrap();
        frame.set_len(64);
        frame.copy_from_slice(&pattern(64, 3));
        let mut batch = one.qp.batch();
        batch.write(id, frame, remote).unwrap();
        batch.ring();
        assert_eq!(one.done().result, Ok(Completed::Write));
    }
    let mut back = vec![0; 64];
    exposed.read(0, &mut back).unwrap();
    // SAFETY: the device has answered, so that it no longer writes.
    let written = unsafe { std::slice::from_raw_parts(at, 64) };
    assert!(back == pattern(64, 3) && written == back);
    talk(&mut one, &mut other, 4096, 4);
}

/// The process that posts without a poll, while the server sleeps and while it does not.
#[test]
fn poster() {
    let Some(folder) = std::env::var_os(POSTER).map(PathBuf::from) else { return };
    let [a, b] = SOCKETS.map(|name| device(&folder.join(name)));
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    let wakes = || sum_of_switches("uverbs-bells");
    let is_watched = wakes().is_some();
    let before = wakes();
    for seed in 0..ROUNDS {
        std::thread::sleep(REST);
        // Two stores, one after the other. The other side alone polls.
        for id in [1, 2] {
            other.expect(id, 64);
            let frame = one.filled(64, seed);
            let mut batch = one.qp.batch();
            batch.send(id, frame).unwrap();
            batch.ring();
        }
        for id in [1, 2] {
            let received = other.done();
            assert_eq!((received.id, received.result), (id, Ok(Completed::Recv)));
        }
        for _ in 0..2 {
            assert_eq!(one.done().result, Ok(Completed::Send));
        }
    }
    if is_watched {
        let count = wakes().zip(before).map_or(0, |(after, before)| after - before);
        assert!(count >= u64::from(ROUNDS) / 2, "{count} wakes by stores");
    } else {
        println!("userfaultfd is refused: the server looks");
    }
}

/// Times that threads of a name went to sleep; `None` if there is no such thread.
fn sum_of_switches(name: &str) -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let named = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let switches = named.map(|task| {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    });
    switches.reduce(|all, one| all + one)
}

/// A post reaches a server that sleeps, by the store alone.
#[test]
fn posts_without_polls_arrive() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let socket = machine.socket(0);
    let status = role("poster", POSTER, socket.parent().unwrap()).status().unwrap();
    assert!(status.success());
}

/// The process that is killed: it connects, and polls for messages.
#[test]
fn client() {
    let Some(socket) = std::env::var_os(CLIENT).map(PathBuf::from) else { return };
    let mut side = Side::new(&device(&socket), &local(), |builder| builder);
    println!("said {}", side.endpoint);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    side.qp.connect(&line.trim().parse().unwrap()).unwrap();
    println!("said ready");
    loop {
        side.expect(0, 4096);
        side.wait();
    }
}

/// A client that is killed in traffic leaves a function that the next client gets clean, and peers
/// whose requests fail.
#[test]
fn a_killed_client_leaves_a_clean_function() {
    use std::io::Write;
    let machine = Machine::of(LinkLayer::InfiniBand);
    let a = machine.device(0);
    // A receive may come late, an answer may not.
    let local = Local { rnr_retry: 7, ..impatient() };
    let mut ours = Side::new(&a, &local, |builder| builder);
    let mut command = role("client", CLIENT, &machine.socket(1));
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = lines.filter_map(|line| Some(line.split_once("said ")?.1.to_owned()));
    ours.qp.connect(&said.next().unwrap().parse().unwrap()).unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{}", ours.endpoint).unwrap();
    assert_eq!(said.next().as_deref(), Some("ready"));
    let mut send = |id| {
        let frame = ours.filled(4096, id as u8);
        let mut batch = ours.qp.batch();
        batch.send(id, frame).unwrap();
        batch.ring();
        ours.wait()
    };
    for id in 0..50 {
        assert!(send(id).result.is_ok());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let failed = (50..).find_map(|id| send(id).result.err()).unwrap();
    assert!(matches!(failed.status, Status::RetryExceeded), "{failed}");
    drop(ours);
    // The server resets the function when the connection ends.
    let b = machine.device(1);
    let (mut one, mut other) = pair_on(&a, &b, &common::local(), |builder| builder);
    talk(&mut one, &mut other, 4096, 3);
}

/// A server that is gone is a device that is gone: one event, EIO, and no thread waits on.
#[test]
fn a_killed_server_is_a_removed_device() {
    let mut machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    talk(&mut one, &mut other, 64, 1);
    let context = one.context.clone();
    let start = Instant::now();
    let waits = std::thread::spawn(move || (one.cq.wait(2 * LIMIT).map(drop), one));
    machine.process.kill().unwrap();
    machine.process.wait().unwrap();
    let event = context.async_event(LIMIT).unwrap().expect("an event");
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
    let (woken, one) = waits.join().unwrap();
    assert!(woken.is_err() && start.elapsed() < LIMIT, "{woken:?}");
    assert!(!matches!(context.async_event(Duration::from_millis(100)), Ok(Some(_))), "told once");
    let error: Error = context.create_cq(4).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EIO));
    drop((one, other));
}

/// A server that answers no more is told as a failed device, whose memory stays.
#[test]
fn a_stopped_server_is_a_failed_device() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    let (a, b) = (machine.device(0), machine.device(1));
    let (mut one, mut other) = pair_on(&a, &b, &local(), |builder| builder);
    talk(&mut one, &mut other, 64, 1);
    let process = Pid::from_raw(machine.process.id().cast_signed());
    std::thread::sleep(REST);
    let frame = one.filled(64, 1);
    kill(process, Signal::SIGSTOP).unwrap();
    // The server asked for news of the next store, which is made without it.
    let mut batch = one.qp.batch();
    batch.send(1, frame).unwrap();
    batch.ring();
    // A look at the health each second, and ten seconds for the answer.
    let event = one.context.async_event(2 * LIMIT).unwrap().expect("an event");
    assert_eq!(event.kind, AsyncEventKind::DeviceFatal);
    let error: Error = one.context.create_cq(4).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EIO));
}
