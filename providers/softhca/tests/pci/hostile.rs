//! Nonsense from a guest and from a client is answered or ignored, and never stops the server.

use std::io::Write;
use std::os::fd::AsRawFd;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use proptest::prelude::*;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus, Delivery};
use uverbs_mlx5_prm::cmd::{cq, dct, eq, header, mkey, qp, rq, sq, umem};

use crate::driver::{Driver, with_page};
use crate::host::{BASE, Host, MEMORY, empty_file, message, words};

/// Checks that the function works.
pub(crate) fn alive(driver: &mut Driver) {
    let (status, _) = driver.run(CmdOpcode::QUERY_ISSI, 0, &[0; 16], 112);
    assert_eq!(status, CmdStatus::OK);
}

/// Command queue entries with each possible error, and the resulting delivery status.
#[test]
fn entries_and_mailboxes_are_checked() {
    let mut driver = Driver::off();
    let good = |inlen: u32, in_ptr: u64, outlen: u32, out_ptr: u64| {
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&inlen.to_be_bytes());
        entry[8..16].copy_from_slice(&in_ptr.to_be_bytes());
        entry[16..18].copy_from_slice(&CmdOpcode::MANAGE_PAGES.0.to_be_bytes());
        entry[48..56].copy_from_slice(&out_ptr.to_be_bytes());
        entry[56..60].copy_from_slice(&outlen.to_be_bytes());
        entry[63] = 1;
        entry
    };
    let run = |driver: &mut Driver, entry: &[u8]| {
        driver.host.write(driver.slot(0), entry);
        driver.host.set(0x18, 1);
        Delivery(driver.finish(0, 0).0)
    };
    assert_eq!(run(&mut driver, &good(16, 0, 16, 0)), Delivery::OK);
    let mut other = good(16, 0, 16, 0);
    other[0] = 1;
    assert_eq!(run(&mut driver, &other), Delivery::CMD_DESCR_ERR);
    for inlen in [0, 7, 33 << 20, u32::MAX] {
        assert_eq!(run(&mut driver, &good(inlen, 0, 16, 0)), Delivery::IN_LENGTH_ERR);
    }
    for outlen in [0, 7, 2 << 20, u32::MAX] {
        assert_eq!(run(&mut driver, &good(16, 0, outlen, 0)), Delivery::OUT_LENGTH_ERR);
    }
    // Mailboxes that are missing, misaligned, or outside of memory.
    assert_eq!(run(&mut driver, &good(17, 0, 16, 0)), Delivery::IN_PTR_ALIGN_ERR);
    assert_eq!(run(&mut driver, &good(17, BASE + 8, 16, 0)), Delivery::IN_PTR_ALIGN_ERR);
    assert_eq!(run(&mut driver, &good(17, BASE + MEMORY, 16, 0)), Delivery::FW_ERR);
    assert_eq!(run(&mut driver, &good(17, !0xfff, 16, 0)), Delivery::FW_ERR);
    assert_eq!(run(&mut driver, &good(16, 0, 17, 0)), Delivery::OUT_PTR_ALIGN_ERR);
    assert_eq!(run(&mut driver, &good(16, 0, 17, BASE + MEMORY)), Delivery::FW_ERR);
    // A mailbox that names itself as the next has a wrong number the second time.
    let at = driver.page();
    let mut mailbox = [0; 576];
    mailbox[560..568].copy_from_slice(&at.to_be_bytes());
    driver.host.write(at, &mailbox);
    assert_eq!(run(&mut driver, &good(16 + 512, at, 16, 0)), Delivery::OK);
    assert_eq!(run(&mut driver, &good(32 << 20, at, 16, 0)), Delivery::BAD_BLK_NUM_ERR);
    mailbox[573] = 1;
    driver.host.write(at, &mailbox);
    assert_eq!(run(&mut driver, &good(16 + 512, at, 16, 0)), Delivery::TOK_ERR);
    // An entry that software owns, and a queue outside of memory, are ignored.
    driver.host.set(0x18, u32::MAX);
    driver.host.set(0x14, 0xffff_f000);
    driver.host.set(0x10, u32::MAX);
    driver.host.set(0x18, u32::MAX);
    let cmdq = driver.slot(0);
    driver.host.set(0x10, (cmdq >> 32) as u32);
    driver.host.set(0x14, cmdq as u32);
    alive(&mut driver);
}

