//! Multicast groups, which the connection manager joins.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use common::{LIMIT, device_with_address, not_on_siw, only_on_softhca, soft};
use uverbs::cm::{EventChannel, EventKind, Id, JoinedGroup, Membership, PortSpace};
use uverbs::multicast::MulticastGroup;
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::transport::Ud;
use uverbs::{CompletionQueue, Device, Errno, GRH_LEN, QueuePair};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 4, 5, 6));

/// A member of a group: its id, the membership, and a queue pair that receives.
struct Member {
    cq: CompletionQueue,
    qp: QueuePair<uverbs::Any, Ud>,
    to: uverbs::Destination,
    group: MulticastGroup,
    // Detached before the queue pair could be destroyed.
    _attached: uverbs::multicast::MulticastMembership,
    joined: JoinedGroup,
    id: Id,
}

impl Member {
    fn of(device: &Device, ip: IpAddr, group: IpAddr) -> Self {
        let channel = EventChannel::of(device).unwrap();
        let id = channel.create_id(PortSpace::Udp).unwrap();
        id.bind(SocketAddr::new(ip, 0)).unwrap();
        let joined = id.join_multicast(group, Membership::Full).unwrap();
        let event = channel.next(LIMIT).unwrap().expect(EventKind::MulticastJoined).unwrap();
        assert_eq!(event.key(), joined.key());
        let details = event.datagram();
        let context = id.device().unwrap().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let mut qp = context.queue_pair(&pd, &cq).ud().build().unwrap();
        id.bring_up_datagrams(&mut qp).unwrap();
        qp.post_recv(5, pd.slab(GRH_LEN + 64, 1).unwrap().take().unwrap()).unwrap();
        let group = details.group();
        let attached = qp.attach(&group).unwrap();
        let ah = context.create_ah(&pd, &details.ah).unwrap();
        let to = ah.to(details.qpn, details.qkey);
        Self { to, group, cq, qp, _attached: attached, joined, id }
    }
}

#[test]
fn members_of_a_group_hear_what_is_sent_to_it() {
    if not_on_siw("iWARP has no datagrams") {
        return;
    }
    let Some((device, ip)) = device_with_address() else { return };
    hear_each_other([(); 2].map(|()| Member::of(&device, ip, GROUP)));
}

#[test]
fn on_infiniband_a_group_has_an_mgid_and_an_mlid() {
    if !only_on_softhca("the devices are the test's own") {
        return;
    }
    let hca = SoftHca::builder().link(LinkLayer::InfiniBand).build().expect("a software HCA");
    let device = soft(&hca);
    let ip = device.addresses().unwrap()[0];
    let six: IpAddr = "ff15::4:5:6".parse().unwrap();
    for (group, mgid) in [(GROUP, "ff12:4001:ffff::f04:506"), (six, "ff12:6001:ffff::4:5:6")] {
        let members = [(); 2].map(|()| Member::of(&device, ip, group));
        for member in &members {
            assert_eq!(member.group.gid.to_string(), mgid);
            assert!((0xc001..0xffff).contains(&member.group.lid), "{:#x}", member.group.lid);
        }
        hear_each_other(members);
    }
}

#[test]
fn infiniband_ports_on_the_network_share_a_group() {
    if !only_on_softhca("the devices are the test's own") {
        return;
    }
    let on = |address: &str| uverbs::device(&format!("softhca@{address},ib")).expect("a device");
    let devices = ["127.9.3.1", "127.9.3.2"].map(on);
    let of = |device: &Device| Member::of(device, device.addresses().unwrap()[0], GROUP);
    hear_each_other([of(&devices[0]), of(&devices[1])]);
}

/// The first member sends, both receive.
fn hear_each_other(mut members: [Member; 2]) {
    let [sender, _] = &mut members;
    let mut batch = sender.qp.batch();
    batch.send_inline_to(1, b"to all", &sender.to).unwrap();
    batch.ring();
    for (index, member) in members.iter_mut().enumerate() {
        // The sender is a member, too.
        let received = loop {
            let done = common::done(&mut member.cq);
            if done.is_recv {
                break done;
            }
        };
        assert_eq!(&received.frame.unwrap()[GRH_LEN..], b"to all", "member {index}");
    }
    // Whoever has left may come again.
    let [Member { id, joined, .. }, _] = members;
    drop(joined);
    let again = id.join_multicast(GROUP, Membership::SendOnly).unwrap();
    id.channel().next(LIMIT).unwrap().expect(EventKind::MulticastJoined).unwrap();
    drop(again);
}

#[test]
fn what_is_no_group_is_refused() {
    if not_on_siw("iWARP has no datagrams") {
        return;
    }
    let Some((device, ip)) = device_with_address() else { return };
    let channel = EventChannel::of(&device).unwrap();
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.join_multicast(GROUP, Membership::Full).map(drop).expect_err("it isn't bound");
    id.bind(SocketAddr::new(ip, 0)).unwrap();
    for address in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST] {
        let error = id.join_multicast(address.into(), Membership::Full).unwrap_err();
        assert_eq!(error.to_errno(), Errno::EINVAL, "{error}");
        assert_eq!(error.verb(), Some("rdma_join_multicast"));
        assert!(error.to_string().contains("224.0.0.0"), "{error}");
    }
}
