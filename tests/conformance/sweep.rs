//! Spoils every attribute of every method in every way whose outcome the ioctl's rules define.
//!
//! The rules are in `uverbs_set_attr`, `uverbs_process_attr` and `ib_uverbs_run_method`
//! (`drivers/infiniband/core/uverbs_ioctl.c`) and in `rdma_lookup_get_uobject`
//! (`core/rdma_core.c`). If a handler checks an attribute itself, or ignores it, the method's
//! `exceptions` name it.

use std::cell::Cell;
use std::rc::Rc;

use nix::errno::Errno;
use uverbs_kernel_abi::ioctl::ib_uverbs_attr;
use uverbs_kernel_abi::objects::{UVERBS_OBJECT_AH, UVERBS_OBJECT_PD};

use crate::calls::calls;
use crate::case::{Case, World};
use crate::cmd::{Cmd, send_words, written};
use crate::memory;
use crate::rig::Rig;
use crate::target::Target;
use crate::want::{
    Driver, EBADF, EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT, Outcome, Version, Want,
};

/// Kind of an attribute, as the method declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `UVERBS_ATTR_PTR_IN` of a type: just so long.
    In,
    /// `UVERBS_ATTR_PTR_IN` of `UVERBS_ATTR_STRUCT`: may be longer if the rest is zero.
    InGrows,
    /// `UVERBS_ATTR_PTR_IN` of `UVERBS_ATTR_MIN_SIZE`; the length is the handler's business above
    /// the given one.
    InFrom(u16),
    /// `UVERBS_ATTR_CONST_IN`.
    Const,
    /// `UVERBS_ATTR_FLAGS_IN`.
    Flags,
    /// `UVERBS_ATTR_PTR_OUT` of a type.
    Out,
    /// `UVERBS_ATTR_PTR_OUT` of `UVERBS_ATTR_STRUCT`.
    OutGrows,
    /// `UVERBS_ATTR_PTR_OUT` of `UVERBS_ATTR_MIN_SIZE`.
    OutFrom(u16),
    /// `UVERBS_ATTR_IDR` with `UVERBS_ACCESS_NEW`.
    New,
    /// `UVERBS_ATTR_IDR` of an object that must exist.
    Idr,
    /// `UVERBS_ATTR_FD` with `UVERBS_ACCESS_NEW`.
    NewFd,
    /// `UVERBS_ATTR_FD` of a file that must exist.
    Fd,
}

/// One attribute of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub(crate) id: u16,
    pub(crate) kind: Kind,
    /// Outcome of the command without the attribute.
    pub(crate) absent: Want,
}

/// A command that works, and what is known of its attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// File and function of the kernel that answers it.
    pub(crate) source: &'static str,
    pub(crate) make: fn(&Rig) -> Cmd,
    /// True if the file already has a context.
    pub(crate) context: bool,
    /// Since which kernel rxe has the method, if ever.
    pub(crate) on_rxe: Option<Version>,
    pub(crate) attrs: &'static [Attr],
    /// Outcome on success: ids of the attributes marked as written.
    pub(crate) marks: Want,
    /// Attribute, spoiling, outcome, and why it isn't what the rules say.
    pub(crate) exceptions: &'static [(u16, &'static str, Want, &'static str)],
}

/// One way to spoil an attribute.
pub(crate) struct Spoiling {
    pub(crate) name: &'static str,
    want: Want,
    pub(crate) change: fn(&Rig, &mut Cmd, usize),
}

const fn spoil(name: &'static str, want: Want, change: fn(&Rig, &mut Cmd, usize)) -> Spoiling {
    Spoiling { name, want, change }
}

fn shorten(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len -= 1;
}

fn lengthen(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len += 1;
}

fn empty(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len = 0;
}

fn twice(_: &Rig, cmd: &mut Cmd, at: usize) {
    let attr = cmd.attrs[at];
    cmd.attrs.push(attr);
}

fn reserved_low(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].attr_data = [1, 0];
}

fn reserved_high(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].attr_data = [0, 1];
}

fn null(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = 0;
}

