//! Queue pair 1: management datagrams of the port (IBTA vol 1, 13.5.1; Linux `hw/mlx5/gsi.c`;
//! `hw/mlx5/qp.c`, `__mlx5_ib_modify_qp` of special queue pairs).

use std::collections::VecDeque;
use std::net::IpAddr;

use uverbs_mlx5_prm::address::{
    DqpDct, GrhGidFl, MLX5_EXTENDED_UD_AV, mlx5_wqe_av, mlx5_wqe_av_key,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{
    ads, create_qp_in, create_qp_out, destroy_qp_in, qpc, rst2init_qp_in,
};
use uverbs_mlx5_prm::context::{PmState, ServiceType};
use uverbs_mlx5_prm::cqe::mlx5_cqe64;
use zerocopy::IntoBytes;

use super::messages::{Done, Messages, Sizes};
use crate::command::SHORT;
use crate::error::Error;
use crate::function::Function;
use crate::interface::Mac;
use uverbs_front::backend::Mad;
use uverbs_front::backend::address::Address;
use uverbs_front::backend::network::sixteen;

/// Number of queue pair 1 on the wire, and its Q_Key (IBTA vol 1, 10.2.5).
const QPN: u32 = 1;
const QKEY: u32 = 0x8001_0000;
/// Bytes of a management datagram (IBTA vol 1, 13.4.2).
const MAD: usize = 256;
/// Bytes before a received datagram: GRH or IP header.
const GRH: usize = 40;
/// Datagrams are packets of 256 bytes: MTU code, and log2 of the longest message
/// (`IB_MTU_256`).
const MTU_256: u64 = 1;
const LOG_MESSAGE: u64 = 8;
const PORT: u64 = 1;
/// Hop limit of a packet that may leave the subnet.
const HOP_LIMIT: u8 = 64;
/// Kind of a RoCE packet's L3 header in `flags_rqpn` (Linux `hw/mlx5/cq.c`,
/// `MLX5_CQE_ROCE_L3_HEADER_TYPE_IPV4`), in bits that are the service level on InfiniBand.
const KIND: u8 = 3;
const IPV4: u8 = 2;
/// IP version in the first nibble of a header.
const VERSION_4: u8 = 4;
/// Maximum datagrams that wait to be sent. More are lost, and their senders repeat them.
const WAITING: usize = 1024;
const SIZES: Sizes =
    Sizes { log_receives: 8, log_sends: 6, log_wqebbs: 1, receive_room: 512, send_room: MAD };

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// LID on InfiniBand.
    Lid(u16),
    /// GID and MAC address on RoCE, and the index of the source's GID.
    Gid { gid: [u8; 16], mac: Mac, sgid_index: u8 },
}

impl Path {
    /// Address vector (Linux `hw/mlx5/wr.c`, `set_datagram_seg`).
    fn vector(self) -> mlx5_wqe_av {
        let mut av = mlx5_wqe_av {
            key: mlx5_wqe_av_key { qkey: QKEY.into(), reserved: 0.into() },
            dqp_dct: (DqpDct::ZERO.with_qpn(QPN).0 | MLX5_EXTENDED_UD_AV).into(),
            ..mlx5_wqe_av::default()
        };
        match self {
            Self::Lid(lid) => av.rlid = lid.into(),
            Self::Gid { gid, mac, sgid_index } => {
                (av.rmac, av.rgid, av.hop_limit) = (mac, gid, HOP_LIMIT);
                let grh = GrhGidFl::ZERO.with_grh(true).with_src_addr_index(sgid_index);
                av.grh_gid_fl = grh.0.into();
            }
        }
        av
    }
}

/// Queue pair 1 of a function.
#[derive(Debug)]
pub(crate) struct Gsi {
    messages: Messages,
    number: u32,
    waiting: VecDeque<(Path, Vec<u8>)>,
}

