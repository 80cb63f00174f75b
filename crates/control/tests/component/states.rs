//! What the tests of states share: what an engine sends, clients with tokens, changes by hand.

use model::base::actor::Actor;
use std::path::PathBuf;

use control::access::tokens::{self, TokenRequest};
use control::changeset::restrictions::Restrictions;
use control::home::master_keys::KeySource;
use control::home::{Home, HomeLocation};
use control::state::client_access::{ClientAccess, StateService};
use control::state::queries;
use control::state::redact_reason::BreakGlassReason;
use control::state::surgery::{self, RollbackTarget, SurgeryError, SurgeryOutcome};
use control::{Control, ProcessKind};
use model::state::break_glass::BreakGlass;
use model::state::lock::LockInfo;
use model::state::token::TokenScope;
use model::state::{StateName, StateVersion};
use serde_json::Value;
use store::{Keyring, Store};

use crate::world::World;

pub(crate) fn reason(text: &str) -> BreakGlassReason {
    BreakGlassReason {
        actor: Actor::named("alice"),
        text: text.to_owned(),
    }
}

/// The state of stack `a`.
pub(crate) fn a(world: &World) -> StateName {
    world.control.state_name("a")
}

/// A state of lineage `l` as an engine sends it, with one resource `r`.
pub(crate) fn body(serial: u64, value: &str) -> Vec<u8> {
    serde_json::json!({
        "version": 4, "terraform_version": "1.11.14", "serial": serial, "lineage": "l", "outputs": {},
        "resources": [{
            "mode": "managed", "type": "terraform_data", "name": "r",
            "provider": "provider[\"terraform.io/builtin/terraform\"]",
            "instances": [{"schema_version": 0, "attributes": {"id": "id-of-r", "value": value}}],
        }],
    })
    .to_string()
    .into_bytes()
}

/// The same with another lineage.
pub(crate) fn other(serial: u64, value: &str) -> Vec<u8> {
    let text = String::from_utf8(body(serial, value)).unwrap();
    text.replace(r#""lineage":"l""#, r#""lineage":"m""#)
        .into_bytes()
}

/// A client with a token of this name for all states; it works on the state of `a`.
pub(crate) async fn client(world: &World, name: &str, scope: TokenScope) -> ClientAccess {
    client_of(world, name, scope, "**").await
}

pub(crate) async fn client_of(
    world: &World,
    name: &str,
    scope: TokenScope,
    states: &str,
) -> ClientAccess {
    let wish = TokenRequest {
        name: name.to_owned(),
        states: states.parse().unwrap(),
        scope,
        lifetime: None,
    };
    let secret = tokens::create(&world.control, &Actor::named("alice"), &wish)
        .await
        .unwrap();
    let service = StateService::new(world.control.clone());
    let token = service.tokens().find(secret.expose().as_bytes(), true);
    let token = token.await.unwrap().unwrap();
    service.access(token, a(world))
}

/// What an engine sends when it locks a state.
pub(crate) fn lock(id: &str) -> LockInfo {
    LockInfo {
        id: id.to_owned(),
        operation: "OperationTypeApply".to_owned(),
        who: "bob@laptop".to_owned(),
        ..LockInfo::default()
    }
}

/// A project with stack `a`, of whose state a client with the token `ci` wrote these values.
pub(crate) async fn written(values: &[&str]) -> (World, ClientAccess) {
    let world = World::single().await;
    let client = client(&world, "ci", TokenScope::Write).await;
    for (serial, value) in (1..).zip(values) {
        client.write(None, body(serial, value)).await.unwrap();
    }
    (world, client)
}

/// A second access to the home of a test, without the rules of its use cases.
pub(crate) async fn store(world: &World) -> Store {
    let keyring = Keyring::open_or_create(&world.root().with_file_name("key")).unwrap();
    let home = world.root().with_file_name("home");
    Store::open(&home, keyring).await.unwrap()
}

/// The home of a test with the key in this file.
pub(crate) fn home(world: &World, key: &str) -> Home {
    let dir = world.root().with_file_name("home");
    Home::at(
        HomeLocation::Directory(dir.clone()),
        dir,
        KeySource::File(world.root().with_file_name(key)),
        "demo".to_owned(),
    )
}

/// What the next command does: nothing of what this process read before is known.
pub(crate) async fn open_again(world: &mut World) {
    let cache = world.control.cache.clone();
    let home = home(world, "key");
    let opened = Control::open(home, ProcessKind::Client, PathBuf::new(), cache).await;
    let (mut control, _) = opened.unwrap();
    control.launcher = world.control.launcher.clone();
    control.clock = world.control.clock.clone();
    world.control = control;
}

/// Breaks the newest version on disk. The last frame is the mark that it was acknowledged, the one before it the version.
pub(crate) fn damage(world: &World) {
    let path = world.root().with_file_name("home/segments/1.seg");
    let mut bytes = std::fs::read(&path).unwrap();
    let frames: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(b"\xF7terran\xE9"))
        .collect();
    let [.., version, mark] = frames[..] else {
        panic!("{frames:?}");
    };
    bytes[usize::midpoint(version, mark)] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

pub(crate) async fn roll_back(world: &World, version: i64) -> StateVersion {
    let to = RollbackTarget::Version(version);
    let proposal = surgery::rollback(&world.control, &a(world), to).await;
    let why = reason("it was wrong");
    wrote(surgery::carry_out(&world.control, proposal.unwrap(), &why).await)
}

pub(crate) fn wrote(done: Result<SurgeryOutcome, SurgeryError>) -> StateVersion {
    match done.unwrap() {
        SurgeryOutcome::Wrote(version) => version,
        SurgeryOutcome::Same(version) => panic!("version {} has it already", version.version),
    }
}

/// The newest version of the state of `a`.
pub(crate) async fn state_of_a(world: &World) -> Value {
    let (_, body) = queries::read(&world.control, &a(world), None)
        .await
        .unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// The value of its resource `r`.
pub(crate) async fn value(world: &World) -> String {
    let state = state_of_a(world).await;
    let value = &state["resources"][0]["instances"][0]["attributes"]["value"];
    value.as_str().unwrap().to_owned()
}

pub(crate) async fn open_acts(world: &World) -> Vec<BreakGlass> {
    Restrictions::read(&world.control).await.unwrap().acts
}
