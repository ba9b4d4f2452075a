//! Event moderation of completion queues.

use std::time::Duration;

use super::queues::{arm, write};
use crate::hca::testing::*;
use uverbs_front::backend::context::Moderation;
use uverbs_front::backend::error::HcaEvent;

const fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// One host, an armed send CQ with that moderation, and the clock at 1 s.
fn rig(moderation: Moderation) -> (Rig, End) {
    let mut rig = Rig::new(1);
    let (mut a, _) = rig.pair(&Setup::default());
    let cqn = a.send_cq.cqn;
    // Raises an event, so that the last event is recent.
    pass(&mut rig, Duration::from_secs(1));
    arm(&mut rig, &a.send_cq, 0, false);
    post(&mut rig, &mut a, 1);
    assert_eq!(told(&mut rig, &a), 1);
    rig.sent(&mut a);
    rig.hosts[0].hca.moderate_cq(cqn, moderation).unwrap();
    arm(&mut rig, &a.send_cq, 1, false);
    (rig, a)
}

/// Posts `count` WRITEs and lets the device work, without letting time pass.
fn post(rig: &mut Rig, a: &mut End, count: u32) {
    let wr = write(rig);
    for _ in 0..count {
        rig.post(a, &wr);
    }
    pass(rig, Duration::ZERO);
}

/// Advances the clock, and steps the device.
fn pass(rig: &mut Rig, time: Duration) {
    let now = rig.now + time;
    rig.now = now;
    for _ in 0..100 {
        rig.hosts[0].hca.step(now);
    }
}

/// Number of events of the send CQ.
fn told(rig: &mut Rig, a: &End) -> usize {
    let event = HcaEvent::CqCompletion { cqn: a.send_cq.cqn };
    rig.hosts[0].events().iter().filter(|told| **told == event).count()
}

#[test]
fn an_event_comes_with_so_many() {
    let (mut rig, mut a) = rig(Moderation { count: 3, ..Moderation::default() });
    post(&mut rig, &mut a, 2);
    pass(&mut rig, Duration::from_secs(10));
    assert_eq!(told(&mut rig, &a), 0, "two are not enough, however long they wait");
    assert_eq!(rig.hosts[0].hca.next_deadline(), None);
    post(&mut rig, &mut a, 1);
    assert_eq!(told(&mut rig, &a), 1);
    // CQEs from between the last event and the arm count; earlier and consumed CQEs do not.
    post(&mut rig, &mut a, 2);
    arm(&mut rig, &a.send_cq, 2, false);
    assert_eq!(told(&mut rig, &a), 0, "three of five had their event");
    post(&mut rig, &mut a, 1);
    assert_eq!(told(&mut rig, &a), 1);
    assert_eq!(rig.sent(&mut a).len(), 6);
    arm(&mut rig, &a.send_cq, 3, false);
    post(&mut rig, &mut a, 2);
    assert_eq!(told(&mut rig, &a), 0);
    post(&mut rig, &mut a, 1);
    assert_eq!(told(&mut rig, &a), 1);
}

#[test]
fn an_event_comes_after_so_long() {
    let (mut rig, mut a) = rig(Moderation { period: micros(50), ..Moderation::default() });
    post(&mut rig, &mut a, 20);
    assert_eq!(told(&mut rig, &a), 0);
    pass(&mut rig, micros(49));
    assert_eq!(told(&mut rig, &a), 0);
    assert_eq!(rig.hosts[0].hca.next_deadline(), Some(rig.now + micros(1)));
    pass(&mut rig, micros(1));
    assert_eq!(told(&mut rig, &a), 1);
    // The last event is long ago, so the next one comes at once.
    rig.sent(&mut a);
    arm(&mut rig, &a.send_cq, 2, false);
    pass(&mut rig, micros(100));
    post(&mut rig, &mut a, 1);
    assert_eq!(told(&mut rig, &a), 1);
    // A destroyed CQ raises no event.
    rig.sent(&mut a);
    arm(&mut rig, &a.send_cq, 3, false);
    post(&mut rig, &mut a, 1);
    rig.hosts[0].hca.destroy_qp(a.qpn).unwrap();
    rig.hosts[0].hca.destroy_cq(a.send_cq.cqn).unwrap();
    assert_eq!(rig.hosts[0].hca.next_deadline(), None);
    pass(&mut rig, micros(100));
    assert_eq!(told(&mut rig, &a), 0);
}

#[test]
fn whatever_is_first_and_from_the_last_completion() {
    let both = Moderation { period: micros(50), count: 4, ..Moderation::default() };
    let (mut rig, mut a) = rig(Moderation { from_completion: true, ..both });
    for _ in 0..3 {
        post(&mut rig, &mut a, 1);
        pass(&mut rig, micros(40));
        assert_eq!(told(&mut rig, &a), 0, "each begins the period again");
    }
    pass(&mut rig, micros(10));
    assert_eq!(told(&mut rig, &a), 1);
    rig.sent(&mut a);
    arm(&mut rig, &a.send_cq, 2, false);
    post(&mut rig, &mut a, 4);
    assert_eq!(told(&mut rig, &a), 1, "four");
    assert_eq!(rig.hosts[0].hca.next_deadline(), None, "and nobody waits");
    // An error ends the period at once, and the driver changes the moderation.
    let breaks = Moderation { solicited_breaks: true, ..both };
    rig.sent(&mut a);
    rig.hosts[0].hca.moderate_cq(a.send_cq.cqn, breaks).unwrap();
    arm(&mut rig, &a.send_cq, 3, false);
    let mut wr = write(&rig);
    wr.remote = Some((0, 0xdead_be00));
    rig.post(&mut a, &wr);
    pass(&mut rig, Duration::ZERO);
    assert_eq!(told(&mut rig, &a), 1);
}