#[test]
fn messages_that_are_none_end_the_session_and_no_more() {
    for bytes in [
        message(9, 1, &[]),                // a reply
        words(&[7, 15, 0, 0]),             // shorter than its header
        words(&[7, u32::MAX, 0, 0]),       // longer than anything
        words(&[7, (2 << 20) + 17, 0, 0]), // longer than allowed
    ] {
        let mut host = Host::connected();
        assert!(host.send(&bytes, &[]));
        assert!(host.leave().is_err());
    }
    // Truncated in the header, and in the body.
    for cut in [3, 20] {
        let mut host = Host::connected();
        assert!(host.send(&message(9, 0, &[0; 16])[..cut], &[]));
        assert!(host.leave().is_err());
    }
    assert!(Host::connected().leave().is_ok());
}

/// Number of descriptors of files of that name that this process has open.
fn open_files(name: &str) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    links.filter(|file| file.to_string_lossy().contains(name)).count()
}

#[test]
fn descriptors_of_a_refused_message_are_closed() {
    let file = empty_file("many-at-once");
    for count in [17, 253] {
        let mut host = Host::connected();
        assert!(host.send(&message(1, 0, &[0; 4]), &vec![file.as_raw_fd(); count]));
        assert!(host.leave().is_err(), "{count} descriptors");
        assert_eq!(open_files("many-at-once"), 1, "after {count}");
    }
    // A few descriptors with each byte.
    let mut host = Host::connected();
    for byte in message(1, 0, &[0; 4]) {
        // The server may disconnect in the middle.
        host.send(&[byte], &[file.as_raw_fd(); 5]);
    }
    assert!(host.leave().is_err());
    assert_eq!(open_files("many-at-once"), 1);
    // Descriptors with a body, where none belong.
    let mut host = Host::connected();
    let version = message(1, 0, &[0; 4]);
    assert!(host.send(&version[..16], &[file.as_raw_fd(); 16]));
    assert!(host.send(&version[16..], &[file.as_raw_fd(); 16]));
    // The result may be an error, since the answer can't be delivered.
    let _ = host.leave();
    assert_eq!(open_files("many-at-once"), 1);
}

