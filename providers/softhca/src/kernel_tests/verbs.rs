//! Commands that succeed.

use std::time::{Duration, Instant};

use crate::wire::{Frame, Wire, WireFull};
use crate::{LinkLayer, Mtu, SoftHca};
use nix::sys::socket::{MsgFlags, recv};
use uverbs_core::Errno;
use uverbs_core::doors::DeviceSource;
use uverbs_kernel_abi::ah::{ib_uverbs_ah_attr, ib_uverbs_create_ah, ib_uverbs_global_route};
use uverbs_kernel_abi::device::*;
use uverbs_kernel_abi::event::*;
use uverbs_kernel_abi::gid::ib_uverbs_gid_entry;
use uverbs_kernel_abi::ioctl::UVERBS_ATTR_F_VALID_OUTPUT;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::mr::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::port::*;
use uverbs_kernel_abi::qp::*;
use uverbs_kernel_abi::write::*;

use super::rig::*;

#[test]
fn context_handshake() {
    let rig = Rig::bare(SoftHca::builder().stepped());
    let cmd = rig.get_context();
    let (cmd, vectors) = cmd.output(&rig.arena, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4);
    let (cmd, support) = cmd.output(&rig.arena, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8);
    let attrs = cmd.send(rig.door()).unwrap();
    let response: mlx5_ib_alloc_ucontext_resp = rig.arena.get(attrs[1].data);
    assert_eq!(response.tot_bfregs, 0);
    assert_eq!((response.log_uar_size, response.num_uars_per_page), (12, page_size() as u32 >> 12));
    assert_eq!((response.bf_reg_size, response.cache_line_size), (512, 64));
    assert_eq!((response.max_sq_desc_sz, response.max_rq_desc_sz), (1024, 512));
    assert_eq!((response.cqe_version, response.num_ports, response.response_length), (1, 1, 72));
    assert!(rig.arena.get::<u32>(vectors) > 0);
    assert_eq!(rig.arena.get::<u64>(support), 1);
    // Optional outputs are marked as written, inputs are not.
    let flags =
        attrs.iter().map(|attr| attr.flags & UVERBS_ATTR_F_VALID_OUTPUT).collect::<Vec<_>>();
    assert_eq!(flags, [0, 2, 2, 2]);
    rig.get_context().errno(rig.door());
    // The driver's method uses the ids of the driver data for its attributes.
    let attrs = rig.uar_cmd().0.send(rig.door()).unwrap();
    let flags =
        attrs.iter().map(|attr| attr.flags & UVERBS_ATTR_F_VALID_OUTPUT).collect::<Vec<_>>();
    assert_eq!(flags, [0, 0, 2, 2, 2]);
    assert_eq!(rig.get_context().errno(rig.door()), Errno::EINVAL, "a second context");
}

#[test]
fn older_handshakes() {
    for (len, ok) in
        [(8, true), (12, false), (16, true), (24, true), (32, true), (4, false), (0, false)]
    {
        let rig = Rig::bare(SoftHca::builder().stepped());
        let cmd = rig.get_context().edit(UVERBS_ATTR_UHW_IN, |attr| {
            attr.len = len;
            if len <= 8 {
                // total_num_bfregs 16, num_low_latency_bfregs 4
                attr.data = 16 | 4 << 32;
            }
        });
        let result = cmd.send(rig.door()).map(drop);
        assert_eq!(result, if ok { Ok(()) } else { Err(Errno::EINVAL) }, "{len} bytes");
        if let (true, Ok(())) = (len < 32, result) {
            // A client without dynamic UARs gets the static registers that it requested.
            let attr = cmd.attrs.iter().find(|attr| attr.attr_id == UVERBS_ATTR_UHW_OUT).unwrap();
            let response: mlx5_ib_alloc_ucontext_resp = rig.arena.get(attr.data);
            assert_eq!(response.tot_bfregs, 16);
        }
    }
}

