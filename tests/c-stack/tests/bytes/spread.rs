//! Work queues, their indirection table and a queue pair over it, in the order of `c/bytes.c`.
//!
//! # Safety
//!
//! Receives name the area, and no packet arrives that would use them.
#![allow(unsafe_code, reason = "posts receives by address")]

use uverbs::flow::{EthMatch, Flow, FlowRule, MacAddr};
use uverbs::rss::{HashFields, IndirectionTable, RssHash, RssQueuePair, WorkQueue};
use uverbs::{CompletionQueue, Context, MemoryRegion, Mlx5, ProtectionDomain};

/// Objects of a receive-side scaling queue pair.
pub(crate) struct Spread {
    wqs: [WorkQueue<Mlx5>; 2],
    table: IndirectionTable,
    qp: RssQueuePair<Mlx5>,
    flow: Flow,
}

impl Spread {
    /// Creates them in the order of `c/bytes.c`, `set_up_spread`.
    pub(crate) fn new(
        context: &Context<Mlx5>,
        pd: &ProtectionDomain,
        cq: &CompletionQueue<Mlx5>,
        region: &MemoryRegion,
        phase: &impl Fn(&str),
    ) -> Self {
        phase("create_wq");
        let first = context.work_queue(pd, cq).max_wr(5).max_sge(2).build().unwrap();
        let second = context.work_queue(pd, cq).max_wr(1).strip_vlan().build().unwrap();
        let mut wqs = [first, second];
        phase("create_rwq_ind_table");
        let table = context.indirection_table(&[&wqs[0], &wqs[1]]).unwrap();
        phase("modify_wq");
        wqs.iter_mut().for_each(|wq| wq.start().unwrap());
        let key = std::array::from_fn(|at| 3 * at as u8 + 1);
        let hash = RssHash { key, fields: HashFields::SRC_IPV4 | HashFields::DST_PORT_UDP };
        phase("create_qp spread");
        let qp = context.rss_queue_pair(pd, &table, &hash).unwrap();
        let dst = Some(MacAddr([2, 0, 0, 0, 1, 9]).into());
        phase("create_flow");
        let flow = qp.steer(&FlowRule::new().eth(EthMatch { dst, ..Default::default() })).unwrap();
        let pieces = [region.sge(64, 1000), region.sge(4096, 24)];
        let mut batch = wqs[0].batch();
        for (id, list) in [(1, &pieces[..1]), (2, &pieces), (3, &[])] {
            // SAFETY: the area outlives the queue, and no packet arrives.
            unsafe { batch.post_raw(id, list) }.unwrap();
        }
        batch.ring();
        let mut batch = wqs[1].batch();
        batch.post_empty(3).unwrap();
        batch.ring();
        Self { wqs, table, qp, flow }
    }

    /// Destroys them in the order of `tear_down_spread`.
    pub(crate) fn end(self, cq: &mut CompletionQueue<Mlx5>, phase: &impl Fn(&str)) {
        let Self { wqs: [mut first, second], table, qp, flow } = self;
        phase("destroy_flow");
        flow.destroy().unwrap();
        phase("destroy_qp spread");
        qp.destroy().unwrap();
        phase("destroy_rwq_ind_table");
        drop(table);
        phase("modify_wq");
        assert!(first.reset(cq).unwrap().is_empty(), "no frame was posted");
        phase("destroy_wq");
        for wq in [first, second] {
            drop(wq.destroy().unwrap());
        }
    }
}