/// The kernel delivers as many descriptors as the process has room for, and reports that there were
/// more.
#[test]
fn descriptors_beyond_the_process_s_limit_are_closed() {
    const INSIDE: &str = "UVERBS_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(INSIDE).is_none() {
        // A separate process, since the limit is per process.
        let name = "hostile::descriptors_beyond_the_process_s_limit_are_closed";
        let mut inside = std::process::Command::new("sh");
        inside.args(["-c", "ulimit -n 28 && exec \"$@\"", "sh"]);
        inside.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--test-threads=1"]);
        let output = inside.env(INSIDE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let file = empty_file("some-of-them");
    let mut host = Host::connected();
    host.request(1, &[0; 4], &[]).unwrap();
    let mut spare = std::iter::from_fn(|| file.try_clone().ok()).take(64).collect::<Vec<_>>();
    assert!((4..64).contains(&spare.len()), "the limit was reached");
    spare.truncate(spare.len() - 4);
    assert!(host.send(&message(1, 0, &[0; 4]), &[file.as_raw_fd(); 16]));
    assert!(host.leave().is_err());
    drop(spare);
    assert_eq!(open_files("some-of-them"), 1);
}

#[test]
fn requests_that_make_no_sense_are_errors() {
    let mut host = Host::new();
    for command in [0, 6, 11, 12, 14, 15, 16, u16::MAX] {
        assert!(host.request(command, &[0; 64], &[]).is_err(), "command {command}");
    }
    for command in [1, 2, 3, 5, 7, 8, 9, 10] {
        assert!(host.request(command, &[0; 3], &[]).is_err(), "command {command}, cut");
    }
    // Unknown regions and interrupts.
    assert!(host.request(5, &words(&[32, 0, 9, 0, 0, 0, 0, 0]), &[]).is_err());
    assert!(host.request(7, &words(&[16, 0, 5, 0]), &[]).is_err());
    assert!(host.request(8, &words(&[20, 0x24, 2, 64, 1]), &[]).is_err());
    assert!(host.request(8, &words(&[20, 0x24, 2, u32::MAX, 2]), &[]).is_err());
    assert!(host.request(8, &words(&[20, 0x24, 0, 0, 1]), &[]).is_err());
    // Longer than the longest transfer: the answer would take the server's memory.
    assert_eq!(host.region_read(0, 0, 1 << 20).unwrap().len(), 1 << 20);
    assert_eq!(host.region_read(0, 0, (1 << 20) + 4), Err(libc::EINVAL as u32));
    // Announced data that is missing.
    let mut write = 0u64.to_ne_bytes().to_vec();
    write.extend(words(&[0, 8]));
    assert!(host.request(10, &write, &[]).is_err());
    assert_eq!(host.config(0), 0x101d_15b3);
}

/// A file that shrinks while it is mapped would kill the server.
#[test]
fn memory_that_may_be_cut_is_refused() {
    let mut host = Host::new();
    let file = std::fs::File::from(empty_file("cut"));
    file.set_len(4096).unwrap();
    assert_eq!(host.map_file(file.as_raw_fd(), (0, 4096, 0)), Err(libc::EINVAL as u32));
    file.set_len(0).unwrap();
    assert_eq!(host.config(0), 0x101d_15b3);
}

/// Descriptors whose writer would block for ever, used as interrupts.
#[test]
fn interrupts_that_nobody_takes_are_skipped() {
    let (reader, mut pipe) = std::io::pipe().unwrap();
    let size = fcntl(&pipe, FcntlArg::F_GETPIPE_SZ).unwrap();
    pipe.write_all(&vec![0; size as usize]).unwrap();
    let full = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
    full.write(u64::MAX - 1).unwrap();
    let mut driver = Driver::up();
    // Like VFIO, the server accepts only eventfds.
    for fd in [pipe.as_raw_fd(), reader.as_raw_fd()] {
        assert_eq!(driver.host.vectors(&[fd]), Err(libc::EINVAL as u32));
    }
    driver.host.vectors(&[full.as_raw_fd()]).unwrap();
    // Commands raise vector 0.
    driver.eq(0, 1 << 0xa);
    for _ in 0..3 {
        alive(&mut driver);
    }
    assert_eq!(driver.host.config(0), 0x101d_15b3);
}

#[test]
fn memory_that_went_away_is_a_fault_and_no_more() {
    let mut driver = Driver::up();
    let eqn = driver.eq(0, 1 << 0xa);
    // Unmaps the event queue's ring, and then everything.
    let ring = driver.eqs[0].1;
    driver.host.unmap(ring, 4096);
    alive(&mut driver);
    driver.host.unmap(0, u64::MAX - 4095);
    driver.host.set(0x18, 1);
    driver.host.map(BASE, MEMORY, 0);
    alive(&mut driver);
    assert_ne!(eqn, 0);
}

/// A command whose context a user wrote: Linux marks all its memory as umems (hw/mlx5/devx.c,
/// `devx_set_umem_valid`), so the device must use none of its bus addresses.
#[test]
fn what_users_command_names_no_bus_address() {
    let mut driver = Driver::ethernet();
    let eqn = driver.eq(1, 0);
    let completions = driver.cq(eqn).number;
    let page = driver.page();
    let of = |size: usize, fill: &dyn Fn(&mut [u8])| {
        let mut input = with_page(size, page);
        fill(&mut input);
        input
    };
    let (uar, pd) = (u64::from(driver.uar), u64::from(driver.pd));
    let all_memory = of(mkey::create_mkey_in::SIZE, &|input| {
        mkey::create_mkey_in::MKEY_UMEM_VALID.set(input, 1);
        let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(input);
        mkey::mkc::LW.set(context, 1);
        mkey::mkc::LENGTH64.set(context, 1);
        mkey::mkc::PD.set(context, pd);
    });
    let ring = of(cq::create_cq_in::SIZE, &|input| {
        cq::create_cq_in::CQ_UMEM_VALID.set(input, 1);
        let context = cq::create_cq_in::CQ_CONTEXT.of_mut(input);
        cq::cqc::LOG_CQ_SIZE.set(context, 4);
        cq::cqc::UAR_PAGE.set(context, uar);
        cq::cqc::C_EQN_OR_APU_ELEMENT.set(context, eqn.into());
    });
    let resized = of(cq::modify_cq_in::SIZE, &|input| {
        cq::modify_cq_in::CQN.set(input, completions.into());
        cq::modify_cq_in::CQ_UMEM_VALID.set(input, 1);
    });
    let changer = of(qp::create_qp_in::SIZE, &|input| {
        qp::create_qp_in::WQ_UMEM_VALID.set(input, 1);
        let context = qp::create_qp_in::QPC.of_mut(input);
        qp::qpc::ST.set(context, 0xc);
        qp::qpc::FRE.set(context, 1);
        qp::qpc::UAR_PAGE.set(context, uar);
        qp::qpc::CQN_SND.set(context, completions.into());
        qp::qpc::CQN_RCV.set(context, completions.into());
    });
    let of_ring = |context: &mut [u8], at: usize| {
        let wq = &mut context[at..];
        rq::wq::WQ_UMEM_VALID.set(wq, 1);
        rq::wq::PD.set(wq, pd);
        rq::wq::LOG_WQ_SZ.set(wq, 4);
        rq::wq::LOG_WQ_STRIDE.set(wq, 5);
    };
    let frames = of(sq::create_sq_in::SIZE, &|input| of_ring(input, 32 + 48));
    let shared = of(rq::create_xrc_srq_in::SIZE, &|input| {
        rq::create_xrc_srq_in::XRC_SRQ_UMEM_VALID.set(input, 1);
    });
    let mut reasons = std::collections::BTreeSet::new();
    for (opcode, input) in [
        (CmdOpcode::CREATE_MKEY, all_memory),
        (CmdOpcode::MODIFY_CQ, resized),
        (CmdOpcode::CREATE_RMP, frames.clone()),
        (CmdOpcode::CREATE_RQ, frames.clone()),
        (CmdOpcode::CREATE_SQ, frames),
        (CmdOpcode::CREATE_XRC_SRQ, shared),
    ] {
        // For MODIFY_CQ: a resize.
        let op_mod = u16::from(opcode == CmdOpcode::MODIFY_CQ);
        let (status, output) = driver.run(opcode, op_mod, &input, 16);
        assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "{opcode}");
        reasons.insert(header::cmd_out::SYNDROME.get(&output));
    }
    assert_eq!(reasons.len(), 1, "the reason is one");
    // Completion queues and queue pairs may be in umems, but none is registered; and only the
    // driver may change keys.
    assert_eq!(driver.run(CmdOpcode::CREATE_CQ, 0, &ring, 16).0, CmdStatus::BAD_RES_ERR);
    assert_eq!(driver.run(CmdOpcode::CREATE_QP, 0, &changer, 16).0, CmdStatus::BAD_PARAM_ERR);
}

