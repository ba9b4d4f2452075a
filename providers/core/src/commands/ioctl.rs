//! Encoder of uverbs ioctl commands: a header and up to [`MAX_ATTRS`] attributes, without heap
//! allocation.
//!
//! A command is an `ib_uverbs_ioctl_hdr` of 24 bytes and then one `ib_uverbs_attr` of 16 bytes for
//! each attribute. An input of up to eight bytes is in the attribute itself. Longer inputs and all
//! outputs are named by address (kernel `drivers/infiniband/core/uverbs_ioctl.c`,
//! `uverbs_process_attr`). A [`Command`] borrows every buffer that it names, so the addresses can't
//! outlive it.
//!
//! # Safety
//!
//! Sending passes addresses to the kernel. Borrows prove that the addresses in attributes are
//! valid. Addresses *inside* a payload (`REG_MR`'s range, a provider's queue buffers) are plain
//! numbers here, so [`Command::send`] is unsafe and its caller vouches for them.
#![allow(unsafe_code, reason = "ioctl payloads may carry addresses")]

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use uverbs_kernel_abi::ioctl::{UVERBS_ATTR_F_MANDATORY, ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use uverbs_kernel_abi::objects::{UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT};
use zerocopy::transmute;

use crate::commands::answer::{Answer, MAX_ATTRS, WORDS};
use crate::doors::UverbsDoor;
use crate::doors::words::{ATTR_WORDS, HEADER_WORDS, attrs_of};
use crate::error::Error;
use crate::memory::process::Process;

/// Reason why a command can't be sent. Reported by `send`.
#[derive(Clone, Copy, Debug)]
enum Fault {
    TooManyAttrs,
    TooLong(usize),
}

/// A command being built. Its buffers stay borrowed for `'a`.
#[must_use = "a command does nothing until it is sent"]
pub struct Command<'a> {
    words: [u64; WORDS],
    attrs: usize,
    /// Bit per attribute: the kernel returns a new descriptor in it.
    new_fds: u32,
    /// Bit per attribute: the kernel returns a handle in it.
    new_handles: u32,
    fault: Option<Fault>,
    /// Process that opened the device, the only one that may send the command.
    process: Process,
    buffers: PhantomData<&'a mut [u8]>,
}

impl<'a> Command<'a> {
    /// Calls `method` (`UVERBS_METHOD_*`) of `object` (`UVERBS_OBJECT_*`) on a device of driver
    /// `driver_id`.
    #[inline]
    pub fn new(object: u16, method: u16, driver_id: u32) -> Self {
        let mut command = Self {
            words: [0; WORDS],
            attrs: 0,
            new_fds: 0,
            new_handles: 0,
            fault: None,
            process: Process::current(),
            buffers: PhantomData,
        };
        command.set_header(ib_uverbs_ioctl_hdr {
            length: size_of::<ib_uverbs_ioctl_hdr>() as u16,
            object_id: object,
            method_id: method,
            driver_id,
            ..Default::default()
        });
        command
    }

    /// Sets the process that opened the device.
    #[inline]
    pub(crate) fn of(mut self, process: Process) -> Self {
        self.process = process;
        self
    }

    #[inline]
    fn header(&self) -> ib_uverbs_ioctl_hdr {
        transmute!([self.words[0], self.words[1], self.words[2]])
    }

    #[inline]
    fn set_header(&mut self, header: ib_uverbs_ioctl_hdr) {
        let words: [u64; HEADER_WORDS] = transmute!(header);
        self.words[..HEADER_WORDS].copy_from_slice(&words);
    }

    /// Adds a mandatory attribute; libibverbs's attributes are mandatory too.
    #[inline]
    fn push(&mut self, id: u16, len: usize, data: u64) {
        let Ok(len) = u16::try_from(len) else {
            self.fault.get_or_insert(Fault::TooLong(len));
            return;
        };
        if self.attrs == MAX_ATTRS {
            self.fault.get_or_insert(Fault::TooManyAttrs);
            return;
        }
        self.set_attr(
            self.attrs,
            ib_uverbs_attr {
                attr_id: id,
                len,
                flags: UVERBS_ATTR_F_MANDATORY,
                data,
                ..Default::default()
            },
        );
        self.attrs += 1;
        let mut header = self.header();
        header.num_attrs += 1;
        header.length += size_of::<ib_uverbs_attr>() as u16;
        self.set_header(header);
    }

