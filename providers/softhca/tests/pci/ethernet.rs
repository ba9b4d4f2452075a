//! An Ethernet port: RoCE addresses, raw packet queues, and steering.

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::rq::wq;
use uverbs_mlx5_prm::cmd::{caps, flow, hca, nic, register, sq};

use crate::data::{receive, send};
use crate::driver::{Cq, Driver, Path};

const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];

fn set_address(driver: &mut Driver, index: u64, gid: [u8; 16]) -> CmdStatus {
    let mut input = [0; nic::set_roce_address_in::SIZE];
    nic::set_roce_address_in::ROCE_ADDRESS_INDEX.set(&mut input, index);
    let entry = nic::set_roce_address_in::ROCE_ADDRESS.of_mut(&mut input);
    nic::roce_addr_layout::SOURCE_L3_ADDRESS.of_mut(entry).copy_from_slice(&gid);
    nic::roce_addr_layout::ROCE_VERSION.set(entry, 2);
    driver.run(CmdOpcode::SET_ROCE_ADDRESS, 0, &input, 16).0
}

#[test]
fn it_says_that_it_is_ethernet() {
    let mut driver = Driver::ethernet();
    assert_eq!(driver.host.config(8) >> 8, 0x02_0000);
    let size = hca::query_hca_cap_out::SIZE;
    let mut cap = |kind: u16| {
        let answer = driver.ok(CmdOpcode::QUERY_HCA_CAP, kind << 1 | 1, &[0; 16], size);
        hca::query_hca_cap_out::CAPABILITY.of(&answer).to_vec()
    };
    let general = cap(0);
    assert_eq!(caps::cmd_hca_cap::PORT_TYPE.get(&general), 1);
    assert_eq!(caps::cmd_hca_cap::ROCE.get(&general), 1);
    assert_eq!(caps::cmd_hca_cap::IB_VIRT.get(&general), 0);
    assert_eq!(caps::roce_cap::R_ROCE_DEST_UDP_PORT.get(&cap(4)), 4791);
    assert_eq!(caps::per_protocol_networking_offload_caps::CSUM_CAP.get(&cap(1)), 1);
    let tables = cap(7);
    let receive = caps::flow_table_nic_cap::FLOW_TABLE_PROPERTIES_NIC_RECEIVE.of(&tables);
    assert_eq!(caps::flow_table_prop_layout::FT_SUPPORT.get(receive), 1);
    // The MAC address, and the frame size, which can be changed in two ways.
    let size = nic::query_nic_vport_context_out::SIZE;
    let context = driver.ok(CmdOpcode::QUERY_NIC_VPORT_CONTEXT, 0, &[0; 16], size);
    let context = nic::query_nic_vport_context_out::NIC_VPORT_CONTEXT.of(&context);
    assert_eq!(nic::nic_vport_context::PERMANENT_ADDRESS.get(context), 0x02ca_0500_0001);
    let mut write = [0; 32];
    hca::access_register_in::REGISTER_ID.set(&mut write, 0x5003);
    register::pmtu_reg::ADMIN_MTU.set(&mut write[16..], 4200);
    driver.ok(CmdOpcode::ACCESS_REG, 0, &write, 32);
    let answer = driver.ok(CmdOpcode::ACCESS_REG, 1, &write, 32);
    assert_eq!(register::pmtu_reg::OPER_MTU.get(&answer[16..]), 4200);
}

/// MODIFY_NIC_VPORT_CONTEXT: for each change the bit that selects it, the field and its value. A
/// list follows the context.
pub(crate) fn modify_port(
    driver: &mut Driver,
    changes: &[(Field, Field, u64)],
    list: &[u8],
) -> CmdStatus {
    use nic::modify_nic_vport_context_in as modify;
    let mut input = vec![0; modify::SIZE];
    let mut select = [0; nic::modify_nic_vport_field_select::SIZE];
    let context = modify::NIC_VPORT_CONTEXT.of_mut(&mut input);
    for (bit, field, value) in changes {
        bit.set(&mut select, 1);
        field.set(context, *value);
    }
    modify::FIELD_SELECT.set(&mut input, u32::from_be_bytes(select).into());
    input.extend(list);
    driver.run(CmdOpcode::MODIFY_NIC_VPORT_CONTEXT, 0, &input, 16).0
}

