//! The event queue: a ring that the device fills (PRM "Event Queues"; Linux `core/eq.c`).

use uverbs_mlx5_prm::cmd::eq::{create_eq_in, create_eq_out, destroy_eq_in, eqc};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::doorbell::{EQ_DOORBELL_ARM, EQ_DOORBELL_CI};
use uverbs_mlx5_prm::eqe::{EventType, mlx5_eqe};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::Device;
use crate::dma::Buffer;
use crate::error::Error;
use crate::event::Event;
use crate::uar::place;

/// Entries, as many as Linux's async queue has (`MLX5_NUM_ASYNC_EQE`). Completion queues share it:
/// each has one event at most until it is armed again.
const LOG_ENTRIES: u32 = 12;
const ENTRIES: u32 = 1 << LOG_ENTRIES;
/// Entries after which the consumer index is told, so that the device has room.
const TOLD_AFTER: u32 = ENTRIES / 4;
/// Offset of the ownership byte.
const OWNER: usize = std::mem::offset_of!(mlx5_eqe, owner);
/// Owner of an entry that was never written (`MLX5_EQE_OWNER_INIT_VAL`).
const OWNER_INIT: u8 = 1;
/// Events that the device reports. The device refuses none that it never has.
const EVENTS: [EventType; 12] = [
    EventType::COMM_EST,
    EventType::SQ_DRAINED,
    EventType::CQ_ERROR,
    EventType::WQ_CATAS_ERROR,
    EventType::PORT_CHANGE,
    EventType::PAGE_REQUEST,
    EventType::WQ_INVAL_REQ_ERROR,
    EventType::WQ_ACCESS_ERROR,
    EventType::SRQ_CATAS_ERROR,
    EventType::SRQ_LAST_WQE,
    EventType::SRQ_RQ_LIMIT,
    EventType::DCT_DRAINED,
];

/// Event queue of a function, on vector 0.
#[derive(Debug)]
pub(crate) struct EventQueue {
    ring: Buffer,
    number: u8,
    uar: u32,
    consumed: u32,
}

impl EventQueue {
    /// Creates and arms the queue, with doorbells in the UAR page `uar`.
    pub(crate) fn create(device: &Device, uar: u32) -> Result<Self, Error> {
        let ring = device.buffer(size_of::<mlx5_eqe>() << LOG_ENTRIES)?;
        for entry in 0..ENTRIES as usize {
            ring.store_owner(entry * size_of::<mlx5_eqe>() + OWNER, OWNER_INIT)?;
        }
        let mut input = vec![0; create_eq_in::SIZE];
        let context = create_eq_in::EQ_CONTEXT_ENTRY.of_mut(&mut input);
        eqc::LOG_EQ_SIZE.set(context, LOG_ENTRIES.into());
        eqc::UAR_PAGE.set(context, uar.into());
        let mask = EVENTS.iter().fold(0u64, |mask, kind| mask | 1 << kind.0);
        create_eq_in::EVENT_BITMASK.of_mut(&mut input)[..8].copy_from_slice(&mask.to_be_bytes());
        input.extend(ring.page_addresses().flat_map(u64::to_be_bytes));
        let output = device.run(CmdOpcode::CREATE_EQ, 0, &input, create_eq_out::SIZE)?;
        let number = create_eq_out::EQ_NUMBER.get(&output) as u8;
        let queue = Self { ring, number, uar, consumed: 0 };
        queue.tell(device, EQ_DOORBELL_ARM)?;
        Ok(queue)
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Tells the device how many entries were read.
    fn tell(&self, device: &Device, offset: usize) -> Result<(), Error> {
        let word = u32::from(self.number) << 24 | self.consumed & 0xff_ffff;
        device.transport().bar_write(place(self.uar) + offset as u64, word)
    }

    /// Handles the entries that the device wrote, a ring's at most. Arms the queue again if there
    /// were any, or if `rearms`.
    ///
    /// A device that writes without end gets its next turn after other work.
    pub(crate) fn pump(&mut self, device: &Device, rearms: bool) -> Result<(), Error> {
        let before = self.consumed;
        for turn in 0..ENTRIES {
            let Some(eqe) = self.next()? else { break };
            handle(device, &eqe)?;
            if turn % TOLD_AFTER == TOLD_AFTER - 1 {
                self.tell(device, EQ_DOORBELL_CI)?;
            }
        }
        match rearms || self.consumed != before {
            true => self.tell(device, EQ_DOORBELL_ARM),
            false => Ok(()),
        }
    }

    fn next(&mut self) -> Result<Option<mlx5_eqe>, Error> {
        let at = (self.consumed & (ENTRIES - 1)) as usize * size_of::<mlx5_eqe>();
        let owner = self.ring.load_owner(at + OWNER)?;
        // The bit flips with each lap (`next_eqe_sw`).
        if owner & 1 != (self.consumed >> LOG_ENTRIES) as u8 & 1 {
            return Ok(None);
        }
        let mut eqe = mlx5_eqe::new_zeroed();
        self.ring.read(at, eqe.as_mut_bytes())?;
        self.consumed = self.consumed.wrapping_add(1);
        Ok(Some(eqe))
    }

    /// Destroys the queue.
    pub(crate) fn destroy(self, device: &Device) -> Result<(), Error> {
        let mut input = [0; destroy_eq_in::SIZE];
        destroy_eq_in::EQ_NUMBER.set(&mut input, self.number.into());
        let done = device.run(CmdOpcode::DESTROY_EQ, 0, &input, 16);
        if done.is_err() {
            self.ring.bury();
        }
        done.map(drop)
    }
}

/// Serves a request for pages; all other events wait for the program.
fn handle(device: &Device, eqe: &mlx5_eqe) -> Result<(), Error> {
    match EventType(eqe.type_) {
        EventType::PAGE_REQUEST => {
            let (function, count) = eqe.requested_pages();
            match device.serve_pages(function, count) {
                // The device asks again if it still wants pages.
                Err(Error::Refused { .. }) => Ok(()),
                done => done,
            }
        }
        _ => device.events.add(Event::of(eqe)),
    }
}
