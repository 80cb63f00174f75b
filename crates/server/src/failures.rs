//! How many wrong tokens came from where, lately. The table has a fixed size: whoever has many addresses
//! shares places with others, and costs no more memory.
//!
//! A right token always passes: behind one address there may be a proxy, and one client's old token must
//! not stop the writes of the rest. What ends is the work that a wrong one causes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::peers::Peer;

/// So many are answered as wrong in one span; the next ones only with "too many".
const ALLOWED: u32 = 20;
const SPAN: Duration = Duration::from_mins(1);
const PLACES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Without a peer: all that there is no place for.
    peers: Mutex<HashMap<Option<Peer>, Count>>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    since: Instant,
    failures: u32,
}

impl Failures {
    /// Whether this peer has sent too many already.
    pub(crate) fn are_too_many(&self, peer: IpAddr, now: Instant) -> bool {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = peers.len() >= PLACES;
        let place = Some(Peer::of(peer));
        let count = peers.get(&place);
        let count = count.or_else(|| is_full.then(|| peers.get(&None)).flatten());
        count.is_some_and(|count| count.failures >= ALLOWED && !count.is_over(now))
    }

    pub(crate) fn note(&self, peer: IpAddr, now: Instant) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = Some(Peer::of(peer));
        if peers.len() >= PLACES && !peers.contains_key(&place) {
            peers.retain(|_, count| !count.is_over(now));
            if peers.len() >= PLACES {
                place = None;
            }
        }
        let fresh = Count {
            since: now,
            failures: 0,
        };
        let count = peers.entry(place).or_insert(fresh);
        if count.is_over(now) {
            *count = fresh;
        }
        count.failures += 1;
    }
}

impl Count {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= SPAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn who_fails_often_has_to_wait() {
        let (failures, begun) = (Failures::default(), Instant::now());
        for _ in 0..ALLOWED {
            assert!(!failures.are_too_many(v4(1), begun));
            failures.note(v4(1), begun);
        }
        assert!(failures.are_too_many(v4(1), begun));
        assert!(!failures.are_too_many(v4(2), begun));
        assert!(!failures.are_too_many(v4(1), begun + SPAN));
        failures.note(v4(1), begun + SPAN);
        assert!(!failures.are_too_many(v4(1), begun + SPAN));
    }

    #[test]
    fn a_network_counts_as_one() {
        let (failures, now) = (Failures::default(), Instant::now());
        for _ in 0..ALLOWED {
            failures.note("2001:db8::1".parse().unwrap(), now);
        }
        assert!(failures.are_too_many("2001:db8::2".parse().unwrap(), now));
        assert!(!failures.are_too_many("2001:db8:1::1".parse().unwrap(), now));
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..20_000 {
            failures.note(v4(number), now);
        }
        assert!(failures.peers.lock().unwrap().len() <= PLACES + 1);
        assert!(
            failures.are_too_many(v4(30_000), now),
            "no place of its own"
        );
        assert!(!failures.are_too_many(v4(1), now));
        failures.note(v4(30_000), now + SPAN);
        assert_eq!(failures.peers.lock().unwrap().len(), 1, "old ones go");
    }
}
