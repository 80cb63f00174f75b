//! Addresses from which keys and tokens may be fetched: over TLS, or from this machine.

/// Why an address is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedAddress {
    #[error("`{0}` is not an `https://` address")]
    Open(String),
    #[error("`{0}` is not a plain address: `https://HOST/PATH`")]
    Odd(String),
}

/// Accepts `https://HOST[:PORT][/PATH]`, and `http://` if the host is this machine.
pub fn check_place(address: &str) -> Result<(), UntrustedAddress> {
    let odd = || UntrustedAddress::Odd(address.to_owned());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/%[]".contains(c);
    // CI systems use URLs with a query. It does not affect the host.
    let (start, query) = address.split_once('?').unwrap_or((address, ""));
    if !start.chars().all(is_plain) || query.chars().any(|c| c.is_control() || c == '#') {
        return Err(odd());
    }
    let (scheme, rest) = start.split_once("://").ok_or_else(odd)?;
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => authority,
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains([':', '[', ']', '%']) && !is_bracketed) {
        return Err(odd());
    }
    let is_here = host == "localhost" || host == "[::1]" || is_loopback(host);
    match scheme {
        "https" => Ok(()),
        "http" if is_here => Ok(()),
        _ => Err(UntrustedAddress::Open(address.to_owned())),
    }
}

fn is_loopback(host: &str) -> bool {
    host.parse::<std::net::Ipv4Addr>()
        .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for good in [
            "https://token.actions.githubusercontent.com",
            "https://gitlab.example.io:8443/group/",
            "https://pipelines.example.io/a/b?api-version=2.0&audience=x",
            "http://127.0.0.1:4000",
            "http://localhost/x",
            "http://[::1]:80/",
            "https://[2001:db8::1]/",
        ] {
            assert_eq!(check_place(good), Ok(()), "{good}");
        }
        for open in [
            "http://gitlab.example.io",
            "ftp://127.0.0.1",
            "http://127.0.0.1.example.io",
            "http://localhost.example.io",
        ] {
            assert_eq!(
                check_place(open),
                Err(UntrustedAddress::Open(open.to_owned())),
                "{open}"
            );
        }
        for odd in [
            "",
            "gitlab.example.io",
            "https://",
            "https:///x",
            "https://user@example.io",
            "http://127.0.0.1\\@example.io",
            "https://example.io#x",
            "https://exa mple.io",
            "https://a:b:c/",
            "https://example.io:99999",
        ] {
            assert_eq!(
                check_place(odd),
                Err(UntrustedAddress::Odd(odd.to_owned())),
                "{odd}"
            );
        }
    }
}
