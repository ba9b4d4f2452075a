//! Multicast groups and their members, datagram queue pairs (IBTA vol 1, 10.5).

use std::collections::{BTreeMap, BTreeSet};

use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::Qpn;

/// QPNs by multicast GID.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<[u8; 16], BTreeSet<Qpn>>,
    /// Number of memberships of all groups together.
    memberships: u32,
}

impl Groups {
    /// Adds a queue pair to a group; no effect on a member. True if the group is new.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `limit` memberships.
    pub(crate) fn join(&mut self, qpn: Qpn, gid: [u8; 16], limit: u32) -> Result<bool, HcaError> {
        if self.members.get(&gid).is_some_and(|members| members.contains(&qpn)) {
            return Ok(false);
        }
        if self.memberships >= limit {
            return Err(HcaError::Limit { what: "max_mcast_qp", limit: limit.into() });
        }
        self.memberships += 1;
        let members = self.members.entry(gid).or_default();
        members.insert(qpn);
        Ok(members.len() == 1)
    }

    /// Removes a queue pair from a group. False if it was no member.
    pub(crate) fn leave(&mut self, qpn: Qpn, gid: [u8; 16]) -> bool {
        let Some(members) = self.members.get_mut(&gid) else { return false };
        let was_in = members.remove(&qpn);
        self.memberships -= u32::from(was_in);
        if members.is_empty() {
            self.members.remove(&gid);
        }
        was_in
    }

    /// Removes a queue pair from all groups.
    pub(crate) fn leave_all(&mut self, qpn: Qpn) {
        self.members.retain(|_, members| {
            self.memberships -= u32::from(members.remove(&qpn));
            !members.is_empty()
        });
    }

    /// The members of a group.
    pub(crate) fn members(&self, gid: &[u8; 16]) -> Option<&BTreeSet<Qpn>> {
        self.members.get(gid)
    }

    /// The groups that have members.
    pub(crate) fn gids(&self) -> impl Iterator<Item = [u8; 16]> {
        self.members.keys().copied()
    }

    /// Number of groups with members.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }
}
