//! Limits that a device reports: each can be had, and one more is refused.

use std::time::Duration;

use common::{only_on_softhca, soft};
use uverbs::memory::WindowKind;
use uverbs::multicast::MulticastGroup;
use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, Context, DeviceAttr};

/// A device with limits that are reached soon.
fn small() -> Option<(Context, DeviceAttr)> {
    if !only_on_softhca("it has few objects") {
        return None;
    }
    let builder = SoftHca::builder().max_qp(5).max_cq(6).max_mr(7).max_pd(8).max_cqe(127);
    let hca = builder.max_qp_wr(64).hca(|config| {
        (config.max_srq, config.max_mcast_qp) = (3, 2);
        (config.max_rd_atomic, config.max_dest_rd_atomic) = (4, 8);
    });
    let context = soft(&hca.build().unwrap()).open().unwrap();
    let attr = context.query_device().unwrap();
    Some((context, attr))
}

/// Makes `limit` objects, and one more, which is refused.
fn count<T, E: std::fmt::Debug>(
    what: &str,
    limit: u32,
    mut make: impl FnMut() -> Result<T, E>,
) -> Vec<T> {
    let made: Result<Vec<T>, E> = (0..limit).map(|_| make()).collect();
    let made = made.unwrap_or_else(|error| panic!("{what}: {error:?} before {limit}"));
    assert!(make().is_err(), "more than {limit} {what}");
    made
}

/// Makes something of the size `limit`, and something larger, which is refused.
fn size<T, E: std::fmt::Debug>(what: &str, limit: u32, make: impl Fn(u32) -> Result<T, E>) -> T {
    assert!(make(limit + 1).is_err(), "{what} {limit} + 1");
    make(limit).unwrap_or_else(|error| panic!("{what} {limit}: {error:?}"))
}

#[test]
fn as_many_objects_as_told() {
    let Some((context, attr)) = small() else { return };
    let pd = context.alloc_pd().unwrap();
    drop(count("PDs", attr.max_pd - 1, || context.alloc_pd()));
    let cq = context.create_cq(16).unwrap();
    drop(count("CQs", attr.max_cq - 1, || context.create_cq(4)));
    drop(count("QPs", attr.max_qp, || {
        context.queue_pair(&pd, &cq).max_send_wr(1).max_recv_wr(1).build()
    }));
    drop(count("SRQs", attr.max_srq, || context.shared_receive_queue(&pd).max_wr(4).build()));
    drop(count("MRs", attr.max_mr, || pd.expose(64, AccessFlags::empty())));
    drop(count("MWs", attr.max_mw, || pd.alloc_window(WindowKind::Type2)));
    // All are gone, so as many can be made again.
    drop(count("MRs", attr.max_mr, || pd.expose(64, AccessFlags::empty())));
}

#[test]
fn members_of_groups() {
    let Some((context, attr)) = small() else { return };
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
    let mut qps: Vec<_> = (0..=attr.max_mcast_qp_attach)
        .map(|_| {
            let qp = context.queue_pair(&pd, &cq).ud().max_send_wr(1).max_recv_wr(1);
            qp.build().unwrap()
        })
        .collect();
    let group = MulticastGroup::ipv4([239, 1, 2, 3].into());
    let mut next = qps.iter_mut();
    drop(count("members", attr.max_mcast_qp_attach, || next.next().unwrap().attach(&group)));
}

#[test]
fn queues_as_long_as_told() {
    let Some((context, attr)) = small() else { return };
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).unwrap());
    let mut long = size("max_cqe", attr.max_cqe, |entries| context.create_cq(entries));
    assert!(long.resize(attr.max_cqe + 1).is_err());
    long.resize(attr.max_cqe).unwrap();
    let qp = || {
        let builder = context.queue_pair(&pd, &cq).overcommit();
        builder.max_send_wr(1).max_recv_wr(1).max_inline_data(0)
    };
    size("max_qp_wr", attr.max_qp_wr, |wr| qp().max_recv_wr(wr).build());
    size("max_qp_wr", attr.max_qp_wr, |wr| qp().max_send_wr(wr).build());
    size("max_sge", attr.max_sge, |sge| qp().max_recv_sge(sge).build());
    size("max_sge", attr.max_sge, |sge| qp().max_send_sge(sge).build());
    size("max_srq_wr", attr.max_srq_wr, |wr| context.shared_receive_queue(&pd).max_wr(wr).build());
    let srq = |sge| context.shared_receive_queue(&pd).max_wr(1).max_sge(sge).build();
    size("max_srq_sge", attr.max_srq_sge, srq);
    let moderate = |count: u32| {
        let mut cq = context.create_cq(4).unwrap();
        cq.moderate(u16::try_from(count).map_err(|error| error.to_string())?, Duration::ZERO)
            .map_err(|error| error.to_string())
    };
    size("max_cq_moderation_count", attr.max_cq_moderation_count.into(), moderate);
}
