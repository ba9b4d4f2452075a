//! Runs the device's work, slice by slice: frames from the wire, timers, turns of queue pairs.

use std::time::Duration;

use crate::hca::config::DEFAULT_PACKET_WINDOW;
use crate::hca::device::Hca;
use crate::hca::engine::completion::flush;
use crate::hca::engine::local::requests;
use crate::hca::engine::requester::queue;
use crate::hca::engine::responder::response_tx;
use crate::hca::engine::scheduler::patience;
use crate::hca::engine::scheduler::turn::PACKETS_PER_TURN;
use crate::hca::state::common::Common;
use crate::hca::state::doorbells::{AT_ONCE, BESIDE_WORK};
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::number::Qpn;

/// Frames taken from the wire in one step: half of a sender's window by default, so that it sends
/// while this device reads the rest.
pub(crate) const FRAMES_PER_STEP: usize = DEFAULT_PACKET_WINDOW as usize / 2;
/// Consecutive steps that may defer the timers because frames are unread.
pub(crate) const LATE_STEPS: u32 = 31;
/// QPs served in one step.
const QPS_PER_STEP: usize = 64;
/// Time until the next attempt to send on a full wire.
const FULL_WIRE_RETRY: Duration = Duration::from_micros(10);

/// Maximum turns of a QP before it stops: a program waits for the command.
const LAST_TURNS: u32 = 256;

impl Hca {
    /// Runs one bounded slice of work: packets, timers, queues with doorbells. `now` is monotonic
    /// time since the start. True if anything was done, so that another call may do more.
    ///
    /// Receives posted to a QP in ERR ring no doorbell, so a front calls this from time to time
    /// even when it sees no activity.
    pub(crate) fn step(&mut self, now: Duration) -> bool {
        self.common.now = self.common.now.max(now);
        self.common.port.advance(self.common.now);
        self.common.port.sniff(self.steering.sniffers().next().is_some());
        self.common.cqs.now = self.common.now;
        let mut done = self.common.port.retry();
        done |= self.transmit_mads();
        // Posted requests and delayed acknowledgements leave before the wire is read.
        let served = self.serve_all();
        if served {
            done = true;
            self.common.port.flush();
        }
        // Skips reading the wire once after sending, so that a polling client posts its reply
        // without waiting for an empty receive call.
        self.schedule.skipped = self.common.is_client_slice && served && !self.schedule.skipped;
        let frames = if self.schedule.skipped { 0 } else { FRAMES_PER_STEP };
        let mut unread = true;
        for _ in 0..frames {
            let Some(frame) = self.common.port.receive() else {
                unread = self.common.port.is_paused();
                break;
            };
            done = true;
            self.common.stats.rx_packets += frame.packets();
            if self.common.port.is_in_vlan(&frame) {
                self.deliver(&frame);
            } else {
                self.common.stats.dropped += frame.packets();
                self.common.stats.foreign_paths += frame.packets();
            }
            self.common.port.recycle(frame);
        }
        done |= self.listen(FRAMES_PER_STEP);
        // Unread frames may hold the awaited ACK, so timers are deferred, `LATE_STEPS` times at
        // most.
        if unread && self.schedule.late < LATE_STEPS {
            self.schedule.late += 1;
        } else {
            self.schedule.late = 0;
            done |= self.expire();
        }
        for qpn in self.schedule.flushing.iter().copied().collect::<Vec<_>>() {
            if self.qps.get(&qpn).is_some_and(|qp| flush::has_receives(qp, &mut self.common)) {
                self.enqueue(qpn);
            }
        }
        done |= self.look_at_due(if done { BESIDE_WORK } else { AT_ONCE });
        done |= self.serve_all();
        done |= self.overhear();
        let Common { dma, cqs, events, stats, .. } = &mut self.common;
        cqs.end_blocks(&**dma, events, stats);
        done |= cqs.expire(events, stats);
        self.bury();
        self.recall();
        self.common.port.flush();
        done
    }

    /// Tells whose thread runs the next slices: a polling client's (`true`), or the device's.
    pub(crate) fn set_client_slice(&mut self, is_client_slice: bool) {
        self.common.is_client_slice = is_client_slice;
    }

    /// Sends the acknowledgements that the last slice delayed until a polling client's reply. Reads
    /// nothing.
    pub(crate) fn send_delayed_acks(&mut self) {
        if !std::mem::take(&mut self.common.is_client_slice) || self.common.port.has_left {
            return;
        }
        for qpn in &self.schedule.runnable {
            if let Some(qp) = self.qps.get_mut(qpn)
                && qp.responder.delays_ack(self.common.now)
            {
                response_tx::transmit(qp, &mut self.common, 1);
            }
        }
        self.common.port.flush();
    }

    /// Gives the queue pairs with work a turn.
    fn serve_all(&mut self) -> bool {
        let mut done = false;
        // A command may make many queue pairs runnable, most of them without work.
        let unserved = self.schedule.runnable.len() > QPS_PER_STEP;
        for _ in 0..QPS_PER_STEP.min(self.schedule.runnable.len()) {
            let Some(qpn) = self.schedule.runnable.pop_front() else {
                break;
            };
            done |= self.serve(qpn);
        }
        // A full wire holds up queue pairs, and another device has to make room.
        done | unserved && !self.common.port.is_full()
    }

