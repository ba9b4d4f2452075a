//! Owners of objects.
//!
//! Each command carries its user's number: 0 for the driver, otherwise a number of CREATE_UCTX (PRM
//! "UCTX"; Linux `hw/mlx5/devx.c`, `mlx5_ib_devx_create`). Linux sets it in the commands that it
//! builds for a process (`hw/mlx5/cq.c`, `create_cq_user`; `qp.c`, `_create_user_qp`; `srq.c`,
//! `mlx5_ib_create_srq`) and in the commands that a process wrote. In these it checks the object
//! that the command is for (`devx_is_valid_obj_id`), but no other object that the command names.
//! Numbers are easily guessed, so the device checks all of them.

use std::collections::BTreeMap;

use uverbs_mlx5_prm::cmd::header::cmd_in;

use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::numbers::Numbers;

/// A user of the command interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User(u64);

impl User {
    /// The driver, which may name any object.
    pub(crate) const DRIVER: Self = Self(0);
    /// Owner of objects that every user may name: the event queues of completions (Linux
    /// `core/eq.c`, `create_map_eq`, `MLX5_SHARED_RESOURCE_UID`).
    const SHARED: Self = Self(0xffff);

    /// User of a command.
    pub(crate) fn of(call: &Call<'_>) -> Self {
        Self(cmd_in::UID.get(call.input))
    }

    /// True if the user may name an object of `owner`.
    pub(crate) fn may_name(self, owner: Self) -> bool {
        self == Self::DRIVER || self == owner || owner == Self::SHARED
    }

    /// True if the user may name a doorbell page of `owner`. Every user may name the driver's
    /// pages: Linux before 5.14 allocates all pages as the driver (`hw/mlx5/main.c`,
    /// `allocate_uars`). This gives no access to queues, since a doorbell names its queue.
    pub(crate) fn may_ring(self, owner: Self) -> bool {
        self.may_name(owner) || owner == Self::DRIVER
    }
}

/// Objects of one kind by number, each with its owner.
#[derive(Debug)]
pub(crate) struct Objects<T> {
    by_number: BTreeMap<u32, (User, T)>,
    /// Reason of a refusal if a command names an unknown object, or another user's.
    missing: &'static str,
}

impl<T> Objects<T> {
    pub(crate) const fn new(missing: &'static str) -> Self {
        Self { by_number: BTreeMap::new(), missing }
    }

    pub(crate) fn clear(&mut self) {
        self.by_number.clear();
    }

    pub(crate) fn insert(&mut self, call: &Call<'_>, number: u32, object: T) {
        self.by_number.insert(number, (User::of(call), object));
    }

    /// The object that a command names.
    pub(crate) fn get(&self, call: &Call<'_>, number: u32) -> Result<&T, Refusal> {
        let entry = self.by_number.get(&number);
        let entry = entry.filter(|(owner, _)| User::of(call).may_name(*owner));
        entry.map(|(_, object)| object).ok_or(Refusal::resource(self.missing))
    }

    /// The object that a command names, to be changed.
    pub(crate) fn get_mut(&mut self, call: &Call<'_>, number: u32) -> Result<&mut T, Refusal> {
        let entry = self.by_number.get_mut(&number);
        let entry = entry.filter(|(owner, _)| User::of(call).may_name(*owner));
        entry.map(|(_, object)| object).ok_or(Refusal::resource(self.missing))
    }

    /// Removes the object that a command names.
    pub(crate) fn remove(&mut self, call: &Call<'_>, number: u32) -> Result<T, Refusal> {
        self.get(call, number)?;
        let entry = self.by_number.remove(&number);
        entry.map(|(_, object)| object).ok_or(Refusal::resource(self.missing))
    }

    /// Refuses a command that names another user's object. The HCA side checks that it exists.
    pub(crate) fn check(&self, call: &Call<'_>, number: u32) -> Result<(), Refusal> {
        match self.by_number.contains_key(&number) {
            true => self.get(call, number).map(drop),
            false => Ok(()),
        }
    }

    /// An object of any owner, for the device itself.
    pub(crate) fn find(&self, number: u32) -> Option<&T> {
        self.by_number.get(&number).map(|(_, object)| object)
    }

    /// All objects.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.by_number.values().map(|(_, object)| object)
    }
}

/// Objects without state except their number.
#[derive(Clone, Debug)]
pub(crate) struct OwnedNumbers {
    numbers: Numbers,
    owners: BTreeMap<u32, User>,
}

impl OwnedNumbers {
    pub(crate) const fn new(numbers: Numbers) -> Self {
        Self { numbers, owners: BTreeMap::new() }
    }

    pub(crate) fn take(&mut self, call: &Call<'_>) -> Option<u32> {
        let number = self.numbers.take()?;
        self.owners.insert(number, User::of(call));
        Some(number)
    }

    /// Numbers in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.owners.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(crate) fn owner(&self, number: u32) -> Option<User> {
        self.owners.get(&number).copied()
    }

    /// True if the number is in use and the command may name it.
    pub(crate) fn has(&self, call: &Call<'_>, number: u32) -> bool {
        self.owner(number).is_some_and(|owner| User::of(call).may_name(owner))
    }

    /// Frees a number. False if it is unused, or the command may not name it.
    pub(crate) fn give_back(&mut self, call: &Call<'_>, number: u32) -> bool {
        self.has(call, number) && {
            self.owners.remove(&number);
            self.numbers.give_back(number)
        }
    }
}
