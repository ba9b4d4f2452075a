//! Order of commands in the server's log, compared with `order.txt`, which also has Linux's.

use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_mlx5_vfio::{Function, Limits};
use uverbs_softhca::LinkLayer;
use uverbs_softhca::pci::{PciOptions, Trouble};
use uverbs_softhca::vfio_user::Server;

const ORDER: &str = include_str!("order.txt");

/// Commands of the list's rows for `who`, with their modifiers.
fn listed(who: &str) -> Vec<String> {
    let rows = ORDER.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[0] == who || row[0] == "both").map(|row| row[1..3].join(" ")).collect()
}

#[test]
fn commands_come_in_the_listed_order() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hca.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&log);
    let server = std::thread::spawn(move || {
        let trouble = Trouble::strict();
        let options = PciOptions { link: LinkLayer::Ethernet, trouble, ..PciOptions::default() };
        let mut server = Server::new(&options).unwrap();
        server.log_to(Box::new(move |line| lines.lock().unwrap().push(line.to_string())));
        server.serve_one(&listener).unwrap();
    });
    let function = Function::open(VfioUser::connect(&socket).unwrap(), Limits::default()).unwrap();
    function.close().unwrap();
    server.join().unwrap();
    let log = log.lock().unwrap();
    // `0.001 cmd  0 ENABLE_HCA op_mod=0x0 in=16 out=16: OK`.
    let commands = log.iter().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "cmd")?;
        Some(format!("{} {}", words.get(at + 2)?, words.get(at + 3)?.strip_prefix("op_mod=")?))
    });
    assert_eq!(commands.collect::<Vec<_>>(), listed("ours"));
}

/// A difference has a reason, or follows one.
#[test]
fn each_difference_is_explained() {
    let mut explained = false;
    for line in ORDER.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        explained = match words[0] {
            "both" => false,
            _ => explained || words.len() > 3,
        };
        assert!(words[0] == "both" || explained, "{line}");
    }
}
