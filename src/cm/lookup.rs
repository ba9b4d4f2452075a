//! Names of hosts and services as addresses for the connection manager.
//!
//! # Safety
//!
//! `getaddrinfo` returns a list in memory that it allocates. The list is copied and freed once.
#![allow(unsafe_code, reason = "getaddrinfo, whose answer is a list of pointers")]

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::ptr;

use nix::libc;
use uverbs_core::Errno;
use uverbs_core::connection::{ConnectionErrorKind, NameError};
use uverbs_core::error::Error;

use super::PortSpace;
use super::addr::from_kernel;

/// The longest address that is read: a `struct sockaddr_in6`.
const LONGEST: usize = 28;

/// Finds the addresses of a host's name and a service's, as `rdma_getaddrinfo` does.
///
/// ```
/// use uverbs::cm::Lookup;
///
/// // Where a client goes.
/// let found = Lookup::new().numeric().find(Some("10.0.0.1"), Some("7471"))?;
/// assert_eq!(found[0].peer, Some("10.0.0.1:7471".parse()?));
/// // Where a server waits: without a host at every address.
/// let found = Lookup::new().passive().ipv4().find(None, Some("7471"))?;
/// assert_eq!(found[0].own, Some("0.0.0.0:7471".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Names are resolved by the system (`getaddrinfo`: hosts file, name servers, services file).
/// ibacm, the InfiniBand address cache that librdmacm asks if it runs, isn't asked.
#[derive(Clone, Debug, Default)]
#[doc(alias = "rdma_addrinfo")]
pub struct Lookup {
    space: PortSpace,
    family: i32,
    flags: i32,
    own: Option<SocketAddr>,
}

/// An address that a [`Lookup`] found, with what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "rdma_addrinfo")]
pub struct AddressInfo {
    /// Port space of the address.
    pub space: PortSpace,
    /// Local address: a server's address to listen at, or a client's requested source address.
    #[doc(alias = "ai_src_addr")]
    pub own: Option<SocketAddr>,
    /// The other side's address; a server has none.
    #[doc(alias = "ai_dst_addr")]
    pub peer: Option<SocketAddr>,
}

impl Lookup {
    /// Looks up addresses for a client of reliable connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks up addresses for a server to listen at. Without a host: the wildcard address.
    #[must_use]
    #[doc(alias = "RAI_PASSIVE")]
    pub fn passive(mut self) -> Self {
        self.flags |= libc::AI_PASSIVE;
        self
    }

    /// The host is an address in digits: no name server is asked.
    #[must_use]
    #[doc(alias = "RAI_NUMERICHOST")]
    pub fn numeric(mut self) -> Self {
        self.flags |= libc::AI_NUMERICHOST;
        self
    }

    /// IPv4 addresses alone.
    #[must_use]
    #[doc(alias = "RAI_FAMILY")]
    pub fn ipv4(mut self) -> Self {
        self.family = libc::AF_INET;
        self
    }

    /// IPv6 addresses alone.
    #[must_use]
    #[doc(alias = "RAI_FAMILY")]
    pub fn ipv6(mut self) -> Self {
        self.family = libc::AF_INET6;
        self
    }

    /// Sets the port space, which also selects the protocol of the service name.
    #[must_use]
    pub fn space(mut self, space: PortSpace) -> Self {
        self.space = space;
        self
    }

    /// A client's own address. Only addresses of its family are found.
    #[must_use]
    pub fn from(mut self, own: SocketAddr) -> Self {
        self.own = Some(own);
        self
    }

    /// Looks up the addresses of `host` and `service`, in the system's order, best first. Both are
    /// optional: without a host a client gets its local host, without a service port 0.
    ///
    /// Blocks for name servers as long as the system does (`resolv.conf`), unless
    /// [`numeric`](Self::numeric).
    ///
    /// # Errors
    ///
    /// [`ConnectionErrorKind::NameUnresolved`] with the reason; [`Error::Invalid`] for a name with
    /// a zero byte.
    #[doc(alias = "rdma_getaddrinfo")]
    pub fn find(
        &self,
        host: Option<&str>,
        service: Option<&str>,
    ) -> Result<Vec<AddressInfo>, Error> {
        let node = host.map(|host| c_string("host", host)).transpose()?;
        // Without either getaddrinfo finds nothing.
        let port = c_string("service", service.unwrap_or("0"))?;
        let addresses = self.ask(node.as_ref(), &port).map_err(|reason| {
            let name = match (host, service) {
                (host, None) => host.unwrap_or_default().to_owned(),
                (host, Some(service)) => format!("{}:{service}", host.unwrap_or_default()),
            };
            ConnectionErrorKind::NameUnresolved { name, reason }
        })?;
        let (space, own) = (self.space, self.own);
        let info = |addr| match self.flags & libc::AI_PASSIVE {
            0 => AddressInfo { space, own, peer: Some(addr) },
            _ => AddressInfo { space, own: Some(addr), peer: None },
        };
        Ok(addresses.into_iter().map(info).collect())
    }

