//! A device that creates keys and completion queues, and queues if the test wants them. Other calls
//! return the error that the test chose.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use uverbs_front::backend::Backend;
use uverbs_front::backend::context::*;
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Key, Qpn, Queue, Srqn, UarNumber};
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::*;

/// Number of the queues: the device counts each kind apart.
pub(crate) const NUMBER: Qpn = Qpn(7);

/// Messages between test and device.
#[derive(Debug)]
pub(crate) struct Talk {
    /// Error of every call.
    pub(crate) error: HcaError,
    /// The next event.
    pub(crate) event: Option<HcaEvent>,
    /// Doorbells that the front passed on: UAR, offset and value.
    pub(crate) doorbells: Vec<(u32, u32, u64)>,
    /// The key that the device creates, in place of an error; its index is a CQ's number.
    pub(crate) key: Option<Key>,
    /// Objects whose memory the front took back.
    pub(crate) forsaken: Vec<(Noun, u32)>,
    /// States of the queues; `None`: none can be created or destroyed.
    pub(crate) queues: Option<BTreeMap<Queue, QpState>>,
}

impl Talk {
    fn state(&self, queue: Queue) -> Option<QpState> {
        self.queues.as_ref().and_then(|queues| queues.get(&queue).copied())
    }
}

/// The device.
#[derive(Debug)]
pub(crate) struct Stub(pub(crate) Arc<Mutex<Talk>>);

impl Stub {
    fn refused<T>(&self) -> Result<T, HcaError> {
        Err(self.0.lock().unwrap().error)
    }
}

const WRONG: Result<(), Wrong> = Err(Wrong::Missing("nothing is created"));

impl Backend for Stub {
    fn create_mkey(&mut self, _: MkeyContext) -> Result<Key, HcaError> {
        let key = self.0.lock().unwrap().key;
        key.map_or_else(|| self.refused(), Ok)
    }
    fn modify_mkey(&mut self, _: Key, _: MkeyContext) -> Result<Key, HcaError> {
        self.refused()
    }
    fn destroy_mkey(&mut self, _: Key) -> Result<(), HcaError> {
        self.refused()
    }
    fn forsake(&mut self, noun: Noun, number: u32) {
        self.0.lock().unwrap().forsaken.push((noun, number));
    }
    fn windows_on(&self, _: Key) -> usize {
        0
    }
    fn create_cq(&mut self, _: CqContext) -> Result<Cqn, HcaError> {
        let key = self.0.lock().unwrap().key;
        key.map_or_else(|| self.refused(), |key| Ok(Cqn(key.index())))
    }
    fn resize_cq(&mut self, _: Cqn, _: Region, _: u8, _: u32) -> Result<(), HcaError> {
        self.refused()
    }
    fn moderate_cq(&mut self, _: Cqn, _: Moderation) -> Result<(), HcaError> {
        self.refused()
    }
    fn cqe_size(&self, _: Cqn) -> Result<u32, HcaError> {
        self.refused()
    }
    fn destroy_cq(&mut self, _: Cqn) -> Result<(), HcaError> {
        self.refused()
    }
    fn create_qp(&mut self, context: QpContext) -> Result<Queue, HcaError> {
        let queue = context.kind()(NUMBER);
        let mut talk = self.0.lock().unwrap();
        let Talk { queues: Some(queues), .. } = &mut *talk else { return Err(talk.error) };
        assert_eq!(queues.insert(queue, QpState::Reset), None);
        Ok(queue)
    }
    fn modify_qp(&mut self, queue: Queue, to: QpTransition, _: &QpAttrs) -> Result<(), HcaError> {
        let state = match to {
            QpTransition::RstToInit => QpState::Init,
            QpTransition::InitToRtr => QpState::Rtr,
            _ => return self.refused(),
        };
        let mut talk = self.0.lock().unwrap();
        let queues = talk.queues.as_mut().unwrap();
        *queues.get_mut(&queue).unwrap() = state;
        Ok(())
    }
    fn query_qp(&self, queue: Queue) -> Result<(QpState, QpAttrs), HcaError> {
        let state = self.0.lock().unwrap().state(queue);
        state.map_or_else(|| self.refused(), |state| Ok((state, QpAttrs::default())))
    }
    fn destroy_qp(&mut self, queue: Queue) -> Result<(), HcaError> {
        let mut talk = self.0.lock().unwrap();
        let error = talk.error;
        talk.queues.as_mut().ok_or(error)?.remove(&queue).map(drop).ok_or(error)
    }
    fn create_srq(&mut self, _: SrqContext) -> Result<Srqn, HcaError> {
        self.refused()
    }
    fn modify_srq(&mut self, _: Srqn, _: u16) -> Result<(), HcaError> {
        self.refused()
    }
    fn query_srq(&self, _: Srqn) -> Result<u16, HcaError> {
        self.refused()
    }
    fn destroy_srq(&mut self, _: Srqn) -> Result<(), HcaError> {
        self.refused()
    }
    fn create_dct(&mut self, _: DctContext) -> Result<Qpn, HcaError> {
        self.refused()
    }
    fn abandon_dct(&mut self, _: Qpn) -> Result<(), HcaError> {
        self.refused()
    }
    fn command(&mut self, _: &[u8], output: &mut [u8]) {
        output.fill(0);
    }
    fn steering(&mut self) -> &mut dyn Steering {
        self
    }
    fn doorbell(&mut self, uar: UarNumber, offset: u32, value: u64) {
        self.0.lock().unwrap().doorbells.push((uar.0, offset, value));
    }
    fn next_event(&mut self) -> Option<HcaEvent> {
        self.0.lock().unwrap().event.take()
    }
    fn mac(&mut self, _: &[u8; 16]) -> Result<[u8; 6], HcaError> {
        self.refused()
    }
}

