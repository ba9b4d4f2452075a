//! What has to hold when a plan has run: no work was lost or done twice, and no byte changed that
//! nobody was allowed to change.

use super::plan::{Kind, LONGEST, SLOT};
use super::world::{Done, World, counter_of, far_of, near_of, receive_of};
use crate::hca::Service;

/// # Errors
/// What doesn't hold.
pub(super) fn judge(world: &World<'_>) -> Result<(), String> {
    for connection in 0..world.ends.len() {
        for from in 0..2 {
            sends(world, connection, from)?;
            match world.plan.connections[connection].service {
                Service::Uc => unreliable_receives(world, connection, from)?,
                _ => receives(world, connection, from)?,
            }
        }
    }
    for n in 0..world.plan.works.len() {
        memory(world, n)?;
    }
    counters(world)
}

/// All that was posted has completed, and where nothing goes wrong all of it well.
fn sends(world: &World<'_>, connection: usize, from: usize) -> Result<(), String> {
    let direction = &world.directions[connection][from];
    let up = world.is_up(connection, from);
    // Unsignaled work at the end of a queue completes without a word.
    let open = direction.open.iter().find(|(n, _)| world.plan.works[*n].signaled);
    if let Some((n, _)) = open {
        return Err(format!("work {n} never completed, its queue pair is up: {up}"));
    }
    if world.plan.is_kind() && direction.has_failed {
        return Err(format!("connection {connection} failed on a good wire"));
    }
    if direction.has_failed && up {
        return Err(format!("connection {connection} failed, and is up"));
    }
    Ok(())
}

/// Whether a work is known to have succeeded.
fn is_good(world: &World<'_>, n: usize) -> bool {
    world.done[n] == Some(Done::Success)
}

/// The messages of a reliable connection: each once, in order, whole.
fn receives(world: &World<'_>, connection: usize, from: usize) -> Result<(), String> {
    let direction = &world.directions[connection][from];
    let messages = direction.posted.iter().filter(|n| world.plan.works[**n].kind.is_received());
    let mut received = direction.received.iter();
    for &n in messages {
        let work = &world.plan.works[n];
        match received.next() {
            Some(Ok(got)) => {
                let bytes = (got.imm, got.bytes);
                if bytes != (n as u32, work.len) {
                    return Err(format!("message {n} of {} bytes was told as {got:?}", work.len));
                }
            }
            _ if is_good(world, n) => {
                return Err(format!("message {n} was acknowledged, and never arrived"));
            }
            Some(Err(_)) | None => {}
        }
    }
    match received.find(|outcome| outcome.is_ok()) {
        Some(got) => Err(format!("{got:?} of a message that nobody sent")),
        None => Ok(()),
    }
}

/// The messages of an unreliable connection: each whole, and in order unless the wire changed that.
/// Any packet that begins a message begins one here (IBTA 9.8.2.2), a late or a second one, too.
fn unreliable_receives(world: &World<'_>, connection: usize, from: usize) -> Result<(), String> {
    let direction = &world.directions[connection][from];
    let mut before = Vec::new();
    for (receive, outcome) in direction.receives.iter().zip(&direction.received) {
        let Ok(got) = outcome else { continue };
        let n = got.imm as usize;
        let sent = direction.posted.contains(&n) && world.plan.works[n].kind.is_received();
        if !sent || got.bytes != world.plan.works[n].len || !may_follow(world, n, &before) {
            return Err(format!("{got:?} behind messages {before:?}"));
        }
        before.push(n);
        if world.plan.works[n].kind != Kind::Send {
            continue;
        }
        let to = world.plan.host(&world.plan.works[n], 1 - from);
        let place = receive_of(*receive);
        if world.rig.hosts[to].get(place, got.bytes as usize) != world.plan.bytes(n) {
            return Err(format!("message {n} arrived other than it was sent"));
        }
    }
    Ok(())
}