#[test]
fn attributes() {
    let rig = Rig::new();
    let (cmd, out) = rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 176);
    cmd.send(rig.door()).unwrap();
    let plain: ib_uverbs_query_device_resp = rig.arena.get(out);
    assert_eq!((plain.vendor_id, plain.vendor_part_id, plain.phys_port_cnt), (0x02c9, 4125, 1));
    assert_eq!(u64::from(plain.node_guid), rig.hca.record().node_guid);
    assert_eq!(plain.max_qp_wr, 32768);

    let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
    let (cmd, out) = rig.write(command, &0u64, 304);
    let (cmd, driver) = cmd.output(&rig.arena, UVERBS_ATTR_UHW_OUT, 104);
    cmd.send(rig.door()).unwrap();
    let extended: ib_uverbs_ex_query_device_resp = rig.arena.get(out);
    assert_eq!(extended.base, plain);
    assert_eq!(extended.response_length, 304);
    let driver: mlx5_ib_query_device_resp = rig.arena.get(driver);
    assert_eq!(driver.response_length, 104);

    // A newer client at an older device: fields unknown to the device are cleared.
    let (cmd, out) = rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 200);
    cmd.send(rig.door()).unwrap();
    assert_eq!(rig.arena.read(out + 176, 24), [0; 24]);

    let (cmd, out) = Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT).output(
        &rig.arena,
        MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX,
        72,
    );
    cmd.send(rig.door()).unwrap();
    assert_eq!(rig.arena.get::<mlx5_ib_alloc_ucontext_resp>(out).cqe_version, 1);
}

fn query_port(rig: &Rig) -> ib_uverbs_query_port_resp_ex {
    let (cmd, out) = Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
        .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
        .output(&rig.arena, UVERBS_ATTR_QUERY_PORT_RESP, 48);
    cmd.send(rig.door()).unwrap();
    rig.arena.get(out)
}

#[test]
fn ports() {
    let rig = Rig::with(SoftHca::builder().stepped().active_mtu(Mtu::B1024));
    let port = query_port(&rig).legacy_resp;
    assert_eq!((port.state, port.phys_state, port.link_layer), (IB_PORT_ACTIVE, 5, 2));
    assert_eq!((port.active_mtu, port.max_mtu), (IB_MTU_1024, IB_MTU_4096));
    assert_eq!((port.gid_tbl_len, port.pkey_tbl_len, port.lid), (255, 1, 0));
    assert_eq!(port.flags, IB_UVERBS_QPF_GRH_REQUIRED);
    assert_eq!((rig.hca.pkey(1, 0), rig.hca.pkey(1, 1)), (Ok(0xffff), Err(Errno::ENOENT)));

    let rig = Rig::with(SoftHca::builder().stepped().link(LinkLayer::InfiniBand));
    let port = query_port(&rig).legacy_resp;
    assert_eq!((port.link_layer, port.pkey_tbl_len, port.flags), (1, 128, 0));
    assert_ne!(port.lid, 0);
    assert_eq!(rig.hca.pkey(1, 5), Ok(0));
}

#[test]
fn gids() {
    let rig = Rig::new();
    let known = rig.hca.gids();
    for (index, gid) in known.iter().enumerate() {
        let (cmd, out) = Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
            .constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 1)
            .constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index as u64)
            .input(&rig.arena, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, &0u32)
            .output(&rig.arena, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, 32);
        cmd.send(rig.door()).unwrap();
        let entry: ib_uverbs_gid_entry = rig.arena.get(out);
        assert_eq!(entry.gid_bytes(), gid.gid);
        assert_eq!((entry.gid_index, entry.gid_type), (index as u32, gid.kind as u32));
    }
    for (size, room, ok) in
        [(32, 32 * 8, true), (40, 40 * 4, true), (24, 24 * 4, true), (32, 32 * 3, false)]
    {
        let cmd = Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE)
            .constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, size as u64)
            .input(&rig.arena, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, &0u32);
        let (cmd, entries) = cmd.output(&rig.arena, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, room);
        let (cmd, count) = cmd.output(&rig.arena, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8);
        if !ok {
            assert_eq!(cmd.errno(rig.door()), Errno::EINVAL);
            continue;
        }
        cmd.send(rig.door()).unwrap();
        assert_eq!(rig.arena.get::<u64>(count), 4);
        for (index, gid) in known.iter().enumerate() {
            assert_eq!(rig.arena.read(entries + (index * size) as u64, 16), gid.gid);
        }
        if size == 40 {
            assert_eq!(rig.arena.read(entries + 32, 8), [0; 8]);
        }
    }
}

