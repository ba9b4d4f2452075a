//! Whose an object is.
//!
//! Each command carries the number of the user whose it is: 0 for the driver's own, else one of
//! CREATE_UCTX (PRM "UCTX"; Linux `hw/mlx5/devx.c`, `mlx5_ib_devx_create`). Linux sets it in the
//! commands that it makes for a process (`hw/mlx5/cq.c`, `create_cq_user`; `qp.c`,
//! `_create_user_qp`; `srq.c`, `mlx5_ib_create_srq`) and in those that a process wrote, of which
//! it checks the object that they are about (`devx_is_valid_obj_id`) and not those that they name
//! beside it. Numbers are easily guessed, so the device checks all of them.

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::header::cmd_in;

use super::call::{Call, Refusal};
use super::numbers::Numbers;

/// A user of the command interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User(u64);

impl User {
    /// The driver, which may name anything.
    pub(super) const DRIVER: Self = Self(0);
    /// Owner of what everybody may name: the event queues of completions (Linux `core/eq.c`,
    /// `create_map_eq`, `MLX5_SHARED_RESOURCE_UID`).
    const SHARED: Self = Self(0xffff);

    /// Whose a command is.
    pub(super) fn of(call: &Call<'_>) -> Self {
        Self(cmd_in::UID.get(call.input))
    }

    /// Whether it may name an object of `owner`.
    pub(super) fn may_name(self, owner: Self) -> bool {
        self == Self::DRIVER || self == owner || owner == Self::SHARED
    }

    /// The same for doorbell pages. The driver's are everybody's: Linux before 5.14 allocates all
    /// pages as the driver (`hw/mlx5/main.c`, `allocate_uars`), and to ring through one gives
    /// nothing, since a doorbell names its queue.
    pub(super) fn may_ring(self, owner: Self) -> bool {
        self.may_name(owner) || owner == Self::DRIVER
    }
}

/// Objects of one kind by number, each with its owner.
#[derive(Debug)]
pub(super) struct Objects<T> {
    by_number: BTreeMap<u32, (User, T)>,
    /// Why a command is refused that names none, or somebody else's.
    missing: &'static str,
}

impl<T> Objects<T> {
    pub(super) const fn new(missing: &'static str) -> Self {
        Self { by_number: BTreeMap::new(), missing }
    }

    pub(super) fn clear(&mut self) {
        self.by_number.clear();
    }

    pub(super) fn insert(&mut self, call: &Call<'_>, number: u32, object: T) {
        self.by_number.insert(number, (User::of(call), object));
    }

    /// The object that a command names.
    pub(super) fn get(&self, call: &Call<'_>, number: u32) -> Result<&T, Refusal> {
        let entry = self.by_number.get(&number);
        let entry = entry.filter(|(owner, _)| User::of(call).may_name(*owner));
        entry.map(|(_, object)| object).ok_or(Refusal::resource(self.missing))
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, call: &Call<'_>, number: u32) -> Result<&mut T, Refusal> {
        let entry = self.by_number.get_mut(&number);
        let entry = entry.filter(|(owner, _)| User::of(call).may_name(*owner));
        entry.map(|(_, object)| object).ok_or(Refusal::resource(self.missing))
    }

    /// The same, taken out.
    pub(super) fn remove(&mut self, call: &Call<'_>, number: u32) -> Result<T, Refusal> {
        self.get(call, number)?;
        let entry = self.by_number.remove(&number);
        entry.map(|(_, object)| object).ok_or(Refusal::resource(self.missing))
    }

    /// Refuses a command that names somebody else's. The HCA side knows whether there is one.
    pub(super) fn check(&self, call: &Call<'_>, number: u32) -> Result<(), Refusal> {
        match self.by_number.contains_key(&number) {
            true => self.get(call, number).map(drop),
            false => Ok(()),
        }
    }

    /// Any object, for the device itself.
    pub(super) fn find(&self, number: u32) -> Option<&T> {
        self.by_number.get(&number).map(|(_, object)| object)
    }

    /// All of them.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.by_number.values().map(|(_, object)| object)
    }
}

/// Objects that are a number and nothing else.
#[derive(Clone, Debug)]
pub(super) struct OwnedNumbers {
    numbers: Numbers,
    owners: BTreeMap<u32, User>,
}

impl OwnedNumbers {
    pub(super) const fn new(numbers: Numbers) -> Self {
        Self { numbers, owners: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, call: &Call<'_>) -> Option<u32> {
        let number = self.numbers.take()?;
        self.owners.insert(number, User::of(call));
        Some(number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn owner(&self, number: u32) -> Option<User> {
        self.owners.get(&number).copied()
    }

    /// Whether there is such a number, and the command may name it.
    pub(super) fn has(&self, call: &Call<'_>, number: u32) -> bool {
        self.owner(number).is_some_and(|owner| User::of(call).may_name(owner))
    }

    /// The same, and gives it back.
    pub(super) fn give_back(&mut self, call: &Call<'_>, number: u32) -> bool {
        self.has(call, number) && {
            self.owners.remove(&number);
            self.numbers.give_back(number)
        }
    }
}
