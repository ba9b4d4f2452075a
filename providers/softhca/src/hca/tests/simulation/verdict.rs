//! Checks after a plan's run: no work was lost or done twice, and no byte changed that no work was
//! allowed to change.

use super::places::{counter_of, far_of, near_of, receive_of};
use super::work::{Kind, LONGEST, SLOT};
use super::world::{Done, World};
use uverbs_front::backend::context::Service;

/// Bytes in front of a datagram (IBTA 11.4.1.2).
const HEADER: u32 = 40;

/// # Errors
/// The check that failed.
pub(super) fn judge(world: &mut World<'_>) -> Result<(), String> {
    for connection in 0..world.sides.len() {
        for from in 0..2 {
            sends(world, connection, from)?;
            for inlet in 0..2 {
                match world.plan.connections[connection].service.is_reliable() {
                    true => receives(world, connection, from, inlet)?,
                    false => unreliable_receives(world, connection, from, inlet)?,
                }
            }
        }
    }
    for n in 0..world.plan.works.len() {
        memory(world, n)?;
    }
    counters(world)?;
    count_unreliable(world);
    Ok(())
}

/// Checks that all posted work completed, and with success in a plan without trouble.
fn sends(world: &World<'_>, connection: usize, from: usize) -> Result<(), String> {
    let direction = &world.directions[connection][from];
    let Some(sides) = &world.sides[connection] else { return Ok(()) };
    let up = world.is_up(&sides[from]);
    // Unsignaled work at the end of a queue has no completion.
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

/// True if a work is known to have succeeded.
fn is_good(world: &World<'_>, n: usize) -> bool {
    world.done[n] == Some(Done::Success)
}

/// Messages of one direction to one destination, in the order of posting.
fn messages(world: &World<'_>, connection: usize, from: usize, inlet: usize) -> Vec<usize> {
    let posted = &world.directions[connection][from].posted;
    let works = &world.plan.works;
    let to = |n: &usize| works[*n].kind.is_received() && works[*n].inlet == inlet;
    posted.iter().copied().filter(to).collect()
}

/// Checks the messages of a reliable connection: each once, in order, whole.
fn receives(world: &World<'_>, connection: usize, from: usize, inlet: usize) -> Result<(), String> {
    let Some(sides) = &world.sides[connection] else { return Ok(()) };
    let lost = sides[1 - from].lost_receives(inlet);
    let arrivals = &world.directions[connection][from].arrivals[inlet];
    let mut received = arrivals.received.iter();
    for n in messages(world, connection, from, inlet) {
        let work = &world.plan.works[n];
        match received.next() {
            Some(Ok(got)) => {
                let bytes = (got.imm, got.bytes);
                if bytes != (n as u32, work.len) {
                    return Err(format!("message {n} of {} bytes was told as {got:?}", work.len));
                }
            }
            // The results of an overrun queue are lost.
            None if lost => break,
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

/// Checks the messages of an unreliable service: each whole, and in order unless the wire reordered
/// them. Any packet that begins a message begins one here (IBTA 9.8.2.2), also a late or duplicate
/// one.
fn unreliable_receives(
    world: &World<'_>,
    connection: usize,
    from: usize,
    inlet: usize,
) -> Result<(), String> {
    let Some(sides) = &world.sides[connection] else { return Ok(()) };
    let messages = messages(world, connection, from, inlet);
    let arrivals = &world.directions[connection][from].arrivals[inlet];
    let datagrams = world.plan.connections[connection].service == Service::Ud;
    let header = if datagrams { HEADER } else { 0 };
    let mut before = Vec::new();
    for (receive, outcome) in arrivals.receives.iter().zip(&arrivals.received) {
        let Ok(got) = outcome else { continue };
        let n = got.imm as usize;
        let copies = before.iter().filter(|other| **other == n).count();
        if !messages.contains(&n)
            || got.bytes != world.plan.works[n].len + header
            || copies > 1
            || !may_follow(world, n, &before)
        {
            return Err(format!("{got:?} behind messages {before:?}"));
        }
        before.push(n);
        if world.plan.works[n].kind != Kind::Send {
            continue;
        }
        let to = world.plan.host(&world.plan.works[n], 1 - from);
        let bytes = world.rig.hosts[to].get(receive_of(*receive), got.bytes as usize);
        let (front, message) = bytes.split_at(header as usize);
        if message != world.plan.bytes(n) {
            return Err(format!("message {n} arrived other than it was sent"));
        }
        let gids = [from, 1 - from]
            .map(|end| world.rig.hosts[world.plan.host(&world.plan.works[n], end)].address.gid);
        if datagrams && (front[8..] != gids.concat() || got.rqpn != sides[from].end.qpn) {
            return Err(format!("datagram {n} tells of another sender: {got:?}, {front:x?}"));
        }
    }
    Ok(())
}

/// Counts unreliable messages that arrived: a lost one is no failure.
fn count_unreliable(world: &mut World<'_>) {
    for (connection, directions) in world.directions.iter().enumerate() {
        if world.plan.connections[connection].service.is_reliable() {
            continue;
        }
        for direction in directions {
            let sent = |n: &&usize| world.plan.works[**n].kind.is_received() && is_good(world, **n);
            world.summary.offered += direction.posted.iter().filter(sent).count() as u64;
            let arrived = direction.arrivals[0].received.iter().filter(|got| got.is_ok());
            world.summary.arrived += arrived.count() as u64;
        }
    }
}

/// True if the plan's wire may deliver an unreliable message behind the ones `before`.
fn may_follow(world: &World<'_>, n: usize, before: &[usize]) -> bool {
    let faults = &world.plan.faults;
    let work = &world.plan.works[n];
    let connection = &world.plan.connections[work.connection];
    let single = connection.service == Service::Ud || work.len <= connection.mtu.bytes();
    match (faults.reorder > 0.0, faults.duplicate > 0.0) {
        (true, true) => true,
        (true, false) => !before.contains(&n),
        // Both copies of a packet arrive in a row, so no message of several packets is duplicated.
        (false, true) if single => before.last() <= Some(&n),
        (false, _) => before.last() < Some(&n),
    }
}

/// Checks the memory of a work on both sides.
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
    let unreliable = !plan.service(n).is_reliable();
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
        // Parts of several messages, one after the other.
        _ if unreliable => received[LONGEST as usize..].iter().all(|byte| *byte == 0),
        Kind::Send => all_or_part(&received, &whole, arrived),
        _ => received == empty,
    };
    let (near_as, far_as) = match work.kind {
        Kind::Read => (all_or_part(&near, &whole, good), far == whole),
        Kind::Send => (near_same, far == empty),
        Kind::Write | Kind::WriteImm => (near_same, all_or_part(&far, &whole, arrived)),
        Kind::Flush => (near_same, far == empty),
        Kind::AtomicWrite => (near == empty, far == empty),
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

/// Checks that at a FLUSH's completion all earlier writes of its direction are in memory.
pub(super) fn flushed(world: &World<'_>, n: usize) -> Result<(), String> {
    let plan = world.plan;
    let flush = &plan.works[n];
    let far = plan.host(flush, 1 - flush.from);
    let posted = &world.directions[flush.connection][flush.from].posted;
    let before = posted.iter().take_while(|m| **m != n);
    let writes = before.filter(|m| matches!(plan.works[**m].kind, Kind::Write | Kind::WriteImm));
    for &m in writes {
        let bytes = plan.bytes(m);
        if world.look(far, far_of(m), bytes.len()) != bytes {
            return Err(format!("work {n} flushed work {m}, whose bytes aren't there"));
        }
    }
    Ok(())
}

/// True if the bytes match. Without `all`, each may also still be 0.
fn all_or_part(found: &[u8], whole: &[u8], all: bool) -> bool {
    match all {
        true => found == whole,
        false => found.iter().zip(whole).all(|(found, whole)| found == whole || *found == 0),
    }
}

/// Checks that atomics were executed once each, in order, up to a work at or behind the last one
/// that is known to have succeeded.
fn counters(world: &World<'_>) -> Result<(), String> {
    let plan = world.plan;
    for connection in 0..world.sides.len() {
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
                        Kind::CompareSwap | Kind::AtomicWrite => swap_add,
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
