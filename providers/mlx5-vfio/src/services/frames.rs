//! Raw packet queues of the driver. Two flow rules in the root table of the receive side deliver
//! ARP and ICMPv6 frames to them (Linux `core/fs_cmd.c`; `hw/mlx5/qp.c`, `create_raw_packet_qp`),
//! tagged or not: a rule's EtherType follows the last VLAN tag (rdma-core
//! `providers/mlx5/mlx5dv_dr.h`, `dr_match_spec`).

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::flow::{
    ACTION_FORWARD, DESTINATION_TIR, NIC_RX, create_flow_group_out, create_flow_table_out,
    fte_match_param, fte_match_set_lyr_2_4,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::rq::WQ_TYPE_CYCLIC;
use uverbs_mlx5_prm::cmd::simple::{alloc_transport_domain_out, dealloc_transport_domain_in};
use uverbs_mlx5_prm::cmd::sq::{create_rq_out, create_sq_out, destroy_rq_in, destroy_sq_in};
use uverbs_mlx5_prm::cmd::steering::{
    create_tir_in, create_tir_out, create_tis_out, destroy_tir_in, destroy_tis_in, tirc,
};
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;
use uverbs_mlx5_prm::eth::mlx5_wqe_eth_seg;
use zerocopy::IntoBytes;

use super::arp;
use super::messages::{Done, Messages, RECEIVE_WQE, Sizes};
use crate::command::SHORT;
use crate::error::Error;
use crate::function::Function;
use crate::objects::flow::{self, Entry, Table};
use crate::objects::prepared::{Prepared, set};
use crate::objects::raw_queues::{
    QueueLinks, RDY, RST, WorkQueue, create_rq, create_sq, create_tis, modify_rq, modify_sq,
};

/// The criteria are in the outer headers (`MLX5_MATCH_OUTER_HEADERS`).
const OUTER: u8 = 1;
/// Bytes of a frame that are in the WQE: addresses, EtherType, and the next four.
const INLINE: usize = 18;
const SIZES: Sizes = Sizes {
    log_receives: 6,
    log_sends: 6,
    log_wqebbs: 0,
    // A longer frame than a receive would stop the queue.
    receive_room: 10 << 10,
    send_room: 256,
};

/// Queues and rules.
#[derive(Debug)]
pub(crate) struct Frames {
    messages: Messages,
    sqn: u32,
    table: Table,
    /// Commands that destroy what was created, in the order of creation.
    made: Vec<Prepared>,
}

impl Frames {
    /// Creates the queues and the rules. Other frames go on to the table `next` from the start.
    pub(crate) fn create(function: &Function, next: Option<u32>) -> Result<Self, Error> {
        let messages = Messages::create(function, SIZES)?;
        let table = Table { number: 0, kind: NIC_RX };
        let mut frames = Self { messages, sqn: 0, table, made: Vec::new() };
        match frames.start(function, next) {
            Ok(()) => Ok(frames),
            Err(error) => {
                frames.destroy(function);
                Err(error)
            }
        }
    }

    fn start(&mut self, function: &Function, next: Option<u32>) -> Result<(), Error> {
        let output = function.command(CmdOpcode::ALLOC_TRANSPORT_DOMAIN, 0, &[0; SHORT], SHORT)?;
        let domain = alloc_transport_domain_out::TRANSPORT_DOMAIN.get32(&output);
        let number = dealloc_transport_domain_in::TRANSPORT_DOMAIN;
        self.ends_by(CmdOpcode::DEALLOC_TRANSPORT_DOMAIN, number, domain);
        self.create_sq(function, domain)?;
        let rqn = self.create_rq(function)?;
        let mut create = vec![0; create_tir_in::SIZE];
        let tir = create_tir_in::CTX.of_mut(&mut create);
        tirc::INLINE_RQN.set(tir, rqn.into());
        tirc::TRANSPORT_DOMAIN.set(tir, domain.into());
        let output = function.command(CmdOpcode::CREATE_TIR, 0, &create, create_tir_out::SIZE)?;
        let tirn = create_tir_out::TIRN.get32(&output);
        self.ends_by(CmdOpcode::DESTROY_TIR, destroy_tir_in::TIRN, tirn);
        // A group for each of two rules.
        let output = flow::create_table(NIC_RX, 0, 1, None).run(function)?;
        self.table.number = create_flow_table_out::TABLE_ID.get32(&output);
        self.made.push(flow::destroy_table(self.table));
        let kind = fte_match_set_lyr_2_4::ETHERTYPE;
        let protocol = fte_match_set_lyr_2_4::IP_PROTOCOL;
        self.create_rule(function, (0, tirn), &[(kind, arp::ARP.into())])?;
        let icmp = [(kind, arp::IPV6.into()), (protocol, arp::ICMP.into())];
        self.create_rule(function, (1, tirn), &icmp)?;
        if next.is_some() {
            self.set_next(function, next)?;
        }
        flow::set_root(NIC_RX, Some(self.table.number)).run(function)?;
        self.made.push(flow::set_root(NIC_RX, None));
        Ok(())
    }

    /// Notes the command that destroys an object by its number.
    fn ends_by(&mut self, opcode: CmdOpcode, field: Field, number: u32) {
        self.made.push(Prepared::end(opcode, field, number));
    }

    fn create_sq(&mut self, function: &Function, domain: u32) -> Result<(), Error> {
        let tisn = create_tis_out::TISN.get32(&create_tis(domain).run(function)?);
        self.ends_by(CmdOpcode::DESTROY_TIS, destroy_tis_in::TISN, tisn);
        let ring = WorkQueue {
            uar: function.uar(),
            log_stride: MLX5_SEND_WQE_BB.ilog2(),
            log_entries: SIZES.log_sends,
            pages: self.messages.pages().1,
            ..self.ring()
        };
        let output = create_sq(&self.links(), tisn, &ring).run(function)?;
        self.sqn = create_sq_out::SQN.get32(&output);
        self.ends_by(CmdOpcode::DESTROY_SQ, destroy_sq_in::SQN, self.sqn);
        modify_sq(self.sqn, (RST, RDY)).run(function).map(drop)
    }

    fn create_rq(&mut self, function: &Function) -> Result<u32, Error> {
        let ring = WorkQueue {
            log_stride: RECEIVE_WQE.ilog2(),
            log_entries: SIZES.log_receives,
            pages: self.messages.pages().0,
            ..self.ring()
        };
        // VLAN tags stay: they tell the network of a frame.
        let output = create_rq(&self.links(), false, &ring).run(function)?;
        let rqn = create_rq_out::RQN.get32(&output);
        self.ends_by(CmdOpcode::DESTROY_RQ, destroy_rq_in::RQN, rqn);
        self.messages.post_receives()?;
        modify_rq(rqn, (RST, RDY), None).run(function)?;
        Ok(rqn)
    }

    fn links(&self) -> QueueLinks {
        QueueLinks { cqn: self.messages.cq.number, ..QueueLinks::default() }
    }

    /// A ring, without its place and sizes.
    fn ring(&self) -> WorkQueue {
        let (pd, record) = (self.messages.pd, self.messages.record());
        WorkQueue { kind: WQ_TYPE_CYCLIC, pd, record, ..WorkQueue::default() }
    }

    /// Leads frames with these values in their headers to a TIR.
    fn create_rule(
        &mut self,
        function: &Function,
        (index, tirn): (u32, u32),
        values: &[(Field, u64)],
    ) -> Result<(), Error> {
        let [mut criteria, mut value] = [[0; fte_match_param::SIZE]; 2];
        let masks = values.iter().map(|(field, _)| (*field, u64::MAX)).collect::<Vec<_>>();
        set(fte_match_param::OUTER_HEADERS.of_mut(&mut criteria), &masks);
        set(fte_match_param::OUTER_HEADERS.of_mut(&mut value), values);
        let output =
            flow::create_group(self.table, (index, index), OUTER, &criteria).run(function)?;
        let group = create_flow_group_out::GROUP_ID.get32(&output);
        self.made.push(flow::destroy_group(self.table, group));
        let entry = Entry {
            group,
            tag: 0,
            action: ACTION_FORWARD,
            value: &value,
            destinations: &[(DESTINATION_TIR, tirn)],
            counters: &[],
            reformat: 0,
            rewrites: 0,
        };
        flow::set_entry(self.table, index, &entry, None).run(function)?;
        self.made.push(flow::delete_entry(self.table, index));
        Ok(())
    }

    /// Leads all other frames to a table of the program's; `None`: back to none.
    pub(crate) fn set_next(&self, function: &Function, table: Option<u32>) -> Result<(), Error> {
        flow::change_miss(self.table, table).run(function).map(drop)
    }

    /// Destroys all objects, the last first.
    pub(crate) fn destroy(&self, function: &Function) {
        let mut in_use = false;
        for end in self.made.iter().rev() {
            let refused = end.run(function).is_err();
            in_use |=
                refused && [CmdOpcode::DESTROY_SQ, CmdOpcode::DESTROY_RQ].contains(&end.opcode);
        }
        self.messages.destroy(function, in_use);
    }

    /// Sends a frame; without room it is lost, as on the wire.
    pub(crate) fn send(&mut self, function: &Function, frame: &[u8]) -> Result<(), Error> {
        let Some((head, rest)) = frame.split_at_checked(INLINE) else { return Ok(()) };
        if !self.messages.has_room() {
            return Ok(());
        }
        let mut segment =
            mlx5_wqe_eth_seg { inline_hdr_sz: (INLINE as u16).into(), ..Default::default() };
        segment.inline_hdr_start.copy_from_slice(&head[..2]);
        segment.inline_hdr.copy_from_slice(&head[2..]);
        self.messages.send(function, self.sqn, segment.as_bytes(), rest)
    }

    /// Takes the next frame that was heard.
    ///
    /// # Errors
    ///
    /// The device's failure, or failed queues, which can only be destroyed.
    pub(crate) fn next(&mut self, function: &Function) -> Result<Option<Vec<u8>>, Error> {
        for _ in 0..2 << SIZES.log_receives {
            match self.messages.poll(function)? {
                None => break,
                Some(Done::Sent) => {}
                Some(Done::Received(_, frame)) => return Ok(Some(frame)),
                Some(Done::Failed) => {
                    return Err(Error::Unsupported { what: "raw queues after an error".into() });
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use uverbs_mlx5_prm::cmd::flow::NO_ROOT;

    use super::*;
    use crate::tests::fake::{Fake, limits};

    /// Commands about steering, with modifiers, since `from`.
    fn steering(fake: &Fake, from: usize) -> Vec<(CmdOpcode, u16)> {
        let of = [
            CmdOpcode::SET_FLOW_TABLE_ROOT,
            CmdOpcode::MODIFY_FLOW_TABLE,
            CmdOpcode::DELETE_FLOW_TABLE_ENTRY,
            CmdOpcode::DESTROY_FLOW_GROUP,
            CmdOpcode::DESTROY_FLOW_TABLE,
            CmdOpcode::DESTROY_TIR,
        ];
        let state = fake.state();
        let all = state.commands[from..].iter().map(|(_, opcode, op_mod)| (*opcode, *op_mod));
        all.filter(|(opcode, _)| of.contains(opcode)).collect()
    }

    #[test]
    fn a_table_leads_on_before_it_is_the_root_and_ends_after_its_entries() {
        let fake = Fake::new();
        let function = Function::open(fake.clone(), limits()).unwrap();
        let frames = Frames::create(&function, Some(7)).unwrap();
        let made = [(CmdOpcode::MODIFY_FLOW_TABLE, 0), (CmdOpcode::SET_FLOW_TABLE_ROOT, 0)];
        assert_eq!(steering(&fake, 0), made);
        let from = fake.state().commands.len();
        frames.destroy(&function);
        let rule = [(CmdOpcode::DELETE_FLOW_TABLE_ENTRY, 0), (CmdOpcode::DESTROY_FLOW_GROUP, 0)];
        let ends = [(CmdOpcode::DESTROY_FLOW_TABLE, 0), (CmdOpcode::DESTROY_TIR, 0)];
        let root = [(CmdOpcode::SET_FLOW_TABLE_ROOT, NO_ROOT)];
        assert_eq!(steering(&fake, from), [&root[..], &rule, &rule, &ends].concat());
    }
}