fn hole(rig: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = rig.memory.hole();
}

fn kernel_space(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = 0xffff_8000_0000_0000;
}

fn into_the_hole(rig: &Rig, cmd: &mut Cmd, at: usize) {
    let (base, len) = rig.memory.range();
    // Ends a byte behind the last one that can be written.
    cmd.attrs[at].data = base + len - u64::from(cmd.attrs[at].len) + 1;
}

fn read_only(rig: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = rig.memory.read_only();
}

/// Continues an input by eight bytes, the last of which is `tail`.
fn grow_input(rig: &Rig, attr: &mut ib_uverbs_attr, tail: u8) {
    let len = usize::from(attr.len);
    let mut bytes = match attr.len {
        0..=8 => attr.data.to_ne_bytes()[..len].to_vec(),
        _ => rig.memory.read(attr.data, len),
    };
    bytes.extend([0, 0, 0, 0, 0, 0, 0, tail]);
    attr.data = rig.memory.put(&bytes);
    attr.len += 8;
}

fn grow_zero(rig: &Rig, cmd: &mut Cmd, at: usize) {
    grow_input(rig, &mut cmd.attrs[at], 0);
}

fn grow_nonzero(rig: &Rig, cmd: &mut Cmd, at: usize) {
    grow_input(rig, &mut cmd.attrs[at], 1);
}

fn grow_unreadable(rig: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = rig.memory.hole();
    cmd.attrs[at].len += 8;
}

fn grow_output(rig: &Rig, cmd: &mut Cmd, at: usize) {
    let len = cmd.attrs[at].len + 8;
    cmd.attrs[at].data = rig.memory.room(len.into());
    cmd.attrs[at].len = len;
}

fn length_4(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len = 4;
}

fn length_6(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len = 6;
}

fn length_8(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len = 8;
}

fn length_9(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len = 9;
}

fn value_max(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = u64::MAX;
}

fn all_flags(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].len = 8;
    cmd.attrs[at].data = u64::MAX;
}

fn handle_max(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = u64::from(u32::MAX);
}

fn handle_wide(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data |= 1 << 32;
}

fn another_type(rig: &Rig, cmd: &mut Cmd, at: usize) {
    // An address handle, which no command takes but its own destruction; that gets a PD.
    let handle = match cmd.header.object_id {
        UVERBS_OBJECT_AH => rig.pd(),
        _ => rig.ah(),
    };
    cmd.attrs[at].data = handle.into();
}

fn destroyed(rig: &Rig, cmd: &mut Cmd, at: usize) {
    // The kernel gives out the lowest free handle: the command's new object may get the first PD's.
    let pds = [rig.new_pd(), rig.new_pd()].map(|pd| pd.expect("a PD"));
    for pd in pds {
        rig.send(&rig.destroy(UVERBS_OBJECT_PD, pd)).expect("to destroy the PD");
    }
    cmd.attrs[at].data = pds[1].into();
}

fn standard_input(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].data = 0;
}

fn closed_fd(rig: &Rig, cmd: &mut Cmd, at: usize) {
    let fd = rig.new_channel().expect("a channel");
    rig.close_fd(fd);
    cmd.attrs[at].data = fd as u64;
}

fn other_fd(rig: &Rig, cmd: &mut Cmd, at: usize) {
    // The file of the other kind.
    let is_events = cmd.attrs[at].data == rig.events() as u64;
    cmd.attrs[at].data = if is_events { rig.channel() } else { rig.events() } as u64;
}

fn optional(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].flags = 0;
}

fn strange_flags(_: &Rig, cmd: &mut Cmd, at: usize) {
    cmd.attrs[at].flags |= 0xfffc;
}