/// Commands with a large context, their size, and the offset of the context.
fn contexts() -> [(CmdOpcode, usize, usize); 10] {
    [
        (CmdOpcode::CREATE_EQ, eq::create_eq_in::SIZE, 16),
        (CmdOpcode::CREATE_CQ, cq::create_cq_in::SIZE, 16),
        (CmdOpcode::MODIFY_CQ, cq::modify_cq_in::SIZE, 8),
        (CmdOpcode::CREATE_QP, qp::create_qp_in::SIZE, 24),
        (CmdOpcode::RST2INIT_QP, qp::rst2init_qp_in::SIZE, 8),
        (CmdOpcode::CREATE_MKEY, mkey::create_mkey_in::SIZE, 16),
        (CmdOpcode::CREATE_RMP, rq::create_rmp_in::SIZE, 32),
        (CmdOpcode::CREATE_XRC_SRQ, rq::create_xrc_srq_in::SIZE, 16),
        (CmdOpcode::CREATE_UMEM, umem::create_umem_in::SIZE, 16),
        (CmdOpcode::CREATE_DCT, dct::create_dct_in::SIZE, 16),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Arbitrary commands with arbitrary input.
    #[test]
    fn any_command_is_answered(
        commands in prop::collection::vec(
            (
                prop_oneof![any::<u16>().prop_map(CmdOpcode), prop::sample::select(CmdOpcode::ALL)],
                0u16..8,
                prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 16..600),
                prop_oneof![Just(16usize), Just(272), Just(4112), 8usize..600],
            ),
            1..40,
        ),
        ethernet: bool,
    ) {
        let mut driver = if ethernet { Driver::ethernet() } else { Driver::up() };
        for (opcode, op_mod, input, outlen) in commands {
            let (status, output) = driver.run(opcode, op_mod, &input, outlen);
            let syndrome = header::cmd_out::SYNDROME.get(&output);
            prop_assert_eq!(status == CmdStatus::OK, syndrome == 0);
        }
        alive(&mut driver);
    }

    /// Contexts with some wrong bits, on existing objects; rings of arbitrary content; doorbells at
    /// any offset.
    #[test]
    fn contexts_rings_and_doorbells_may_be_anything(
        flips in prop::collection::vec(
            (0usize..10, prop::collection::vec((any::<u16>(), any::<u8>()), 0..6)),
            1..12,
        ),
        ring in prop::collection::vec(any::<u8>(), 512),
        record: [u32; 2],
        doorbells in prop::collection::vec((0u64..32 << 20, any::<u64>()), 0..24),
    ) {
        let mut driver = Driver::up();
        let eqn = driver.eq(0, u64::MAX);
        let cq = driver.cq(eqn);
        let qp = driver.qp(&cq);
        driver.connect(qp.number, qp.number);
        let (srqn, ..) = driver.srq();
        for (which, flips) in flips {
            let (opcode, size, context) = contexts()[which];
            let mut input = with_page(size, BASE);
            // Existing objects' numbers, where most contexts have them; then some bytes of
            // nonsense.
            let inner = &mut input[context..];
            match opcode {
                CmdOpcode::CREATE_CQ => {
                    cq::cqc::UAR_PAGE.set(inner, driver.uar.into());
                    cq::cqc::C_EQN_OR_APU_ELEMENT.set(inner, eqn.into());
                }
                CmdOpcode::CREATE_EQ => eq::eqc::UAR_PAGE.set(inner, driver.uar.into()),
                CmdOpcode::CREATE_QP => {
                    qp::qpc::UAR_PAGE.set(inner, driver.uar.into());
                    qp::qpc::PD.set(inner, driver.pd.into());
                    qp::qpc::CQN_SND.set(inner, cq.number.into());
                    qp::qpc::CQN_RCV.set(inner, cq.number.into());
                }
                CmdOpcode::CREATE_MKEY => mkey::mkc::PD.set(inner, driver.pd.into()),
                CmdOpcode::CREATE_DCT => {
                    dct::dctc::PD.set(inner, driver.pd.into());
                    dct::dctc::CQN.set(inner, cq.number.into());
                    dct::dctc::SRQN_XRQN.set(inner, srqn.into());
                    dct::dctc::MTU.set(inner, 3);
                }
                CmdOpcode::RST2INIT_QP => qp::rst2init_qp_in::QPN.set(&mut input, qp.number.into()),
                CmdOpcode::MODIFY_CQ => cq::modify_cq_in::CQN.set(&mut input, cq.number.into()),
                _ => {}
            }
            let len = input.len();
            for (at, byte) in flips {
                input[context + usize::from(at) % (len - context)] = byte;
            }
            driver.run(opcode, 0, &input, 16);
        }
        driver.host.write(qp.rq, &ring);
        driver.host.write(qp.record, &record.map(u32::to_be_bytes).concat());
        let page = u64::from(driver.uar) * 4096;
        driver.host.ring(page + 0x800, u64::from(qp.number) << 8 | 1);
        for (at, value) in doorbells {
            // Half of the stores are to doorbells.
            let at = if value % 2 == 0 { page + at % 0x1000 } else { at };
            driver.host.ring((at & !7).min((32 << 20) - 8), value);
            let _ = driver.host.region_write(0, at & !3, &value.to_be_bytes()[..4]);
        }
        // A store may have set another command queue address.
        let cmdq = driver.slot(0);
        driver.host.set(0x10, (cmdq >> 32) as u32);
        driver.host.set(0x14, cmdq as u32);
        alive(&mut driver);
    }

    /// Arbitrary bodies of all messages.
    #[test]
    fn any_message_is_answered(
        messages in prop::collection::vec(
            (0u16..17, prop::collection::vec(any::<u8>(), 0..80)),
            1..40,
        ),
        lens in prop::collection::vec(0u32..64, 40),
    ) {
        let mut host = Host::new();
        for ((command, mut body), len) in messages.into_iter().zip(lens) {
            // Reads of a length that can be answered.
            if command == 9 && body.len() >= 16 {
                body[12..16].copy_from_slice(&len.to_ne_bytes());
            }
            let _ = host.request(command, &body, &[]);
        }
        prop_assert!(host.request(4, &[], &[]).is_ok());
    }
}
