//! Multicast groups: members, delivery, and refused requests.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use common::{LIMIT, device, is_rxe};
use uverbs::multicast::MulticastGroup;
use uverbs::softhca::SoftHca;
use uverbs::transport::Ud;
use uverbs::{
    Any, Completed, CompletionQueue, Context, DatagramEndpoint, Destination, Device, Errno, Error,
    GRH_LEN, Gid, LinkLayer, Local, ProtectionDomain, QueuePair, WorkCompletion,
};

/// A datagram queue pair in RTS with all that is its own.
struct Node {
    qp: QueuePair<Any, Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
    at: DatagramEndpoint,
}

impl Node {
    fn new(device: &Device) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let mut qp = context.queue_pair(&pd, &cq).ud().build().expect("create_qp");
        let at = qp.bring_up(&Local::default()).expect("bring_up");
        Self { qp, cq, pd, context, at }
    }

    fn expect(&mut self, id: u64) {
        let slab = self.pd.slab(GRH_LEN + 64, 1).expect("slab");
        self.qp.post_recv(id, slab.take().expect("a frame")).expect("post_recv");
    }

    fn send(&mut self, text: &str, to: &Destination) {
        let mut batch = self.qp.batch();
        batch.send_inline_to(1, text.as_bytes(), to).expect("post");
        batch.ring();
    }

    /// The next received datagram; completions of sends are passed over.
    fn received(&mut self) -> (WorkCompletion, String) {
        loop {
            let mut done = self.cq.wait(LIMIT).expect("a completion");
            if done.result.expect("a success") == Completed::Recv {
                let frame = done.frame.take().expect("a receive has a frame");
                let text = String::from_utf8_lossy(&frame[GRH_LEN..]).into_owned();
                done.frame = Some(frame);
                return (done, text);
            }
        }
    }

    fn hears_nothing(&mut self) {
        let limit = Duration::from_millis(50);
        while let Ok(done) = self.cq.wait(limit) {
            assert_eq!(done.result, Ok(Completed::Send), "nothing was sent here");
        }
    }
}

/// A group within the port's reach, another one for each number. If the port is a network
/// interface's, the socket makes the interface accept the group's packets.
fn group(node: &Node, number: u8) -> (MulticastGroup, Option<UdpSocket>) {
    let infiniband = node.context.query_port(1).unwrap().link_layer == LinkLayer::InfiniBand;
    let own = node.at.gid.unwrap_or_default();
    let group = match own.to_ipv4() {
        Some(_) => MulticastGroup::ipv4(Ipv4Addr::new(239, 1, 2, number)),
        None => {
            let gid: Gid = format!("ff12::1:{number:x}").parse().unwrap();
            MulticastGroup { gid, lid: if infiniband { 0xc000 + u16::from(number) } else { 0 } }
        }
    };
    // rxe's packets come by the kernel's IP layer, which knows only what a socket joined.
    let joined = is_rxe().then(|| match own.to_ipv4() {
        Some(interface) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.join_multicast_v4(&group.gid.to_ipv4().unwrap(), &interface).unwrap();
            socket
        }
        None => {
            let entry = node.context.query_gid(1, node.context.best_gid(1).unwrap().unwrap().index);
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
            let address = Ipv6Addr::from(group.gid.0);
            socket.join_multicast_v6(&address, entry.unwrap().netdev_ifindex).unwrap();
            socket
        }
    });
    (group, joined)
}

/// The device under test; without one, a software HCA with either kind of port.
fn devices() -> Vec<Device> {
    if std::env::var_os("UVERBS_TEST_DEVICE").is_some() {
        return vec![device()];
    }
    let infiniband = SoftHca::builder().link(uverbs::softhca::LinkLayer::InfiniBand).build();
    vec![device(), common::soft(&infiniband.expect("a software HCA"))]
}

#[test]
fn every_member_gets_it_and_nobody_else() {
    for device in devices() {
        every_member_gets_it(&device);
    }
}