#[test]
fn objects_live_and_die_in_order() {
    let rig = Rig::new();
    let pd = rig.pd();
    let data = rig.arena.alloc(8192, 4096);
    let mr = rig.mr(pd, data, 8192);
    assert_eq!((pd, mr.mr_handle), (0, 1));
    assert_eq!(mr.lkey, mr.rkey);
    let uar = rig.uar();
    let cq = rig.cq(uar.page_id, 15);
    assert_eq!(cq.entries, 16);
    assert_eq!(rig.cq(uar.page_id, 16).entries, 32);
    let qp = rig.qp(uar.page_id, pd, cq.handle);
    assert!(qp.qpn >= 0x40);

    let (cmd, lkey) = Cmd::new(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
        .handle(UVERBS_ATTR_QUERY_MR_HANDLE, mr.mr_handle)
        .output(&rig.arena, UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4);
    let (cmd, _) = cmd.output(&rig.arena, UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4);
    let (cmd, len) = cmd.output(&rig.arena, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8);
    let (cmd, iova) = cmd.output(&rig.arena, UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8);
    cmd.send(rig.door()).unwrap();
    assert_eq!(
        (rig.arena.get::<u32>(lkey), rig.arena.get::<u64>(len), rig.arena.get::<u64>(iova)),
        (mr.lkey, 8192, data)
    );

    // In use: the PD by MR and QP, the CQ by the QP.
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, 0, pd), Err(Errno::EBUSY));
    assert_eq!(rig.destroy(UVERBS_OBJECT_CQ, 1, cq.handle), Err(Errno::EBUSY));
    assert_eq!(rig.destroy(UVERBS_OBJECT_MR, 1, mr.mr_handle), Ok(()));
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, 0, pd), Err(Errno::EBUSY));
    // A UAR can be destroyed although a QP uses its doorbell.
    assert_eq!(rig.destroy(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, uar.handle), Ok(()));
    assert_eq!(rig.destroy(UVERBS_OBJECT_QP, 1, qp.handle), Ok(()));
    assert_eq!(rig.destroy(UVERBS_OBJECT_QP, 1, qp.handle), Err(Errno::ENOENT));
    assert_eq!(rig.destroy(UVERBS_OBJECT_CQ, 1, cq.handle), Ok(()));
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, 0, pd), Ok(()));
    // The lowest handle is used again.
    assert_eq!(rig.pd(), 0);
}

#[test]
fn closing_frees_everything() {
    let rig = Rig::with(SoftHca::builder().stepped().max_qp(1).max_cq(1).max_pd(1));
    let hca = rig.hca.clone();
    for round in 0..3 {
        let door = hca.open().unwrap();
        let other = Rig { hca: hca.clone(), door, arena: Arena::new(1 << 20) };
        other.get_context().send(other.door()).unwrap();
        let pd = other.pd();
        let uar = other.uar();
        let cq = other.cq(uar.page_id, 1);
        other.qp(uar.page_id, pd, cq.handle);
        let data = other.arena.alloc(4096, 4096);
        other.mr(pd, data, 4096);
        assert!(hca.pinned_bytes() > 0, "round {round}");
        drop(other);
        assert_eq!(hca.pinned_bytes(), 0, "round {round}");
    }
}