/// Whether an unreliable message may arrive behind those before it on the wire of this plan.
fn may_follow(world: &World<'_>, n: usize, before: &[usize]) -> bool {
    let faults = &world.plan.faults;
    let work = &world.plan.works[n];
    let single = work.len <= world.plan.connections[work.connection].mtu.bytes();
    match (faults.reorder > 0.0, faults.duplicate > 0.0) {
        (true, true) => true,
        (true, false) => !before.contains(&n),
        // Both copies of a packet arrive in a row: of several packets no message is made twice.
        (false, true) if single => before.last() <= Some(&n),
        (false, _) => before.last() < Some(&n),
    }
}

/// The places of a work on both sides.
fn memory(world: &World<'_>, n: usize) -> Result<(), String> {
    let plan = world.plan;
    let work = &plan.works[n];
    let [near, far] = [work.from, 1 - work.from].map(|end| plan.host(work, end));
    let near = world.rig.hosts[near].get(near_of(n), SLOT as usize);
    let [far, received] =
        [far_of(n), receive_of(n)].map(|at| world.rig.hosts[far].get(at, SLOT as usize));
    let mut whole = plan.bytes(n);
    whole.resize(SLOT as usize, 0);
    let empty = vec![0; SLOT as usize];
    let unreliable = plan.connections[work.connection].service == Service::Uc;
    let good = is_good(world, n);
    // An unreliable sender knows nothing of the other side.
    let arrived = good && !unreliable;
    if let Some(before) = world.after_key.get(&n)
        && *before != far
    {
        return Err(format!("work {n} changed memory whose key was destroyed"));
    }
    let near_whole = if plan.relayed(n).is_some() { &empty } else { &whole };
    let near_same = near == *near_whole;
    let received_as = match work.kind {
        // Pieces of several messages, one after the other.
        _ if unreliable => received[LONGEST as usize..].iter().all(|byte| *byte == 0),
        Kind::Send => all_or_part(&received, &whole, arrived),
        _ => received == empty,
    };
    let (near_as, far_as) = match work.kind {
        Kind::Read => (all_or_part(&near, &whole, good), far == whole),
        Kind::Send => (near_same, far == empty),
        Kind::Write | Kind::WriteImm => (near_same, all_or_part(&far, &whole, arrived)),
        Kind::FetchAdd | Kind::CompareSwap => {
            let old = plan.counter_before(n).to_ne_bytes();
            whole[..8].copy_from_slice(&old);
            (all_or_part(&near, &whole, good), far == empty)
        }
    };
    let wrong = |place| Err(format!("work {n} ({:?}): wrong bytes {place}", work.kind));
    match (near_as, far_as, received_as) {
        (true, true, true) => Ok(()),
        (false, ..) => wrong("at its own end"),
        (_, false, _) => wrong("at the peer"),
        (.., false) => wrong("in its receive"),
    }
}

/// Whether the bytes are these; each of them or still 0, if it needn't be all.
fn all_or_part(found: &[u8], whole: &[u8], all: bool) -> bool {
    match all {
        true => found == whole,
        false => found.iter().zip(whole).all(|(found, whole)| found == whole || *found == 0),
    }
}

/// Atomics were executed once each, in order, up to some work behind the last that is known to have
/// succeeded.
fn counters(world: &World<'_>) -> Result<(), String> {
    let plan = world.plan;
    for connection in 0..world.ends.len() {
        for from in 0..2 {
            let posted = &world.directions[connection][from].posted;
            let atomics: Vec<_> =
                posted.iter().copied().filter(|n| plan.works[*n].kind.is_atomic()).collect();
            let Some(&first) = atomics.first() else { continue };
            let value = {
                let work = &plan.works[first];
                world.rig.hosts[plan.host(work, 1 - from)].get_u64(counter_of(work))
            };
            let known = atomics.iter().filter(|n| is_good(world, **n)).count();
            let after = |count: usize| match atomics.get(count) {
                Some(next) => plan.counter_before(*next),
                None => {
                    let last = atomics[count - 1];
                    let (swap_add, _) = plan.operands(last);
                    match plan.works[last].kind {
                        Kind::CompareSwap => swap_add,
                        _ => plan.counter_before(last) + swap_add,
                    }
                }
            };
            if !(known..=atomics.len()).any(|count| after(count) == value) {
                return Err(format!(
                    "connection {connection}: a counter of {value} after {known} of {} atomics",
                    atomics.len()
                ));
            }
        }
    }
    Ok(())
}
