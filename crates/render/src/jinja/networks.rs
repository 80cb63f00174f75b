//! Filters for addresses and names, like the plugins of makejinja users: `nthhost`, `basename`, `b64encode`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, Error, ErrorKind, Value};

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_filter("nthhost", nthhost);
    env.add_filter("basename", basename);
    env.add_filter("b64encode", b64encode);
    env.add_filter("b64decode", b64decode);
}

/// The address at an index of a network; false if there is none.
fn nthhost(network: &str, place: u64) -> Value {
    find_host(network, place).map_or_else(|| Value::from(false), Value::from)
}

fn find_host(network: &str, place: u64) -> Option<String> {
    let (address, prefix) = match network.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse::<u32>().ok()?)),
        None => (network, None),
    };
    let place = u128::from(place);
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            let host = 32_u32.checked_sub(prefix.unwrap_or(32))?;
            let first = (u64::from(address.to_bits()) >> host) << host;
            if place >= 1 << host {
                return None;
            }
            let bits = u32::try_from(u128::from(first) + place).ok()?;
            Some(Ipv4Addr::from_bits(bits).to_string())
        }
        IpAddr::V6(address) => {
            let host = 128_u32.checked_sub(prefix.unwrap_or(128))?;
            let (first, count) = match host {
                128 => (0, u128::MAX),
                host => ((address.to_bits() >> host) << host, 1 << host),
            };
            (place < count).then(|| Ipv6Addr::from_bits(first + place).to_string())
        }
    }
}

/// A file's name without directory and last extension.
fn basename(path: &str) -> String {
    let stem = Path::new(path).file_stem();
    stem.map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn b64encode(text: &str) -> String {
    STANDARD.encode(text)
}

fn b64decode(text: &str) -> Result<String, Error> {
    // The error does not quote the value, which may be secret.
    let wrong = || Error::new(ErrorKind::InvalidOperation, "this is no Base64 of a text");
    let bytes = STANDARD.decode(text.trim()).map_err(|_| wrong())?;
    String::from_utf8(bytes).map_err(|_| wrong())
}
