//! Quirks of real cards, each on a software HCA that has it.
#![allow(unsafe_code, reason = "registers memory")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{LIMIT, local, only_on_softhca, soft};
use uverbs::attr::LagPort;
use uverbs::softhca::{Card, HcaConfig, SoftHca};
use uverbs::{AccessFlags, Context, Errno, Error, Local, QpState};

fn context(change: impl FnOnce(&mut HcaConfig)) -> Context {
    soft(&SoftHca::builder().hca(change).build().unwrap()).open().unwrap()
}

/// Sends a frame from a queue pair to itself.
fn echo(context: &Context) -> Result<(), Error> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(256)?;
    let mut qp = context.queue_pair(&pd, &cq).build()?;
    qp.prepare(&local())?;
    qp.connect_to_self()?;
    let slab = pd.slab(64, 2)?;
    let mut frame = slab.take().unwrap();
    frame[..4].copy_from_slice(b"card");
    frame.set_len(4);
    qp.post_recv(1, slab.take().unwrap())?;
    qp.post_send(2, frame)?;
    for _ in 0..2 {
        cq.wait(LIMIT)?.result?;
    }
    Ok(())
}

#[test]
fn every_card_carries_a_message() {
    if !only_on_softhca("a real card is one card") {
        return;
    }
    for card in Card::ALL {
        let hca = SoftHca::builder().profile(card).build().unwrap();
        let context = soft(&hca).open().unwrap();
        echo(&context).unwrap_or_else(|error| panic!("{card}: {error}"));
        for _ in 0..20 {
            echo(&context).unwrap_or_else(|error| panic!("{card}: {error}"));
        }
    }
}

#[test]
fn more_queue_pairs_than_doorbell_pages_share_one() {
    if !only_on_softhca("the pages of a real card are not the test's to limit") {
        return;
    }
    let context = context(|config| config.max_uars = 2);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let all: Vec<_> = (0..12).map(|_| context.queue_pair(&pd, &cq).build().unwrap()).collect();
    echo(&context).unwrap();
    drop(all);
    let none = SoftHca::builder().hca(|config| config.max_uars = 0).build().unwrap();
    let error = soft(&none).open().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOMEM));
    assert!(error.to_string().contains("doorbell page"), "{error}");
}

#[test]
fn doorbell_pages_beyond_16_bits_arm_and_ring() {
    if !only_on_softhca("the numbers of a real card's pages are its own") {
        return;
    }
    let context = context(|config| config.first_uar = 0x1_0000);
    echo(&context).unwrap();
    let channel = context.create_comp_channel().unwrap();
    let cq = context.completion_queue(16).channel(&channel).build();
    assert!(cq.is_ok(), "{cq:?}");
}

#[test]
fn relaxed_memory_keys_serve_frames_and_exposed_memory() {
    if !only_on_softhca("the firmware of a real card decides") {
        return;
    }
    let context = context(|config| config.relaxed_only = true);
    echo(&context).unwrap();
    let pd = context.alloc_pd().unwrap();
    let memory = pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    memory.store(0, 7).unwrap();
    let page = Box::leak(vec![0u8; 4096].into_boxed_slice()).as_mut_ptr();
    let register = |access| {
        // SAFETY: the memory is never freed, and nothing refers to it.
        unsafe { pd.register(page, 4096, access) }
    };
    drop(register(AccessFlags::LOCAL_WRITE).unwrap());
    drop(register(AccessFlags::LOCAL_WRITE | AccessFlags::RELAXED_ORDERING).unwrap());
    // Invalid rights stay refused.
    let error = register(AccessFlags::REMOTE_WRITE | AccessFlags::RELAXED_ORDERING).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EINVAL));
}

#[test]
fn a_page_fault_ends_a_shared_receive_and_not_the_connection() {
    if !only_on_softhca("pages of a real card's memory are there or not as it likes") {
        return;
    }
    let context = context(|config| config.aborts_shared_receives = true);
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(256).unwrap();
    let mut srq = context.shared_receive_queue(&pd).max_wr(4).build().unwrap();
    let mut qp = context.queue_pair(&pd, &cq).shared_receives(&srq).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let page = Box::leak(vec![0u8; 4096].into_boxed_slice()).as_mut_ptr();
    // SAFETY: the memory is never freed, and nothing refers to it.
    let region = unsafe { pd.register_on_demand(page, 4096, AccessFlags::LOCAL_WRITE) }.unwrap();
    let mut post = |id: u64| {
        let mut batch = srq.batch();
        // SAFETY: registered and never freed; nothing refers to it.
        unsafe { batch.post_raw(id, &[region.sge(0, 64)]) }.unwrap();
        batch.ring();
    };
    post(1);
    qp.post_send_inline(9, b"pages").unwrap();
    let failure = cq.wait(LIMIT).unwrap().result.unwrap_err();
    assert!(failure.is_page_fault(), "{failure}");
    assert!(failure.explain().contains("post it again"), "{failure}");
    post(2);
    let ids = [(); 2].map(|()| {
        let completion = cq.wait(LIMIT).unwrap();
        completion.result.unwrap();
        completion.id
    });
    assert!(ids == [2, 9] || ids == [9, 2], "{ids:?}");
    assert_eq!(qp.state(), QpState::ReadyToSend);
    // Frames are pinned.
    let frame = pd.slab(64, 1).unwrap().take().unwrap();
    srq.post(3, frame).unwrap();
    qp.post_send_inline(10, b"frame").unwrap();
    for _ in 0..2 {
        cq.wait(LIMIT).unwrap().result.unwrap();
    }
}

