//! Bytes survive the types, whatever they are; unions and offsets come back as they went in.

use proptest::prelude::*;
use uverbs_kernel_abi::ioctl::{ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::netlink::{RDMA_NL_GET_CLIENT, RDMA_NL_GET_OP, RDMA_NL_GET_TYPE};
use uverbs_kernel_abi::wc::*;
use uverbs_kernel_abi::{device, flow, gid, qp, rxe};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `bytes` read as `T` and written again, cut to `T`'s size.
fn same<T: FromBytes + IntoBytes + Immutable>(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (value, _) = T::read_from_prefix(bytes).unwrap();
    prop_assert_eq!(value.as_bytes(), &bytes[..size_of::<T>()]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_to_struct_to_bytes(bytes in proptest::collection::vec(any::<u8>(), 1024)) {
        same::<ib_uverbs_ioctl_hdr>(&bytes)?;
        same::<ib_uverbs_attr>(&bytes)?;
        same::<device::ib_uverbs_ex_query_device_resp>(&bytes)?;
        same::<qp::ib_uverbs_ex_modify_qp>(&bytes)?;
        same::<qp::ib_uverbs_query_qp_resp>(&bytes)?;
        same::<flow::ib_uverbs_flow_action_esp_encap>(&bytes)?;
        same::<mlx5_ib_alloc_ucontext_resp>(&bytes)?;
        same::<mlx5_ib_query_device_resp>(&bytes)?;
        same::<mlx5_ib_create_qp>(&bytes)?;
        same::<mlx5_ib_match_params>(&bytes)?;
        same::<rxe::rxe_send_wqe>(&bytes)?;
    }

    #[test]
    fn union_members_come_back(former in any::<[u8; 32]>(), address: u64, key: u32, imm: u32) {
        let mut wr = ib_uverbs_send_wr { wr: former, ex: imm.to_be_bytes(), ..Default::default() };
        prop_assert_eq!(wr.imm_data().get(), imm);
        prop_assert_eq!(wr.invalidate_rkey(), imm.to_be());
        let atomic = wr.atomic();
        prop_assert_eq!(atomic.as_bytes(), &former);

        let rdma = ib_uverbs_send_wr_rdma { remote_addr: address, rkey: key, reserved: 0 };
        wr.set_rdma(rdma);
        prop_assert_eq!(wr.rdma(), rdma);
        prop_assert_eq!(&wr.wr[..8], &address.to_ne_bytes());
        prop_assert_eq!(&wr.wr[8..12], &key.to_ne_bytes());
        prop_assert!(wr.wr[16..].iter().all(|byte| *byte == 0), "a former value is left");
    }

    #[test]
    fn rxe_datagrams_come_back(bytes in proptest::collection::vec(any::<u8>(), 120)) {
        let ud = rxe::rxe_send_wr_ud::read_from_bytes(&bytes).unwrap();
        let mut wr = rxe::rxe_send_wr::default();
        wr.set_ud(ud);
        prop_assert_eq!(wr.ud(), ud);
        prop_assert_eq!(&wr.wr[..], &bytes[..]);
    }

    #[test]
    fn mmap_offsets_come_back(command in 0..256u64, index: u32, shift in 12..=16u32) {
        let page = 1 << shift;
        let offset = mmap_offset(command, index, page);
        prop_assert_eq!(mmap_command(offset, page), Some((command, u64::from(index))));
        prop_assert_eq!(mmap_command(offset + 1, page), None);
    }

    #[test]
    fn netlink_types_come_back(client in 0..64u32, op in 0..1024u32) {
        let kind = RDMA_NL_GET_TYPE(client, op);
        prop_assert_eq!((RDMA_NL_GET_CLIENT(kind), RDMA_NL_GET_OP(kind)), (client, op));
    }

    #[test]
    fn gids_keep_their_bytes(bytes: [u8; 16]) {
        let mut entry = gid::ib_uverbs_gid_entry::default();
        entry.gid.as_mut_bytes().copy_from_slice(&bytes);
        prop_assert_eq!(entry.gid_bytes(), bytes);
    }
}

#[test]
fn mmap_offsets_are_the_kernels() {
    // Index 0x345, command 6: from the top the rest of the index, the command, the index's low
    // byte.
    assert_eq!(mmap_offset(MLX5_IB_MMAP_ALLOC_WC, 0x345, 4096), 0x3_0645 << 12);
    assert_eq!(mmap_offset(MLX5_IB_MMAP_REGULAR_PAGE, 3, 4096), 3 << 12);
    assert_eq!(mmap_command(4096, 0), None);
}

#[test]
fn big_endian_fields_are_read_as_such() {
    let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0];
    let mut resp = device::ib_uverbs_query_device_resp::default();
    resp.as_mut_bytes()[..16].copy_from_slice(&bytes);
    assert_eq!(resp.node_guid.get(), 0x1234_5678_9abc_def0);
}

#[test]
fn attribute_union_members() {
    let attr = ib_uverbs_attr { attr_data: [3, 0], data: u64::MAX, ..Default::default() };
    assert_eq!(attr.enum_data().elem_id, 3);
    assert_eq!(attr.data_s64(), -1);
}