fn every_member_gets_it(device: &Device) {
    let mut sender = Node::new(device);
    let mut members = [Node::new(device), Node::new(device)];
    let mut stranger = Node::new(device);
    let (ours, _let_in) = group(&sender, 1);
    let (other, _let_in_too) = group(&sender, 2);
    let memberships: Vec<_> =
        members.iter_mut().map(|node| node.qp.attach(&ours).expect("attach")).collect();
    let elsewhere = stranger.qp.attach(&other).expect("attach");
    assert_eq!((memberships[0].qpn(), memberships[0].group()), (members[0].qp.qpn(), &ours));
    for node in members.iter_mut().chain([&mut stranger]) {
        node.expect(7);
    }
    let to = sender.qp.multicast_destination(&ours, sender.at.qkey).expect("an address");
    assert_eq!(to.qpn(), 0xff_ffff);
    sender.send("to all", &to);
    for node in &mut members {
        let (done, text) = node.received();
        assert_eq!((done.id, text.as_str()), (7, "to all"));
        assert_eq!(done.sender.qpn(), sender.qp.qpn());
        assert!(done.sender.has_grh(), "a packet to a group has one");
    }
    stranger.hears_nothing();
    // A message to the stranger's group takes the receive.
    let to = sender.qp.multicast_destination(&other, sender.at.qkey).expect("an address");
    sender.send("to the other", &to);
    assert_eq!(stranger.received().1, "to the other");
    drop(elsewhere);
}

#[test]
fn who_left_gets_no_more() {
    let device = device();
    let (mut one, mut other) = (Node::new(&device), Node::new(&device));
    let (group, _let_in) = group(&one, 3);
    let to = one.qp.multicast_destination(&group, one.at.qkey).expect("an address");
    let first = one.qp.attach(&group).expect("attach");
    let second = other.qp.attach(&group).expect("attach");
    for node in [&mut one, &mut other] {
        node.expect(1);
        node.expect(2);
    }
    one.send("to both", &to);
    // A member receives its own messages, too.
    assert_eq!((one.received().1, other.received().1), ("to both".into(), "to both".into()));
    second.detach().expect("detach");
    one.send("to one", &to);
    assert_eq!(one.received().1, "to one");
    other.hears_nothing();
    drop(first);
    one.send("to nobody", &to);
    one.hears_nothing();
    // And again.
    let _again = other.qp.attach(&group).expect("attach");
    one.send("to the other", &to);
    assert_eq!(other.received().1, "to the other");
}

#[test]
fn a_member_with_another_key_gets_nothing() {
    let device = device();
    let (mut one, mut other) = (Node::new(&device), Node::new(&device));
    let (group, _let_in) = group(&one, 4);
    let _member = other.qp.attach(&group).expect("attach");
    other.expect(1);
    let wrong = one.qp.multicast_destination(&group, other.at.qkey ^ 1).expect("an address");
    one.send("wrong key", &wrong);
    let right = wrong.address_handle().to(wrong.qpn(), other.at.qkey);
    one.send("right key", &right);
    assert_eq!(other.received().1, "right key");
}

#[test]
fn an_answer_finds_its_way_back() {
    for device in devices() {
        an_answer_finds(&device);
    }
}

fn an_answer_finds(device: &Device) {
    let (mut one, mut other) = (Node::new(device), Node::new(device));
    let (group, _let_in) = group(&one, 5);
    let _member = other.qp.attach(&group).expect("attach");
    let to_group = one.qp.multicast_destination(&group, other.at.qkey).expect("an address");
    let to_one = one.qp.destination(&other.at).expect("an address");
    for to in [to_group, to_one] {
        other.expect(1);
        one.expect(2);
        one.send("who is there?", &to);
        let (asked, text) = other.received();
        assert_eq!(text, "who is there?");
        let grh = &asked.frame.as_ref().expect("a frame")[..GRH_LEN];
        let back = other.qp.reply_to(asked.sender, grh, one.at.qkey).expect("a way back");
        assert_eq!((back.qpn(), back.qkey()), (one.qp.qpn(), one.at.qkey));
        other.send("it is me", &back);
        let (answer, text) = one.received();
        assert_eq!((answer.sender.qpn(), text.as_str()), (other.qp.qpn(), "it is me"));
    }
}

#[test]
fn bytes_that_are_no_header_lead_nowhere() {
    for device in devices() {
        bytes_that_are_no_header(&device);
    }
}

fn bytes_that_are_no_header(device: &Device) {
    let (mut one, mut other) = (Node::new(device), Node::new(device));
    other.expect(1);
    let to = one.qp.destination(&other.at).expect("an address");
    one.send("hello", &to);
    let (asked, _) = other.received();
    if !asked.sender.has_grh() {
        // Within an InfiniBand subnet the LID is the way.
        let back = other.qp.reply_to(asked.sender, &[], 1).expect("a way back");
        assert_eq!(back.qpn(), one.qp.qpn());
        return;
    }
    for short in [&[][..], &[0; 39], &[0; 40]] {
        let nothing = other.qp.reply_to(asked.sender, short, 1).unwrap_err();
        assert!(matches!(nothing, Error::Invalid { what: "GRH", .. }), "{nothing}");
    }
    let mut grh = asked.frame.as_ref().expect("a frame")[..GRH_LEN].to_vec();
    // An IPv6 header whose destination is no GID of this device.
    grh[0] = 0x60;
    grh[20..].fill(0);
    let foreign = other.qp.reply_to(asked.sender, &grh, 1).unwrap_err();
    assert!(matches!(foreign, Error::Invalid { what: "destination GID", .. }), "{foreign}");
}

