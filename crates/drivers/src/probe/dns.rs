//! Queries name servers one by one, so that each answer has a known source. No cache, no search domains, no hosts
//! file: the result is what is published.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::rand;
use hickory_resolver::proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use model::stage::gate::{
    CheckResult, DnsAnswer, DnsEvidence, DnsGate, DnsNameEvidence, ProbeQueryError, RecordKind,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Deadline, io_words};
use crate::snapshot::hex;

/// Time until a UDP query is sent again.
const PATIENCE: Duration = Duration::from_secs(2);
const PORT: u16 = 53;
/// The maximum number of name servers queried for a zone.
const MOST_SERVERS: usize = 16;

pub async fn look(gate: &DnsGate, limit: Duration) -> CheckResult {
    let deadline = Deadline::after(limit);
    let resolvers = match resolvers(gate.resolver.as_deref(), deadline).await {
        Ok(resolvers) => resolvers,
        Err(why) => return CheckResult::impossible(why),
    };
    let kind = record_type(gate.record);
    // A name that must be absent may have no address of either family.
    let is_address = gate.absent && kind == RecordType::A;
    let kinds: &[RecordType] = if is_address {
        &[RecordType::A, RecordType::AAAA]
    } else {
        &[kind]
    };
    let mut asking = JoinSet::new();
    for (at, name) in gate.names.iter().enumerate() {
        let (name, resolvers) = (name.clone(), resolvers.clone());
        let (authoritative, kinds) = (gate.authoritative, kinds.to_vec());
        asking.spawn(async move {
            let asked = name.replacen('*', &random_label(), 1);
            let mut answers: Vec<DnsAnswer> = Vec::new();
            for kind in kinds {
                let more = if authoritative {
                    ask_authorities(&resolvers, &name, &asked, kind, deadline).await
                } else {
                    vec![ask_first(&resolvers, &asked, kind, deadline).await]
                };
                // The same servers usually give the same answers for both families.
                let new = more.into_iter().filter(|answer| !answers.contains(answer));
                let new: Vec<DnsAnswer> = new.collect();
                answers.extend(new);
            }
            let seen = DnsNameEvidence {
                name,
                asked,
                answers,
            };
            (at, seen)
        });
    }
    let mut names: BTreeMap<usize, DnsNameEvidence> = BTreeMap::new();
    while let Some(Ok((at, seen))) = asking.join_next().await {
        names.insert(at, seen);
    }
    let mut expected = BTreeMap::new();
    for name in gate.expected_names() {
        let answer = ask_first(&resolvers, name, kind, deadline).await;
        let folded = name.trim_end_matches('.').to_lowercase();
        expected.insert(folded, answer.values);
    }
    gate.judge(DnsEvidence {
        record: gate.record,
        names: names.into_values().collect(),
        expected,
    })
}

/// The value of a name for `equal`: one value as a string, several as a list.
pub async fn resolve(
    name: &str,
    record: RecordKind,
    limit: Duration,
) -> Result<Value, ProbeQueryError> {
    let deadline = Deadline::after(limit);
    let resolvers = resolvers(None, deadline).await.map_err(ProbeQueryError)?;
    let asked = name.replacen('*', &random_label(), 1);
    let answer = ask_first(&resolvers, &asked, record_type(record), deadline).await;
    match answer.values.as_slice() {
        [] => {
            let why = answer.silent.or(answer.status).unwrap_or_default();
            Err(ProbeQueryError(format!(
                "no record of type {}: {why}",
                record.word()
            )))
        }
        [only] => Ok(Value::from(only.clone())),
        several => Ok(Value::from(several.to_vec())),
    }
}

fn record_type(kind: RecordKind) -> RecordType {
    match kind {
        RecordKind::A => RecordType::A,
        RecordKind::Aaaa => RecordType::AAAA,
        RecordKind::Cname => RecordType::CNAME,
        RecordKind::Txt => RecordType::TXT,
    }
}

/// A random label without a record, which only a wildcard answers.
fn random_label() -> String {
    let mut bytes = [0; 6];
    // Without randomness, a fixed label is also unlikely to exist.
    let _ = rand::fill(&mut bytes);
    format!("terrane-{}", hex(&bytes))
}

