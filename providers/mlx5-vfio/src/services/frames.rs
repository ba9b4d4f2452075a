//! Raw packet queues of the driver. Two flow rules in the root table of the receive side deliver
//! ARP and ICMPv6 frames to them (Linux `core/fs_cmd.c`; `hw/mlx5/qp.c`, `create_raw_packet_qp`),
//! tagged or not: a rule's EtherType follows the last VLAN tag (rdma-core
//! `providers/mlx5/mlx5dv_dr.h`, `dr_match_spec`).

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::flow::{
    ACTION_FORWARD, DESTINATION_TIR, MISS_FORWARD, NO_ROOT, SELECT_MISS, create_flow_group_in,
    create_flow_group_out, create_flow_table_in, create_flow_table_out, delete_fte_in,
    dest_format_struct, destroy_flow_group_in, destroy_flow_table_in, flow_context,
    flow_table_context, fte_match_param, fte_match_set_lyr_2_4, modify_flow_table_in,
    set_flow_table_root_in, set_fte_in,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::rq::{WQ_TYPE_CYCLIC, wq};
use uverbs_mlx5_prm::cmd::simple::{alloc_transport_domain_out, dealloc_transport_domain_in};
use uverbs_mlx5_prm::cmd::sq::{
    create_rq_in, create_rq_out, create_sq_in, create_sq_out, destroy_rq_in, destroy_sq_in,
    modify_rq_in, modify_sq_in, rqc, sqc,
};
use uverbs_mlx5_prm::cmd::steering::{
    create_tir_in, create_tir_out, create_tis_in, create_tis_out, destroy_tir_in, destroy_tis_in,
    tirc, tisc,
};
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;
use uverbs_mlx5_prm::eth::mlx5_wqe_eth_seg;
use zerocopy::IntoBytes;

use super::arp;
use super::messages::{Done, Messages, RECEIVE_WQE, Sizes};
use crate::command::SHORT;
use crate::error::Error;
use crate::function::Function;

/// State of a queue that works (`MLX5_SQC_STATE_RDY`, `MLX5_RQC_STATE_RDY`).
const READY: u64 = 1;
/// The criteria are in the outer headers (`MLX5_MATCH_OUTER_HEADERS`).
const OUTER: u64 = 1;
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
    table: u32,
    /// Commands that destroy what was created, in the order of creation.
    made: Vec<(CmdOpcode, Vec<u8>)>,
}

/// Input of a command with numbers in fields.
fn input(len: usize, fields: &[(Field, u64)]) -> Vec<u8> {
    let mut input = vec![0; len];
    fields.iter().for_each(|(field, value)| field.set(&mut input, *value));
    input
}

impl Frames {
    /// Creates the queues and the rules. Other frames go on to the table `next` from the start.
    pub(crate) fn create(function: &Function, next: Option<u32>) -> Result<Self, Error> {
        let messages = Messages::create(function, SIZES)?;
        let mut frames = Self { messages, sqn: 0, table: 0, made: Vec::new() };
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
        let domain = alloc_transport_domain_out::TRANSPORT_DOMAIN.get(&output);
        let number = dealloc_transport_domain_in::TRANSPORT_DOMAIN;
        self.note(CmdOpcode::DEALLOC_TRANSPORT_DOMAIN, SHORT, &[(number, domain)]);
        self.create_sq(function, domain)?;
        let rqn = self.create_rq(function)?;
        let mut create = vec![0; create_tir_in::SIZE];
        let tir = create_tir_in::CTX.of_mut(&mut create);
        tirc::INLINE_RQN.set(tir, rqn);
        tirc::TRANSPORT_DOMAIN.set(tir, domain);
        let output = function.command(CmdOpcode::CREATE_TIR, 0, &create, create_tir_out::SIZE)?;
        let tirn = create_tir_out::TIRN.get(&output);
        self.note(CmdOpcode::DESTROY_TIR, SHORT, &[(destroy_tir_in::TIRN, tirn)]);
        self.create_table(function)?;
        let kind = fte_match_set_lyr_2_4::ETHERTYPE;
        let protocol = fte_match_set_lyr_2_4::IP_PROTOCOL;
        self.create_rule(function, (0, tirn), &[(kind, arp::ARP.into())])?;
        let icmp = [(kind, arp::IPV6.into()), (protocol, arp::ICMP.into())];
        self.create_rule(function, (1, tirn), &icmp)?;
        if next.is_some() {
            self.set_next(function, next)?;
        }
        let table = (set_flow_table_root_in::TABLE_ID, self.table.into());
        let root = input(set_flow_table_root_in::SIZE, &[table]);
        function.command(CmdOpcode::SET_FLOW_TABLE_ROOT, 0, &root, SHORT)?;
        self.note(CmdOpcode::SET_FLOW_TABLE_ROOT, set_flow_table_root_in::SIZE, &[]);
        Ok(())
    }