#[test]
fn a_member_is_not_destroyed() {
    let mut node = Node::new(&device());
    let (group, _let_in) = group(&node, 6);
    node.expect(4);
    let member = node.qp.attach(&group).expect("attach");
    let Node { qp, mut cq, .. } = node;
    let refused = qp.destroy().expect_err("it is a member");
    assert_eq!(refused.error.errno(), Some(Errno::EBUSY), "{}", refused.error);
    assert_eq!(refused.error.verb(), Some("destroy_qp"));
    // It goes on as before, with its receive.
    let mut qp = refused.into_object();
    let to = qp.multicast_destination(&group, Local::default().qkey).expect("an address");
    let mut batch = qp.batch();
    batch.send_inline_to(1, b"still here", &to).expect("post");
    batch.ring();
    for _ in 0..2 {
        cq.wait(LIMIT).expect("a completion").result.expect("a success");
    }
    drop(member);
    let _gone = qp.destroy().expect("it is a member no more");
}

#[test]
fn a_dropped_member_goes_with_its_last_membership() {
    let device = device();
    let mut other = Node::new(&device);
    let (group, _let_in) = group(&other, 8);
    let (second, _let_in_too) = self::group(&other, 9);
    let members = {
        let mut node = Node::new(&device);
        [node.qp.attach(&group).expect("attach"), node.qp.attach(&second).expect("attach")]
    };
    let [first, last] = members;
    first.detach().expect("the queue pair is still there");
    drop(last);
    // The group is as good as new.
    let _member = other.qp.attach(&group).expect("attach");
}

#[test]
fn what_is_no_group_is_refused_by_name() {
    for device in devices() {
        what_is_no_group_is_refused(&device);
    }
}

fn what_is_no_group_is_refused(device: &Device) {
    let mut node = Node::new(device);
    let (good, _let_in) = group(&node, 10);
    for gid in ["::", "fe80::1", "10.0.0.1", "240.0.0.1"] {
        let group = MulticastGroup { gid: gid.parse().unwrap(), ..good };
        let attach = node.qp.attach(&group).expect_err("no group");
        assert!(
            matches!(attach, Error::Invalid { verb: "attach_mcast", what: "GID", .. }),
            "{attach}"
        );
        let to = node.qp.multicast_destination(&group, 1).expect_err("no group");
        assert!(matches!(to, Error::Invalid { verb: "create_ah", what: "GID", .. }), "{to}");
    }
    let _member = node.qp.attach(&good).expect("attach");
    let twice = node.qp.attach(&good).expect_err("a member already");
    assert!(matches!(twice, Error::Invalid { what: "group", .. }), "{twice}");
    if good.lid != 0 {
        for lid in [0, 1, 0xbfff, 0xffff] {
            let group = MulticastGroup { lid, ..good };
            let wrong = node.qp.attach(&group).expect_err("no LID of a group");
            assert!(matches!(wrong, Error::Invalid { what: "LID", .. }), "{wrong}");
        }
    } else if good.gid.is_ipv4_mapped() {
        let six = MulticastGroup { gid: "ff12::1".parse().unwrap(), lid: 0 };
        let family = node.qp.multicast_destination(&six, 1).expect_err("another family");
        assert!(matches!(family, Error::Invalid { what: "group", .. }), "{family}");
    }
    if common::not_on_linux_rdmavt("its kernel takes no member that isn't brought up") {
        return;
    }
    // Before it is brought up there is no port to send from, and the kernel judges the group.
    let mut early = node.context.queue_pair(&node.pd, &node.cq).ud().build().expect("create_qp");
    let to = early.multicast_destination(&good, 1).expect_err("not brought up");
    assert!(matches!(to, Error::State { verb: "create_ah", .. }), "{to}");
    let _early_member = early.attach(&good).expect("attach");
    if good.lid != 0 {
        let refused = early.attach(&MulticastGroup { lid: 1, ..good }).expect_err("no group");
        assert_eq!((refused.verb(), refused.errno()), (Some("attach_mcast"), Some(Errno::EINVAL)));
    }
}