/// The servers to query: the named one, else the system's, in their order.
async fn resolvers(named: Option<&str>, deadline: Deadline) -> Result<Vec<SocketAddr>, String> {
    let Some(named) = named else {
        let (config, _) =
            read_system_conf().map_err(|err| format!("the system names no resolver: {err}"))?;
        let servers = config.name_servers().iter();
        return Ok(servers
            .map(|server| SocketAddr::new(server.ip, PORT))
            .collect());
    };
    if let Ok(address) = named.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    if let Ok(ip) = named.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, PORT)]);
    }
    let place = if named.contains(':') {
        named.to_owned()
    } else {
        format!("{named}:{PORT}")
    };
    let found = timeout(deadline.left(), tokio::net::lookup_host(place)).await;
    match found {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(_)) | Err(_) => Err(format!("the resolver `{named}` has no address itself")),
    }
}

/// The answer of the first server that answers, else the last failure.
async fn ask_first(
    servers: &[SocketAddr],
    name: &str,
    kind: RecordType,
    deadline: Deadline,
) -> DnsAnswer {
    let mut last = silent(
        "the system's resolver".to_owned(),
        "none is configured".to_owned(),
    );
    for (at, server) in servers.iter().enumerate() {
        let share = u32::try_from(servers.len() - at).unwrap_or(1);
        let own = Deadline::after(deadline.left() / share);
        match ask(*server, name, kind, true, own).await {
            Ok(message) => {
                let answer = read(server.to_string(), name, kind, &message);
                // Like the C library: after a server failure, query the next server.
                if !matches!(
                    message.metadata.response_code,
                    ResponseCode::ServFail | ResponseCode::Refused
                ) {
                    return answer;
                }
                last = answer;
            }
            Err(why) => last = silent(server.to_string(), why),
        }
    }
    last
}

/// The answers of every name server of the zone.
async fn ask_authorities(
    resolvers: &[SocketAddr],
    name: &str,
    asked: &str,
    kind: RecordType,
    deadline: Deadline,
) -> Vec<DnsAnswer> {
    let servers = match authorities(resolvers, name.trim_start_matches("*."), deadline).await {
        Ok(servers) => servers,
        Err(answer) => return vec![*answer],
    };
    let mut asking = JoinSet::new();
    for (at, (host, address)) in servers.into_iter().enumerate() {
        let asked = asked.to_owned();
        asking.spawn(async move {
            let server = format!("{host} ({address})");
            let answer = match ask(address, &asked, kind, false, deadline).await {
                Ok(message) if is_lame(&message) => DnsAnswer {
                    status: Some("not authoritative".to_owned()),
                    values: Vec::new(),
                    ..read(server, &asked, kind, &message)
                },
                Ok(message) => read(server, &asked, kind, &message),
                Err(why) => silent(server, why),
            };
            (at, answer)
        });
    }
    let mut answers: BTreeMap<usize, DnsAnswer> = BTreeMap::new();
    while let Some(Ok((at, answer))) = asking.join_next().await {
        answers.insert(at, answer);
    }
    answers.into_values().collect()
}

/// Whether a delegated server does not serve the zone (a lame delegation).
fn is_lame(message: &Message) -> bool {
    let answered = message.metadata.response_code == ResponseCode::NoError;
    answered && !message.metadata.authoritative
}

/// The name servers of the zone that contains a name, with their addresses.
async fn authorities(
    resolvers: &[SocketAddr],
    name: &str,
    deadline: Deadline,
) -> Result<Vec<(String, SocketAddr)>, Box<DnsAnswer>> {
    let mut zone = name.trim_end_matches('.');
    let mut hosts = Vec::new();
    loop {
        let answer = ask_first(resolvers, zone, RecordType::NS, deadline).await;
        if answer.silent.is_some() {
            return Err(Box::new(answer));
        }
        // Behind an alias, it would be another zone.
        if !answer.values.is_empty() && answer.via.is_empty() {
            hosts = answer.values;
            break;
        }
        match zone.split_once('.') {
            Some((_, parent)) => zone = parent,
            None => break,
        }
    }
    // A resolver on a custom port is a test setup, whose name servers use the same port.
    let port = resolvers.first().map_or(PORT, SocketAddr::port);
    let mut servers = Vec::new();
    for host in hosts.iter().take(MOST_SERVERS) {
        for kind in [RecordType::A, RecordType::AAAA] {
            let found = ask_first(resolvers, host, kind, deadline).await.values;
            let found = found.iter().filter_map(|text| text.parse::<IpAddr>().ok());
            servers.extend(found.map(|ip| (host.clone(), SocketAddr::new(ip, port))));
            if servers.iter().any(|(own, _)| own == host) {
                break;
            }
        }
    }
    if servers.is_empty() {
        let resolver = resolvers.first().map(SocketAddr::to_string);
        let why = format!("no name server of a zone that holds `{name}` was found");
        return Err(Box::new(silent(resolver.unwrap_or_default(), why)));
    }
    Ok(servers)
}

