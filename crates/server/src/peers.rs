//! Who the other end is, and how many connections it has: one client must not take the places of all others.
//!
//! This machine's own addresses are not counted: a proxy has them, and speaks for everybody.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So often the log says of an address that it has too many.
const TELL: Duration = Duration::from_mins(1);

/// An address, or all addresses of one IPv6 network: whoever has one of them has them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    V4([u8; 4]),
    V6([u16; 4]),
}

/// Never more entries than connections.
#[derive(Debug)]
pub(crate) struct Peers {
    most: Option<usize>,
    open: Mutex<HashMap<Peer, Open>>,
}

#[derive(Debug, Default)]
struct Open {
    connections: usize,
    told: Option<Instant>,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    peers: Arc<Peers>,
    peer: Option<Peer>,
}

impl Peer {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

impl Peers {
    /// Each address has at most so many; nothing: as many as it likes.
    pub(crate) fn new(most: Option<usize>) -> Self {
        let open = Mutex::default();
        Self { most, open }
    }

    /// A seat for one more connection, if the address has not too many.
    pub(crate) fn admit(peers: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let limit = peers.most.filter(|_| !address.to_canonical().is_loopback());
        let peer = limit.map(|_| Peer::of(address));
        if let (Some(most), Some(peer)) = (limit, peer) {
            let mut all = peers.open.lock().unwrap_or_else(PoisonError::into_inner);
            let open = all.entry(peer).or_default();
            if open.connections >= most {
                if open.told.is_none_or(|told| told.elapsed() >= TELL) {
                    open.told = Some(Instant::now());
                    tracing::warn!(
                        peer = %address,
                        connections = open.connections,
                        "refused: this address has as many connections as one may have; if it is a proxy, say `--max-connections-per-address`"
                    );
                }
                return None;
            }
            open.connections += 1;
        }
        let peers = Arc::clone(peers);
        Some(Seat { peers, peer })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(peer) = self.peer else {
            return;
        };
        let all = self.peers.open.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.get_mut(&peer) {
            open.connections -= 1;
            if open.connections == 0 {
                all.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(peers: &Arc<Peers>, address: &str) -> Option<Seat> {
        Peers::admit(peers, address.parse().unwrap())
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let peers = Arc::new(Peers::new(Some(2)));
        let first = admit(&peers, "192.0.2.1").unwrap();
        let second = admit(&peers, "::ffff:192.0.2.1").unwrap();
        assert!(admit(&peers, "192.0.2.1").is_none());
        assert!(admit(&peers, "192.0.2.2").is_some());
        drop(first);
        assert!(admit(&peers, "192.0.2.1").is_some());
        drop(second);
        assert!(peers.open.lock().unwrap().is_empty());
    }

    #[test]
    fn a_network_is_one_client_and_a_proxy_here_is_all_of_them() {
        let peers = Arc::new(Peers::new(Some(1)));
        let _held = admit(&peers, "2001:db8::1").unwrap();
        assert!(admit(&peers, "2001:db8::2").is_none());
        assert!(admit(&peers, "2001:db8:1::1").is_some());
        let local: Vec<Seat> = ["127.0.0.1", "127.0.0.1", "::1", "::1"]
            .into_iter()
            .filter_map(|address| admit(&peers, address))
            .collect();
        assert_eq!(local.len(), 4);
    }
}