/// Sets a list of the port.
fn set_list(driver: &mut Driver, kind: u64, count: u64, entries: &[u8]) -> CmdStatus {
    let bit = nic::modify_nic_vport_field_select::ADDRESSES_LIST;
    let kind = (bit, nic::nic_vport_context::ALLOWED_LIST_TYPE, kind);
    let count = (bit, nic::nic_vport_context::ALLOWED_LIST_SIZE, count);
    modify_port(driver, &[kind, count], entries)
}

#[test]
fn lists_of_the_port_are_kept() {
    let mut driver = Driver::ethernet();
    let entries: Vec<u8> = (0..32).collect();
    assert_eq!(set_list(&mut driver, nic::LIST_MULTICAST, 4, &entries), CmdStatus::OK);
    let mut query = |kind: u64| {
        let mut input = [0; nic::query_nic_vport_context_in::SIZE];
        nic::query_nic_vport_context_in::ALLOWED_LIST_TYPE.set(&mut input, kind);
        let size = nic::query_nic_vport_context_out::SIZE;
        let answer = driver.ok(CmdOpcode::QUERY_NIC_VPORT_CONTEXT, 0, &input, size + 24);
        let context = nic::query_nic_vport_context_out::NIC_VPORT_CONTEXT.of(&answer);
        let count = nic::nic_vport_context::ALLOWED_LIST_SIZE.get(context);
        (count, answer[size..].to_vec())
    };
    assert_eq!(query(nic::LIST_MULTICAST), (4, entries[..24].to_vec()));
    assert_eq!(query(nic::LIST_UNICAST), (0, vec![0; 24]));
    for (kind, count) in [(nic::LIST_UNICAST, 5), (nic::LIST_UNICAST, 129), (3, 0)] {
        let refused = set_list(&mut driver, kind, count, &entries);
        assert_eq!(refused, CmdStatus::BAD_PARAM_ERR, "{kind}, {count}");
    }
    assert_eq!(set_list(&mut driver, nic::LIST_MULTICAST, 0, &[]), CmdStatus::OK);
}

#[test]
fn connections_go_from_and_to_the_addresses_that_the_driver_set() {
    let mut driver = Driver::ethernet();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let (a, b) = (driver.qp(&cq), driver.qp(&cq));
    assert_eq!(set_address(&mut driver, 255, GID), CmdStatus::BAD_PARAM_ERR);
    assert_eq!(set_address(&mut driver, 2, GID), CmdStatus::OK);
    let path = Path { gid: Some(GID), ..Path::default() };
    driver.connect_to(a.number, b.number, &path);
    driver.connect_to(b.number, a.number, &path);
    let (from, to) = (driver.page(), driver.page());
    driver.host.write(from, b"over Ethernet");
    receive(&driver, &b, 0, to, 64);
    let key = driver.lkey;
    send(&mut driver, &a, 0, (key, from, 13));
    driver.poll(&mut cq);
    driver.poll(&mut cq);
    assert_eq!(driver.host.read(to, 13), b"over Ethernet");
    // With the GID removed, packets to it are lost. The driver may remove a GID at any time.
    assert_eq!(set_address(&mut driver, 2, [0; 16]), CmdStatus::OK);
}

