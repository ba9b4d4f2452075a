//! Ports of queue pairs on bonded ports (LAG): the device spreads queue pairs over the ports, and a
//! program may move one to another port (rdma-core `mlx5.c`, `_mlx5dv_query_qp_lag_port`,
//! `_mlx5dv_modify_qp_lag_port`). The port of raw packets is one of the object that sends them
//! (TIS).
//!
//! # Safety
//!
//! Commands contain numbers only.
#![allow(unsafe_code, reason = "sends commands")]

use uverbs_core::attr::LagPort;
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_mlx5_prm::cmd::caps::{
    LAG_TX_PORT_AFFINITY, NUM_LAG_PORTS, RTS2RTS_LAG_TX_PORT_AFFINITY,
};
use uverbs_mlx5_prm::cmd::general::{
    LAG_STATE, LAG_TX_REMAP_AFFINITY_1, LAG_TX_REMAP_AFFINITY_2, QUERY_LAG_BYTES,
};
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{optpar, qpc, query_qp_in, query_qp_out, rst2init_qp_in};
use uverbs_mlx5_prm::cmd::steering::{
    modify_tis_bitmask, modify_tis_in, query_tis_in, query_tis_out, tisc,
};

use crate::create::rts::{IN_RTS, change};
use crate::device::caps::general_caps;
use crate::devx;

const QUERY: &str = "query_qp_lag_port";
const MODIFY: &str = "modify_qp_lag_port";
/// Greatest value of the field for the port.
const LAST_PORT: u32 = 0xf;

fn not_bonded(verb: &'static str) -> Error {
    Error::Unsupported { verb, what: "bonded ports (LAG) on this device".to_owned() }
}

/// Queries the port of a queue pair with a send queue.
///
/// # Errors
///
/// [`Error::Unsupported`] if the device's ports are not bonded; the kernel's refusal, and the
/// device's.
#[doc(alias = "mlx5dv_query_qp_lag_port")]
pub fn query_lag_port(qp: &QpCore) -> Result<LagPort, Error> {
    port_of(QUERY, qp).map(|(port, _)| port)
}

/// As [`query_lag_port`]; also the device's general capabilities.
fn port_of(verb: &'static str, qp: &QpCore) -> Result<(LagPort, Vec<u8>), Error> {
    let uverbs = qp.pd().context().uverbs();
    let caps = general_caps(uverbs).map_err(|_| not_bonded(verb))?;
    if NUM_LAG_PORTS.get(&caps) <= 1 {
        return Err(not_bonded(verb));
    }
    let (mut request, mut answer) = ([0; 16], [0; QUERY_LAG_BYTES]);
    header::cmd_in::OPCODE.set(&mut request, CmdOpcode::QUERY_LAG.0.into());
    // SAFETY: a query, which names no memory.
    let sent = unsafe { devx::general(uverbs, &request, &mut answer) };
    sent.map_err(|error| told(verb, &error, &answer))?;
    let lag = &answer[8..];
    if LAG_STATE.get(lag) == 0 && !LAG_TX_PORT_AFFINITY.is_set(&caps) {
        return Err(not_bonded(verb));
    }
    let configured = configured(verb, qp)?;
    let active = match configured {
        1 => LAG_TX_REMAP_AFFINITY_1.get(lag) as u8,
        2 => LAG_TX_REMAP_AFFINITY_2.get(lag) as u8,
        _ => return Err(not_bonded(verb)),
    };
    Ok((LagPort { configured, active }, caps))
}

/// Port of the queue pair, or of the TIS that sends for it.
fn configured(verb: &'static str, qp: &QpCore) -> Result<u8, Error> {
    let (opcode, field, number, context, port) = match qp.sender() {
        None => {
            let (query, port) = (CmdOpcode::QUERY_QP, qpc::LAG_TX_PORT_AFFINITY);
            (query, query_qp_in::QPN, qp.qpn(), query_qp_out::QPC, port)
        }
        Some(tisn) => {
            let (query, port) = (CmdOpcode::QUERY_TIS, tisc::LAG_TX_PORT_AFFINITY);
            (query, query_tis_in::TISN, tisn, query_tis_out::TIS_CONTEXT, port)
        }
    };
    let (mut request, mut answer) = ([0; query_qp_in::SIZE], [0; query_qp_out::SIZE]);
    header::cmd_in::OPCODE.set(&mut request, opcode.0.into());
    field.set(&mut request, number.into());
    let uverbs = qp.pd().context().uverbs();
    // SAFETY: the caller's queue pair; a query, which names no memory.
    let sent = unsafe { devx::query(uverbs, qp.handle(), &request, &mut answer) };
    sent.map_err(|error| told(verb, &error, &answer))?;
    Ok(port.get(context.of(&answer)) as u8)
}

fn told(verb: &'static str, error: &Error, answer: &[u8]) -> Error {
    Error::kernel(verb, devx::told(error.to_errno(), answer))
}

/// Moves a queue pair in RTS to another of the bonded ports; one for raw packets in any state.
///
/// # Errors
///
/// The errors of [`query_lag_port`]; [`Error::Unsupported`] if the device can't move a queue pair;
/// [`Error::State`] unless in RTS.
#[doc(alias = "mlx5dv_modify_qp_lag_port")]
pub fn set_lag_port(qp: &QpCore, port: u8) -> Result<(), Error> {
    Error::limit(MODIFY, "port", port.into(), LAST_PORT)?;
    // Without bonded ports firmware may succeed and change nothing.
    let (_, caps) = port_of(MODIFY, qp)?;
    if let Some(tisn) = qp.sender() {
        return move_sender(qp, tisn, port);
    }
    if !RTS2RTS_LAG_TX_PORT_AFFINITY.is_set(&caps) {
        let what = "moving a queue pair to another of the bonded ports".to_owned();
        return Err(Error::Unsupported { verb: MODIFY, what });
    }
    change(MODIFY, qp, IN_RTS, |request| {
        rst2init_qp_in::OPT_PARAM_MASK.set(request, optpar::LAG_TX_AFF);
        let context = rst2init_qp_in::QPC.of_mut(request);
        qpc::LAG_TX_PORT_AFFINITY.set(context, port.into());
    })
}

/// Moves the TIS that sends a queue pair's packets.
fn move_sender(qp: &QpCore, tisn: u32, port: u8) -> Result<(), Error> {
    let (mut request, mut answer) = ([0; modify_tis_in::SIZE], [0; 16]);
    header::cmd_in::OPCODE.set(&mut request, CmdOpcode::MODIFY_TIS.0.into());
    modify_tis_in::TISN.set(&mut request, tisn.into());
    modify_tis_bitmask::LAG_TX_PORT_AFFINITY.set(modify_tis_in::BITMASK.of_mut(&mut request), 1);
    tisc::LAG_TX_PORT_AFFINITY.set(modify_tis_in::CTX.of_mut(&mut request), port.into());
    let uverbs = qp.pd().context().uverbs();
    // SAFETY: the caller's queue pair; the command contains numbers only.
    let sent = unsafe { devx::modify(uverbs, qp.handle(), &request, &mut answer) };
    sent.map_err(|error| told(MODIFY, &error, &answer))
}