#[test]
fn queue_pairs_change_state() {
    let rig = Rig::new();
    let (pd, uar) = (rig.pd(), rig.uar());
    let cq = rig.cq(uar.page_id, 15);
    let qp = rig.qp(uar.page_id, pd, cq.handle);
    let gid = rig.hca.gids()[3].gid;
    rig.connect(qp.handle, 0x77, gid);
    let now = rig.query_qp(qp.handle);
    assert_eq!((now.qp_state, now.dest_qp_num, now.path_mtu), (IB_QPS_RTS, 0x77, 3));
    assert_eq!((now.dest.dgid, now.dest.sgid_index, now.dest.is_global), (gid, 3, 1));
    assert_eq!((now.rq_psn, now.sq_psn, now.timeout, now.retry_cnt), (0x100, 0x100, 14, 7));
    // A QP has remote rights only; local write belongs to a region.
    let rights = DATA_RIGHTS & !IB_UVERBS_ACCESS_LOCAL_WRITE;
    assert_eq!((now.qp_access_flags, now.port_num, now.min_rnr_timer), (rights, 1, 12));
    assert_eq!((now.max_recv_wr, now.max_recv_sge), (8, 1));

    let change = |state| ib_uverbs_modify_qp {
        qp_handle: qp.handle,
        attr_mask: IB_QP_STATE,
        qp_state: state,
        ..Default::default()
    };
    // The extended form, with its response.
    let request = ib_uverbs_ex_modify_qp { base: change(IB_QPS_ERR), ..Default::default() };
    let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP;
    let (cmd, out) = rig.write(command, &request, 8);
    cmd.send(rig.door()).unwrap();
    assert_eq!(rig.arena.get::<ib_uverbs_ex_modify_qp_resp>(out).response_length, 8);
    assert_eq!(rig.query_qp(qp.handle).qp_state, IB_QPS_ERR);
    assert_eq!(rig.modify(&change(IB_QPS_RTS)), Err(Errno::EINVAL));
    rig.modify(&change(IB_QPS_RESET)).unwrap();
    rig.modify(&change(IB_QPS_RESET)).unwrap();
    assert_eq!(rig.query_qp(qp.handle).qp_state, IB_QPS_RESET);
}

#[test]
fn address_handles() {
    let rig = Rig::new();
    let pd = rig.pd();
    let request = ib_uverbs_create_ah {
        pd_handle: pd,
        attr: ib_uverbs_ah_attr {
            grh: ib_uverbs_global_route {
                dgid: rig.hca.gids()[0].gid,
                sgid_index: 1,
                ..Default::default()
            },
            is_global: 1,
            port_num: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    let ah = rig.ah(&request).unwrap();
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, 0, pd), Err(Errno::EBUSY));
    rig.destroy(UVERBS_OBJECT_AH, 0, ah).unwrap();
    let mut without_grh = request;
    without_grh.attr.is_global = 0;
    assert_eq!(rig.ah(&without_grh), Err(Errno::EINVAL));
    // `mlx5_ib_create_ah`: there must be room for the MAC, 10 bytes with the length before it.
    let (bare, _) = rig.write(IB_USER_VERBS_CMD_CREATE_AH, &request, 4);
    assert_eq!(bare.errno(rig.door()), Errno::EINVAL);
    for (room, outcome) in [(0, Err(Errno::EINVAL)), (9, Err(Errno::EINVAL)), (10, Ok(()))] {
        let (cmd, _) = rig.write(IB_USER_VERBS_CMD_CREATE_AH, &request, 4);
        let (cmd, _) = cmd.output(&rig.arena, UVERBS_ATTR_UHW_OUT, room);
        assert_eq!(cmd.send(rig.door()).map(drop), outcome, "{room}");
    }
    rig.destroy(UVERBS_OBJECT_AH, 0, ah).unwrap();
    // The refused commands left no object.
    rig.destroy(UVERBS_OBJECT_PD, 0, pd).unwrap();
}