    /// Notes the command that destroys an object.
    fn note(&mut self, opcode: CmdOpcode, len: usize, fields: &[(Field, u64)]) {
        self.made.push((opcode, input(len, fields)));
    }

    fn create_sq(&mut self, function: &Function, domain: u64) -> Result<(), Error> {
        let mut create = vec![0; create_tis_in::SIZE];
        tisc::TRANSPORT_DOMAIN.set(create_tis_in::CTX.of_mut(&mut create), domain);
        let output = function.command(CmdOpcode::CREATE_TIS, 0, &create, create_tis_out::SIZE)?;
        let tisn = create_tis_out::TISN.get(&output);
        self.note(CmdOpcode::DESTROY_TIS, SHORT, &[(destroy_tis_in::TISN, tisn)]);
        let mut create = vec![0; create_sq_in::SIZE];
        let context = create_sq_in::CTX.of_mut(&mut create);
        sqc::CQN.set(context, self.messages.cq.number.into());
        sqc::TIS_LST_SZ.set(context, 1);
        sqc::TIS_NUM_0.set(context, tisn);
        let (_, sends) = self.messages.pages();
        let log_stride = MLX5_SEND_WQE_BB.ilog2();
        self.ring(sqc::WQ.of_mut(context), log_stride, SIZES.log_sends, function.uar());
        create.extend(sends);
        let output = function.command(CmdOpcode::CREATE_SQ, 0, &create, create_sq_out::SIZE)?;
        self.sqn = create_sq_out::SQN.get32(&output);
        let sqn = u64::from(self.sqn);
        self.note(CmdOpcode::DESTROY_SQ, SHORT, &[(destroy_sq_in::SQN, sqn)]);
        let mut modify = input(modify_sq_in::SIZE, &[(modify_sq_in::SQN, sqn)]);
        sqc::STATE.set(modify_sq_in::CTX.of_mut(&mut modify), READY);
        function.command(CmdOpcode::MODIFY_SQ, 0, &modify, SHORT).map(drop)
    }

    fn create_rq(&mut self, function: &Function) -> Result<u64, Error> {
        let mut create = vec![0; create_rq_in::SIZE];
        let context = create_rq_in::CTX.of_mut(&mut create);
        // Keep VLAN tags: they tell the network of a frame.
        rqc::VSD.set(context, 1);
        rqc::CQN.set(context, self.messages.cq.number.into());
        self.ring(rqc::WQ.of_mut(context), RECEIVE_WQE.ilog2(), SIZES.log_receives, 0);
        create.extend(self.messages.pages().0);
        let output = function.command(CmdOpcode::CREATE_RQ, 0, &create, create_rq_out::SIZE)?;
        let rqn = create_rq_out::RQN.get(&output);
        self.note(CmdOpcode::DESTROY_RQ, SHORT, &[(destroy_rq_in::RQN, rqn)]);
        self.messages.post_receives()?;
        let mut modify = input(modify_rq_in::SIZE, &[(modify_rq_in::RQN, rqn)]);
        rqc::STATE.set(modify_rq_in::CTX.of_mut(&mut modify), READY);
        function.command(CmdOpcode::MODIFY_RQ, 0, &modify, SHORT)?;
        Ok(rqn)
    }

    /// Fills in a ring of `1 << log_entries` entries.
    fn ring(&self, ring: &mut [u8], log_stride: u32, log_entries: u32, uar: u32) {
        for (field, value) in [
            (wq::WQ_TYPE, WQ_TYPE_CYCLIC),
            (wq::PD, self.messages.pd.into()),
            (wq::UAR_PAGE, uar.into()),
            (wq::DBR_ADDR, self.messages.record()),
            (wq::LOG_WQ_STRIDE, log_stride.into()),
            (wq::LOG_WQ_SZ, log_entries.into()),
        ] {
            field.set(ring, value);
        }
    }