impl Gsi {
    pub(crate) fn create(function: &Function) -> Result<Self, Error> {
        let messages = Messages::create(function, SIZES)?;
        let number = create(function, &messages);
        let number = number.inspect_err(|_| messages.destroy(function, false))?;
        let mut gsi = Self { messages, number, waiting: VecDeque::new() };
        let started = gsi.start(function);
        if let Err(error) = started {
            gsi.destroy(function);
            return Err(error);
        }
        Ok(gsi)
    }

    /// From RESET to RTS.
    fn start(&mut self, function: &Function) -> Result<(), Error> {
        let step = |opcode, fields: &[(_, u64)]| {
            let mut input = [0; rst2init_qp_in::SIZE];
            rst2init_qp_in::QPN.set(&mut input, self.number.into());
            let context = rst2init_qp_in::QPC.of_mut(&mut input);
            qpc::PM_STATE.set(context, PmState::MIGRATED.0.into());
            ads::VHCA_PORT_NUM.set(qpc::PRIMARY_ADDRESS_PATH.of_mut(context), PORT);
            fields.iter().for_each(|(field, value): &(uverbs_mlx5_prm::cmd::Field, _)| {
                field.set(context, *value);
            });
            function.command(opcode, 0, &input, SHORT).map(drop)
        };
        let key = (qpc::Q_KEY, u64::from(QKEY));
        step(CmdOpcode::RST2INIT_QP, &[key])?;
        let sizes = [(qpc::MTU, MTU_256), (qpc::LOG_MSG_MAX, LOG_MESSAGE), key];
        step(CmdOpcode::INIT2RTR_QP, &sizes)?;
        step(CmdOpcode::RTR2RTS_QP, &[key])?;
        self.messages.post_receives()
    }

    /// Destroys the queue pair.
    pub(crate) fn destroy(&self, function: &Function) {
        let mut input = [0; SHORT];
        destroy_qp_in::QPN.set(&mut input, self.number.into());
        let refused = function.command(CmdOpcode::DESTROY_QP, 0, &input, SHORT).is_err();
        self.messages.destroy(function, refused);
    }

    /// Sends a datagram, or keeps it until there is room.
    pub(crate) fn send(&mut self, path: Path, mad: &[u8]) {
        if self.waiting.len() < WAITING && mad.len() == MAD {
            self.waiting.push_back((path, mad.to_vec()));
        }
    }

    /// Posts the datagrams that wait, as far as there is room.
    pub(crate) fn flush(&mut self, function: &Function) -> Result<(), Error> {
        while self.messages.has_room()
            && let Some((path, mad)) = self.waiting.pop_front()
        {
            self.messages.send(function, self.number, path.vector().as_bytes(), &mad)?;
        }
        Ok(())
    }

    /// True if a datagram is on its way out.
    pub(crate) fn is_busy(&self) -> bool {
        self.messages.is_sending()
    }

    /// Takes the next datagram that arrived. `lid`: of the port; `None` on Ethernet.
    ///
    /// # Errors
    ///
    /// The device's failure, or a failed queue, which can only be destroyed.
    pub(crate) fn next(
        &mut self,
        function: &Function,
        lid: Option<u16>,
    ) -> Result<Option<Mad>, Error> {
        // A ring of completions at most, so that other work has its turn.
        for _ in 0..2 << SIZES.log_receives {
            match self.messages.poll(function)? {
                None => break,
                Some(Done::Sent) => self.flush(function)?,
                Some(Done::Failed) => {
                    return Err(Error::Unsupported { what: "queue pair 1 after an error".into() });
                }
                Some(Done::Received(cqe, message)) => {
                    if let Some(mad) = parse(&cqe, &message, lid) {
                        return Ok(Some(mad));
                    }
                }
            }
        }
        Ok(None)
    }
}

