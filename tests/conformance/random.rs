//! Seeded programs of random calls: good ones of every method, spoilt in ways whose outcome the
//! uverbs core decides.
//!
//! On a real kernel each program runs twice in this process, side by side: on the kernel's device
//! and on softhca. Every step must have the same outcome on both, down to the handles that are
//! given out and the attributes that are marked as written; of mlx5_ib the driver's own parts are
//! spoilt as well. Without a real device softhca runs alone: it must neither panic nor hang nor
//! keep anything.

use uverbs_kernel_abi::ioctl::ib_uverbs_attr;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT,
    UVERBS_METHOD_QUERY_GID_TABLE, UVERBS_OBJECT_DEVICE,
};

use crate::calls::calls;
use crate::cmd::{Cmd, written};
use crate::rig::Rig;
use crate::sweep::{Call, Kind, spoilings};
use crate::target::Target;
use crate::want::Driver;

/// Steps of a program. Each takes some client memory, which is given back with the file.
const STEPS: usize = 40;

/// splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn chance(&mut self, in_a_hundred: usize) -> bool {
        self.below(100) < in_a_hundred
    }
}

/// Fields of a write command's request that the core decides on: offset, bytes, values worth
/// trying.
fn fields(name: &str) -> &'static [(usize, usize, &'static [u64])] {
    // Handle 0 is a different object on the two sides (mlx5 has a doorbell page there), so that
    // none names it.
    const HANDLES: &[u64] = &[1, 2, 3, 4, 5, 6, 7, 12, 999, 0xffff_ffff];
    match name {
        "REG_MR" => &[
            (16, 8, &[0, 1, 4096, 8191, 1 << 45, u64::MAX]),
            (32, 4, HANDLES),
            (36, 4, &[0, 1, 2, 4, 8, 0xf, 1 << 10, 1 << 19, 1 << 30, 1 << 31]),
        ],
        "REREG_MR" => &[
            (8, 4, HANDLES),
            (12, 4, &[0, 2, 4, 6, 8, 12]),
            (40, 4, HANDLES),
            (44, 4, &[0, 1, 2, 0xf, 1 << 10, 1 << 31]),
        ],
        "ALLOC_MW" => &[(8, 4, HANDLES), (12, 1, &[0, 1, 2, 3, 255])],
        "CREATE_AH" => &[(16, 4, HANDLES), (24 + 29, 1, &[0, 1]), (24 + 30, 1, &[0, 1, 2, 255])],
        "QUERY_QP" => &[(8, 4, HANDLES), (12, 4, &[0, 1, 0xffff_ffff])],
        "MODIFY_QP" | "MODIFY_QP_EX" => &[
            (64, 4, HANDLES),
            // State and what else INIT needs, something short of it, and something over it.
            (68, 4, &[0x39, 0x31, 0x19, 0x29, 0x79, 0x3b, 1 << 21 | 0x39, 1 << 31 | 0x39, 1]),
            (96, 1, &[0, 1, 6, 7, 255]),
            (104, 1, &[0, 1, 2, 255]),
        ],
        "OPEN_XRCD" => &[(8, 4, &[999, 0xffff_fffe]), (12, 4, &[0, 0x40, 0x80, 0xc0])],
        // A number of a queue pair is each device's own.
        "OPEN_QP" => &[(16, 4, HANDLES), (20, 4, &[0, 0xff_fff0]), (24, 1, &[0, 2, 9, 10, 255])],
        _ => &[],
    }
}