    fn ask(&self, node: Option<&CString>, service: &CString) -> Result<Vec<SocketAddr>, NameError> {
        let (kind, protocol) = match self.space {
            PortSpace::Udp | PortSpace::Ipoib => (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
            PortSpace::Tcp | PortSpace::Ib => (libc::SOCK_STREAM, libc::IPPROTO_TCP),
        };
        let family = match (self.family, self.own) {
            (libc::AF_UNSPEC, Some(SocketAddr::V4(_))) => libc::AF_INET,
            (libc::AF_UNSPEC, Some(SocketAddr::V6(_))) => libc::AF_INET6,
            (family, _) => family,
        };
        let hints = libc::addrinfo {
            ai_flags: self.flags,
            ai_family: family,
            ai_socktype: kind,
            ai_protocol: protocol,
            ai_addrlen: 0,
            ai_addr: ptr::null_mut(),
            ai_canonname: ptr::null_mut(),
            ai_next: ptr::null_mut(),
        };
        let mut list = ptr::null_mut();
        let node = node.map_or(ptr::null(), |node| node.as_ptr());
        // SAFETY: the strings end with a zero byte and live until the call returns, `hints` has the
        // fields that getaddrinfo(3) asks for and zeros in the others, and `list` takes its answer.
        let code = unsafe { libc::getaddrinfo(node, service.as_ptr(), &hints, &mut list) };
        if code != 0 {
            return Err(NameError { code, errno: Errno::of(&io::Error::last_os_error()) });
        }
        let mut found = Vec::new();
        let mut next = list;
        // SAFETY: `next` is null or an entry of the list, which stands until it is given back.
        while let Some(entry) = unsafe { next.as_ref() } {
            let len = LONGEST.min(entry.ai_addrlen as usize);
            // SAFETY: an entry's address has `ai_addrlen` readable bytes, unchanged until the list
            // is freed.
            let bytes = unsafe { std::slice::from_raw_parts(entry.ai_addr.cast::<u8>(), len) };
            found.extend(from_kernel(bytes));
            next = entry.ai_next;
        }
        // SAFETY: the list is getaddrinfo's, and no borrow of its entries is left.
        unsafe { libc::freeaddrinfo(list) };
        Ok(found)
    }
}

fn c_string(what: &'static str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Invalid {
        verb: "rdma_getaddrinfo",
        what,
        value: text.escape_debug().to_string(),
        why: "a name must not contain a zero byte",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::ConnectionError;

    fn reason(error: Error) -> NameError {
        match error {
            Error::Connection(ConnectionError {
                kind: ConnectionErrorKind::NameUnresolved { reason, .. },
                ..
            }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clients_go_to_the_peer_and_servers_wait_at_their_own() {
        let at = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        let v4 = Lookup::new().numeric();
        let found = v4.find(Some("10.1.2.3"), Some("7471")).unwrap();
        let wanted = AddressInfo { space: PortSpace::Tcp, own: None, peer: at("10.1.2.3:7471") };
        assert_eq!(found, [wanted]);
        let found = v4.clone().passive().find(Some("fe80::1"), Some("9")).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].own, found[0].peer), (at("[fe80::1]:9"), None));
        // Without host and port: the wildcard address, and a port that the system chooses.
        let found = Lookup::new().passive().ipv4().find(None, None).unwrap();
        assert_eq!(found[0].own, at("0.0.0.0:0"));
        let found = Lookup::new().ipv6().find(None, Some("1")).unwrap();
        assert_eq!(found[0].peer, at("[::1]:1"));
    }

    #[test]
    fn one_side_decides_the_family_of_the_other() {
        let own: SocketAddr = "10.0.0.9:0".parse().unwrap();
        let from = Lookup::new().numeric().from(own);
        let found = from.find(Some("10.0.0.1"), None).unwrap();
        assert_eq!(found[0].own, Some(own));
        let error = reason(from.find(Some("::1"), None).unwrap_err());
        assert!(error.to_string().contains("family"), "{error}");
    }

    #[test]
    fn services_are_those_of_the_port_space() {
        // From the file of services, if it exists: "https" is TCP's on any system.
        let https =
            |space| Lookup::new().numeric().space(space).find(Some("10.0.0.1"), Some("https"));
        match https(PortSpace::Tcp) {
            Ok(found) => assert_eq!(found[0].peer.map(|peer| peer.port()), Some(443)),
            Err(error) => assert_eq!(reason(error).code, libc::EAI_SERVICE),
        }
    }

    #[test]
    fn what_is_no_name_is_an_error_that_says_so() {
        let numeric = Lookup::new().numeric();
        let error = numeric.find(Some("a.name"), None).unwrap_err();
        assert!(error.to_string().contains("a.name"), "{error}");
        assert_eq!(reason(error).code, libc::EAI_NONAME);
        let error = numeric.find(Some("10.0.0.1"), Some("no-such-service")).unwrap_err();
        assert!(error.to_string().contains("10.0.0.1:no-such-service"), "{error}");
        let code = reason(error).code;
        assert!([libc::EAI_SERVICE, libc::EAI_NONAME].contains(&code), "{code}");
        let error = numeric.find(Some("a\0b"), None).unwrap_err();
        assert!(matches!(error, Error::Invalid { what: "host", .. }), "{error}");
    }
}
