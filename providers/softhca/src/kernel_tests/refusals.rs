//! Commands that are refused, and their errnos.

use crate::SoftHca;
use uverbs_core::Errno;
use uverbs_kernel_abi::cq::*;
use uverbs_kernel_abi::ioctl::{UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT};
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::mr::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::*;
use uverbs_kernel_abi::write::*;
use zerocopy::IntoBytes;

use super::rig::*;

const WILD: u64 = 0x10;

#[test]
fn headers() {
    let rig = Rig::new();
    let good = rig.uar_cmd().0;
    let spoilt = |change: fn(&mut Cmd)| {
        let mut cmd = good.clone();
        change(&mut cmd);
        cmd.errno(rig.door())
    };
    assert_eq!(spoilt(|cmd| cmd.header.reserved1 = 1), Errno::EPROTONOSUPPORT);
    assert_eq!(spoilt(|cmd| cmd.header.reserved2 = 1), Errno::EPROTONOSUPPORT);
    assert_eq!(spoilt(|cmd| cmd.header.driver_id = 14), Errno::EINVAL);
    assert_eq!(spoilt(|cmd| cmd.header.object_id = 0x7777), Errno::EPROTONOSUPPORT);
    assert_eq!(spoilt(|cmd| cmd.header.method_id = 0x1077), Errno::EPROTONOSUPPORT);
    let raw = |change: fn(&mut Vec<u64>)| {
        let mut words = good.words();
        change(&mut words);
        // SAFETY: addresses are in the arena, which stays mapped, or wild on purpose, which the
        // device answers with EFAULT.
        unsafe { rig.door().ioctl(&mut words) }
    };
    assert_eq!(raw(|_| ()), Ok(()));
    assert_eq!(raw(|words| words[0] += 1), Err(Errno::EINVAL), "length");
    assert_eq!(raw(|words| words[0] += 1 << 48), Err(Errno::EINVAL), "num_attrs");
    assert_eq!(raw(|words| words.truncate(5)), Err(Errno::EFAULT));
    assert_eq!(raw(|words| words.truncate(2)), Err(Errno::EFAULT));
    assert_eq!(raw(Vec::clear), Err(Errno::EFAULT));
    // With the header, a page of attributes exceeds the page. The length field ends at 64 KiB.
    if page_size() < 1 << 16 {
        let more = raw(|words| {
            let count = page_size() / 16;
            words[0] =
                words[0] & 0xffff_ffff_0000 | (24 + 16 * count as u64) | (count as u64) << 48;
            words.resize(3 + 2 * count, 0);
        });
        assert_eq!(more, Err(Errno::EINVAL));
    }
}

#[test]
fn attributes() {
    let rig = Rig::new();
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    let creates =
        [rig.uar_cmd().0, rig.cq_cmd(uar.page_id, 15).0, rig.qp_cmd(uar.page_id, pd, cq.handle).0];
    for good in &creates {
        let before = rig.hca.pinned_bytes();
        for attr in &good.attrs {
            let id = attr.attr_id;
            let expected = match id {
                // Checked by the handler instead of the table.
                UVERBS_ATTR_CREATE_QP_PD_HANDLE
                | UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE
                | UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE
                    if good.header.object_id == UVERBS_OBJECT_QP =>
                {
                    Errno::ENOENT
                }
                UVERBS_ATTR_UHW_OUT if good.header.object_id != MLX5_IB_OBJECT_UAR => continue,
                _ => Errno::EINVAL,
            };
            let missing = good.clone().without(id).errno(rig.door());
            assert_eq!(missing, expected, "without {id:#x} {good:?}");
        }
        for attr in &good.attrs {
            let id = attr.attr_id;
            let spoilt = good.clone().edit(id, |attr| attr.attr_data = [1, 0]).errno(rig.door());
            assert_eq!(spoilt, Errno::EINVAL, "reserved bytes of {id:#x}");
            let mut twice = good.clone();
            twice.attrs.push(*attr);
            assert_eq!(twice.errno(rig.door()), Errno::EINVAL, "{id:#x} twice");
            // The driver's data may have any length that the driver accepts.
            if good.header.object_id != MLX5_IB_OBJECT_UAR && id >= UVERBS_ATTR_UHW_IN {
                continue;
            }
            let len = attr.len;
            if len > 0 {
                let short = good.clone().edit(id, |attr| attr.len -= 1).errno(rig.door());
                assert_eq!(short, Errno::EINVAL, "{id:#x} too short");
            }
            if !(len == 4 || len == 8 || len == 0) {
                continue;
            }
            let long = good.clone().edit(id, |attr| attr.len += 1).errno(rig.door());
            assert_eq!(long, Errno::EINVAL, "{id:#x} too long");
        }
        let unknown = good.clone().attr(0x0fff, 0, 0);
        assert_eq!(unknown.errno(rig.door()), Errno::EPROTONOSUPPORT);
        assert_eq!(rig.hca.pinned_bytes(), before, "a refused command left something behind");
        // An unknown optional attribute is ignored.
        let optional = unknown.edit(0x0fff, |attr| attr.flags = 0);
        optional.send(rig.door()).unwrap();
    }
}

