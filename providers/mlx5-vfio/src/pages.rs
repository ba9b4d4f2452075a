//! Pages that the device asks for, and keeps its tables in (Linux `core/pagealloc.c`).
//!
//! At bring-up the driver asks how many; later the device asks by event. Pages of virtual functions
//! are not supplied: their requests are answered with "can't give".

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::hca::{
    manage_pages_in, manage_pages_out, query_pages_in, query_pages_out,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use crate::device::Device;
use crate::dma::{Buffer, PAGE};
use crate::error::Error;

/// Pages of one command.
const BATCH: usize = 512;
/// Pause after an answer without pages.
const PAUSE: Duration = Duration::from_millis(5);

/// `op_mod` of QUERY_PAGES and MANAGE_PAGES (`MLX5_BOOT_PAGES`, `MLX5_PAGES_GIVE` and others of
/// `pagealloc.c`).
mod op {
    pub(super) const BOOT: u16 = 1;
    pub(super) const INIT: u16 = 2;
    pub(super) const CANT_GIVE: u16 = 0;
    pub(super) const GIVE: u16 = 1;
    pub(super) const TAKE: u16 = 2;
}

/// Step of bring-up at which the device may need pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Startup {
    Boot,
    Init,
}

/// Pages that the device has, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct PageSupply(Mutex<BTreeMap<u64, Buffer>>);

impl PageSupply {
    fn given(&self) -> MutexGuard<'_, BTreeMap<u64, Buffer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of pages that the device has.
    pub(crate) fn count(&self) -> usize {
        self.given().len()
    }
}

impl Device {
    /// Gives the pages that the device needs at a step of bring-up
    /// (`mlx5_satisfy_startup_pages`).
    pub(crate) fn supply(&self, step: Startup) -> Result<(), Error> {
        let op_mod = match step {
            Startup::Boot => op::BOOT,
            Startup::Init => op::INIT,
        };
        let input = [0; query_pages_in::SIZE];
        let output = self.run(CmdOpcode::QUERY_PAGES, op_mod, &input, query_pages_out::SIZE)?;
        let function = query_pages_out::FUNCTION_ID.get(&output) as u16;
        let count = query_pages_out::NUM_PAGES.get32(&output).cast_signed();
        let count = usize::try_from(count)
            .map_err(|_| Error::answer("the number of pages at bring-up", count.cast_unsigned()))?;
        self.give(function, count)
    }

    /// Answers a request for pages, or for their return if `count` is negative
    /// (`pages_work_handler`).
    pub(crate) fn serve_pages(&self, function: u16, count: i32) -> Result<(), Error> {
        let number = count.unsigned_abs() as usize;
        if function != 0 {
            return match count > 0 {
                true => self.decline(function),
                // No page of another function was ever given.
                false => Ok(()),
            };
        }
        if count < 0 {
            return self.take_back(function, number, self.limits().command).map(drop);
        }
        match self.give(function, number) {
            Err(Error::Limit { .. } | Error::System { .. }) => self.decline(function),
            done => done,
        }
    }

    /// Tells the device that it gets no pages (`page_notify_fail`).
    fn decline(&self, function: u16) -> Result<(), Error> {
        let mut input = [0; manage_pages_in::SIZE];
        manage_pages_in::FUNCTION_ID.set(&mut input, function.into());
        self.run(CmdOpcode::MANAGE_PAGES, op::CANT_GIVE, &input, manage_pages_out::SIZE).map(drop)
    }

    /// Gives `count` pages (`give_pages`). All commands together have the time limit of a single
    /// one, so that a slow device does not hold the driver's thread.
    fn give(&self, function: u16, count: usize) -> Result<(), Error> {
        let (value, limit) = ((count as u64) * PAGE as u64, self.limits().memory as u64);
        if value > limit {
            return Err(Error::Limit { what: "bytes of the device's pages", value, limit });
        }
        let start = Instant::now();
        let mut left = count;
        while left != 0 {
            in_time("the acceptance of", count, start, self.limits().command)?;
            let batch = left.min(BATCH);
            let pages = (0..batch).map(|_| self.buffer(PAGE)).collect::<Result<Vec<_>, _>>()?;
            let mut input = vec![0; manage_pages_in::SIZE];
            manage_pages_in::FUNCTION_ID.set(&mut input, function.into());
            manage_pages_in::INPUT_NUM_ENTRIES.set(&mut input, batch as u64);
            input.extend(pages.iter().flat_map(|page| page.iova().to_be_bytes()));
            let len = manage_pages_out::SIZE;
            // The device does not take the pages of a command that it refuses.
            self.run(CmdOpcode::MANAGE_PAGES, op::GIVE, &input, len)?;
            self.pages.given().extend(pages.into_iter().map(|page| (page.iova(), page)));
            left -= batch;
        }
        Ok(())
    }

    /// Takes up to `count` pages back within `limit` (`reclaim_pages`). Returns the number of pages
    /// that came.
    fn take_back(&self, function: u16, count: usize, limit: Duration) -> Result<usize, Error> {
        let start = Instant::now();
        let (mut left, mut all) = (count.min(self.pages.count()), 0);
        while left != 0 {
            in_time("the return of", count, start, limit)?;
            let batch = left.min(BATCH);
            let mut input = [0; manage_pages_in::SIZE];
            manage_pages_in::FUNCTION_ID.set(&mut input, function.into());
            manage_pages_in::INPUT_NUM_ENTRIES.set(&mut input, batch as u64);
            let len = manage_pages_out::SIZE + 8 * batch;
            let output = self.run(CmdOpcode::MANAGE_PAGES, op::TAKE, &input, len)?;
            let came = manage_pages_out::OUTPUT_NUM_ENTRIES.get32(&output);
            if came as usize > batch {
                return Err(self.fail(Error::answer("the number of returned pages", came)));
            }
            let list = manage_pages_out::PAS.of(&output).chunks_exact(8).take(came as usize);
            for address in list.filter_map(|bytes| bytes.try_into().ok().map(u64::from_be_bytes)) {
                // A page that was never given, or that came back before, stays where it is.
                if self.pages.given().remove(&address).is_none() {
                    return Err(self.fail(Error::answer("a returned page", address)));
                }
            }
            all += came as usize;
            if came == 0 {
                break;
            }
            left = (left - batch).min(self.pages.count());
        }
        Ok(all)
    }

    /// Takes all pages back (`mlx5_reclaim_startup_pages`).
    pub(crate) fn reclaim(&self) -> Result<(), Error> {
        let (start, limit) = (Instant::now(), self.limits().reclaim);
        loop {
            let count = self.pages.count();
            if count == 0 {
                return Ok(());
            }
            in_time("the return of", count, start, limit)?;
            if self.take_back(0, count, limit.saturating_sub(start.elapsed()))? == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Fails once `limit` has passed since `start`.
fn in_time(what: &str, pages: usize, start: Instant, limit: Duration) -> Result<(), Error> {
    let waited = start.elapsed();
    match waited < limit {
        true => Ok(()),
        false => Err(Error::TimedOut { what: format!("{what} {pages} pages"), waited }),
    }
}