    /// PANIC: never; callers pass an index below `MAX_ATTRS`.
    #[inline]
    fn set_attr(&mut self, index: usize, attr: ib_uverbs_attr) {
        let words: [u64; ATTR_WORDS] = transmute!(attr);
        self.words[HEADER_WORDS + ATTR_WORDS * index..][..ATTR_WORDS].copy_from_slice(&words);
    }

    /// Adds an input: up to eight bytes in the attribute itself, longer ones by address.
    /// `UVERBS_ATTR_TYPE_PTR_IN`.
    #[inline]
    pub fn input(mut self, id: u16, bytes: &'a [u8]) -> Self {
        let data = if bytes.len() <= size_of::<u64>() {
            inline(bytes)
        } else {
            // The kernel, or a software device, reads through this number.
            bytes.as_ptr().expose_provenance() as u64
        };
        self.push(id, bytes.len(), data);
        self
    }

    /// Adds an output, always by address. `UVERBS_ATTR_TYPE_PTR_OUT`. The kernel writes at most its
    /// length.
    #[inline]
    pub fn output(mut self, id: u16, bytes: &'a mut [u8]) -> Self {
        let len = bytes.len();
        self.push(id, len, bytes.as_mut_ptr().expose_provenance() as u64);
        self
    }

    /// Adds a `u32` input.
    #[inline]
    pub fn number(mut self, id: u16, value: u32) -> Self {
        self.push(id, size_of::<u32>(), inline(&value.to_ne_bytes()));
        self
    }

    /// Adds a `u64` input; also the encoding of `UVERBS_ATTR_CONST_IN`.
    #[inline]
    pub fn constant(mut self, id: u16, value: u64) -> Self {
        self.push(id, size_of::<u64>(), value);
        self
    }

    /// Adds the handle of an existing object, encoded as 64 bits with length 0.
    #[inline]
    pub fn handle_in(mut self, id: u16, handle: u32) -> Self {
        self.push(id, 0, u64::from(handle));
        self
    }

    /// Adds an attribute for the handle of a new object; see [`Answer::handle`].
    #[inline]
    pub fn handle_new(mut self, id: u16) -> Self {
        self.new_handles |= self.next_bit();
        self.push(id, 0, 0);
        self
    }

    /// Adds a file descriptor of this device: a channel or an event file.
    pub fn fd_in(mut self, id: u16, fd: BorrowedFd<'a>) -> Self {
        self.push(id, 0, i64::from(fd.as_raw_fd()).cast_unsigned());
        self
    }

    /// Adds an attribute for a new file descriptor; see [`Answer::take_fd`].
    #[inline]
    pub fn fd_new(mut self, id: u16) -> Self {
        self.new_fds |= self.next_bit();
        self.push(id, 0, 0);
        self
    }

    /// Makes the last attribute optional: an older kernel skips it instead of refusing the command.
    ///
    /// Attributes for new objects stay mandatory: a skipped one would read as handle or descriptor
    /// 0.
    pub fn optional(mut self) -> Self {
        if let Some(last) = self.attrs.checked_sub(1)
            && (self.new_fds | self.new_handles) & (1 << last) == 0
        {
            let at = HEADER_WORDS + ATTR_WORDS * last;
            let mut attr: ib_uverbs_attr = transmute!([self.words[at], self.words[at + 1]]);
            attr.flags &= !UVERBS_ATTR_F_MANDATORY;
            self.set_attr(last, attr);
        }
        self
    }

    /// Adds the driver's input, as [`Self::input`]. Like libibverbs, adds no attribute if it is
    /// empty.
    #[inline]
    pub fn uhw_in(self, bytes: &'a [u8]) -> Self {
        if bytes.is_empty() { self } else { self.input(UVERBS_ATTR_UHW_IN, bytes) }
    }