#[test]
fn structs_may_grow_with_zeros() {
    let rig = Rig::new();
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    for (tail, expected) in [(0u8, Ok(())), (1, Err(Errno::EOPNOTSUPP))] {
        let (cmd, _) = rig.qp_cmd(uar.page_id, pd, cq.handle);
        let addr = rig.arena.alloc(24, 8);
        rig.arena.write(addr, &[0; 24]);
        rig.arena.write(addr + 20, &[tail]);
        let cmd = cmd.edit(UVERBS_ATTR_CREATE_QP_CAP, |attr| {
            attr.data = addr;
            attr.len = 24;
        });
        assert_eq!(cmd.send(rig.door()).map(drop), expected);
    }
    // The tail can't be read, which counts as not zero.
    let (cmd, _) = rig.qp_cmd(uar.page_id, pd, cq.handle);
    let cmd = cmd.edit(UVERBS_ATTR_CREATE_QP_CAP, |attr| {
        attr.data = WILD;
        attr.len = 24;
    });
    assert_eq!(cmd.errno(rig.door()), Errno::EOPNOTSUPP);
}

#[test]
fn bad_pointers() {
    let rig = Rig::new();
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    let commands = [
        rig.uar_cmd().0,
        rig.cq_cmd(uar.page_id, 15).0,
        rig.qp_cmd(uar.page_id, pd, cq.handle).0,
        rig.alloc_pd(&0u64, 4).0,
        rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 176).0,
        rig.write(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &0u64, 4).0,
    ];
    let objects = || {
        // The next handle shows the number of objects.
        let pd = rig.pd();
        rig.destroy(UVERBS_OBJECT_PD, 0, pd).unwrap();
        (pd, rig.hca.pinned_bytes())
    };
    let before = objects();
    for good in &commands {
        for attr in &good.attrs {
            let (base, len) = rig.arena.range();
            if attr.data < base || attr.data >= base + len {
                continue;
            }
            for wild in [WILD, u64::MAX - 2, 0xdead_beef_0000_0000] {
                let cmd = good.clone().edit(attr.attr_id, |attr| attr.data = wild);
                assert_eq!(cmd.errno(rig.door()), Errno::EFAULT, "{:#x} of {good:?}", attr.attr_id);
            }
        }
    }
    assert_eq!(objects(), before, "a refused command left something behind");
}

#[test]
fn handles() {
    let rig = Rig::new();
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    let with = |id, handle: u64| {
        let (cmd, _) = rig.qp_cmd(uar.page_id, pd, cq.handle);
        cmd.edit(id, |attr| attr.data = handle).errno(rig.door())
    };
    for id in [
        UVERBS_ATTR_CREATE_QP_PD_HANDLE,
        UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
        UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE,
    ] {
        assert_eq!(with(id, 99), Errno::ENOENT);
        assert_eq!(with(id, 1 << 40), Errno::ENOENT);
        assert_eq!(with(id, u64::MAX), Errno::EINVAL);
        assert_eq!(with(id, u64::from(uar.handle)), Errno::EINVAL, "another kind");
    }
    // The object that the command itself creates does not exist yet.
    assert_eq!(with(UVERBS_ATTR_CREATE_QP_PD_HANDLE, 3), Errno::ENOENT);
    let (cmd, _) = rig.qp_cmd(uar.page_id, pd, cq.handle);
    assert_eq!(
        cmd.clone().handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, 77u32).errno(rig.door()),
        Errno::ENOENT
    );
    assert_eq!(cmd.handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, pd).errno(rig.door()), Errno::EINVAL);
    assert_eq!(rig.destroy(UVERBS_OBJECT_CQ, 1, pd), Err(Errno::EINVAL));
    let request = ib_uverbs_reg_mr {
        pd_handle: 99,
        start: rig.arena.range().0,
        hca_va: rig.arena.range().0,
        length: 1,
        ..Default::default()
    };
    assert_eq!(rig.reg_mr(request), Err(Errno::ENOENT));
    // Descriptors.
    let (cmd, _) = rig.cq_cmd(uar.page_id, 15);
    let fd = |fd: i64| {
        cmd.clone().handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, fd.cast_unsigned()).errno(rig.door())
    };
    assert_eq!((fd(0), fd(-1), fd(1 << 40)), (Errno::EBADF, Errno::EBADF, Errno::EINVAL));
    let events = rig.async_fd();
    assert_eq!(fd(i64::from(events)), Errno::EBADF, "an async file is no channel");
    nix::unistd::close(events).unwrap();
}

