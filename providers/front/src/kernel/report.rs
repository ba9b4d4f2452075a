//! List of objects, by the names that Linux has (`rdma resource`).

use uverbs_core::report::resources::{
    Holder, Resource, ResourceKind, Resources, port_space, qp_state, qp_type,
};

use crate::backend::Backend;
use crate::kernel::Kernel;
use crate::kernel::state::objects::{Object, Objects};

/// The only port.
const PORT: u32 = 1;

/// Objects of this process: the device has no other clients.
pub(super) fn resources<H: Backend + 'static>(kernel: &Kernel<H>) -> Resources {
    let mut report = Resources::default();
    let here = Holder::Task(std::process::id());
    for file in kernel.contexts() {
        let number = u32::try_from(file).ok();
        report.held.push(Resource::new(ResourceKind::Context, number, here.clone()));
    }
    for (objects, object) in kernel.held() {
        report.held.extend(resource(&kernel.device.hca, objects, object, &here));
    }
    for (number, space, [local, peer], qpn) in kernel.device.cm.listed() {
        let id = Resource::new(ResourceKind::CmId, Some(number), here.clone())
            .with("ps", Some(port_space(space.into())))
            .with("lqpn", qpn)
            .with("src", local)
            .with("dst", peer);
        report.held.push(id);
    }
    report.sort();
    report
}

/// An object of the kinds that Linux lists, too.
fn resource(
    hca: &dyn Backend,
    objects: &Objects,
    object: &Object,
    here: &Holder,
) -> Option<Resource> {
    let new = |kind, number| Resource::new(kind, Some(number), here.clone());
    let pdn = |handle| objects.pd(handle).ok().map(|pd| pd.pdn.0);
    Some(match object {
        Object::Pd(pd) => new(ResourceKind::Pd, pd.pdn.0),
        Object::Mr(mr) => new(ResourceKind::Mr, mr.key.index())
            .with("mrlen", Some(mr.len))
            .with("rkey", Some(format!("{:#x}", mr.key)))
            .with("pdn", pdn(mr.pd)),
        Object::Cq(cq) => new(ResourceKind::Cq, cq.cqn.0).with("cqe", Some(cq.entries)),
        Object::Srq(srq) => new(ResourceKind::Srq, srq.srqn.0),
        Object::Qp(qp) => {
            let state = qp.queue().and_then(|queue| hca.query_qp(queue).ok());
            let peer = state.as_ref().map(|(_, attrs)| attrs.dest_qpn.0).filter(|qpn| *qpn != 0);
            new(ResourceKind::Qp, qp.qpn.0)
                .with("port", Some(PORT))
                .with("type", Some(qp_type(qp.kind.into())))
                .with("state", state.map(|(state, _)| qp_state(state as u32)))
                .with("rqpn", peer)
                .with("pdn", qp.held.iter().find_map(|handle| pdn(*handle)))
        }
        _ => return None,
    })
}
