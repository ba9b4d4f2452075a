//! Path of a frame through the flow tables: to receive queues, or out to the wire.

use std::rc::Rc;

use super::headers::Headers;
use super::matching;
use super::rss::{self, Hash};
use super::steering::Steering;
use super::tir;
use super::{reformat, rewrite};
use uverbs_front::backend::steering::{Direction, Edits, FlowDestination, Miss, Param, Spread};

/// Maximum table lookups for a frame and its copies, and maximum copies that arrive. An entry may
/// send a frame to several tables, and these to more, so without a limit the number would explode.
const MAX_LOOKUPS: usize = 1 << 10;
/// Maximum groups searched in those lookups: as many as all tables together may have, so the limit
/// is reached only when tables are looked up repeatedly.
const MAX_GROUPS: usize = 1 << 16;
const MAX_COPIES: usize = 1 << 10;

/// A frame for a receive queue.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) rqn: u32,
    pub(crate) tag: u32,
    pub(crate) hash: Hash,
    /// The frame after changes by entries; None if unchanged.
    pub(crate) edited: Option<Rc<Edited>>,
}

/// A frame that entries changed.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) bytes: Vec<u8>,
    pub(crate) headers: Headers,
    param: Param,
}

impl Edited {
    fn new(bytes: Vec<u8>) -> Self {
        let headers = Headers::parse(&bytes);
        let param = matching::param(&headers);
        Self { bytes, headers, param }
    }
}

/// End of a path through the tables.
#[derive(Clone, Copy, Debug)]
enum End {
    Tir(u32),
    Wire,
}

/// One path's end, with the frame's tag and changes.
struct Exit {
    end: End,
    tag: u32,
    edited: Option<Rc<Edited>>,
}

impl Steering {
    /// Returns the receive queues for a frame. `sqn` is the sending queue of this device; None for
    /// a frame from the wire. A destroyed table or queue takes no frame.
    pub(crate) fn route(
        &mut self,
        frame: &[u8],
        headers: &Headers,
        sqn: Option<u32>,
    ) -> Vec<Delivery> {
        if sqn.is_some() && self.blocks(headers) {
            return Vec::new();
        }
        let Some(root) = self.root(Direction::Receive) else { return Vec::new() };
        let domain = sqn.and_then(|sqn| self.domain(sqn));
        let exits = self.walk(root, frame, headers);
        let copies = exits.into_iter().filter_map(|Exit { end, tag, edited }| {
            let End::Tir(tir) = end else { return None };
            let headers = edited.as_ref().map_or(headers, |edited| &edited.headers);
            let (rqn, hash) = self.reaches(tir, headers, domain)?;
            Some(Delivery { rqn, tag, hash, edited })
        });
        copies.collect()
    }

    /// Returns the receive queues for a copy of a packet of the port.
    pub(crate) fn overhear(&self, headers: &Headers) -> Vec<Delivery> {
        let queues = self.sniffers().filter_map(|tir| self.reaches(tir, headers, None));
        queues.map(|(rqn, hash)| Delivery { rqn, tag: 0, hash, edited: None }).collect()
    }

    /// Returns the frames to send for a frame of a send queue. None: the frame itself, since there
    /// is no egress table.
    pub(crate) fn leave(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let root = self.root(Direction::Transmit)?;
        let exits = self.walk(root, frame, &Headers::parse(frame));
        let gone = exits.into_iter().filter(|exit| matches!(exit.end, End::Wire));
        let bytes = |exit: Exit| exit.edited.map_or(frame.to_vec(), |edited| edited.bytes.clone());
        Some(gone.map(bytes).collect())
    }

    fn walk(&mut self, root: u32, frame: &[u8], headers: &Headers) -> Vec<Exit> {
        let arrived = matching::param(headers);
        let mut exits = Vec::new();
        let mut next: Vec<(u32, u32, Option<Rc<Edited>>)> = vec![(root, 0, None)];
        let mut groups = MAX_GROUPS;
        for _ in 0..MAX_LOOKUPS {
            let Some((number, tag, edited)) = next.pop() else { break };
            let Some(table) = self.tables.get(&number) else { continue };
            let Some(left) = groups.checked_sub(table.groups()) else { break };
            groups = left;
            let Some(entry) = table.find(edited.as_ref().map_or(&arrived, |edited| &edited.param))
            else {
                match (table.context.miss, table.context.direction) {
                    (Miss::Table(miss), _) => next.push((miss, tag, edited)),
                    (Miss::Usual, Direction::Transmit) if exits.len() < MAX_COPIES => {
                        exits.push(Exit { end: End::Wire, tag, edited });
                    }
                    (Miss::Usual, _) => {}
                }
                continue;
            };
            let bytes = edited.as_ref().map_or(frame, |edited| &edited.bytes[..]);
            for number in &entry.counters {
                if let Some(counter) = self.counters.get_mut(number) {
                    counter.packets += 1;
                    counter.bytes += bytes.len() as u64;
                }
            }
            let edited = match entry.edits {
                Edits::NONE => edited,
                edits => match self.edit(edits, bytes) {
                    Some(bytes) => Some(Rc::new(Edited::new(bytes))),
                    // The frame lacks the tunnel to remove, or became too long.
                    None => continue,
                },
            };
            // A flow tag stays until an entry sets another.
            let tag = if entry.tag == 0 { tag } else { entry.tag };
            for destination in &entry.destinations {
                let edited = edited.clone();
                let end = match *destination {
                    FlowDestination::Table(table) => {
                        if next.len() < MAX_LOOKUPS {
                            next.push((table, tag, edited));
                        }
                        continue;
                    }
                    FlowDestination::Tir(tir) => End::Tir(tir),
                    FlowDestination::Wire => End::Wire,
                };
                if exits.len() < MAX_COPIES {
                    exits.push(Exit { end, tag, edited });
                }
            }
        }
        exits
    }

    /// Applies an entry's changes: decapsulation first, encapsulation last.
    fn edit(&self, edits: Edits, frame: &[u8]) -> Option<Vec<u8>> {
        let reformat = match edits.reformat {
            Some(number) => Some(self.reformats.get(&number)?),
            None => None,
        };
        let (on, off) = match reformat {
            Some(reformat) if reformat.wraps() => (Some(reformat), None),
            off => (None, off),
        };
        let mut frame = match edits.unwrap {
            true => reformat::unwrapped(frame)?,
            false => frame.to_vec(),
        };
        if let Some(off) = off {
            frame = off.apply(&frame)?;
        }
        if let Some(number) = edits.rewrites {
            rewrite::apply(&self.rewrites.get(&number)?.1, &mut frame);
        }
        if let Some(on) = on {
            frame = on.apply(&frame)?;
        }
        (frame.len() <= self.frame_limit()).then_some(frame)
    }

    /// Selects the receive queue of a TIR for a frame.
    fn reaches(&self, tir: u32, headers: &Headers, domain: Option<u32>) -> Option<(u32, Hash)> {
        let tir = self.tirs.get(&tir).filter(|tir| tir::hears(tir, domain, headers))?;
        let hash = rss::hash_of(&tir.hash, headers);
        let rqn = match tir.spread {
            Spread::Queue(rqn) => rqn,
            Spread::Table(number) => {
                let queues = self.spreads.get(&number)?;
                // Never divides by 0: tables of queues are never empty.
                *queues.get(hash.value as usize % queues.len())?
            }
        };
        self.queues.contains_key(&rqn).then_some((rqn, hash))
    }
}