#[test]
fn capabilities_by_devx() {
    let rig = Rig::new();
    let mut query = [0u8; 16];
    query[0] = 1;
    let cmd = Cmd::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER).input(
        &rig.arena,
        MLX5_IB_ATTR_DEVX_OTHER_CMD_IN,
        &query,
    );
    let (cmd, out) = cmd.output(&rig.arena, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, 4112);
    cmd.send(rig.door()).unwrap();
    // Five fields of `mlx5_ifc_cmd_hca_cap_bits`, behind 16 bytes of header: the device copies up
    // to 1 << 24 bytes (`log_dma_mmo_max_size`, five bits up to 0x70), a context may be extended
    // (`qpc_extension`), a dynamic connection has up to 16 READs in each direction
    // (`log_max_ra_req_dc`, `log_max_ra_res_dc`), and send queues take copies (`dma_mmo_sq`).
    let mut wanted = [0; 4112];
    wanted[16 + 0x6b / 8] = 24;
    wanted[16 + 0x122 / 8] = 0x80 >> (0x122 % 8);
    wanted[16 + 0x12f / 8] = 4;
    wanted[16 + 0x13f / 8] = 4;
    wanted[16 + 0x153 / 8] = 0x80 >> (0x153 % 8);
    assert_eq!(rig.arena.read(out, 4112), wanted);
    let cmd = cmd.edit(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, |attr| {
        attr.data = rig.arena.put(&[0xffu8; 16]);
    });
    assert_eq!(cmd.errno(rig.door()), Errno::EINVAL);
}

#[test]
fn links_and_unplugging_are_told() {
    let rig = Rig::new();
    let fd = rig.async_fd();
    rig.hca.link_down();
    assert_eq!(query_port(&rig).legacy_resp.state, IB_PORT_DOWN);
    rig.hca.link_down();
    rig.hca.link_up();
    let told = std::iter::from_fn(|| read_event::<ib_uverbs_async_event_desc>(fd))
        .map(|event| (event.element, event.event_type))
        .collect::<Vec<_>>();
    assert_eq!(told, [(1, IB_EVENT_PORT_ERR), (1, IB_EVENT_PORT_ACTIVE)]);

    let pd = rig.pd();
    let data = rig.arena.alloc(4096, 4096);
    rig.mr(pd, data, 4096);
    rig.hca.unplug();
    rig.hca.unplug();
    assert_eq!(rig.hca.pinned_bytes(), 0);
    let event = read_event::<ib_uverbs_async_event_desc>(fd).unwrap();
    assert_eq!(event.event_type, IB_EVENT_DEVICE_FATAL);
    assert!(read_event::<ib_uverbs_async_event_desc>(fd).is_none());
    assert_eq!(rig.get_context().errno(rig.door()), Errno::EIO);
    assert_eq!(rig.door().mmap(page_size(), 0x900 * page_size() as u64).unwrap_err(), Errno::EIO);
    assert_eq!(rig.hca.open().unwrap_err(), Errno::ENOENT);
    nix::unistd::close(fd).unwrap();
}

/// Linux wakes the reader with EIO (`uverbs_completion_event_file_destroy_uobj`); here it reads end
/// of file.
#[test]
fn unplugging_wakes_who_waits_on_a_channel() {
    let rig = Rig::new();
    let fd = rig.channel();
    let mut event = [0u8; 16];
    let mut read = || recv(fd, &mut event, MsgFlags::MSG_DONTWAIT);
    assert_eq!(read(), Err(nix::errno::Errno::EAGAIN));
    rig.hca.unplug();
    assert_eq!(read(), Ok(0), "a blocking read would wait for ever");
    nix::unistd::close(fd).unwrap();
}

