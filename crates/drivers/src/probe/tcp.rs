//! Opens a TCP connection and closes it.

use std::net::SocketAddr;
use std::time::Duration;

use model::stage::gate::{CheckResult, TcpEvidence, TcpGate};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::{Deadline, io_words};

const UNRESOLVED: &str = "the name did not resolve in time";

pub async fn look(gate: &TcpGate, limit: Duration) -> CheckResult {
    let began = Instant::now();
    let address = gate.address();
    let seen = match connect(&address, Deadline::after(limit)).await {
        Ok((_, peer)) => TcpEvidence {
            address,
            peer: Some(peer.to_string()),
            took_ms: Some(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)),
            failed: None,
        },
        // Without an address to test, we cannot conclude that the service is absent.
        Err(why) if gate.absent && why == UNRESOLVED => return CheckResult::impossible(why),
        Err(why) => TcpEvidence {
            address,
            peer: None,
            took_ms: None,
            failed: Some(why),
        },
    };
    gate.judge(seen)
}

/// A connection to one of the addresses of `host:port`, or the reason for the failure.
pub(super) async fn connect(
    place: &str,
    deadline: Deadline,
) -> Result<(TcpStream, SocketAddr), String> {
    let found = timeout(deadline.left(), tokio::net::lookup_host(place)).await;
    let addresses: Vec<SocketAddr> = match found {
        Err(_) => return Err(UNRESOLVED.to_owned()),
        Ok(Err(_)) => return Err("the name does not resolve".to_owned()),
        Ok(Ok(addresses)) => addresses.collect(),
    };
    let mut why = "the name has no address".to_owned();
    for (at, address) in addresses.iter().enumerate() {
        // An unreachable address must leave time for the others.
        let share = u32::try_from(addresses.len() - at).unwrap_or(1);
        match timeout(deadline.left() / share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, *address)),
            Ok(Err(err)) => why = said(place, *address, &io_words(&err)),
            Err(_) => why = said(place, *address, &deadline.words()),
        }
    }
    Err(why)
}

/// Adds the address to the message if the gate does not name it.
fn said(place: &str, address: SocketAddr, why: &str) -> String {
    if place == address.to_string() {
        return why.to_owned();
    }
    format!("{why} at {address}")
}