/// One step, chosen by the dice. Both sides get the same step, with addresses of their memory.
fn step(
    rig: &Rig,
    dice: &mut Dice,
    calls: &[&'static Call],
    all: bool,
) -> (String, &'static Call, Cmd) {
    let call = dice.pick(calls);
    let mut cmd = (call.make)(rig);
    let mut text = call.name.to_owned();
    // The driver's use of its output buffer depends on the kernel's version, which softhca does not
    // model.
    let driver = |id: u16| match id {
        UVERBS_ATTR_UHW_IN => !all,
        UVERBS_ATTR_UHW_OUT => true,
        _ => false,
    };
    let mut note = |what: String| {
        text.push_str(", ");
        text.push_str(&what);
    };
    // Each attribute is spoilt once at most: spoilings take it to be good.
    let mut touched = Vec::new();
    let times = dice.pick(&[0, 1, 1, 1, 2, 3]);
    for _ in 0..times {
        match dice.below(8) {
            // A spoiling of the sweep.
            0..=2 => {
                let attr = dice.pick(call.attrs);
                let at = cmd.attrs.iter().position(|one| one.attr_id == attr.id);
                let Some(at) = at.filter(|_| !touched.contains(&attr.id)) else { continue };
                let options = spoilings(attr.kind, cmd.attrs[at].len);
                let option = &options[dice.below(options.len())];
                touched.push(attr.id);
                note(format!("{:#x} {}", attr.id, option.name));
                (option.change)(rig, &mut cmd, at);
            }
            // A field of the request.
            3 | 4 => {
                let fields = fields(call.name);
                let Some(request) = cmd.find(UVERBS_ATTR_CORE_IN) else { continue };
                if fields.is_empty() {
                    continue;
                }
                let (at, len, values) = dice.pick(fields);
                let value = dice.pick(values);
                let (base, size) = rig.memory.range();
                if (base..base + size).contains(&request.data)
                    && usize::from(request.len) >= at + len
                {
                    note(format!("request at {at} = {value:#x}"));
                    rig.memory.write(request.data + at as u64, &value.to_ne_bytes()[..len]);
                }
            }
            // A handle.
            5 => {
                let kinds = call.attrs.iter().filter(|attr| attr.kind == Kind::Idr);
                let ids = kinds.map(|attr| attr.id).collect::<Vec<_>>();
                if ids.is_empty() {
                    continue;
                }
                let (id, value) =
                    (dice.pick(&ids), dice.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 20, 1 << 40]));
                if cmd.find(id).is_some() {
                    note(format!("{id:#x} = {value}"));
                    cmd = cmd.edit(id, |attr| attr.data = value);
                }
            }
            // An attribute gone, or moved to the end.
            6 => {
                let Some(at) = choose(&cmd, dice, |attr| !driver(attr.attr_id)) else {
                    continue;
                };
                let attr = cmd.attrs.remove(at);
                touched.push(attr.attr_id);
                note(format!("{:#x} moved", attr.attr_id));
                if dice.chance(50) {
                    note("away".to_owned());
                } else {
                    cmd.attrs.push(attr);
                }
            }
            // An attribute that is shorter, has another number or other flags.
            _ => {
                let is_table = cmd.header.object_id == UVERBS_OBJECT_DEVICE
                    && cmd.header.method_id == UVERBS_METHOD_QUERY_GID_TABLE;
                let allowed = |attr: &ib_uverbs_attr| {
                    // How many GIDs there are, and so how much room they need, is the device's.
                    !(driver(attr.attr_id) || is_table && attr.attr_id == 2)
                };
                let Some(at) = choose(&cmd, dice, allowed) else { continue };
                let attr = &mut cmd.attrs[at];
                if touched.contains(&attr.attr_id) {
                    continue;
                }
                touched.push(attr.attr_id);
                note(format!("{:#x}", attr.attr_id));
                match dice.below(3) {
                    0 => attr.len = dice.pick(&[0, 1, 3, 4, 7, 8]).min(attr.len),
                    1 => attr.attr_id = dice.pick(&[0x3e, 0x3f, 0x103f, 0x2000]),
                    _ => attr.flags = dice.next() as u16,
                }
                let ib_uverbs_attr { attr_id, len, flags, .. } = *attr;
                note(format!("now {attr_id:#x} of {len} bytes, flags {flags:#x}"));
            }
        }
    }
    if dice.chance(3) {
        cmd.header.reserved1 = u64::from(dice.chance(50));
        cmd.header.reserved2 = u32::from(dice.chance(50));
    }
    (text, call, cmd)
}

fn choose(cmd: &Cmd, dice: &mut Dice, allowed: impl Fn(&ib_uverbs_attr) -> bool) -> Option<usize> {
    let places = (0..cmd.attrs.len()).filter(|at| allowed(&cmd.attrs[*at])).collect::<Vec<_>>();
    (!places.is_empty()).then(|| dice.pick(&places))
}

