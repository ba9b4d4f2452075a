//! Names of PCI functions without a kernel driver: `vfio:ADDRESS`, `vfio-user:PATH`.

/// Option that gives the port an IP address.
pub const ADDRESS: &str = "address=";
/// Option that puts the address before it on a VLAN.
pub const VLAN: &str = "vlan=";
/// Option that gives the router of an IP version.
pub const GATEWAY: &str = "gateway=";
/// Option that gives a peer's MAC address.
pub const NEIGHBOUR: &str = "neighbour=";
/// Option that sets the port's MTU.
pub const MTU: &str = "mtu=";
/// Options behind a name, each after a comma.
const OPTIONS: [&str; 5] = [ADDRESS, VLAN, GATEWAY, NEIGHBOUR, MTU];

/// True if `part` of a list of names is an option of the function `name` before it.
#[must_use]
pub fn is_option(name: &str, part: &str) -> bool {
    is_function(name) && OPTIONS.iter().any(|option| part.starts_with(option))
}

/// True for the name of a function, with or without options.
#[must_use]
pub fn is_function(name: &str) -> bool {
    ["vfio:", "vfio-user:"].iter().any(|prefix| name.starts_with(prefix))
}