/// Creates a send queue of 16 WQEBBs. Returns number, ring, record.
fn frames(driver: &mut Driver, cq: &Cq) -> (u32, u64, u64) {
    let (ring, record) = (driver.page(), driver.page());
    let mut input = vec![0; sq::create_sq_in::SIZE];
    let context = sq::create_sq_in::CTX.of_mut(&mut input);
    sq::sqc::CQN.set(context, cq.number.into());
    let queue = sq::sqc::WQ.of_mut(context);
    wq::LOG_WQ_STRIDE.set(queue, 6);
    wq::LOG_WQ_SZ.set(queue, 4);
    wq::UAR_PAGE.set(queue, driver.uar.into());
    wq::PD.set(queue, driver.pd.into());
    wq::DBR_ADDR.set(queue, record);
    let (status, _) = driver.run(CmdOpcode::CREATE_SQ, 0, &input, 16);
    assert_eq!(status, CmdStatus::BAD_PARAM_ERR, "no page list");
    input.extend(ring.to_be_bytes());
    let answer = driver.ok(CmdOpcode::CREATE_SQ, 0, &input, 16);
    (sq::create_sq_out::SQN.get32(&answer), ring, record)
}

#[test]
fn frames_leave_and_complete() {
    let mut driver = Driver::ethernet();
    let eqn = driver.eq(1, 0);
    let mut cq = driver.cq(eqn);
    let (sqn, ring, record) = frames(&mut driver, &cq);
    let change = |driver: &mut Driver, from: u64, to: u64| {
        let mut input = [0; sq::modify_sq_in::SIZE];
        sq::modify_sq_in::SQN.set(&mut input, sqn.into());
        sq::modify_sq_in::SQ_STATE.set(&mut input, from);
        sq::sqc::STATE.set(sq::modify_sq_in::CTX.of_mut(&mut input), to);
        driver.run(CmdOpcode::MODIFY_SQ, 0, &input, 16).0
    };
    assert_eq!(change(&mut driver, 1, 3), CmdStatus::BAD_PARAM_ERR, "it is not there yet");
    assert_eq!(change(&mut driver, 0, 1), CmdStatus::OK);
    // A NOP, as mlx5e posts it to wake its receive queues; then a frame: Ethernet segment with 18
    // bytes inline, and the rest.
    let mut wqes = Vec::new();
    wqes.extend(0u32.to_be_bytes());
    wqes.extend((sqn << 8 | 1).to_be_bytes());
    wqes.extend([0, 0, 0, 8, 0, 0, 0, 0]);
    wqes.resize(64, 0);
    wqes.extend((1 << 8 | 0x0au32).to_be_bytes());
    wqes.extend((sqn << 8 | 4).to_be_bytes());
    wqes.extend([0, 0, 0, 8, 0, 0, 0, 0]);
    let mut ethernet = [0; 32];
    ethernet[13] = 18;
    wqes.extend(ethernet);
    wqes.extend(42u32.to_be_bytes());
    wqes.extend(driver.lkey.to_be_bytes());
    wqes.extend(ring.to_be_bytes());
    driver.host.write(ring, &wqes);
    driver.host.write(record + 4, &2u32.to_be_bytes());
    let doorbell = u64::from_be_bytes(wqes[64..72].try_into().unwrap());
    driver.host.ring(u64::from(driver.uar) * 4096 + 0x800, doorbell);
    for counter in 0..2 {
        let cqe = driver.poll(&mut cq);
        assert_eq!((cqe[63] >> 4, cqe[61]), (0, counter), "a send completed");
    }
    assert_eq!(change(&mut driver, 1, 3), CmdStatus::OK);
    assert_eq!(change(&mut driver, 3, 0), CmdStatus::OK);
    let number = sq::destroy_sq_in::SQN;
    assert_eq!(driver.about(CmdOpcode::DESTROY_SQ, number, sqn), CmdStatus::OK);
    assert_eq!(driver.about(CmdOpcode::DESTROY_SQ, number, sqn), CmdStatus::BAD_RES_ERR);
}

