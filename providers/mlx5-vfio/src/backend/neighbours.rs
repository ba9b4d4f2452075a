//! MAC addresses of peers: asked for, and told, by raw queues of the driver.

use std::time::Instant;

use uverbs_front::backend::error::HcaError;

use super::{Firmware, unsupported};
use crate::interface::Mac;
use crate::services::frames::Frames;
use crate::services::neighbours::Neighbours;

/// Maximum frames that are heard in one turn.
const FRAMES_PER_TURN: usize = 64;
/// Maximum restarts of queues that failed.
const RESTARTS: u8 = 16;

/// Raw queues of a RoCE port: each has a link-local address, for which peers may ask.
#[derive(Debug, Default)]
pub(super) struct NeighbourQueues {
    pub(super) frames: Option<Frames>,
    restarts: u8,
}

impl Firmware {
    /// Creates the ARP and ND queues of a RoCE port. If the firmware refuses, only the configured
    /// neighbours are known.
    pub(crate) fn start_neighbour_queues(&mut self) {
        let next = self.root();
        let Some(neighbours) = &mut self.neighbours else { return };
        self.neighbour_queues.frames = Frames::create(&self.function, next).ok();
        neighbours.asks = self.neighbour_queues.frames.is_some();
    }

    /// True while a peer is asked.
    pub(crate) fn is_asking(&self) -> bool {
        self.neighbours.as_ref().is_some_and(Neighbours::waits)
    }

    pub(super) fn end_neighbour_queues(&mut self) {
        if let Some(frames) = self.neighbour_queues.frames.take() {
            frames.destroy(&self.function);
        }
    }

    /// MAC address of a peer on RoCE.
    pub(super) fn resolve_mac(&mut self, gid: &[u8; 16]) -> Result<Mac, HcaError> {
        let neighbours = self.neighbours.as_mut();
        let neighbours = neighbours.ok_or_else(|| unsupported("RoCE on an InfiniBand port"))?;
        let found = neighbours.mac(gid, Instant::now());
        self.send_neighbour_frames();
        found.map_err(|errno| HcaError::System { errno })
    }

    /// Sends what waits.
    fn send_neighbour_frames(&mut self) {
        let (Some(neighbours), Some(frames)) =
            (&mut self.neighbours, &mut self.neighbour_queues.frames)
        else {
            return;
        };
        for frame in neighbours.take_outgoing() {
            // A failure shows when frames are heard.
            let _ = frames.send(&self.function, &frame);
        }
    }

    /// Hears frames, and answers them. True if there were any, or new queues are not armed yet.
    pub(super) fn poll_neighbours(&mut self) -> bool {
        let now = Instant::now();
        let mut heard = false;
        let mut failed = false;
        let (Some(neighbours), Some(frames)) =
            (&mut self.neighbours, &mut self.neighbour_queues.frames)
        else {
            return false;
        };
        for _ in 0..FRAMES_PER_TURN {
            match frames.next(&self.function) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    heard = true;
                    neighbours.hear(&frame, now);
                }
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        neighbours.advance(now);
        if failed {
            self.restart_neighbour_queues();
        }
        self.send_neighbour_frames();
        self.retry_mads();
        heard | failed
    }

    fn restart_neighbour_queues(&mut self) {
        self.end_neighbour_queues();
        self.neighbour_queues.restarts += 1;
        match self.neighbour_queues.restarts <= RESTARTS && self.function.failure().is_none() {
            true => self.start_neighbour_queues(),
            false => self.neighbours.iter_mut().for_each(|neighbours| neighbours.asks = false),
        }
        if self.neighbour_queues.frames.is_none() {
            // The program's rules work without the driver's. A failure shows in their next change.
            let _ = self.restore_root();
        }
    }
}