/// Outcome of a step, in terms that both sides share.
fn outcome(rig: &Rig, call: &Call, cmd: &Cmd) -> String {
    let attrs = match rig.send(cmd) {
        Ok(attrs) => attrs,
        Err(errno) => return format!("{errno:?}"),
    };
    let mut marks = written(&attrs);
    marks.retain(|id| *id != UVERBS_ATTR_UHW_OUT);
    let new = call.attrs.iter().filter(|attr| attr.kind == Kind::New);
    let handles = new.filter_map(|new| attrs.iter().find(|attr| attr.attr_id == new.id));
    let mut handles = handles.map(|attr| attr.data).collect::<Vec<_>>();
    if matches!(call.name, "ALLOC_PD" | "REG_MR" | "CREATE_AH" | "OPEN_XRCD" | "OPEN_QP")
        && let Some(room) = cmd.find(UVERBS_ATTR_CORE_OUT)
    {
        handles.push(rig.memory.get::<u32>(room.data).into());
    }
    format!("ok, wrote {marks:x?}, made {handles:?}")
}

/// A file with one object of each kind.
fn furnished(target: &Target) -> Result<Rig, String> {
    let rig = Rig::new(target).map_err(|errno| format!("{}: {errno}", target.name()))?;
    // The first handle is mlx5's doorbell page there, and nothing that is used elsewhere.
    if rig.is_mlx5() {
        rig.uar();
    } else {
        rig.new_pd().map_err(|errno| errno.to_string())?;
    }
    rig.furnish();
    Ok(rig)
}

/// Runs `count` programs from `seed` on; gives the number of steps and of those that were refused,
/// or tells of the first that went wrong.
pub(crate) fn run(
    target: &Target,
    seed: u64,
    count: u64,
    skip: &[String],
) -> Result<(usize, usize), String> {
    let driver = target.facts.driver;
    let sided = target.soft.is_none();
    let known = |call: &&Call| {
        let on_driver = match driver {
            Driver::Mlx5 => true,
            Driver::Rxe => call.on_rxe.is_some_and(|since| since <= target.facts.kernel),
        };
        // Which doorbell pages can still be used once they are freed is for the firmware to say.
        let is_firmware = sided && call.name == "UAR.DESTROY";
        call.context
            && on_driver
            && target.lacks(call.name).is_none()
            && !is_firmware
            && !skip.iter().any(|text| call.name.contains(text.as_str()))
    };
    let calls = calls().filter(known).collect::<Vec<_>>();
    let soft = Target::soft(target.facts.link);
    let (mut steps, mut refused) = (0, 0);
    for seed in seed..seed + count {
        let mut sides = vec![furnished(&soft)?];
        if target.soft.is_none() {
            sides.push(furnished(target)?);
        }
        let mut dice = vec![Dice(seed); sides.len()];
        let mut history = Vec::new();
        for _ in 0..STEPS {
            let results = sides.iter().zip(&mut dice).map(|(rig, dice)| {
                let (text, call, cmd) = step(rig, dice, &calls, driver == Driver::Mlx5);
                (text, outcome(rig, call, &cmd))
            });
            let results = results.collect::<Vec<_>>();
            history.push(format!("{}: {}", results[0].0, results[0].1));
            if results.iter().any(|result| *result != results[0]) {
                let last = history.iter().rev().take(12).rev().cloned().collect::<Vec<_>>();
                let other = &results[1];
                return Err(format!(
                    "seed {seed}, step {}: on {} {} came to {}\n{}",
                    history.len(),
                    target.name(),
                    other.0,
                    other.1,
                    last.join("\n")
                ));
            }
            steps += 1;
            refused += usize::from(!results[0].1.starts_with("ok"));
        }
        drop(sides);
        let pinned = soft.soft.as_ref().map_or(0, uverbs_softhca::SoftHca::pinned_bytes);
        if pinned != 0 {
            return Err(format!(
                "seed {seed}: softhca still holds {pinned} bytes:\n{}",
                history.join("\n")
            ));
        }
    }
    Ok((steps, refused))
}