/// The spoilings of a kind, and what the rules say comes of them.
pub(crate) fn spoilings(kind: Kind, len: u16) -> Vec<Spoiling> {
    let mut all = vec![
        spoil("twice", EINVAL, twice),
        spoil("reserved byte", EINVAL, reserved_low),
        spoil("other reserved byte", EINVAL, reserved_high),
        spoil("not mandatory", Want::Ok, optional),
        spoil("unknown flags", Want::Ok, strange_flags),
    ];
    let pointers = [
        spoil("null", EFAULT, null),
        spoil("unmapped", EFAULT, hole),
        spoil("kernel address", EFAULT, kernel_space),
    ];
    match kind {
        Kind::In => {
            all.extend([
                spoil("short", EINVAL, shorten),
                spoil("long", EINVAL, lengthen),
                spoil("empty", EINVAL, empty),
            ]);
            if len > 8 {
                all.extend(pointers);
            }
        }
        Kind::InGrows => {
            all.extend([
                spoil("short", EINVAL, shorten),
                spoil("empty", EINVAL, empty),
                spoil("grown by zeros", Want::Ok, grow_zero),
                spoil("grown", EOPNOTSUPP, grow_nonzero),
                spoil("grown, unreadable", EOPNOTSUPP, grow_unreadable),
            ]);
            all.extend(pointers);
        }
        Kind::InFrom(min) => {
            if min > 0 {
                all.push(spoil("empty", EINVAL, empty));
            }
            if len > 8 {
                all.extend(pointers);
            }
        }
        Kind::Const => all.extend([
            spoil("empty", EINVAL, empty),
            spoil("4 bytes", EINVAL, length_4),
            spoil("9 bytes", EINVAL, length_9),
            spoil("over the limit", EINVAL, value_max),
        ]),
        Kind::Flags => all.extend([
            spoil("empty", EINVAL, empty),
            spoil("6 bytes", EINVAL, length_6),
            spoil("8 bytes", Want::Ok, length_8),
            spoil("9 bytes", EINVAL, length_9),
            spoil("unknown bits", EINVAL, all_flags),
        ]),
        Kind::Out => {
            all.extend([
                spoil("short", EINVAL, shorten),
                spoil("long", EINVAL, lengthen),
                spoil("empty", EINVAL, empty),
                spoil("read-only", EFAULT, read_only),
                spoil("crosses into read-only", EFAULT, into_the_hole),
            ]);
            all.extend(pointers);
        }
        Kind::OutGrows => {
            all.extend([
                spoil("short", EINVAL, shorten),
                spoil("empty", EINVAL, empty),
                spoil("grown", Want::Ok, grow_output),
                spoil("read-only", EFAULT, read_only),
                spoil("crosses into read-only", EFAULT, into_the_hole),
            ]);
            all.extend(pointers);
        }
        Kind::OutFrom(min) => {
            if min > 0 {
                all.push(spoil("empty", EINVAL, empty));
            }
            all.extend([
                spoil("grown", Want::Ok, grow_output),
                spoil("read-only", EFAULT, read_only),
                spoil("crosses into read-only", EFAULT, into_the_hole),
            ]);
            all.extend(pointers);
        }
        Kind::New | Kind::NewFd => all.extend([
            spoil("with a length", EINVAL, length_4),
            spoil("with a value", Want::Ok, value_max),
        ]),
        Kind::Idr => all.extend([
            spoil("with a length", EINVAL, length_4),
            spoil("handle 0xffffffff", ENOENT, handle_max),
            spoil("negative", EINVAL, value_max),
            spoil("over 32 bits", ENOENT, handle_wide),
            spoil("another type", EINVAL, another_type),
            spoil("destroyed", ENOENT, destroyed),
        ]),
        Kind::Fd => all.extend([
            spoil("with a length", EINVAL, length_4),
            spoil("descriptor -1", EBADF, value_max),
            spoil("over 32 bits", EINVAL, handle_wide),
            spoil("standard input", EBADF, standard_input),
            spoil("closed", EBADF, closed_fd),
            spoil("another kind of file", EBADF, other_fd),
        ]),
    }
    all
}

/// The open file of the previous case. A refused command changes nothing, so the next case of the
/// call uses the file again: opening a device of Linux's mlx5_ib takes some twenty of its commands.
type Spare = Rc<Cell<Option<Rig>>>;