#[test]
fn before_a_context() {
    let rig = Rig::bare(SoftHca::builder().stepped());
    let (cmd, _) = rig.alloc_pd(&0u64, 4);
    assert_eq!(cmd.errno(rig.door()), Errno::EINVAL);
    assert_eq!(rig.uar_cmd().0.errno(rig.door()), Errno::EINVAL);
    let (cmd, _) = rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 176);
    assert_eq!(cmd.errno(rig.door()), Errno::EINVAL);
    // The provider's probe for the ioctl form of write commands expects ENOSPC.
    assert_eq!(write_cmd(IB_USER_VERBS_CMD_QUERY_DEVICE).errno(rig.door()), Errno::ENOSPC);
    assert_eq!(
        rig.door().mmap(page_size(), 0x900 * page_size() as u64).unwrap_err(),
        Errno::EINVAL
    );
}

#[test]
fn write_commands() {
    let rig = Rig::new();
    for command in [0, 200, IB_USER_VERBS_CMD_POLL_CQ, IB_USER_VERBS_CMD_FLAG_EXTENDED | 200] {
        assert_eq!(
            rig.write(command, &0u64, 64).0.errno(rig.door()),
            Errno::EOPNOTSUPP,
            "{command}"
        );
    }
    assert_eq!(rig.write(0x100, &0u64, 64).0.errno(rig.door()), Errno::EINVAL);
    let too_large =
        rig.write(1, &0u64, 64).0.edit(UVERBS_ATTR_WRITE_CMD, |attr| attr.data = 1 << 32);
    assert_eq!(too_large.errno(rig.door()), Errno::EINVAL);
    assert_eq!(rig.alloc_pd(&0u64, 3).0.errno(rig.door()), Errno::ENOSPC);
    assert_eq!(rig.alloc_pd(&0u32, 4).0.errno(rig.door()), Errno::ENOSPC);
    assert_eq!(
        rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 175).0.errno(rig.door()),
        Errno::ENOSPC
    );
    assert_eq!(
        rig.alloc_pd(&[0u64, 1], 4).0.errno(rig.door()),
        Errno::EOPNOTSUPP,
        "a request of tomorrow"
    );
    assert_eq!(rig.alloc_pd(&[0u64, 0], 4).0.send(rig.door()).map(drop), Ok(()));
    let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
    assert_eq!(rig.write(command, &1u64, 304).0.errno(rig.door()), Errno::EINVAL);
}