    /// Prepares the wire for a thread that will sleep on its descriptor. The caller steps once more
    /// to find packets that arrived before ([`Wire::arm`](crate::wire::Wire::arm)).
    pub(crate) fn arm(&mut self) {
        self.common.port.arm();
    }

    /// Time at which [`Hca::step`] may have work without a doorbell or packet; None when idle.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        if self.common.port.is_full() {
            return Some(self.common.now + FULL_WIRE_RETRY);
        }
        if !self.schedule.runnable.is_empty() || self.has_due_records() {
            return Some(self.common.now);
        }
        let timer = self.schedule.deadline();
        let wire = self.common.port.next_event();
        let late = self.common.cqs.deadline();
        timer.into_iter().chain(wire).chain(late).min()
    }

    /// True if memory has to be polled because no doorbell rings: for receives posted to a QP in
    /// ERR.
    pub(crate) fn needs_looks(&self) -> bool {
        !self.schedule.flushing.is_empty()
    }

    /// Runs the timers that are due.
    fn expire(&mut self) -> bool {
        let mut done = false;
        // Each round removes an entry, and a timer that is set anew lies in the future, since none
        // has length 0.
        while let Some(qpn) = self.schedule.due(self.common.now) {
            if let Some(qp) = self.qps.get_mut(&qpn) {
                qp.timer = None;
                if let Some(later) = patience::later(qp, &self.common) {
                    self.schedule.put_off(qp, later);
                    continue;
                }
                done = true;
                queue::expire(qp, &mut self.common);
                self.schedule.enqueue(qp);
            }
        }
        done
    }

    /// Runs one turn of a QP.
    fn serve(&mut self, qpn: Qpn) -> bool {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            let turn = self.targets.serve(qpn, &mut self.common);
            if turn.more {
                self.enqueue(qpn);
            }
            return turn.done;
        };
        qp.queued = false;
        // The polling client takes its message now: acknowledgement and reply leave together in the
        // next slice.
        if self.common.is_client_slice && qp.responder.delays_ack(self.common.now) {
            self.schedule.enqueue(qp);
            return false;
        }
        let answers = response_tx::transmit(qp, &mut self.common, PACKETS_PER_TURN);
        let requests = queue::transmit(qp, &mut self.common, PACKETS_PER_TURN);
        qp.responder.note_turn(self.common.now, answers.done, requests.done);
        let flushed = flush::run(qp, &mut self.common);
        let more = answers.more || requests.more || flushed.more;
        if qp.state == QpState::Err && qp.ctx.srq.is_some() && !more && !qp.last_wqe_told {
            qp.last_wqe_told = true;
            let Common { events, stats, .. } = &mut self.common;
            events.push(HcaEvent::LastWqeReached { qpn }, stats);
        }
        if more {
            self.schedule.enqueue(qp);
        }
        self.schedule.settle(qp);
        self.exchange();
        answers.done || requests.done || flushed.done
    }

    /// Sends the packets that a QP may send without an answer of the peer, before a command that
    /// stops it or resizes its CQ. A device with the QP's doorbell sends them before the command
    /// arrives: a program may disconnect as soon as it posted its last message.
    pub(in crate::hca) fn send_rung(&mut self, qpn: Qpn) {
        let Some(qp) = self.qps.get_mut(&qpn) else { return };
        let has_none = !qp.sends() && qp.responder.answers.is_empty();
        if has_none || self.common.port.has_left {
            return;
        }
        // The end of a request recalls its loans, so payload leaves as bytes.
        self.common.port.lending = false;
        requests::take_back(qp);
        for _ in 0..LAST_TURNS {
            let answers = response_tx::transmit(qp, &mut self.common, PACKETS_PER_TURN);
            let sends = queue::transmit(qp, &mut self.common, PACKETS_PER_TURN);
            if !(answers.more || sends.more) || !(answers.done || sends.done) {
                break;
            }
        }
        self.common.port.lending = true;
        self.exchange();
        self.common.port.flush();
    }

    /// Moves QPs of a dead CQ to error without a CQE (IBTA 11.6.3.2, CQ error; the affiliated QPs
    /// get a catastrophic error). An XRC target follows when one of its messages is for an SRQ of
    /// that CQ.
    fn bury(&mut self) {
        for cqn in std::mem::take(&mut self.common.cqs.died) {
            let users: Vec<Qpn> = (self.qps.values())
                .filter(|qp| qp.ctx.send_cq == cqn || qp.ctx.recv_cq == cqn)
                .map(|qp| qp.qpn)
                .collect();
            for qpn in users {
                self.fatal(qpn, false);
            }
            self.targets.bury(cqn);
        }
        for qpn in std::mem::take(&mut self.common.cqs.bereft) {
            self.fatal(qpn, false);
        }
    }
}