/// A wire whose next event is always due.
#[derive(Debug)]
struct Restless;

impl Wire for Restless {
    fn transmit(&mut self, _: Frame) -> Result<(), WireFull> {
        Ok(())
    }

    fn receive(&mut self) -> Option<Frame> {
        None
    }

    fn next_event(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[test]
fn an_unplugged_device_has_nothing_to_do() {
    let rig = Rig::with(SoftHca::builder().stepped().wire(Box::new(Restless)));
    assert_eq!(rig.hca.next_deadline(), Some(Duration::from_millis(1)));
    rig.hca.unplug();
    assert_eq!(rig.hca.next_deadline(), None);
    assert!(!rig.hca.step());
}

/// Resident pages of a range.
fn resident(addr: u64, pages: usize) -> Vec<bool> {
    let mut seen = vec![0u8; pages];
    let addr = std::ptr::with_exposed_provenance_mut(addr as usize);
    // SAFETY: mincore reads no content, and writes one byte for each page into the vector.
    let rc = unsafe { libc::mincore(addr, pages * page_size(), seen.as_mut_ptr()) };
    assert_eq!(rc, 0);
    seen.iter().map(|page| page & 1 != 0).collect()
}

/// The handler refuses the unknown PD before it checks the memory, so the memory was faulted in
/// before that, without the lock.
#[test]
fn memory_is_faulted_in_before_the_device_is_locked() {
    let page_bytes = page_size() as u64;
    let rig = Rig::with(SoftHca::builder().stepped().memlock_limit(4 * page_bytes));
    let map = memmap2::MmapOptions::new().len(8 * page_size()).map_anon().unwrap();
    let map = memmap2::MmapRaw::from(map);
    let base = map.as_mut_ptr().expose_provenance() as u64;
    let request = |page: u64, pages: u64| ib_uverbs_reg_mr {
        start: base + page * page_bytes,
        hca_va: base,
        length: pages * page_bytes,
        pd_handle: 77,
        access_flags: DATA_RIGHTS,
        ..Default::default()
    };
    assert_eq!(rig.reg_mr(request(0, 5)).unwrap_err(), Errno::ENOENT);
    assert_eq!(resident(base, 8), [false; 8], "over the limit");
    assert_eq!(rig.reg_mr(request(1, 2)).unwrap_err(), Errno::ENOENT);
    let mut there = [false; 8];
    there[1..3].fill(true);
    assert_eq!(resident(base, 8), there);
    // A reregistration announces its range, too, if it names one.
    let mut again = ib_uverbs_rereg_mr {
        mr_handle: 77,
        flags: IB_MR_REREG_ACCESS,
        start: base + 4 * page_bytes,
        hca_va: base,
        length: 4096,
        access_flags: DATA_RIGHTS,
        ..Default::default()
    };
    for flags in [IB_MR_REREG_ACCESS, IB_MR_REREG_ACCESS | IB_MR_REREG_TRANS] {
        again.flags = flags;
        let (cmd, _) = rig.write(IB_USER_VERBS_CMD_REREG_MR, &again, 8);
        assert_eq!(cmd.errno(rig.door()), Errno::ENOENT);
        there[4] = flags & IB_MR_REREG_TRANS != 0;
        assert_eq!(resident(base, 8), there);
    }
}

#[test]
fn a_threads_device_ends_with_its_last_handle() {
    let rig = Rig::with(SoftHca::builder().name("ends"));
    let count = || {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.trim() == "softhca-ends")
            .count()
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while count() == 0 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    drop(rig);
    while count() > 0 {
        assert!(Instant::now() < deadline, "the thread is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn callers_are_not_starved_by_the_thread() {
    let rig = Rig::with(SoftHca::builder());
    let start = Instant::now();
    for _ in 0..2000 {
        let pd = rig.pd();
        rig.destroy(UVERBS_OBJECT_PD, 0, pd).unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
