//! Enhanced connection establishment: options that queue pairs report, and that two of them agree
//! on.

use common::{is_plain, local, not_on_rxe, only_on_softhca, soft};
use uverbs::attr::Ece;
use uverbs::softhca::SoftHca;
use uverbs::{Context, Error, Local, QueuePair};

const VENDOR: u32 = 0x15b3;
const VERSION: u32 = 1 << 28;

fn queue_pair(context: &Context) -> QueuePair {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    context.queue_pair(&pd, &cq).build().unwrap()
}

/// True on a card without ECE.
fn lacking() -> bool {
    common::card_lacks("ECE", &["connectx-4", "connectx-4lx", "connectx-5"])
}

/// A device in this process that knows these options.
fn device(ece: u32) -> Context {
    let hca = SoftHca::builder().hca(|config| config.ece = ece).build().unwrap();
    soft(&hca).open().unwrap()
}

#[test]
fn a_queue_pair_says_what_its_device_knows() {
    if lacking() {
        return;
    }
    let qp = queue_pair(&common::device().open().unwrap());
    if is_plain() {
        assert_eq!(qp.ece(), Ece::default());
        return;
    }
    assert_eq!(qp.ece().vendor, VENDOR);
    assert_eq!(qp.ece().options & VERSION, VERSION);
}

#[test]
fn the_next_change_of_state_asks_and_is_answered() {
    if common::not_on_rdmavt("the device has no ECE") {
        return;
    }
    if lacking() || not_on_rxe("soft-RoCE knows none") {
        return;
    }
    let mut qp = queue_pair(&common::device().open().unwrap());
    let theirs = qp.ece();
    qp.set_ece(Ece { options: VERSION | 0xff_ffff, ..theirs }).unwrap();
    assert_eq!(qp.ece(), Ece { vendor: VENDOR, options: 0 }, "not answered yet");
    qp.prepare(&local()).unwrap();
    assert_eq!(qp.ece(), theirs, "what was asked for and is there");
    qp.connect_to_self().unwrap();
    assert_eq!(qp.ece(), theirs, "asked once");
    // And once more, from RTR's side of the connection.
    qp.set_ece(theirs).unwrap();
    qp.fail().unwrap();
    assert_eq!(qp.ece().options, 0, "on the way down nothing is agreed on");
}

#[test]
fn devices_agree_on_what_both_have() {
    if !only_on_softhca("a device with options of its own") {
        return;
    }
    let (few, many) = (device(VERSION | 0b0110), device(VERSION | 0b1011));
    let mut ends = [queue_pair(&few), queue_pair(&many)];
    let said = [ends[0].ece(), ends[1].ece()];
    assert_eq!(said.map(|ece| ece.options), [VERSION | 0b0110, VERSION | 0b1011]);
    for (end, theirs) in ends.iter_mut().zip([said[1], said[0]]) {
        end.set_ece(theirs).unwrap();
        end.prepare(&Local::default()).unwrap();
        assert_eq!(end.ece().options, VERSION | 0b0010);
    }
    // Options of another version are ignored.
    let mut other = queue_pair(&device(2 << 28 | 1));
    other.set_ece(Ece { vendor: VENDOR, options: VERSION | 1 }).unwrap();
    other.prepare(&Local::default()).unwrap();
    assert_eq!(other.ece().options, 0);
}

#[test]
fn wrong_options_are_refused() {
    if lacking() {
        return;
    }
    let mut qp = queue_pair(&common::device().open().unwrap());
    if is_plain() {
        let none = qp.set_ece(Ece { vendor: VENDOR, options: VERSION });
        assert!(matches!(none, Err(Error::Unsupported { verb: "set_ece", .. })), "{none:?}");
        return;
    }
    let other = qp.set_ece(Ece { vendor: 0x1234, options: VERSION });
    assert!(matches!(other, Err(Error::Invalid { what: "vendor", .. })), "{other:?}");
    if !only_on_softhca("a device without") {
        return;
    }
    let mut without = queue_pair(&device(0));
    assert_eq!(without.ece(), Ece::default());
    let none = without.set_ece(Ece { vendor: VENDOR, options: VERSION });
    assert!(matches!(none, Err(Error::Unsupported { verb: "set_ece", .. })), "{none:?}");
}

#[test]
fn endpoints_carry_the_options() {
    if !only_on_softhca("a device with options of its own") {
        return;
    }
    let (few, many) = (device(VERSION | 0b0110), device(VERSION | 0b1011));
    let none = device(0);
    for (left, right, agreed) in
        [(&few, &many, VERSION | 0b0010), (&many, &many, VERSION | 0b1011), (&few, &none, 0)]
    {
        let mut ends = [queue_pair(left), queue_pair(right)];
        let told = [0, 1].map(|end: usize| ends[end].prepare(&Local::default()).unwrap());
        // Devices of two fabrics: the change of state needs no peer that answers.
        for (end, theirs) in ends.iter_mut().zip([told[1], told[0]]) {
            let theirs: uverbs::Endpoint = theirs.to_string().parse().unwrap();
            end.connect(&theirs).unwrap();
        }
        if agreed != 0 {
            assert_eq!(ends.map(|end| end.ece().options), [agreed; 2]);
        }
    }
    let text = queue_pair(&none).prepare(&Local::default()).unwrap().to_string();
    assert!(!text.contains("ece"), "{text}");
    let bad = format!("{text} ece=15b3:1").parse::<uverbs::Endpoint>().unwrap_err();
    assert_eq!((bad.part, bad.found.as_str()), ("ece", "15b3:1"));
}
