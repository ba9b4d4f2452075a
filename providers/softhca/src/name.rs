//! Names of devices on the network, and their options.

use std::io;

use crate::udp::Udp;
use uverbs_front::backend::context::LinkLayer;

/// Prefix of the name of a device on the network; its address follows.
const PREFIX: &str = "softhca@";
/// Prefix of the name of an Omni-Path device on the network.
const OMNI_PATH: &str = "softhfi@";
/// Prefix of the name of softefa's devices, whose addresses have the same text.
const ELASTIC_FABRIC: &str = "softefa@";
/// Option: an InfiniBand port.
const INFINIBAND: &str = "ib";
/// Options after an address.
const OPTIONS: [&str; 3] = ["udp", "shm", INFINIBAND];
/// Maximum bytes of a name that a program sees, one less than the room in `struct ibv_device`.
const LONGEST: usize = 63;

/// A device on the network by its name, `softhca@ADDRESS[=NAME][,OPTION]...`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NetworkName {
    /// Name that the program sees.
    pub(crate) shown: String,
    pub(crate) udp: Udp,
    pub(crate) link: LinkLayer,
    /// A device of Omni-Path.
    pub(crate) omni_path: bool,
}

impl NetworkName {
    /// Parses a name; `None` if it has another prefix.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a malformed address, an unknown option or a name that is no file name.
    pub(crate) fn parse(name: &str) -> Option<io::Result<Self>> {
        if let Some(rest) = name.strip_prefix(OMNI_PATH) {
            let made = Self::parse_rest(name, rest);
            return Some(made.map(|of| Self {
                link: LinkLayer::InfiniBand,
                omni_path: true,
                ..of
            }));
        }
        name.strip_prefix(PREFIX).map(|rest| Self::parse_rest(name, rest))
    }

    fn parse_rest(name: &str, rest: &str) -> io::Result<Self> {
        let (at, options) = rest.split_once(',').unwrap_or((rest, ""));
        let (address, shown) = match at.split_once('=') {
            Some((address, shown)) => (address, check(shown)?),
            None => (at, name),
        };
        let (ib, carriers): (Vec<_>, Vec<_>) =
            options.split(',').partition(|option| *option == INFINIBAND);
        let link = match ib.len() {
            0 => LinkLayer::Ethernet,
            1 => LinkLayer::InfiniBand,
            _ => return Err(invalid(format!("{name:?} has the option ib twice"))),
        };
        let has_more = rest.contains(',') && !carriers.is_empty();
        let udp = match has_more {
            true => format!("{address},{}", carriers.join(",")).parse::<Udp>(),
            false => address.parse::<Udp>(),
        };
        Ok(Self { shown: shown.to_owned(), udp: udp?, link, omni_path: false })
    }
}

/// Checks a name for a device: programs make paths of it.
fn check(name: &str) -> io::Result<&str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let is_name = (1..=LONGEST).contains(&name.len()) && !name.starts_with('.');
    if is_name && name.bytes().all(fits) {
        return Ok(name);
    }
    Err(invalid(format!("{name:?} is no device name: letters, digits, _ - . and at most 63 bytes")))
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// True if `part` of a list of names is an option of the device on the network `name` before it.
///
/// ```
/// assert!(uverbs_softhca::is_option("softhca@127.0.0.2", "udp"));
/// assert!(!uverbs_softhca::is_option("softhca1", "udp"));
/// ```
#[must_use]
pub fn is_option(name: &str, part: &str) -> bool {
    let on_network = [PREFIX, OMNI_PATH, ELASTIC_FABRIC];
    on_network.iter().any(|prefix| name.starts_with(prefix)) && OPTIONS.contains(&part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::Carrier;

    #[test]
    fn a_name_has_an_address_a_name_and_options() {
        let parse = |name: &str| NetworkName::parse(name).unwrap();
        let udp: Udp = "127.0.0.1".parse().unwrap();
        let plain = parse("softhca@127.0.0.1").unwrap();
        assert_eq!(plain.shown, "softhca@127.0.0.1");
        assert_eq!((plain.udp, plain.link), (udp.clone(), LinkLayer::Ethernet));
        let ethernet = parse("softhca@127.0.0.1=mlx5_0,udp").unwrap();
        assert_eq!(ethernet.shown, "mlx5_0");
        assert_eq!(ethernet.udp, udp.clone().by(Carrier::Udp));
        for text in ["softhca@127.0.0.1=mlx5_0,ib,udp", "softhca@127.0.0.1=mlx5_0,udp,ib"] {
            let infiniband = parse(text).unwrap();
            assert_eq!(infiniband.link, LinkLayer::InfiniBand);
            assert_eq!(infiniband.udp, udp.clone().by(Carrier::Udp));
        }
        assert_eq!(parse("softhca@loopback,ib").unwrap().udp, Udp::loopback());
        for bad in ["=", "=a/b", "=.a", "=a@b", ",", ",tcp", ",ib,ib", ",udp,shm", ",udp=a"] {
            let name = format!("softhca@127.0.0.1{bad}");
            let error = parse(&name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
        assert!(NetworkName::parse("softhca0").is_none());
    }
}