#[test]
fn rules_hang_on_tables_that_exist() {
    let mut driver = Driver::ethernet();
    let table = driver.ok(CmdOpcode::CREATE_FLOW_TABLE, 0, &[0; 64], 16);
    let table = flow::create_flow_table_out::TABLE_ID.get(&table);
    let mut group = vec![0; flow::create_flow_group_in::SIZE];
    let (status, _) = driver.run(CmdOpcode::CREATE_FLOW_GROUP, 0, &group, 16);
    assert_eq!(status, CmdStatus::BAD_RES_ERR);
    flow::create_flow_group_in::TABLE_ID.set(&mut group, table);
    let group = driver.ok(CmdOpcode::CREATE_FLOW_GROUP, 0, &group, 16);
    let group = flow::create_flow_group_out::GROUP_ID.get(&group);
    let mut entry = vec![0; flow::set_fte_in::SIZE];
    flow::set_fte_in::TABLE_ID.set(&mut entry, table);
    let set = |driver: &mut Driver, entry: &[u8]| {
        driver.run(CmdOpcode::SET_FLOW_TABLE_ENTRY, 0, entry, 16).0
    };
    assert_eq!(set(&mut driver, &entry), CmdStatus::BAD_PARAM_ERR, "it does nothing");
    let context = flow::set_fte_in::FLOW_CONTEXT.of_mut(&mut entry);
    flow::flow_context::ACTION.set(context, 2);
    assert_eq!(set(&mut driver, &entry), CmdStatus::BAD_PARAM_ERR, "of no group");
    let context = flow::set_fte_in::FLOW_CONTEXT.of_mut(&mut entry);
    flow::flow_context::GROUP_ID.set(context, group);
    assert_eq!(set(&mut driver, &entry), CmdStatus::OK);
    let mut destroy = [0; flow::destroy_flow_table_in::SIZE];
    flow::destroy_flow_table_in::TABLE_ID.set(&mut destroy, table);
    let remove = |driver: &mut Driver, destroy: &[u8]| {
        driver.run(CmdOpcode::DESTROY_FLOW_TABLE, 0, destroy, 16).0
    };
    assert_eq!(remove(&mut driver, &destroy), CmdStatus::RES_BUSY);
    let mut number = [0; 64];
    flow::delete_fte_in::TABLE_ID.set(&mut number, table);
    driver.ok(CmdOpcode::DELETE_FLOW_TABLE_ENTRY, 0, &number, 16);
    flow::destroy_flow_group_in::GROUP_ID.set(&mut number, group);
    driver.ok(CmdOpcode::DESTROY_FLOW_GROUP, 0, &number, 16);
    assert_eq!(remove(&mut driver, &destroy), CmdStatus::OK);
    assert_eq!(set(&mut driver, &entry), CmdStatus::BAD_RES_ERR);
}

fn reformat(kind: u64, said: u64, data: &[u8]) -> Vec<u8> {
    let mut input = vec![0; flow::alloc_packet_reformat_context_in::SIZE];
    let at = flow::alloc_packet_reformat_context_in::PACKET_REFORMAT_CONTEXT;
    let context = at.of_mut(&mut input);
    flow::packet_reformat_context_in::REFORMAT_TYPE.set(context, kind);
    flow::packet_reformat_context_in::REFORMAT_DATA_SIZE.set(context, said);
    // The header's bytes start in the last two bytes of the structure.
    input.truncate(34);
    input.extend(data);
    input.resize(input.len().max(flow::alloc_packet_reformat_context_in::SIZE), 0);
    input
}

