//! Writes doorbells, WQEs, packets and CQEs to the process's trace, if there is one.
//!
//! `own` in each line is the device's time in nanoseconds: real, or a stepped device's virtual
//! time.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use uverbs_core::trace::{Hex, Trace};

use crate::wire::{Address, Frame};
use uverbs_front::backend::number::{Cqn, Qpn, UarNumber};

/// A device's connection to the trace, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tap {
    to: Option<(&'static Trace, Arc<str>)>,
}

impl Tap {
    pub(crate) fn new(trace: &'static Trace, device: &str) -> Self {
        Self { to: Some((trace, device.into())) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.to.is_some()
    }

    fn line(&self, now: Duration, kind: &str, fields: fmt::Arguments<'_>) {
        self.line_of(Trace::now(), now, kind, fields);
    }

    fn line_of(&self, at: u128, now: Duration, kind: &str, fields: fmt::Arguments<'_>) {
        if let Some((trace, device)) = &self.to {
            trace.line_of(at, device, kind, format_args!("own={}\t{fields}", now.as_nanos()));
        }
    }

    /// A store into a doorbell page, as the device saw it.
    pub(crate) fn doorbell(&self, now: Duration, uar: UarNumber, offset: u32, value: u64) {
        if self.is_on() {
            let uar = uar.0;
            // Inline: `format_args!` may not outlive its statement in the oldest supported
            // compiler.
            self.line(
                now,
                "doorbell",
                format_args!("uar={uar}\toffset={offset:#x}\tvalue={value:#x}"),
            );
        }
    }

    /// A fetched send WQE; `service` names its layout.
    #[inline]
    pub(crate) fn wqe(&self, now: Duration, qpn: Qpn, service: fmt::Arguments<'_>, bytes: &[u8]) {
        if self.is_on() {
            let (qpn, bytes) = (qpn.0, Hex(bytes));
            self.line(now, "wqe", format_args!("qpn={qpn:#x}\tservice={service}\tbytes={bytes}"));
        }
    }

    /// A receive WQE taken for a message; `of` is its index, and true for an SRQ.
    #[inline]
    pub(crate) fn receive(&self, now: Duration, qpn: Qpn, of: (u16, bool), bytes: &[u8]) {
        if self.is_on() {
            let (qpn, bytes, (index, shared)) = (qpn.0, Hex(bytes), of);
            self.line(
                now,
                "receive",
                format_args!("qpn={qpn:#x}\tindex={index}\tshared={shared}\tbytes={bytes}"),
            );
        }
    }

    /// A packet received from the wire.
    #[inline]
    pub(crate) fn received(&self, now: Duration, frame: &Frame) {
        if self.is_on() {
            self.packet((Trace::now(), now), "received", frame);
        }
    }

    /// Copies a packet before it is sent, and takes the time, for [`sent`](Self::sent): the
    /// receiver may act before this device writes its line.
    #[inline]
    pub(crate) fn offer(&self, frame: &Frame) -> Option<(u128, Frame)> {
        self.is_on().then(|| (Trace::now(), frame.clone()))
    }

    /// The wire took the packet.
    pub(crate) fn sent(&self, now: Duration, (at, frame): &(u128, Frame)) {
        self.packet((*at, now), "sent", frame);
    }

    fn packet(&self, (at, now): (u128, Duration), kind: &str, frame: &Frame) {
        let [from, to] = [&frame.src, &frame.dst].map(name);
        let bytes = Hex(&frame.bytes);
        self.line_of(at, now, kind, format_args!("from={from}\tto={to}\tbytes={bytes}"));
    }

    /// A CQE before its owner bit is set.
    #[inline]
    pub(crate) fn cqe(&self, now: Duration, cqn: Cqn, bytes: &[u8]) {
        if self.is_on() {
            let (cqn, bytes) = (cqn.0, Hex(bytes));
            self.line(now, "cqe", format_args!("cqn={cqn:#x}\tbytes={bytes}"));
        }
    }
}

/// Formats an address: an IP address, or a LID.
fn name(address: &Address) -> String {
    match address.lid {
        0 => Ipv6Addr::from(address.gid).to_canonical().to_string(),
        lid => format!("LID {lid}"),
    }
}