impl Call {
    fn rig(&self, target: &Target, spare: &Spare) -> Result<Rig, Errno> {
        match (spare.take(), self.context) {
            (Some(rig), _) => Ok(rig),
            (None, true) => Rig::new(target),
            (None, false) => Rig::bare(target),
        }
    }

    /// True if a refused command may have had an effect: a DESTROY may fail after the object is
    /// gone.
    fn leaves_traces(&self) -> bool {
        !self.context || self.name.contains("DESTROY")
    }

    fn expected(&self, id: u16, spoiling: &str, rule: Want) -> (Want, &'static str) {
        let mut exceptions = self.exceptions.iter();
        let found = exceptions.find(|(attr, name, ..)| *attr == id && *name == spoiling);
        found.map_or((rule, self.source), |(_, _, want, why)| (*want, why))
    }

    fn case(
        &'static self,
        spare: &Spare,
        name: String,
        (want, source): (Want, &'static str),
        run: impl Fn(&Rig, Cmd) -> Outcome + 'static,
    ) -> Case {
        let spare = Rc::clone(spare);
        let case = Case::new(self.name, name, source, want, move |target| {
            let rig = self.rig(target, &spare)?;
            let cmd = (self.make)(&rig);
            let outcome = run(&rig, cmd);
            if outcome.is_err() && !self.leaves_traces() && rig.memory.left() > memory::LEN / 2 {
                spare.set(Some(rig));
            }
            outcome
        });
        match self.on_rxe {
            Some(since) => case.from(Driver::Rxe, since, "rxe had no such command yet"),
            None => case.only(World::Mlx5, "a method of mlx5's own"),
        }
    }

    /// Sends a spoilt command; if it is refused, nothing of it may stay.
    fn send(&self, rig: &Rig, cmd: &Cmd) -> Outcome {
        let before = (!self.leaves_traces()).then(|| next_handle(rig));
        let outcome = rig.run(cmd);
        if outcome.is_err() && before.is_some_and(|before| before != next_handle(rig)) {
            return Ok("refused, but something was left behind".to_owned());
        }
        outcome
    }
}

/// The lowest free handle.
fn next_handle(rig: &Rig) -> u32 {
    let pd = rig.new_pd().expect("a PD");
    rig.send(&rig.destroy(UVERBS_OBJECT_PD, pd)).expect("to destroy the PD");
    pd
}

/// All cases of all methods.
pub(crate) fn cases() -> Vec<Case> {
    calls().flat_map(of).collect()
}

fn of(call: &'static Call) -> Vec<Case> {
    let spare = Spare::default();
    let mut cases =
        vec![call.case(&spare, "good".to_owned(), (call.marks, call.source), |rig, cmd| {
            let ids = written(&rig.send(&cmd)?);
            Ok(format!("wrote {ids:x?}"))
        })];
    cases.extend(headers(call, &spare));
    for attr in call.attrs {
        let id = attr.id;
        let absent = call.expected(id, "absent", attr.absent);
        cases.push(call.case(&spare, format!("{id:#x} absent"), absent, move |rig, cmd| {
            call.send(rig, &cmd.without(id))
        }));
        // Lengths matter to the choice of spoilings only in that short inputs travel in the
        // attribute itself.
        for long in [false, true] {
            for spoiling in spoilings(attr.kind, if long { 9 } else { 8 }) {
                let Spoiling { name, want, change } = spoiling;
                let pointer_only = spoilings(attr.kind, 8).iter().all(|other| other.name != name);
                if long != pointer_only {
                    continue;
                }
                let expected = call.expected(id, name, want);
                let name = format!("{id:#x} {name}");
                cases.push(call.case(&spare, name, expected, move |rig, mut cmd| {
                    let at = cmd.attrs.iter().position(|attr| attr.attr_id == id);
                    let at = at.expect("the attribute");
                    if long && cmd.attrs[at].len <= 8 {
                        // In the attribute itself: there is no pointer to spoil.
                        return want.of(rig.target.facts).outcome();
                    }
                    change(rig, &mut cmd, at);
                    call.send(rig, &cmd)
                }));
            }
        }
    }
    cases
}

/// Cases with a wrong header, or with attributes that the method does not know.
fn headers(call: &'static Call, spare: &Spare) -> Vec<Case> {
    let source = "uverbs_ioctl.c:ib_uverbs_ioctl, ib_uverbs_cmd_verbs";
    let spoilt = |name: &str, want, change: fn(&mut Cmd)| {
        call.case(spare, name.to_owned(), (want, source), move |rig, mut cmd| {
            change(&mut cmd);
            call.send(rig, &cmd)
        })
    };
    let raw = |name: &str, want, change: fn(&mut Vec<u64>)| {
        call.case(spare, name.to_owned(), (want, source), move |rig, cmd| {
            let mut words = cmd.words();
            // The kernel reads as much as the header says, so that it must be there.
            words.resize(1 << 14, 0);
            change(&mut words);
            send_words(rig.door(), &mut words).map(|()| String::new())
        })
    };
    vec![
        spoilt("reserved word", EPROTONOSUPPORT, |cmd| cmd.header.reserved1 = 1),
        spoilt("other reserved word", EPROTONOSUPPORT, |cmd| cmd.header.reserved2 = 1),
        spoilt("driver 0", EINVAL, |cmd| cmd.header.driver_id = 0),
        spoilt("another driver", EINVAL, |cmd| cmd.header.driver_id = 5),
        spoilt("unknown object", EPROTONOSUPPORT, |cmd| cmd.header.object_id = 0xfff),
        spoilt("unknown object of the driver", EPROTONOSUPPORT, |cmd| {
            cmd.header.object_id = 0x1fff
        }),
        spoilt("unknown object of another name space", EPROTONOSUPPORT, |cmd| {
            cmd.header.object_id |= 0x2000;
        }),
        spoilt("unknown method", EPROTONOSUPPORT, |cmd| cmd.header.method_id = 0x1f),
        spoilt("unknown method of the driver", EPROTONOSUPPORT, |cmd| {
            cmd.header.method_id = 0x101f
        }),
        spoilt("method over six bits", EPROTONOSUPPORT, |cmd| cmd.header.method_id = 0x1ff),
        spoilt("unknown attribute", EPROTONOSUPPORT, |cmd| {
            *cmd = std::mem::take(cmd).attr(0x3f, 0, 0);
        }),
        spoilt("unknown attribute of the driver", EPROTONOSUPPORT, |cmd| {
            *cmd = std::mem::take(cmd).attr(0x103f, 0, 0);
        }),
        spoilt("unknown attribute of another name space", EPROTONOSUPPORT, |cmd| {
            *cmd = std::mem::take(cmd).attr(0x2000, 0, 0);
        }),
        spoilt("unknown attribute, optional", Want::Ok, |cmd| {
            *cmd = std::mem::take(cmd).attr(0x3f, 17, 0xdead).edit(0x3f, |attr| attr.flags = 0);
        }),
        spoilt("unknown attribute twice, optional", Want::Ok, |cmd| {
            for _ in 0..2 {
                let unknown = ib_uverbs_attr { attr_id: 0x3f, ..Default::default() };
                cmd.attrs.push(unknown);
            }
        }),
        raw("length one too long", EINVAL, |words| words[0] += 1),
        raw("length one too short", EINVAL, |words| words[0] -= 1),
        raw("length an attribute too long", EINVAL, |words| words[0] += 16),
        raw("length an attribute too short", EINVAL, |words| words[0] -= 16),
        raw("length 0", EINVAL, |words| words[0] &= !0xffff),
        raw("length of the header", EINVAL, |words| words[0] = words[0] & !0xffff | 24),
        raw("length 0xffff", EINVAL, |words| words[0] |= 0xffff),
        raw("an attribute more", EINVAL, |words| words[0] += 1 << 48),
        raw("an attribute less", EINVAL, |words| words[0] -= 1 << 48),
        raw("more attributes than a page holds", EINVAL, |words| {
            words[0] = words[0] & 0xffff_ffff_0000 | (24 + 16 * 255) | 255 << 48;
        }),
    ]
}
