//! Usual causes of an errno of the kernel, by verb, and what to do about them.

use std::borrow::Cow;

use super::Error;
use super::text::FEWER_FILES;
use crate::Errno;

impl Error {
    /// Error for the kernel's refusal of `verb`, with the usual cause if known.
    #[must_use]
    pub fn kernel(verb: &'static str, errno: Errno) -> Self {
        let hint = of_verb(verb, errno).or_else(|| of_any(errno)).map(Cow::Borrowed);
        Self::Kernel { verb, errno, hint }
    }

    /// Error for the connection manager's refusal of `verb`, with the usual cause if known. Kernel
    /// `ucma.c`, `cma.c`.
    #[must_use]
    pub fn cm(verb: &'static str, errno: Errno) -> Self {
        let hint = match errno {
            Errno::ENODEV => Some("the address's network interface has no RDMA device"),
            Errno::EADDRNOTAVAIL => {
                Some("no network interface has this address, or a wildcard address has the port")
            }
            Errno::EADDRINUSE => Some("another listener has this address and port"),
            Errno::EACCES => Some("ports below 1024 need CAP_NET_BIND_SERVICE"),
            Errno::ENXIO => Some("the device is gone"),
            Errno::EMFILE => Some(FEWER_FILES),
            Errno::EINVAL => out_of_order(verb),
            _ => None,
        };
        Self::Kernel { verb, errno, hint: hint.map(Cow::Borrowed) }
    }
}

/// Cause that only this verb has.
fn of_verb(verb: &str, errno: Errno) -> Option<&'static str> {
    let creates = ["create_", "alloc_", "reg_"].iter().any(|start| verb.starts_with(start));
    Some(match (verb, errno) {
        // Kernel `uverbs_main.c:ib_uverbs_open` (`rdma_dev_access_netns`), `device_cgroup.c`.
        ("open_device", Errno::EPERM) => {
            "the device is outside of this network namespace (`rdma system` shows if namespaces \
             are exclusive, `rdma dev set NAME netns PID` moves it), or the container has no right \
             to its node (`--device /dev/infiniband`)"
        }
        // Firmware statuses 0x8, 0xf and their errnos: kernel `cmd.c:cmd_status_to_err`.
        ("alloc_uar", Errno::ENOMEM | Errno::ENOSPC | Errno::EAGAIN) => {
            "the device has no free doorbell page (UAR): open it in fewer processes, or have \
             firmware make more (`mlxconfig set PF_LOG_BAR_SIZE`, `VF_LOG_BAR_SIZE`); EAGAIN is \
             also the rdma cgroup's limit (`rdma.max`)"
        }
        // Kernel `core/cgroup.c:ib_rdmacg_try_charge`; `cmd_status_to_err` of "no resources".
        (_, Errno::EAGAIN) if creates || verb == "open_device" => {
            "the rdma cgroup's limit is reached (`rdma.max` beside `rdma.current`), or the device \
             is out of this resource: raise the limit, or destroy some objects"
        }
        // Kernel `uverbs_std_types_device.c` (5.6), `uverbs_std_types_qp.c` (5.8).
        ("open_device" | "create_qp", Errno::EPROTONOSUPPORT) => {
            "the kernel is older than Linux 5.8, or its driver than that: update it"
        }
        // Kernel `core/security.c:ib_security_modify_qp`.
        ("modify_qp", Errno::EACCES) => {
            "a security policy (SELinux) denies this P_Key to the process: `ausearch -m avc` names \
             the rule"
        }
        // Kernel `uverbs_cmd.c:modify_qp`, `core/nldev.c` (`privileged-qkey`).
        ("modify_qp", Errno::EPERM) => {
            "a Q_Key whose highest bit is set needs CAP_NET_RAW, or `rdma system set \
             privileged-qkey on`"
        }
        ("destroy_qp", Errno::EBUSY) => {
            "it is in a multicast group, or has a flow rule or window: end that first (drop its \
             MulticastMembership)"
        }
        // Kernel `core/addr.c:addr_resolve_neigh`.
        ("modify_qp" | "create_ah", Errno::ETIMEDOUT) => {
            "the peer's MAC address was not resolved: is the peer up, and in the network of the \
             source GID (`ip neigh`, `ping -I INTERFACE ADDRESS`)?"
        }
        _ => return None,
    })
}

