//! Evidence of a passed gate in one line.

use super::{ClusterEvidence, DnsEvidence, Evidence, Handshake, OidcEvidence};

impl Evidence {
    pub fn brief(&self) -> String {
        match self {
            Self::Dns(seen) => dns(seen),
            Self::Tls(seen) => match &seen.handshake {
                Handshake::Done(connection) => match connection.chain.first() {
                    Some(leaf) => {
                        let until = leaf.not_after.to_string();
                        let day = until.split('T').next().unwrap_or_default();
                        format!("{} by {}, until {day}", leaf.subject, leaf.issuer)
                    }
                    None => "no certificate".to_owned(),
                },
                Handshake::NoListener { .. }
                | Handshake::NotTls
                | Handshake::Refused { .. }
                | Handshake::Silent { .. } => "no certificate".to_owned(),
            },
            Self::Tcp(seen) => match &seen.peer {
                Some(peer) => format!("{peer} listens"),
                None => match &seen.failed {
                    Some(why) => format!("no listener: {why}"),
                    None => "no listener".to_owned(),
                },
            },
            Self::Http(seen) => match seen.status {
                Some(status) => format!("{status} from {}", seen.url),
                None => "no answer".to_owned(),
            },
            Self::Oidc(seen) => oidc(seen),
            Self::Kubernetes(seen) | Self::Argocd(seen) | Self::Flux(seen) => cluster(seen),
            Self::Equal(seen) => {
                let value = seen.values.first().and_then(|one| one.value.clone());
                let count = seen.values.len();
                format!("{count} values are {}", value.unwrap_or_default())
            }
            Self::Command(seen) => format!("{}: {}", seen.program, seen.exit),
        }
    }
}

fn dns(seen: &DnsEvidence) -> String {
    let mut said: Vec<String> = Vec::new();
    for answer in seen.names.iter().flat_map(|name| &name.answers) {
        let words = if answer.values.is_empty() {
            answer
                .via
                .last()
                .map_or("no record", String::as_str)
                .to_owned()
        } else {
            answer.values.join(", ")
        };
        if !said.contains(&words) {
            said.push(words);
        }
    }
    let names: Vec<&str> = seen.names.iter().map(|name| name.name.as_str()).collect();
    format!("{}: {}", names.join(", "), said.join("; "))
}

fn oidc(seen: &OidcEvidence) -> String {
    let keys = seen.keys.as_ref().map_or(0, Vec::len);
    let keys = if keys == 1 {
        "1 key".to_owned()
    } else {
        format!("{keys} keys")
    };
    match (&seen.arrived, &seen.client_id) {
        (Some(door), Some(client)) => format!("{keys}; sign-in as `{client}` at {door}"),
        (Some(door), None) => format!("{keys}; sign-in at {door}"),
        (None, _) => format!("{keys} of {}", seen.issuer),
    }
}

fn cluster(seen: &ClusterEvidence) -> String {
    match seen.objects.as_slice() {
        [only] => only.object.clone(),
        several => format!("{} objects", several.len()),
    }
}
