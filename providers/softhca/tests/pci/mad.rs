//! Answers of the device's management agent, at the offsets at which Linux reads them
//! (`hw/mlx5/mad.c`, `mlx5_query_mad_ifc_*`).

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::vport;

use crate::driver::Driver;

const GET: u8 = 1;
const SET: u8 = 2;

/// Queries the agent. Returns status, and the 64 bytes of the attribute.
fn ask(
    driver: &mut Driver,
    class: u8,
    method: u8,
    attribute: u16,
    modifier: u32,
) -> (u16, Vec<u8>) {
    let mut input = vec![0; vport::mad_ifc_in::SIZE];
    let mad = vport::mad_ifc_in::MAD.of_mut(&mut input);
    mad[..4].copy_from_slice(&[1, class, 1, method]);
    mad[8..16].copy_from_slice(&[0xab; 8]);
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    let answer = driver.ok(CmdOpcode::MAD_IFC, 3, &input, vport::mad_ifc_out::SIZE);
    let mad = vport::mad_ifc_out::RESPONSE_MAD_PACKET.of(&answer);
    assert_eq!((mad[1], mad[3]), (class, 0x81), "an answer");
    assert_eq!(mad[8..18], [&[0xab; 8][..], &attribute.to_be_bytes()].concat(), "to this question");
    (u16::from_be_bytes([mad[4], mad[5]]), mad[64..128].to_vec())
}

#[test]
fn node_and_port_are_what_the_commands_say() {
    let mut driver = Driver::up();
    let answer = driver.ok(
        CmdOpcode::QUERY_HCA_VPORT_CONTEXT,
        0,
        &[0; 16],
        vport::query_hca_vport_context_out::SIZE,
    );
    let context = vport::query_hca_vport_context_out::HCA_VPORT_CONTEXT.of(&answer);
    let guid = vport::hca_vport_context::NODE_GUID.get(context).to_be_bytes();
    let lid = vport::hca_vport_context::LID.get(context) as u16;
    for class in [0x01, 0x81] {
        let (status, node) = ask(&mut driver, class, GET, 0x11, 0);
        assert_eq!((status, node[2], node[3]), (0, 1, 1), "a channel adapter of one port");
        assert_eq!((&node[4..12], &node[12..20]), (&guid[..], &guid[..]));
        assert_eq!(node[28..30], 128u16.to_be_bytes(), "P_Keys");
        assert_eq!(node[30..32], 4125u16.to_be_bytes());
        assert_eq!(node[37..40], [0x00, 0x02, 0xc9]);
        let (status, port) = ask(&mut driver, class, GET, 0x15, 1);
        assert_eq!((status, &port[16..18]), (0, &lid.to_be_bytes()[..]));
        assert_eq!((port[32] & 0xf, port[33] >> 4), (4, 5), "active, link up");
        assert_eq!((port[31], port[62] >> 4), (2, 2), "four lanes of EDR");
        assert_eq!((port[36] >> 4, port[41] & 0xf), (5, 5), "an MTU of 4096");
        assert_eq!(port[50], 8, "GUIDs");
    }
    let (status, text) = ask(&mut driver, 1, GET, 0x10, 0);
    assert_eq!((status, &text[..8]), (0, &b"softhca\0"[..]));
}

#[test]
fn tables_come_in_blocks_and_end() {
    let mut driver = Driver::up();
    let mut all = [0; 16];
    vport::query_hca_vport_gid_in::GID_INDEX.set(&mut all, 0);
    let answer = driver.ok(CmdOpcode::QUERY_HCA_VPORT_GID, 0, &all, 16 + 16);
    let gid = vport::query_hca_vport_gid_out::GID.of(&answer);
    let (_, port) = ask(&mut driver, 1, GET, 0x15, 1);
    let (status, guids) = ask(&mut driver, 1, GET, 0x14, 0);
    assert_eq!(status, 0);
    // `mlx5_query_mad_ifc_gids` combines them so.
    assert_eq!([&port[8..16], &guids[..8]].concat(), gid[..16]);
    let (status, pkeys) = ask(&mut driver, 1, GET, 0x16, 0);
    assert_eq!((status, &pkeys[..4]), (0, &[0xff, 0xff, 0, 0][..]));
    assert_eq!(ask(&mut driver, 1, GET, 0x16, 3), (0, vec![0; 64]));
    for (attribute, modifier) in [(0x14, 1), (0x14, u32::MAX), (0x16, 4), (0x16, 0xffff)] {
        let (status, data) = ask(&mut driver, 1, GET, attribute, modifier);
        assert_eq!((status, data), (0x1c, vec![0; 64]), "{attribute:#x} {modifier}");
    }
    // An unknown attribute, method or class. mlx5_ib queries the first one when it starts
    // (`mlx5_query_ext_port_caps`).
    for (class, method, attribute) in
        [(1, GET, 0xff90), (1, SET, 0x15), (1, GET, 0x20), (4, GET, 0x12)]
    {
        assert_eq!(ask(&mut driver, class, method, attribute, 1).0, 0x0c);
    }
}
