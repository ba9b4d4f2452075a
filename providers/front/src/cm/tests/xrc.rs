//! Connections of XRC: an initiator, which sends, asks a target, which receives.

use uverbs_kernel_abi::qp::{
    IB_QP_MAX_DEST_RD_ATOMIC, IB_QP_MAX_QP_RD_ATOMIC, IB_QP_MIN_RNR_TIMER, IB_QP_RETRY_CNT,
    IB_QP_RNR_RETRY, IB_QP_TIMEOUT, IB_QPS_RTR, IB_QPS_RTS, IB_UVERBS_QPT_RC,
    IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT, ib_uverbs_qp_attr,
};

use super::*;

fn quiet() -> World {
    World::new(1, Network { lost: 0, twice: 0, late: 0 })
}

/// A connection between queue pairs 0x11 and 0x22: the world, and both ids.
fn connected() -> (World, [u32; 2]) {
    let mut world = quiet();
    world.qp_type = IB_UVERBS_QPT_XRC_TGT;
    world.listen(LISTENS, RDMA_PS_IB);
    world.qp_type = IB_UVERBS_QPT_XRC_INI;
    let asks = world.connect(ASKS, RDMA_PS_IB, 0x11);
    world.step();
    let request = world.next_event(1).unwrap();
    assert_eq!((request.event, request.conn().qp_num), (event::CONNECT_REQUEST, 0x11));
    world.accept(1, request.id, SERVES, Some(0x22)).unwrap();
    world.step();
    let response = world.next_event(0).unwrap();
    assert_eq!((response.event, response.conn().qp_num), (event::CONNECT_RESPONSE, 0x22));
    assert_eq!(response.conn().srq, 1);
    (world, [asks, request.id])
}

/// `cm.c:cm_init_qp_rtr_attr`, `cm_init_qp_rts_attr`: an initiator answers no READs, and a target
/// repeats nothing.
#[test]
fn each_end_gets_the_attributes_of_its_half() {
    let (mut world, ids) = connected();
    let mut attributes = |host: usize, state: u8| {
        let (id, qp_state) = (ids[host], state.into());
        let request = rdma_ucm_init_qp_attr { id, qp_state, ..Default::default() };
        let answer: ib_uverbs_qp_attr =
            world.command(host, RDMA_USER_CM_CMD_INIT_QP_ATTR, request).unwrap();
        (answer.qp_attr_mask, answer.dest_qp_num)
    };
    let responds = IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
    let asks = IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
    for (host, wanted, peer) in [(0, [0, asks], 0x22), (1, [responds, 0], 0x11)] {
        let (rtr, dest) = attributes(host, IB_QPS_RTR);
        let (rts, _) = attributes(host, IB_QPS_RTS);
        assert_eq!(([rtr & responds, rts & asks], dest), (wanted, peer), "host {host}");
        assert_ne!(rts & IB_QP_TIMEOUT, 0);
    }
}

#[test]
fn both_ends_are_told_of_the_disconnection() {
    let (mut world, [asks, serves]) = connected();
    world.accept(0, asks, 0, None).unwrap();
    world.step();
    assert_eq!(world.next_event(1).map(|event| event.event), Some(event::ESTABLISHED));
    world.disconnect(1, serves).unwrap();
    world.step();
    assert_eq!(world.next_event(0).map(|event| event.event), Some(event::DISCONNECTED));
    world.disconnect(0, asks).unwrap();
    world.step();
    assert_eq!(world.next_event(1).map(|event| event.event), Some(event::DISCONNECTED));
}

/// `cma.c:cma_ib_check_req_qp_type`.
#[test]
fn only_a_target_takes_an_initiator() {
    for listens in [IB_UVERBS_QPT_RC, IB_UVERBS_QPT_XRC_INI] {
        let mut world = quiet();
        world.qp_type = listens;
        world.listen(LISTENS, RDMA_PS_IB);
        world.qp_type = IB_UVERBS_QPT_XRC_INI;
        world.connect(ASKS, RDMA_PS_IB, 0x11);
        while world.now < Duration::from_secs(1) && world.step() {}
        let told = world.next_event(0).map(|event| (event.event, event.status));
        assert_eq!(told, Some((event::REJECTED, 28)), "{listens}");
    }
}