#[test]
fn devices_and_ports() {
    let rig = Rig::new();
    let port = |number| {
        Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
            .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, number)
            .output(&rig.arena, UVERBS_ATTR_QUERY_PORT_RESP, 48)
            .0
    };
    for number in [0, 2, 255, 256, u64::MAX] {
        assert_eq!(port(number).errno(rig.door()), Errno::EINVAL);
    }
    let gid = |port, index, flags: u32| {
        Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
            .constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port)
            .constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index)
            .input(&rig.arena, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, &flags)
            .output(&rig.arena, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, 32)
            .0
            .errno(rig.door())
    };
    assert_eq!(gid(1, 4, 0), Errno::ENODATA, "an empty entry");
    assert_eq!(gid(1, 254, 0), Errno::ENODATA);
    assert_eq!(gid(1, 255, 0), Errno::EINVAL, "outside the table");
    assert_eq!(gid(2, 0, 0), Errno::EINVAL);
    assert_eq!(gid(1, 0, 1), Errno::EINVAL);

    let rig = Rig::bare(SoftHca::builder().stepped());
    let flags =
        rig.edit_driver(rig.get_context(), |request: &mut mlx5_ib_alloc_ucontext_req_v2| {
            request.flags = 2;
        });
    assert_eq!(flags.errno(rig.door()), Errno::EOPNOTSUPP);
    let reserved =
        rig.edit_driver(rig.get_context(), |request: &mut mlx5_ib_alloc_ucontext_req_v2| {
            request.reserved2 = 1;
        });
    assert_eq!(reserved.errno(rig.door()), Errno::EOPNOTSUPP);
    assert_eq!(rig.get_context().send(rig.door()).map(drop), Ok(()));
}

#[test]
fn memory_regions() {
    let rig = Rig::with(SoftHca::builder().stepped().max_mr(2).memlock_limit(64 << 10));
    let pd = rig.pd();
    let data = rig.arena.alloc(128 << 10, page_size() as u64);
    let good = ib_uverbs_reg_mr {
        start: data,
        hca_va: data,
        length: 4096,
        pd_handle: pd,
        access_flags: DATA_RIGHTS,
        ..Default::default()
    };
    let with = |change: fn(&mut ib_uverbs_reg_mr)| {
        let mut request = good;
        change(&mut request);
        rig.reg_mr(request).map(|mr| rig.destroy(UVERBS_OBJECT_MR, 1, mr.mr_handle).unwrap())
    };
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with(|mr| mr.hca_va += page_size() as u64), Ok(()));
    assert_eq!(with(|mr| mr.hca_va += 1), Err(Errno::EINVAL), "offsets in the page differ");
    assert_eq!(with(|mr| mr.access_flags = IB_UVERBS_ACCESS_REMOTE_WRITE), Err(Errno::EINVAL));
    assert_eq!(with(|mr| mr.access_flags |= 1 << 12), Err(Errno::EINVAL));
    assert_eq!(with(|mr| mr.access_flags |= IB_UVERBS_ACCESS_RELAXED_ORDERING), Ok(()));
    assert_eq!(with(|mr| mr.access_flags |= 1 << 29), Ok(()), "optional and unknown");
    assert_eq!(with(|mr| mr.access_flags |= IB_UVERBS_ACCESS_ON_DEMAND), Ok(()));
    assert_eq!(with(|mr| mr.length = 0), Err(Errno::EINVAL));
    assert_eq!(with(|mr| mr.length = u64::MAX), Err(Errno::EINVAL));
    assert_eq!(with(|mr| mr.length = 65 << 10), Err(Errno::ENOMEM), "memlock");
    assert_eq!(rig.door().memlock(65 << 10), Some(64 << 10));
    assert_eq!(rig.door().memlock(64 << 10), None);
    // The limit is checked before the memory.
    assert_eq!(
        with(|mr| (mr.start, mr.hca_va, mr.length) = (0x1000, 0x1000, 65 << 10)),
        Err(Errno::ENOMEM)
    );
    assert_eq!(with(|mr| mr.length = 64 << 10), Ok(()));
    assert_eq!(with(|mr| (mr.start, mr.hca_va) = (0x1000, 0x1000)), Err(Errno::EFAULT));
    // Read-only memory may only be read by peers.
    static CONSTANT: [u8; 4096] = [7; 4096];
    let addr = CONSTANT.as_ptr().expose_provenance() as u64;
    let constant = ib_uverbs_reg_mr {
        start: addr,
        hca_va: addr,
        length: 8,
        access_flags: IB_UVERBS_ACCESS_REMOTE_READ,
        ..good
    };
    let first = rig.reg_mr(constant).unwrap();
    let writable = ib_uverbs_reg_mr { access_flags: IB_UVERBS_ACCESS_LOCAL_WRITE, ..constant };
    assert_eq!(rig.reg_mr(writable), Err(Errno::EFAULT));
    let second = rig.reg_mr(good).unwrap();
    assert_ne!(first.lkey, second.lkey);
    assert_eq!(rig.reg_mr(good), Err(Errno::ENOMEM), "the device has two keys");
}