/// Cause that all verbs share.
fn of_any(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::EIO => "the device is gone or its firmware is in fatal error",
        Errno::ENOTTY => "the kernel is older than 4.20, which brought uverbs ioctls",
        Errno::EPROTONOSUPPORT => "this kernel or driver lacks the method or an attribute",
        Errno::ENOSPC => "the device is out of this resource",
        Errno::EBUSY => "another object still uses it",
        Errno::ENOMEM => "out of memory, or RLIMIT_MEMLOCK (ulimit -l) is too low",
        Errno::EINVAL => {
            "a value or combination that this driver rejects; `uverbs trace -- PROGRAM` shows the \
             command"
        }
        Errno::EPERM => "it needs a capability, mostly CAP_NET_RAW",
        Errno::EOPNOTSUPP => "the device or its driver lacks this",
        // Kernel `cmd.c:mlx5_cmd_do`, with the firmware's status and syndrome in `cmd_out_err`.
        Errno::EREMOTEIO => {
            "the device's firmware refused the command; the kernel's log has its status and \
             syndrome (`dmesg | grep mlx5_cmd`)"
        }
        Errno::EMFILE => FEWER_FILES,
        _ => return None,
    })
}

/// Usual cause of the connection manager's `EINVAL`: a call before the event that it needs.
fn out_of_order(verb: &'static str) -> Option<&'static str> {
    Some(match verb {
        "rdma_resolve_route" => "resolve the address first: AddressResolved must have come",
        "rdma_connect" => "resolve the route first: RouteResolved must have come",
        "rdma_accept" => "it answers a ConnectRequest or a ConnectResponse, once",
        "rdma_reject" => "it answers a ConnectRequest, once",
        "rdma_disconnect" => "there is no connection, or it has ended",
        "rdma_init_qp_attr" => {
            "bind the id or resolve its address first; RTR and RTS need the peer's request or \
             response"
        }
        "rdma_join_multicast" => {
            "it needs an id of PortSpace::Udp that is bound or has resolved an address"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_belongs_to_its_verb() {
        for (verb, errno, word) in [
            ("open_device", Errno::EPERM, "netns"),
            ("open_device", Errno::EAGAIN, "rdma.max"),
            ("create_qp", Errno::EAGAIN, "rdma.max"),
            ("reg_mr", Errno::EAGAIN, "rdma.max"),
            ("alloc_uar", Errno::EAGAIN, "PF_LOG_BAR_SIZE"),
            ("alloc_uar", Errno::ENOMEM, "PF_LOG_BAR_SIZE"),
            ("modify_qp", Errno::EACCES, "SELinux"),
            ("modify_qp", Errno::EPERM, "Q_Key"),
            ("create_flow", Errno::EPERM, "CAP_NET_RAW"),
            ("modify_qp", Errno::ETIMEDOUT, "ip neigh"),
            ("create_ah", Errno::ETIMEDOUT, "ip neigh"),
            ("create_srq", Errno::EREMOTEIO, "dmesg"),
            ("create_qp", Errno::EPROTONOSUPPORT, "Linux 5.8"),
            ("destroy_qp", Errno::EBUSY, "MulticastMembership"),
        ] {
            let text = Error::kernel(verb, errno).to_string();
            assert!(text.starts_with(verb) && text.contains(word), "{text}");
        }
        let none = Error::kernel("get_async_event", Errno::EAGAIN).to_string();
        assert!(!none.contains("cgroup"), "{none}");
    }

    #[test]
    fn a_call_out_of_order_says_which_event_is_missing() {
        let text = |verb| Error::cm(verb, Errno::EINVAL).to_string();
        assert!(text("rdma_connect").contains("RouteResolved"), "{}", text("rdma_connect"));
        assert!(text("rdma_resolve_route").contains("AddressResolved"));
        assert!(!text("rdma_listen").contains(';'));
    }
}