#[test]
fn a_queue_pair_moves_between_bonded_ports() {
    if !only_on_softhca("ports of a real card are bonded or not") {
        return;
    }
    let alone = context(|_| {});
    let bonded = context(|config| config.lag_ports = 2);
    let make = |context: &Context| {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        context.queue_pair(&pd, &cq).build().unwrap()
    };
    let error = make(&alone).lag_port().unwrap_err();
    assert_eq!(error.to_errno(), Errno::EOPNOTSUPP, "{error}");
    let all: Vec<_> = (0..4).map(|_| make(&bonded)).collect();
    let ports = all.iter().map(|qp| qp.lag_port().unwrap().configured);
    let on_first = ports.filter(|port| *port == 1).count();
    assert_eq!(on_first, 2, "spread over the ports");
    let mut qp = make(&bonded);
    let before = qp.lag_port().unwrap();
    let other = 3 - before.configured;
    assert!(matches!(qp.set_lag_port(other), Err(Error::State { .. })), "not in RTS");
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    qp.set_lag_port(other).unwrap();
    assert_eq!(qp.lag_port().unwrap(), LagPort { configured: other, active: other });
    for port in [0, 3, 17] {
        let error = qp.set_lag_port(port).unwrap_err();
        assert_eq!(error.to_errno(), Errno::EINVAL, "{error}");
    }
    assert_eq!(qp.lag_port().unwrap().configured, other);
}

/// Another object has their port, in any state.
#[test]
fn raw_packets_move_between_bonded_ports() {
    if !only_on_softhca("ports of a real card are bonded or not") {
        return;
    }
    let make = |ports: u8, sends: u32| {
        let context = context(|config| config.lag_ports = ports);
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        context.queue_pair(&pd, &cq).max_send_wr(sends).raw_packet().build().unwrap()
    };
    let error = make(1, 4).lag_port().unwrap_err();
    assert_eq!(error.to_errno(), Errno::EOPNOTSUPP, "{error}");
    let mut qp = make(2, 4);
    let other = 3 - qp.lag_port().unwrap().configured;
    qp.set_lag_port(other).unwrap();
    assert_eq!(qp.lag_port().unwrap(), LagPort { configured: other, active: other });
    assert_eq!(qp.set_lag_port(3).unwrap_err().to_errno(), Errno::EINVAL);
    assert_eq!(qp.lag_port().unwrap().configured, other);
    // Without a send queue there is no such object.
    assert_eq!(make(2, 0).lag_port().unwrap_err().to_errno(), Errno::EINVAL);
}

#[test]
fn timestamps_in_real_time_are_the_time_of_day() {
    if !only_on_softhca("a real card is in one mode") {
        return;
    }
    let began = Duration::from_secs(86_400 * 365 * 40);
    for real_time in [Some(began), None] {
        let context = context(|config| config.real_time = real_time);
        let clock = context.clock().unwrap().read().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut cq = context.create_cq(256).unwrap();
        let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
        qp.prepare(&local()).unwrap();
        qp.connect_to_self().unwrap();
        let memory = pd.expose(8, AccessFlags::REMOTE_WRITE).unwrap();
        qp.post_write_inline(1, &[7], memory.remote(0)).unwrap();
        let (started, mut stamp) = (Instant::now(), None);
        while stamp.is_none() && started.elapsed() < LIMIT {
            cq.poll_with(1, |completion| stamp = completion.timestamp());
        }
        let told = clock.time_of(stamp.expect("a completion"));
        let wanted = real_time.map_or_else(SystemTime::now, |began| UNIX_EPOCH + began);
        let apart = told.duration_since(wanted).unwrap_or_else(|error| error.duration());
        assert!(apart < LIMIT, "{told:?}, {wanted:?}");
    }
}

#[test]
fn dynamic_connections_have_their_own_limit_of_reads() {
    if !only_on_softhca("the limit is made up") {
        return;
    }
    for most in [1, 4, 16] {
        let hca = SoftHca::builder().hca(|config| config.max_dc_rd_atomic = most).build().unwrap();
        let context = soft(&hca).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let mut initiator = context.queue_pair(&pd, &cq).dci().build().unwrap();
        initiator.bring_up(&Local { rd_atomic: 16, ..local() }).unwrap();
        assert_eq!(initiator.query().unwrap().max_rd_atomic, most);
    }
}
