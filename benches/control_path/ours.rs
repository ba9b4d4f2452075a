//! Our half: each step a number of times.
//!
//! # Safety
//!
//! The registered area is leaked, no work is posted, and the area is never read.
#![allow(unsafe_code, reason = "a registration by address, as in C")]

use uverbs::{
    AccessFlags, CompletionQueue, Context, Device, Error, Local, LocalPort, MemoryRegion,
    ProtectionDomain, QueuePair,
};

use crate::Step;

const PAGE: usize = 4096;

/// Objects that the steps make and take down.
#[derive(Debug)]
pub(crate) struct Ours {
    device: Option<Device>,
    area: *mut u8,
    context: Option<Context>,
    port: Option<LocalPort>,
    pds: Vec<ProtectionDomain>,
    regions: Vec<MemoryRegion>,
    cqs: Vec<CompletionQueue>,
    qps: Vec<QueuePair>,
}

impl Ours {
    /// On this device, or on the machine's first, which is looked for each time, as C does it.
    pub(crate) fn new(device: Option<Device>, most: usize) -> Self {
        let area = Box::leak(vec![1u8; (most + 1) * PAGE].into_boxed_slice()).as_mut_ptr();
        Self {
            device,
            area: area.wrapping_add(area.align_offset(PAGE)),
            context: None,
            port: None,
            pds: Vec::with_capacity(most),
            regions: Vec::with_capacity(most),
            cqs: Vec::with_capacity(most),
            qps: Vec::with_capacity(most),
        }
    }

    /// Carries out one step `count` times.
    pub(crate) fn step(&mut self, step: Step, count: usize) -> Result<(), Error> {
        let missing = || Error::NoSuchDevice { name: "any".to_owned(), available: Vec::new() };
        if step == Step::Open {
            let device = match &self.device {
                Some(device) => device.clone(),
                None => uverbs::devices()?.into_iter().next().ok_or_else(missing)?,
            };
            self.context = Some(device.open()?);
            return Ok(());
        }
        let context = self.context.as_ref().ok_or_else(missing)?;
        match step {
            Step::Open => {}
            Step::AllocPd => {
                for _ in 0..count {
                    self.pds.push(context.alloc_pd()?);
                }
            }
            Step::RegMr => {
                let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
                for at in 0..count {
                    let page = self.area.wrapping_add(at * PAGE);
                    // SAFETY: the area is leaked.
                    self.regions.push(unsafe { self.pds[0].register(page, PAGE, rights) }?);
                }
            }
            Step::CreateCq => {
                for _ in 0..count {
                    self.cqs.push(context.create_cq(255)?);
                }
            }
            Step::CreateQp => {
                for cq in &self.cqs[..count] {
                    let qp = context.queue_pair(&self.pds[0], cq).max_send_wr(128).max_recv_wr(128);
                    self.qps.push(qp.max_inline_data(64).overcommit().build()?);
                }
            }
            Step::ConnectQp => {
                // C is told the index, too.
                let local = Local { gid_index: Some(3), ..Local::default() };
                let port = self.port.insert(context.local_port(&local)?);
                for qp in &mut self.qps {
                    qp.prepare_on(port)?;
                    qp.connect_to_self()?;
                }
            }
            Step::DestroyQp => {
                self.port = None;
                for qp in self.qps.drain(..) {
                    drop(qp.destroy()?);
                }
            }
            Step::DestroyCq => self.cqs.clear(),
            Step::DeregMr => {
                for region in self.regions.drain(..) {
                    region.deregister()?;
                }
            }
            Step::DeallocPd => self.pds.clear(),
            Step::Close => self.context = None,
        }
        Ok(())
    }
}