#[test]
fn reregistration() {
    let rig = Rig::with(SoftHca::builder().stepped().memlock_limit(64 << 10));
    let (pd, other) = (rig.pd(), rig.pd());
    let page = page_size() as u64;
    let data = rig.arena.alloc(128 << 10, page_size() as u64);
    let mr = rig.mr(pd, data, 2 * page);
    let with = |flags, change: fn(&mut ib_uverbs_rereg_mr)| {
        let mut request = ib_uverbs_rereg_mr {
            mr_handle: mr.mr_handle,
            flags,
            start: data,
            length: 4096,
            hca_va: 0,
            pd_handle: other,
            access_flags: IB_UVERBS_ACCESS_REMOTE_READ,
            ..Default::default()
        };
        change(&mut request);
        let (cmd, out) = rig.write(IB_USER_VERBS_CMD_REREG_MR, &request, 8);
        cmd.send(rig.door()).map(|_| rig.arena.get::<u32>(out))
    };
    assert_eq!(with(0, |_| ()), Err(Errno::EINVAL));
    assert_eq!(with(8, |_| ()), Err(Errno::EOPNOTSUPP));
    assert_eq!(with(1, |mr| mr.mr_handle = 99), Err(Errno::ENOENT));
    assert_eq!(with(1, |mr| mr.mr_handle = 0), Err(Errno::EINVAL), "a PD");
    assert_eq!(with(1, |mr| mr.hca_va = 1), Err(Errno::EINVAL));
    assert_eq!(with(1, |mr| mr.start = page_size() as u64), Err(Errno::EFAULT));
    assert_eq!(with(1, |mr| mr.length = 65 << 10), Err(Errno::ENOMEM));
    assert_eq!(with(2, |mr| mr.pd_handle = 99), Err(Errno::ENOENT));
    assert_eq!(with(4, |mr| mr.access_flags = IB_UVERBS_ACCESS_REMOTE_WRITE), Err(Errno::EINVAL));
    assert_eq!(rig.hca.pinned_bytes(), 2 * page);
    assert_eq!(with(7, |_| ()), Ok(mr.lkey));
    assert_eq!(rig.hca.pinned_bytes(), page);
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, 0, pd), Ok(()));
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, 0, other), Err(Errno::EBUSY));
    assert_eq!(rig.destroy(UVERBS_OBJECT_MR, 1, mr.mr_handle), Ok(()));
    assert_eq!(rig.hca.pinned_bytes(), 0);
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, 0, other), Ok(()));
}

#[test]
fn completion_queues() {
    let rig = Rig::with(SoftHca::builder().stepped().max_cq(2).max_cqe(100));
    let uar = rig.uar();
    let driver = |change: fn(&mut mlx5_ib_create_cq)| {
        let cmd = rig.edit_driver(rig.cq_cmd(uar.page_id, 15).0, change);
        cmd.errno(rig.door())
    };
    assert_eq!(driver(|cq| cq.cqe_size = 32), Errno::EINVAL);
    assert_eq!(driver(|cq| cq.flags |= 8), Errno::EINVAL);
    assert_eq!(driver(|cq| cq.flags = 0), Errno::EINVAL, "no UAR page");
    assert_eq!(driver(|cq| cq.uar_page_index = 9), Errno::EINVAL);
    // `cq.c:mini_cqe_res_format_to_hw`
    assert_eq!(driver(|cq| cq.cqe_comp_en = 1), Errno::EINVAL, "no format");
    assert_eq!(driver(|cq| cq.buf_addr = WILD), Errno::EFAULT);
    assert_eq!(driver(|cq| cq.db_addr = WILD), Errno::EFAULT);
    assert_eq!(driver(|cq| cq.db_addr += 4), Errno::EINVAL);
    let input = |id, value: u32| {
        rig.cq_cmd(uar.page_id, 15).0.edit(id, |attr| attr.data = u64::from(value))
    };
    assert_eq!(input(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 1000).errno(rig.door()), Errno::EINVAL);
    assert_eq!(input(UVERBS_ATTR_CREATE_CQ_CQE, 128).errno(rig.door()), Errno::EINVAL);
    assert_eq!(input(UVERBS_ATTR_CREATE_CQ_CQE, u32::MAX).errno(rig.door()), Errno::EINVAL);
    let flags = |flags: u32| {
        let (cmd, _) = rig.cq_cmd(uar.page_id, 15);
        cmd.input(&rig.arena, UVERBS_ATTR_CREATE_CQ_FLAGS, &flags)
    };
    assert_eq!(flags(4).errno(rig.door()), Errno::EINVAL);
    assert_eq!(rig.hca.pinned_bytes(), 0);
    flags(IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN).send(rig.door()).unwrap();
    rig.cq(uar.page_id, 1);
    assert_eq!(rig.cq_cmd(uar.page_id, 1).0.errno(rig.door()), Errno::ENOMEM);
}