fn silent(server: String, why: String) -> DnsAnswer {
    DnsAnswer {
        server,
        status: None,
        silent: Some(why),
        ttl: None,
        values: Vec::new(),
        via: Vec::new(),
    }
}

fn read(server: String, name: &str, kind: RecordType, message: &Message) -> DnsAnswer {
    let own = message
        .answers
        .iter()
        .filter(|record| record.record_type() == kind);
    let ttl = own.clone().map(|record| record.ttl).min();
    let mut values: Vec<String> = own.filter_map(|record| value(&record.data)).collect();
    values.sort_unstable();
    values.dedup();
    let aliases = message.answers.iter().filter(|record| {
        let itself = record.name.to_ascii();
        kind != RecordType::CNAME || !same_name(&itself, name)
    });
    let via = aliases.filter_map(|record| match &record.data {
        RData::CNAME(target) => Some(bare(&target.0)),
        _ => None,
    });
    DnsAnswer {
        server,
        status: Some(status(message.metadata.response_code)),
        silent: None,
        ttl,
        values,
        via: via.collect(),
    }
}

fn value(data: &RData) -> Option<String> {
    match data {
        RData::A(address) => Some(Ipv4Addr::from(*address).to_string()),
        RData::AAAA(address) => Some(Ipv6Addr::from(*address).to_string()),
        RData::CNAME(target) => Some(bare(&target.0)),
        RData::NS(host) => Some(bare(&host.0)),
        RData::TXT(text) => {
            let parts = text.txt_data.iter();
            Some(parts.map(|part| String::from_utf8_lossy(part)).collect())
        }
        _ => None,
    }
}

fn bare(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_lowercase()
}

fn same_name(left: &str, right: &str) -> bool {
    left.trim_end_matches('.')
        .eq_ignore_ascii_case(right.trim_end_matches('.'))
}

fn status(code: ResponseCode) -> String {
    match code {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::NotAuth => "NOTAUTH".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        other => format!("code {}", u16::from(other)),
    }
}

/// One query to one server: over UDP, repeated if lost, and over TCP if the answer is truncated.
async fn ask(
    server: SocketAddr,
    name: &str,
    kind: RecordType,
    recursive: bool,
    deadline: Deadline,
) -> Result<Message, String> {
    let absolute = Name::from_utf8(format!("{}.", name.trim_end_matches('.')))
        .map_err(|err| format!("`{name}` is no name: {err}"))?;
    let mut question = Message::query();
    question.metadata.recursion_desired = recursive;
    question.add_query(Query::query(absolute, kind));
    let bytes = question.to_vec().map_err(|err| err.to_string())?;
    loop {
        let left = deadline.left();
        if left.is_zero() {
            return Err(deadline.words());
        }
        match timeout(left.min(PATIENCE), over_udp(server, &bytes, &question)).await {
            Ok(Ok(answer)) if answer.metadata.truncation => break,
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(err)) => return Err(io_words(&err)),
            // Lost or slow: send it again.
            Err(_) => {}
        }
    }
    match timeout(deadline.left(), over_tcp(server, &bytes, &question)).await {
        Ok(answer) => answer.map_err(|err| io_words(&err)),
        Err(_) => Err(deadline.words()),
    }
}

async fn over_udp(
    server: SocketAddr,
    bytes: &[u8],
    question: &Message,
) -> std::io::Result<Message> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let read = Message::from_vec(buffer.get(..length).unwrap_or_default());
        // Ignore messages that are not the answer to this query.
        if let Ok(answer) = read
            && is_answer(&answer, question)
        {
            return Ok(answer);
        }
    }
}

async fn over_tcp(
    server: SocketAddr,
    bytes: &[u8],
    question: &Message,
) -> std::io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(bytes).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    let answer = Message::from_vec(&answer).map_err(std::io::Error::other)?;
    if is_answer(&answer, question) {
        Ok(answer)
    } else {
        Err(std::io::Error::other("it answered another question"))
    }
}

fn is_answer(answer: &Message, question: &Message) -> bool {
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && (answer.queries == question.queries || answer.queries.is_empty())
}