#[test]
fn headers_to_put_on_are_whole() {
    let mut driver = Driver::ethernet();
    let mut make = |kind, said, data: &[u8]| {
        let input = reformat(kind, said, data);
        driver.run(CmdOpcode::ALLOC_PACKET_REFORMAT_CONTEXT, 0, &input, 16).0
    };
    let (ok, no) = (CmdStatus::OK, CmdStatus::BAD_PARAM_ERR);
    for kind in [0, 1, 2, 4] {
        assert_eq!(make(kind, 50, &[1; 50]), ok);
        assert_eq!(make(kind, 50, &[1; 49]), no);
        assert_eq!(make(kind, 13, &[1; 50]), no, "no Ethernet header");
        assert_eq!(make(kind, 129, &[1; 200]), no);
    }
    assert_eq!([14, 18].map(|len| make(3, len, &[1; 18])), [ok, ok]);
    assert_eq!([0, 15, 50].map(|len| make(3, len, &[1; 50])), [no; 3]);
    assert_eq!(make(5, 50, &[1; 50]), no);
    let number = flow::dealloc_packet_reformat_context_in::PACKET_REFORMAT_ID;
    let opcode = CmdOpcode::DEALLOC_PACKET_REFORMAT_CONTEXT;
    assert_eq!(driver.about(opcode, number, 1), CmdStatus::OK);
    assert_eq!(driver.about(opcode, number, 1), CmdStatus::BAD_RES_ERR);
}

#[test]
fn changes_of_headers_are_of_known_fields() {
    let mut driver = Driver::ethernet();
    let mut make = |table, said, actions: &[u64]| {
        let mut input = vec![0; flow::alloc_modify_header_context_in::SIZE];
        flow::alloc_modify_header_context_in::TABLE_TYPE.set(&mut input, table);
        flow::alloc_modify_header_context_in::NUM_OF_ACTIONS.set(&mut input, said);
        input.extend(actions.iter().flat_map(|action| action.to_be_bytes()));
        driver.run(CmdOpcode::ALLOC_MODIFY_HEADER_CONTEXT, 0, &input, 16).0
    };
    let (ok, no) = (CmdStatus::OK, CmdStatus::BAD_PARAM_ERR);
    // Actions as in the kernel's header: type, field, offset and length, value.
    let (set, add) = (0x1001_0000_0000_0000, 0x200a_0000_0000_00ff);
    let (copy, register) = (0x3001_0010_0002_0000, 0x1051_0000_0000_0000);
    assert_eq!([0, 1, 7].map(|table| make(table, 3, &[set, add, copy])), [ok, ok, no]);
    assert_eq!(make(1, 3, &[set, add]), no, "a list ends early");
    assert_eq!(make(1, 17, &[set; 17]), no);
    assert_eq!([register, 0x4001_0000_0000_0000].map(|action| make(1, 1, &[action])), [no, no]);
    let number = flow::dealloc_modify_header_context_in::MODIFY_HEADER_ID;
    let opcode = CmdOpcode::DEALLOC_MODIFY_HEADER_CONTEXT;
    assert_eq!(driver.about(opcode, number, 1), CmdStatus::OK);
    assert_eq!(driver.about(opcode, number, 1), CmdStatus::BAD_RES_ERR);
}

#[test]
fn a_table_is_named_with_its_kind() {
    let mut driver = Driver::ethernet();
    let mut input = [0; flow::create_flow_table_in::SIZE];
    flow::create_flow_table_in::TABLE_TYPE.set(&mut input, 1);
    let table = driver.ok(CmdOpcode::CREATE_FLOW_TABLE, 0, &input, 16);
    let table = flow::create_flow_table_out::TABLE_ID.get(&table);
    for (kind, status) in
        [(0, CmdStatus::BAD_RES_ERR), (7, CmdStatus::BAD_PARAM_ERR), (1, CmdStatus::OK)]
    {
        let mut input = [0; flow::set_flow_table_root_in::SIZE];
        flow::set_flow_table_root_in::TABLE_TYPE.set(&mut input, kind);
        flow::set_flow_table_root_in::TABLE_ID.set(&mut input, table);
        assert_eq!(driver.run(CmdOpcode::SET_FLOW_TABLE_ROOT, 0, &input, 16).0, status);
        let mut input = vec![0; flow::create_flow_group_in::SIZE];
        flow::create_flow_group_in::TABLE_TYPE.set(&mut input, kind);
        flow::create_flow_group_in::TABLE_ID.set(&mut input, table);
        assert_eq!(driver.run(CmdOpcode::CREATE_FLOW_GROUP, 0, &input, 16).0, status);
    }
}