#[test]
fn queue_pairs() {
    let rig = Rig::with(SoftHca::builder().stepped().max_qp(1).max_qp_wr(1024));
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    let before = rig.hca.pinned_bytes();
    let good = || rig.qp_cmd(uar.page_id, pd, cq.handle).0;
    let driver =
        |change: fn(&mut mlx5_ib_create_qp)| rig.edit_driver(good(), change).errno(rig.door());
    assert_eq!(driver(|qp| qp.sq_wqe_count = 15), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.sq_wqe_count = 2048), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.rq_wqe_shift = 33), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.rq_wqe_shift = 10), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.flags |= 1 << 31), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.flags = 0), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.bfreg_index = 0x500), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.uidx = 0xff_ffff), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.uidx = 1 << 24), Errno::EINVAL);
    assert_eq!(driver(|qp| qp.buf_addr = WILD), Errno::EFAULT);
    assert_eq!(driver(|qp| qp.db_addr = WILD), Errno::EFAULT);
    assert_eq!(driver(|qp| qp.db_addr += 1), Errno::EINVAL);
    let short = good().edit(UVERBS_ATTR_UHW_IN, |attr| attr.len = 47);
    assert_eq!(short.errno(rig.door()), Errno::EINVAL);
    let kind = |kind: u64| {
        good().edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = kind).errno(rig.door())
    };
    // A raw packet QP names its send queue separately.
    assert_eq!(kind(u64::from(IB_UVERBS_QPT_RAW_PACKET)), Errno::EFAULT);
    assert_eq!(kind(u64::from(IB_UVERBS_QPT_XRC_TGT)), Errno::EINVAL);
    assert_eq!(kind(0), Errno::EINVAL);
    assert_eq!(kind(1 << 33), Errno::EINVAL);
    let cap = |change: fn(&mut ib_uverbs_qp_cap)| {
        let mut cap = ib_uverbs_qp_cap::default();
        change(&mut cap);
        let addr = rig.arena.put(&cap);
        good().edit(UVERBS_ATTR_CREATE_QP_CAP, |attr| attr.data = addr).errno(rig.door())
    };
    assert_eq!(cap(|cap| cap.max_recv_wr = 1025), Errno::EINVAL);
    let flags =
        good().input(&rig.arena, UVERBS_ATTR_CREATE_QP_FLAGS, &IB_UVERBS_QP_CREATE_SCATTER_FCS);
    assert_eq!(flags.errno(rig.door()), Errno::EINVAL);
    assert_eq!(rig.hca.pinned_bytes(), before, "a refused QP left memory pinned");
    let short = good().edit(UVERBS_ATTR_UHW_IN, |attr| attr.len = 48);
    let attrs = short.send(rig.door()).unwrap();
    assert_eq!(good().errno(rig.door()), Errno::ENOMEM, "the device has one QP");
    // A destroy whose answer can't be written has destroyed the object all the same.
    let cmd = Cmd::new(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
        .handle(UVERBS_ATTR_DESTROY_QP_HANDLE, attrs[0].data)
        .attr(UVERBS_ATTR_DESTROY_QP_RESP, 4, WILD);
    assert_eq!(cmd.errno(rig.door()), Errno::EFAULT);
    assert_eq!(cmd.errno(rig.door()), Errno::ENOENT);
    assert_eq!(rig.hca.pinned_bytes(), before);
}