fn create(function: &Function, messages: &Messages) -> Result<u32, Error> {
    let mut input = vec![0; create_qp_in::SIZE];
    let context = create_qp_in::QPC.of_mut(&mut input);
    for (field, value) in [
        (qpc::ST, ServiceType::QP1.0.into()),
        (qpc::PM_STATE, PmState::MIGRATED.0.into()),
        (qpc::PD, messages.pd.into()),
        // Receives of one SGE, 16 bytes: stride code 0.
        (qpc::LOG_RQ_SIZE, SIZES.log_receives.into()),
        (qpc::LOG_SQ_SIZE, SIZES.log_ring().into()),
        (qpc::UAR_PAGE, function.uar().into()),
        (qpc::CQN_SND, messages.cq.number.into()),
        (qpc::CQN_RCV, messages.cq.number.into()),
        (qpc::DBR_ADDR, messages.record()),
    ] {
        field.set(context, value);
    }
    let (receives, sends) = messages.pages();
    input.extend(receives);
    input.extend(sends);
    let output = function.command(CmdOpcode::CREATE_QP, 0, &input, create_qp_out::SIZE)?;
    Ok(create_qp_out::QPN.get32(&output))
}

/// Sender, receiver and bytes of a received datagram; `None` unless it is one, from a queue pair 1.
fn parse(cqe: &mlx5_cqe64, message: &[u8], lid: Option<u16>) -> Option<Mad> {
    let (header, bytes) = message.split_at_checked(GRH)?;
    if bytes.len() != MAD || cqe.flags_rqpn().rqpn() != QPN {
        return None;
    }
    let gid = |at: usize| <[u8; 16]>::try_from(header.get(at..at + 16)?).ok();
    let (from, to) = match lid {
        Some(lid) => (local(cqe.slid.get()), local(lid)),
        None if cqe.flags_rqpn().sl() & KIND == IPV4 => {
            // In the last 20 bytes (annex A17.4.5.2).
            let at = header.split_at(GRH - 20).1;
            if at[0] >> 4 != VERSION_4 {
                return None;
            }
            let ip = |at: &[u8]| <[u8; 4]>::try_from(at).ok().map(IpAddr::from);
            let of = |ip| Address { gid: sixteen(ip), lid: 0 };
            (of(ip(&at[12..16])?), of(ip(&at[16..20])?))
        }
        None => (Address { gid: gid(8)?, lid: 0 }, Address { gid: gid(24)?, lid: 0 }),
    };
    Some(Mad { from, to, bytes: bytes.to_vec() })
}

/// Address on an InfiniBand subnet.
fn local(lid: u16) -> Address {
    Address { gid: [0; 16], lid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uverbs_mlx5_prm::cqe::FlagsRqpn;

    fn cqe(qpn: u32, kind: u8) -> mlx5_cqe64 {
        let from = FlagsRqpn::ZERO.with_rqpn(qpn).with_sl(kind).with_grh(1);
        mlx5_cqe64 { flags_rqpn: from.0.into(), slid: 9.into(), ..mlx5_cqe64::default() }
    }

    #[test]
    fn a_datagram_of_another_length_or_sender_is_none() {
        let message = vec![0; GRH + MAD];
        assert!(parse(&cqe(1, 1), &message, None).is_some());
        assert!(parse(&cqe(2, 1), &message, None).is_none());
        for len in [0, 1, GRH - 1, GRH, GRH + 1, GRH + MAD - 1] {
            assert!(parse(&cqe(1, 1), &message[..len], None).is_none(), "{len}");
            assert!(parse(&cqe(1, IPV4), &message[..len], Some(3)).is_none(), "{len}");
        }
        assert!(parse(&cqe(1, 1), &vec![0; GRH + MAD + 1], None).is_none());
    }

    #[test]
    fn addresses_are_the_headers() {
        let mut message = vec![0; GRH + MAD];
        message[8..24].fill(5);
        message[24..40].fill(6);
        let mad = parse(&cqe(1, 1), &message, None).unwrap();
        assert_eq!((mad.from.gid, mad.to.gid), ([5; 16], [6; 16]));
        assert!(parse(&cqe(1, IPV4), &message, None).is_none(), "not version 4");
        message[20] = 0x45;
        let mad = parse(&cqe(1, IPV4), &message, None).unwrap();
        assert_eq!(mad.from.gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 6, 6, 6, 6]);
        let mad = parse(&cqe(1, 0), &message, Some(4)).unwrap();
        assert_eq!((mad.from, mad.to), (local(9), local(4)));
    }
}