    /// Adds the driver's output, as [`Self::output`]. Adds no attribute if it is empty.
    #[inline]
    pub fn uhw_out(self, bytes: &'a mut [u8]) -> Self {
        if bytes.is_empty() { self } else { self.output(UVERBS_ATTR_UHW_OUT, bytes) }
    }

    /// Bit of the next attribute; 0 if there is no room.
    #[inline]
    fn next_bit(&self) -> u32 {
        if self.attrs < MAX_ATTRS { 1 << self.attrs } else { 0 }
    }

    /// Words of the command as sent, to print and compare.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[..HEADER_WORDS + ATTR_WORDS * self.attrs]
    }

    /// Sends the command. Errors name `verb`.
    ///
    /// # Errors
    ///
    /// [`Error::OtherProcess`], unsent, in a forked child of the process that opened the device;
    /// [`Error::Kernel`] with the errno; [`Error::Limit`] unsent, for more than 65,535 bytes in a
    /// buffer or [`MAX_ATTRS`] attributes.
    ///
    /// # Safety
    ///
    /// If a *payload* contains an address (memory to register, queue buffers, doorbell records),
    /// that memory is valid, mapped, and not lent to safe code as ordinary memory, from now until
    /// the object that the command creates is destroyed. Borrows already prove the addresses of
    /// attributes.
    #[inline]
    pub unsafe fn send(
        mut self,
        door: &dyn UverbsDoor,
        verb: &'static str,
    ) -> Result<Answer, Error> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess { verb });
        }
        match self.fault {
            None => {}
            Some(Fault::TooManyAttrs) => {
                let (value, limit) = (MAX_ATTRS as u64 + 1, MAX_ATTRS as u64);
                return Err(Error::Limit { verb, what: "number of attributes", value, limit });
            }
            Some(Fault::TooLong(len)) => {
                let (value, limit) = (len as u64, u64::from(u16::MAX));
                return Err(Error::Limit { verb, what: "bytes of an attribute", value, limit });
            }
        }
        let words = &mut self.words[..HEADER_WORDS + ATTR_WORDS * self.attrs];
        #[cfg(feature = "adversary")]
        crate::order::adversary::system_call();
        // SAFETY: each attribute with an address was pushed by `input` or `output` from a slice
        // that is borrowed for 'a, shared or exclusively as the direction needs, and `self` holds
        // 'a until the call has returned. Memory that payloads name is covered by the contract of
        // `send`.
        unsafe { door.ioctl(words) }.map_err(|errno| Error::kernel(verb, errno))?;
        Ok(Answer {
            words: self.words,
            attrs: self.attrs,
            new_fds: self.new_fds,
            new_handles: self.new_handles,
            verb,
        })
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("header", &self.header())
            .field("attrs", &attrs_of(&self.words()[HEADER_WORDS..]).collect::<Vec<_>>())
            .finish()
    }
}

