//! Limits that keep one client from blocking all others: connections per address, and failed sign-ins per
//! address.
//!
//! Not here: sizes and speeds of request bodies (`body`), timeouts of connections (`serve`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Larger states are refused before they are read.
pub(crate) const DEFAULT_BODY_LIMIT: usize = 512 * 1024 * 1024;

/// What a server accepts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one state.
    pub body: usize,
    /// Open connections; the next ones wait to be accepted.
    pub connections: usize,
    /// Open connections of one address of another machine. An address of this machine may be a proxy for many clients,
    /// so it has no limit of its own.
    pub connections_per_address: usize,
    /// A connection on which no complete request head arrives for this long is closed.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: DEFAULT_BODY_LIMIT,
            connections: 1000,
            connections_per_address: 250,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// An IPv4 address, or an IPv6 /64 network: a client that has one address of it has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Network {
    V4([u8; 4]),
    V6([u16; 4]),
}

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

/// Counts open connections per address. It never has more entries than there are connections.
#[derive(Debug)]
pub(super) struct AddressLimit {
    max: usize,
    open: Mutex<HashMap<Network, OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    count: usize,
    warned: Option<Instant>,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limit: Arc<AddressLimit>,
    network: Option<Network>,
}

impl AddressLimit {
    const WARN_INTERVAL: Duration = Duration::from_mins(1);

    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            open: Mutex::default(),
        }
    }

    /// A slot for one more connection, unless the address has reached its limit.
    pub(super) fn admit(limit: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let network = (!address.to_canonical().is_loopback()).then(|| Network::of(address));
        if let Some(network) = network {
            let mut open = limit.open();
            let entry = open.entry(network).or_default();
            if entry.count >= limit.max {
                entry.warn(address);
                return None;
            }
            entry.count += 1;
        }
        let limit = Arc::clone(limit);
        Some(ConnectionSlot { limit, network })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Network, OpenConnections>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn warn(&mut self, address: IpAddr) {
        let interval = AddressLimit::WARN_INTERVAL;
        if self
            .warned
            .is_none_or(|warned| warned.elapsed() >= interval)
        {
            self.warned = Some(Instant::now());
            tracing::warn!(
                peer = %address,
                connections = self.count,
                "connection refused: this address has reached its limit; for a proxy, raise `--max-connections-per-address`"
            );
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Some(network) = self.network else { return };
        let mut open = self.limit.open();
        if let Some(entry) = open.get_mut(&network) {
            entry.count -= 1;
            if entry.count == 0 {
                open.remove(&network);
            }
        }
    }
}

/// Counts failed sign-ins per address and minute, in a table of bounded size.
///
/// It limits only failures. A valid token always passes: an address may be a proxy, and one client's expired token must
/// not stop the writes of the others.
#[derive(Debug, Default)]
pub(crate) struct SignInLimit {
    failures: Mutex<HashMap<Network, FailureWindow>>,
}

#[derive(Clone, Copy, Debug)]
struct FailureWindow {
    since: Instant,
    failures: u32,
}

impl SignInLimit {
    const MAX_FAILURES: u32 = 20;
    const WINDOW: Duration = Duration::from_mins(1);
    const MAX_ADDRESSES: usize = 4096;

    /// Whether this address has failed too often. When the table is full, that is assumed of every address that is not
    /// in it.
    pub(crate) fn is_exceeded(&self, address: IpAddr, now: Instant) -> bool {
        let mut failures = self.failures();
        if failures.len() >= Self::MAX_ADDRESSES {
            failures.retain(|_, window| !window.is_over(now));
        }
        match failures.get(&Network::of(address)) {
            Some(window) => window.failures >= Self::MAX_FAILURES && !window.is_over(now),
            None => failures.len() >= Self::MAX_ADDRESSES,
        }
    }

    pub(crate) fn record_failure(&self, address: IpAddr, now: Instant) {
        let mut failures = self.failures();
        let network = Network::of(address);
        if failures.len() >= Self::MAX_ADDRESSES && !failures.contains_key(&network) {
            return;
        }
        let new = FailureWindow {
            since: now,
            failures: 0,
        };
        let window = failures.entry(network).or_insert(new);
        if window.is_over(now) {
            *window = new;
        }
        window.failures += 1;
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<Network, FailureWindow>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailureWindow {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= SignInLimit::WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(limit: &Arc<AddressLimit>, address: &str) -> Option<ConnectionSlot> {
        AddressLimit::admit(limit, address.parse().unwrap())
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let limit = Arc::new(AddressLimit::new(2));
        let first = admit(&limit, "192.0.2.1").unwrap();
        let second = admit(&limit, "::ffff:192.0.2.1").unwrap();
        assert!(admit(&limit, "192.0.2.1").is_none());
        assert!(admit(&limit, "192.0.2.2").is_some());
        drop(first);
        assert!(admit(&limit, "192.0.2.1").is_some());
        drop(second);
        assert!(limit.open.lock().unwrap().is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_a_local_proxy_is_not_limited() {
        let limit = Arc::new(AddressLimit::new(1));
        let _held = admit(&limit, "2001:db8::1").unwrap();
        assert!(admit(&limit, "2001:db8::2").is_none());
        assert!(admit(&limit, "2001:db8:1::1").is_some());
        let local: Vec<ConnectionSlot> = ["127.0.0.1", "127.0.0.1", "::1", "::1"]
            .into_iter()
            .filter_map(|address| admit(&limit, address))
            .collect();
        assert_eq!(local.len(), 4);
    }

    fn v4(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn an_address_that_fails_often_has_to_wait() {
        let (limit, begun) = (SignInLimit::default(), Instant::now());
        for _ in 0..SignInLimit::MAX_FAILURES {
            assert!(!limit.is_exceeded(v4(1), begun));
            limit.record_failure(v4(1), begun);
        }
        assert!(limit.is_exceeded(v4(1), begun));
        assert!(!limit.is_exceeded(v4(2), begun));
        let later = begun + SignInLimit::WINDOW;
        assert!(!limit.is_exceeded(v4(1), later));
        limit.record_failure(v4(1), later);
        assert!(!limit.is_exceeded(v4(1), later));
    }

    #[test]
    fn an_ipv6_network_fails_as_one() {
        let (limit, now) = (SignInLimit::default(), Instant::now());
        for _ in 0..SignInLimit::MAX_FAILURES {
            limit.record_failure("2001:db8::1".parse().unwrap(), now);
        }
        assert!(limit.is_exceeded("2001:db8::2".parse().unwrap(), now));
        assert!(!limit.is_exceeded("2001:db8:1::1".parse().unwrap(), now));
    }

    #[test]
    fn the_table_of_failures_is_bounded() {
        let (limit, now) = (SignInLimit::default(), Instant::now());
        for number in 0..20_000 {
            limit.record_failure(v4(number), now);
        }
        let entries = || limit.failures.lock().unwrap().len();
        assert_eq!(entries(), SignInLimit::MAX_ADDRESSES);
        assert!(limit.is_exceeded(v4(30_000), now), "no entry of its own");
        assert!(!limit.is_exceeded(v4(1), now));
        let later = now + SignInLimit::WINDOW;
        assert!(!limit.is_exceeded(v4(30_000), later));
        limit.record_failure(v4(30_000), later);
        assert_eq!(entries(), 1, "old entries are removed");
    }
}
