//! Programs of a plan: their work requests, and the times of receives for them.

use std::time::Duration;

use super::work::{Connection, Kind, LONGEST, SETTLED, Work};
use crate::wire::faulty::Dice;
use uverbs_front::backend::context::Service;

/// Bytes of the longest datagram: one packet of the port's MTU.
const DATAGRAM: u32 = 4096;

/// Creates `count` works on the connections from `first` on.
pub(super) fn works(dice: &mut Dice, count: u64, first: usize, all: &[Connection]) -> Vec<Work> {
    let mut works = Vec::new();
    // Last time at which each direction posted, and its peer posted a receive.
    let mut posted: Vec<_> = all.iter().map(|connection| [connection.opens; 2]).collect();
    let mut received = posted.clone();
    for _ in 0..count {
        let connection = first + dice.below((all.len() - first) as u64) as usize;
        let from = dice.below(2) as usize;
        let (kind, len) = what(dice, &all[connection]);
        let pause = if dice.chance(0.5) { dice.below(60) } else { 0 };
        let at = posted[connection][from] + Duration::from_micros(pause);
        posted[connection][from] = at;
        let late = match dice.below(4) {
            0 => Duration::from_micros(dice.below(400)),
            _ => Duration::ZERO,
        };
        let received_at = received[connection][from].max(at + late);
        received[connection][from] = received_at;
        let ends = dice.chance(0.03) && !kind.is_atomic() && kind != Kind::Send;
        let until = at + Duration::from_micros(dice.below(100));
        let inlet = dice.below(2) as usize;
        works.push(Work {
            connection,
            from,
            inlet: if all[connection].service == Service::Dci { inlet } else { 0 },
            kind,
            len,
            at,
            received_at,
            signaled: dice.chance(0.8),
            fence: dice.chance(0.1),
            relays: false,
            key_until: ends.then_some(until),
        });
    }
    works
}

/// Operation and length; many lengths are at packet boundaries.
fn what(dice: &mut Dice, of: &Connection) -> (Kind, u32) {
    let kinds = match of.service {
        Service::Ud => &[Kind::Send][..],
        Service::Uc => &[Kind::Send, Kind::Write, Kind::WriteImm],
        _ => &[
            Kind::Send,
            Kind::Write,
            Kind::WriteImm,
            Kind::Read,
            Kind::FetchAdd,
            Kind::CompareSwap,
        ],
    };
    let kind = kinds[dice.below(kinds.len() as u64) as usize];
    let mtu = of.mtu.bytes();
    let len = match dice.below(6) {
        0 => dice.below(3) as u32,
        1 => mtu * (1 + dice.below(6) as u32),
        2 => mtu * (1 + dice.below(6) as u32) + 1,
        3 => mtu * (1 + dice.below(6) as u32) - 1,
        _ => dice.below(LONGEST.into()) as u32 + 1,
    };
    let most = if of.service == Service::Ud { DATAGRAM } else { LONGEST };
    (kind, if kind.is_atomic() { 8 } else { len.min(most) })
}

/// Moves the later half of a connection's work to the time after a device came back.
pub(super) fn go_on(dice: &mut Dice, works: &mut [Work], of: Option<usize>, back: Duration) {
    let of: Vec<_> = (0..works.len()).filter(|n| Some(works[*n].connection) == of).collect();
    if dice.chance(0.5) {
        return;
    }
    for n in &of[of.len() / 2..] {
        let work = &mut works[*n];
        let later = back + 2 * SETTLED;
        (work.at, work.received_at) = (work.at + later, work.received_at + later);
        work.key_until = work.key_until.map(|until| until + later);
    }
}

/// Replaces some WRITEs by FLUSHes and some fetch-and-adds by ATOMIC WRITEs, if the service has
/// them.
pub(super) fn place(dice: &mut Dice, works: &mut [Work], all: &[Connection]) {
    for work in works {
        if !matches!(all[work.connection].service, Service::Rc | Service::Xrc) {
            continue;
        }
        work.kind = match work.kind {
            Kind::Write if dice.chance(0.4) => Kind::Flush,
            Kind::FetchAdd if dice.chance(0.4) => Kind::AtomicWrite,
            kind => kind,
        };
    }
}

/// Makes half of the messages and WRITEs behind a READ send its bytes.
pub(super) fn relay(dice: &mut Dice, works: &mut [Work]) {
    for n in 0..works.len() {
        let Some(before) = before(works, n) else { continue };
        let (read, len) = (works[before].kind == Kind::Read, works[before].len);
        let work = &mut works[n];
        let sends = work.kind.is_received() || work.kind == Kind::Write;
        if read && sends && dice.chance(0.5) {
            (work.relays, work.fence, work.len) = (true, true, work.len.min(len));
        }
    }
}

/// The work that the same end posts before another one.
pub(super) fn before(works: &[Work], n: usize) -> Option<usize> {
    let own = |work: &Work| (work.connection, work.from);
    works[..n].iter().rposition(|work| own(work) == own(&works[n]))
}
