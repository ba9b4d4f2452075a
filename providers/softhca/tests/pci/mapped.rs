//! Doorbells of a guest that maps their pages, as QEMU does if the server offers them.

use std::time::Duration;

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{eq, simple};
use uverbs_softhca::pci::PciOptions;
use uverbs_softhca::vfio_user::Server;

use crate::data::{pair_of, send_and_sleep};
use crate::driver::{Driver, with_page};
use crate::host::{Host, words};

const PAGE: u64 = 4096;

fn host() -> Host {
    let mut server = Server::new(&PciOptions::default()).unwrap();
    server.map_to_guests();
    Host::of(server)
}

/// Allocates the next doorbell page.
fn uar(driver: &mut Driver) -> u32 {
    let output = driver.ok(CmdOpcode::ALLOC_UAR, 0, &[0; 16], 16);
    simple::alloc_uar_out::UAR.get32(&output)
}

#[test]
fn stores_into_mapped_pages_are_seen_without_messages() {
    let mut driver = Driver::on(host()).initialised();
    let pages = driver.host.map_doorbells();
    let eqn = driver.eq(1, 0);
    // The first page has the event queues and is not mapped.
    assert_eq!(pages.start, u64::from(driver.eq_uar + 1) * PAGE);
    driver.uar = uar(&mut driver);
    // The server sleeps when the first store comes.
    std::thread::sleep(Duration::from_millis(20));
    send_and_sleep(pair_of(driver, eqn));
}

#[test]
fn a_mapped_page_has_no_event_queue() {
    let mut driver = Driver::on(host()).initialised();
    let mapped = uar(&mut driver);
    let mut input = with_page(eq::create_eq_in::SIZE, driver.page());
    for (uar, status) in [(mapped, CmdStatus::BAD_PARAM_ERR), (driver.uar, CmdStatus::OK)] {
        let context = eq::create_eq_in::EQ_CONTEXT_ENTRY.of_mut(&mut input);
        eq::eqc::UAR_PAGE.set(context, uar.into());
        assert_eq!(driver.run(CmdOpcode::CREATE_EQ, 0, &input, 16).0, status);
    }
    // A guest whose doorbells are messages may have it anywhere, also if a mapping one was there
    // before.
    let mut driver = Driver::up();
    driver.eq_uar = uar(&mut driver);
    driver.eq(1, 0);
}

/// QEMU refuses a description that has capabilities, and no offset for them.
#[test]
fn a_short_description_tells_how_long_the_whole_is() {
    let asks = |len| words(&[len, 0, 0, 0, 0, 0, 0, 0]);
    let told = host().request(5, &asks(32), &[]).unwrap();
    assert_eq!((told.len(), &told[..16]), (32, &words(&[64, 0b1111, 0, 32])[..]));
    let told = Host::new().request(5, &asks(64), &[]).unwrap();
    assert_eq!(told[..16], words(&[32, 0b0011, 0, 0]), "nothing is mapped by default");
}