/// Up to eight bytes as in an attribute's `data`, padded with zeros.
fn inline(bytes: &[u8]) -> u64 {
    let mut data = [0; 8];
    for (to, from) in data.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_ne_bytes(data)
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write};
    use std::os::fd::{AsFd, IntoRawFd};
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;
    use crate::Errno;
    use crate::doors::words::parse;

    const DRIVER: u32 = 0x0102_0304;

    /// Faked outputs: attribute id and number.
    #[derive(Debug, Default)]
    struct Fake {
        answers: Vec<(u16, u64)>,
        sent: Mutex<Vec<Vec<u64>>>,
    }

    // SAFETY: no device is behind it, and nothing is handed out.
    unsafe impl UverbsDoor for Fake {
        unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
            self.sent.lock().unwrap().push(command.to_vec());
            let (_, attrs) = parse(command).ok_or(Errno::EINVAL)?;
            for (at, attr) in attrs.collect::<Vec<_>>().into_iter().enumerate() {
                if let Some((_, data)) = self.answers.iter().find(|(id, _)| *id == attr.attr_id) {
                    command[HEADER_WORDS + ATTR_WORDS * at + 1] = *data;
                }
            }
            Ok(())
        }

        fn mmap(&self, _: usize, _: u64) -> Result<crate::memory::pages::Pages, Errno> {
            Err(Errno::ENODEV)
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn send(command: Command<'_>, door: &Fake) -> Result<Answer, Error> {
        // SAFETY: the payloads are plain numbers, and the fake follows no address.
        unsafe { command.send(door, "test") }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_command_on_the_wire() {
        let (long, mut out) = ([0xaa; 9], [0; 4]);
        let stdin = std::io::stdin();
        let command = Command::new(0x1008, 0x1000, DRIVER)
            .handle_new(0x1000)
            .input(0x10, &[1, 2, 3, 4, 5])
            .input(0x11, &long)
            .output(0x12, &mut out)
            .number(0x13, 0xdead_beef)
            .constant(0x14, 0x0807_0605_0403_0201)
            .handle_in(0x15, 0xffff_fffe)
            .fd_in(0x16, stdin.as_fd())
            .optional();
        let mut seen = bytes(command.words());
        let addresses: Vec<_> = [3, 4].map(|attr| 24 + 16 * attr - 8).into();
        for (&at, address) in addresses.iter().zip([long.as_ptr() as usize, out.as_ptr() as usize])
        {
            assert_eq!(seen[at..at + 8], address.to_ne_bytes());
            seen[at..at + 8].fill(0xee);
        }
        let addr = [0xee; 8];
        #[rustfmt::skip]
        let want = [
            // length 152, object_id, method_id, num_attrs
            &[0x98, 0][..], &[8, 0x10], &[0, 0x10], &[8, 0],
            &[0; 8],                                         // reserved1
            &[4, 3, 2, 1], &[0; 4],                          // driver_id, reserved2
            // attr_id, len, flags MANDATORY, attr_data; data
            &[0, 0x10, 0, 0, 1, 0, 0, 0], &[0; 8],                     // new handle
            &[0x10, 0, 5, 0, 1, 0, 0, 0], &[1, 2, 3, 4, 5, 0, 0, 0],   // inline
            &[0x11, 0, 9, 0, 1, 0, 0, 0], &addr,                       // by address
            &[0x12, 0, 4, 0, 1, 0, 0, 0], &addr,                       // short output by address
            &[0x13, 0, 4, 0, 1, 0, 0, 0], &[0xef, 0xbe, 0xad, 0xde, 0, 0, 0, 0],
            &[0x14, 0, 8, 0, 1, 0, 0, 0], &[1, 2, 3, 4, 5, 6, 7, 8],
            &[0x15, 0, 0, 0, 1, 0, 0, 0], &[0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0],
            &[0x16, 0, 0, 0, 0, 0, 0, 0], &[0; 8],                     // descriptor 0, optional
        ].concat();
        assert_eq!(seen, want);
    }

    #[test]
    fn eight_bytes_are_the_most_that_is_inline() {
        let (eight, nine) = ([7; 8], [7; 9]);
        let command = Command::new(0, 0, 0).input(0, &eight).input(1, &nine);
        assert_eq!(command.words()[4], u64::from_ne_bytes(eight));
        assert_eq!(command.words()[6], nine.as_ptr() as u64);
    }

    #[test]
    fn what_can_not_be_encoded_is_not_sent() {
        let door = Fake::default();
        let mut command = Command::new(0, 0, 0);
        for id in 0..=MAX_ATTRS as u16 {
            command = command.constant(id, 0);
        }
        assert!(matches!(
            send(command, &door),
            Err(Error::Limit { what: "number of attributes", value: 25, limit: 24, .. })
        ));
        let long = vec![0; 1 << 16];
        let command = Command::new(0, 0, 0).input(0, &long);
        assert!(matches!(send(command, &door), Err(Error::Limit { limit: 65_535, .. })));
        let command = Command::new(0, 0, 0).input(0, &long[1..]);
        assert!(send(command, &door).is_ok());
        assert_eq!(door.sent.lock().unwrap().len(), 1);
    }

    #[test]
    fn only_places_for_handles_give_handles() {
        let door = Fake { answers: vec![(5, 0xabc), (6, 1)], ..Fake::default() };
        let command = Command::new(0, 0, 0).handle_new(5).constant(6, 0).handle_in(7, 9);
        let answer = send(command, &door).unwrap();
        assert_eq!(answer.handle(5).unwrap(), 0xabc);
        for id in [6, 7, 8] {
            assert!(matches!(answer.handle(id), Err(Error::Unsupported { .. })), "{id}");
        }
        assert!(!answer.is_written(6));
    }

    #[test]
    fn a_place_for_a_new_object_stays_mandatory() {
        for command in [Command::new(0, 0, 0).handle_new(1), Command::new(0, 0, 0).fd_new(1)] {
            let command = command.optional();
            let (_, mut attrs) = parse(command.words()).unwrap();
            assert_eq!(attrs.next().unwrap().flags, UVERBS_ATTR_F_MANDATORY);
        }
        // No effect on a command without attributes.
        assert_eq!(Command::new(0, 0, 0).optional().words().len(), HEADER_WORDS);
    }

    fn is_open(mut writer: &PipeWriter) -> bool {
        writer.write_all(&[0]).is_ok()
    }

    #[test]
    fn a_descriptor_is_taken_once_or_closed() {
        let (reader, writer) = std::io::pipe().unwrap();
        let door = Fake { answers: vec![(3, reader.into_raw_fd() as u64)], ..Fake::default() };
        let mut answer = send(Command::new(0, 0, 0).fd_new(3), &door).unwrap();
        let fd = answer.take_fd(3).unwrap();
        assert!(matches!(answer.take_fd(3), Err(Error::Unsupported { .. })));
        drop(answer);
        assert!(is_open(&writer));
        drop(fd);
        assert!(!is_open(&writer));

        let (reader, writer) = std::io::pipe().unwrap();
        let door = Fake { answers: vec![(3, reader.into_raw_fd() as u64)], ..Fake::default() };
        drop(send(Command::new(0, 0, 0).fd_new(3), &door).unwrap());
        assert!(!is_open(&writer));
    }

    #[test]
    fn what_is_no_descriptor_is_refused() {
        for data in [u64::MAX, 1 << 31, 1 << 40] {
            let door = Fake { answers: vec![(3, data)], ..Fake::default() };
            let mut answer = send(Command::new(0, 0, 0).fd_new(3), &door).unwrap();
            assert_eq!(answer.take_fd(3).unwrap_err().errno(), Some(Errno::EBADF));
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_parsed(
            object: u16, method: u16, driver: u32,
            inputs in proptest::collection::vec(
                (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..32)), 0..=MAX_ATTRS,
            ),
        ) {
            let mut command = Command::new(object, method, driver);
            for (id, payload) in &inputs {
                command = command.input(*id, payload);
            }
            let (header, attrs) = parse(command.words()).unwrap();
            let target = (header.object_id, header.method_id, header.driver_id);
            prop_assert_eq!(target, (object, method, driver));
            prop_assert_eq!(attrs.len(), inputs.len());
            for (attr, (id, payload)) in attrs.zip(&inputs) {
                prop_assert_eq!((attr.attr_id, usize::from(attr.len)), (*id, payload.len()));
                if payload.len() <= 8 {
                    let data = attr.data.to_ne_bytes();
                    let (sent, padding) = data.split_at(payload.len());
                    prop_assert_eq!(sent, &payload[..]);
                    prop_assert!(padding.iter().all(|&byte| byte == 0));
                } else {
                    prop_assert_eq!(attr.data, payload.as_ptr() as u64);
                }
            }
        }

        #[test]
        fn any_words_are_parsed_or_refused(
            mut words in proptest::collection::vec(any::<u64>(), 0..12),
            attrs in 0u16..8,
            lie: bool,
        ) {
            if let Some(first) = words.first_mut() {
                let header = ib_uverbs_ioctl_hdr {
                    length: 24 + 16 * attrs + u16::from(lie), num_attrs: attrs, ..Default::default()
                };
                let head: [u64; HEADER_WORDS] = transmute!(header);
                *first = head[0];
            }
            let fits = words.len() >= HEADER_WORDS + ATTR_WORDS * usize::from(attrs);
            let parsed = parse(&words).map(|(_, attrs)| attrs.count());
            prop_assert_eq!(parsed, (fits && !lie).then_some(usize::from(attrs)));
        }
    }
}