    /// Creates the table of two rules, a group each. Table type 0: the receive side.
    fn create_table(&mut self, function: &Function) -> Result<(), Error> {
        let mut create = vec![0; create_flow_table_in::SIZE];
        let context = create_flow_table_in::FLOW_TABLE_CONTEXT.of_mut(&mut create);
        flow_table_context::LOG_SIZE.set(context, 1);
        let len = create_flow_table_out::SIZE;
        let output = function.command(CmdOpcode::CREATE_FLOW_TABLE, 0, &create, len)?;
        self.table = create_flow_table_out::TABLE_ID.get32(&output);
        let table = (destroy_flow_table_in::TABLE_ID, self.table.into());
        self.note(CmdOpcode::DESTROY_FLOW_TABLE, destroy_flow_table_in::SIZE, &[table]);
        Ok(())
    }

    /// Leads frames with these values in their headers to a TIR.
    fn create_rule(
        &mut self,
        function: &Function,
        (index, tirn): (u64, u64),
        values: &[(Field, u64)],
    ) -> Result<(), Error> {
        use create_flow_group_in as group;
        let mut create = input(
            group::SIZE,
            &[
                (group::TABLE_ID, self.table.into()),
                (group::START_FLOW_INDEX, index),
                (group::END_FLOW_INDEX, index),
                (group::MATCH_CRITERIA_ENABLE, OUTER),
            ],
        );
        let criteria = group::MATCH_CRITERIA.of_mut(&mut create);
        let outer = fte_match_param::OUTER_HEADERS.of_mut(criteria);
        values.iter().for_each(|(field, _)| field.set(outer, u64::MAX));
        let len = create_flow_group_out::SIZE;
        let output = function.command(CmdOpcode::CREATE_FLOW_GROUP, 0, &create, len)?;
        let number = create_flow_group_out::GROUP_ID.get(&output);
        self.note(
            CmdOpcode::DESTROY_FLOW_GROUP,
            destroy_flow_group_in::SIZE,
            &[
                (destroy_flow_group_in::TABLE_ID, self.table.into()),
                (destroy_flow_group_in::GROUP_ID, number),
            ],
        );
        let mut set = input(
            set_fte_in::SIZE,
            &[(set_fte_in::TABLE_ID, self.table.into()), (set_fte_in::FLOW_INDEX, index)],
        );
        let context = set_fte_in::FLOW_CONTEXT.of_mut(&mut set);
        flow_context::GROUP_ID.set(context, number);
        flow_context::ACTION.set(context, ACTION_FORWARD);
        flow_context::DESTINATION_LIST_SIZE.set(context, 1);
        let value = flow_context::MATCH_VALUE.of_mut(context);
        let outer = fte_match_param::OUTER_HEADERS.of_mut(value);
        values.iter().for_each(|(field, value)| field.set(outer, *value));
        let mut destination = [0; dest_format_struct::SIZE];
        dest_format_struct::DESTINATION_TYPE.set(&mut destination, DESTINATION_TIR);
        dest_format_struct::DESTINATION_ID.set(&mut destination, tirn);
        set.extend(destination);
        function.command(CmdOpcode::SET_FLOW_TABLE_ENTRY, 0, &set, SHORT)?;
        let table = (delete_fte_in::TABLE_ID, self.table.into());
        let entry = [table, (delete_fte_in::FLOW_INDEX, index)];
        self.note(CmdOpcode::DELETE_FLOW_TABLE_ENTRY, delete_fte_in::SIZE, &entry);
        Ok(())
    }

    /// Leads all other frames to a table of the program's; `None`: back to none.
    pub(crate) fn set_next(&self, function: &Function, table: Option<u32>) -> Result<(), Error> {
        let mut modify = input(
            modify_flow_table_in::SIZE,
            &[
                (modify_flow_table_in::MODIFY_FIELD_SELECT, SELECT_MISS),
                (modify_flow_table_in::TABLE_ID, self.table.into()),
            ],
        );
        if let Some(table) = table {
            let context = modify_flow_table_in::FLOW_TABLE_CONTEXT.of_mut(&mut modify);
            flow_table_context::TABLE_MISS_ACTION.set(context, MISS_FORWARD);
            flow_table_context::TABLE_MISS_ID.set(context, table.into());
        }
        function.command(CmdOpcode::MODIFY_FLOW_TABLE, 0, &modify, SHORT).map(drop)
    }

    /// Destroys all objects, the last first.
    pub(crate) fn destroy(&self, function: &Function) {
        let mut in_use = false;
        for (opcode, input) in self.made.iter().rev() {
            // A root is removed by the command that sets one.
            let op_mod = if *opcode == CmdOpcode::SET_FLOW_TABLE_ROOT { NO_ROOT } else { 0 };
            let refused = function.command(*opcode, op_mod, input, SHORT).is_err();
            in_use |= refused && [CmdOpcode::DESTROY_SQ, CmdOpcode::DESTROY_RQ].contains(opcode);
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
