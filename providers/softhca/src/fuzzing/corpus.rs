//! What a fuzzer kept, once more: the smallest inputs that reach all that it has reached.

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{folder:?}: {why}"));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder:?} is empty");
    for path in paths {
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
    }
}

#[test]
fn any_packets() {
    replay("packets", super::packets);
}

#[test]
fn any_work_requests() {
    replay("work_requests", super::work_requests);
}

#[test]
fn any_stores_into_rings() {
    replay("rings", super::rings);
}

#[test]
fn any_mads() {
    replay("mads", super::mads);
}

#[test]
#[cfg(feature = "pci")]
fn any_mailboxes() {
    replay("mailboxes", super::mailboxes);
}