impl Steering for Stub {
    fn change_queue(&mut self, _: u32, _: QueueOptions) -> Result<(), Wrong> {
        WRONG
    }
    fn add_spread(&mut self, _: u32, _: Vec<u32>) -> Result<(), Wrong> {
        WRONG
    }
    fn remove_spread(&mut self, _: u32) -> Result<(), Wrong> {
        WRONG
    }
    fn add_tir(&mut self, _: u32, _: TirContext) -> Result<(), Wrong> {
        WRONG
    }
    fn remove_tir(&mut self, _: u32) -> Result<(), Wrong> {
        WRONG
    }
    fn add_sniffer(&mut self, _: u32) -> Result<(), Wrong> {
        WRONG
    }
    fn remove_sniffer(&mut self, _: u32) {}
    fn add_counter(&mut self, _: u32) -> Result<(), Wrong> {
        Ok(())
    }
    fn counter(&mut self, _: u32) -> Result<FlowCount, Wrong> {
        Ok(FlowCount::default())
    }
    fn remove_counter(&mut self, _: u32) -> Result<(), Wrong> {
        WRONG
    }
    fn add_table(&mut self, _: u32, _: TableContext) -> Result<(), Wrong> {
        WRONG
    }
    fn set_root(&mut self, _: Direction, _: Option<u32>) -> Result<(), Wrong> {
        WRONG
    }
    fn add_group(&mut self, _: u32, _: u32, _: GroupContext<'_>) -> Result<(), Wrong> {
        WRONG
    }
    fn remove_group(&mut self, _: u32, _: u32) -> Result<(), Wrong> {
        WRONG
    }
    fn add_entry(
        &mut self,
        _: u32,
        _: (u32, u32),
        _: &Param,
        _: EntryContext,
    ) -> Result<(), Wrong> {
        WRONG
    }
    fn change_entry(&mut self, _: u32, _: u32, _: Change, _: EntryContext) -> Result<(), Wrong> {
        WRONG
    }
    fn remove_entry(&mut self, _: u32, _: u32) -> Result<(), Wrong> {
        WRONG
    }
    fn attach_mcast(&mut self, _: Qpn, _: [u8; 16]) -> Result<(), HcaError> {
        self.refused()
    }
    fn detach_mcast(&mut self, _: Qpn, _: [u8; 16]) -> Result<(), HcaError> {
        self.refused()
    }
}