#[test]
fn transitions() {
    let rig = Rig::new();
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    let qp = rig.qp(uar.page_id, pd, cq.handle).handle;
    let gid = rig.hca.gids()[3].gid;
    let (init, rtr, rts) = (to_init(qp), to_rtr(qp, 0x50, gid), to_rts(qp));
    let with = |good: &ib_uverbs_modify_qp, change: fn(&mut ib_uverbs_modify_qp)| {
        let mut request = *good;
        change(&mut request);
        rig.modify(&request)
    };
    let refused = |good: &ib_uverbs_modify_qp, change: fn(&mut ib_uverbs_modify_qp)| {
        assert_eq!(with(good, change), Err(Errno::EINVAL));
    };
    assert_eq!(with(&init, |qp| qp.attr_mask |= 1 << 21), Err(Errno::EOPNOTSUPP));
    assert_eq!(with(&init, |qp| qp.qp_handle = 77), Err(Errno::ENOENT));
    refused(&init, |qp| qp.qp_state = 7);
    refused(&init, |qp| qp.port_num = 2);
    refused(&init, |qp| qp.pkey_index = 1);
    refused(&init, |qp| qp.attr_mask &= !IB_QP_ACCESS_FLAGS);
    refused(&init, |qp| qp.attr_mask |= IB_QP_QKEY);
    refused(&init, |qp| {
        qp.attr_mask |= IB_QP_CUR_STATE;
        qp.cur_qp_state = 9;
    });
    assert_eq!(rig.modify(&rtr), Err(Errno::EINVAL), "RESET to RTR");
    rig.modify(&init).unwrap();
    rig.modify(&ib_uverbs_modify_qp { attr_mask: IB_QP_STATE, ..init }).unwrap();
    refused(&rtr, |qp| qp.dest.is_global = 0);
    refused(&rtr, |qp| qp.dest.sgid_index = 255);
    assert_eq!(with(&rtr, |qp| qp.dest.sgid_index = 4), Err(Errno::ENODATA));
    refused(&rtr, |qp| qp.dest.port_num = 0);
    refused(&rtr, |qp| qp.path_mtu = 0);
    refused(&rtr, |qp| qp.path_mtu = 6);
    refused(&rtr, |qp| qp.max_dest_rd_atomic = 17);
    refused(&rtr, |qp| qp.attr_mask |= IB_QP_ALT_PATH);
    refused(&rtr, |qp| qp.attr_mask &= !IB_QP_MIN_RNR_TIMER);
    assert_eq!(rig.query_qp(qp).qp_state, IB_QPS_INIT);
    rig.modify(&rtr).unwrap();
    refused(&rts, |qp| qp.max_rd_atomic = 17);
    refused(&rts, |qp| {
        qp.attr_mask |= IB_QP_CUR_STATE;
        qp.cur_qp_state = IB_QPS_INIT;
    });
    rig.modify(&rts).unwrap();
    // mlx5 has no transition into SQD.
    let sqd = ib_uverbs_modify_qp {
        qp_handle: qp,
        attr_mask: IB_QP_STATE,
        qp_state: IB_QPS_SQD,
        ..Default::default()
    };
    assert_eq!(rig.modify(&sqd), Err(Errno::EINVAL));
}

#[test]
fn mtu_above_the_ports() {
    let rig = Rig::with(SoftHca::builder().stepped().active_mtu(crate::Mtu::B512));
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    let qp = rig.qp(uar.page_id, pd, cq.handle).handle;
    let mut rtr = to_rtr(qp, 0x50, rig.hca.gids()[3].gid);
    rig.modify(&to_init(qp)).unwrap();
    assert_eq!(rig.modify(&rtr), Err(Errno::EINVAL));
    rtr.path_mtu = 2;
    assert_eq!(rig.modify(&rtr), Ok(()));
}

#[test]
fn a_refused_command_changes_no_output() {
    let rig = Rig::new();
    let (cmd, out) = rig.alloc_pd(&[0u64, 1], 4);
    let mut words = cmd.words();
    let before = words.clone();
    // SAFETY: addresses are in the arena, which stays mapped, or wild on purpose, which the device
    // answers with EFAULT.
    unsafe { rig.door().ioctl(&mut words) }.unwrap_err();
    assert_eq!(words, before);
    assert_eq!(rig.arena.read(out, 4), [0xcc; 4]);
    let valid = words.as_bytes()[24..].chunks(16).any(|attr| {
        u16::from_ne_bytes([attr[4], attr[5]])
            & !UVERBS_ATTR_F_MANDATORY
            & UVERBS_ATTR_F_VALID_OUTPUT
            != 0
    });
    assert!(!valid);
}
